"""A process that ends in any way leaves a complete trace, and its exit code stays the
same."""

from __future__ import annotations

import signal
import textwrap
import time

import pytest

from conftest import Job, steps_in

# A job in the background of a shell ignores SIGINT, and so do its children; Python then has no handler.
BEGIN = """
import os, sys, signal, threading, time
signal.signal(signal.SIGINT, signal.default_int_handler)
import torch
weight = torch.empty(1000)
optimizer = torch.optim.SGD()
optimizer.step()
optimizer.step()
"""


@pytest.mark.parametrize(
    "end, code, why",
    [
        ("", 0, "the process ended"),
        ("sys.exit(7)", 7, "the process ended"),
        ("1 / 0", 1, "the process died of ZeroDivisionError"),
        ("torch.empty(1 << 40)", 1, "the process died of OutOfMemoryError"),
        ("os._exit(5)", 5, "the process called os._exit"),
        ("os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM, "the process was terminated (SIGTERM)"),
        ("os.kill(os.getpid(), signal.SIGINT)", -signal.SIGINT, "the process died of KeyboardInterrupt"),
    ],
)
def test_the_trace_is_written_before_the_end(job: Job, end: str, code: int, why: str) -> None:
    done = job.run(BEGIN + end)
    assert done.returncode == code, done.stderr
    (snapshot,) = job.snapshots()
    assert steps_in(snapshot) == 2
    (report,) = job.said()
    assert (report["state"], report["steps"], report["why"]) == ("written", 2, why)
    assert f"2 steps, 3 allocations; stopped before the last step: {why}" in done.stderr


def test_the_scripts_own_handler_stays(job: Job) -> None:
    done = job.run(
        "import signal, sys\nsignal.signal(signal.SIGTERM, lambda *a: sys.exit(9))\n"
        + BEGIN
        + "os.kill(os.getpid(), signal.SIGTERM)"
    )
    assert done.returncode == 9
    assert job.said()[0]["state"] == "written"


@pytest.mark.parametrize("where", ["_snapshot", "_record_memory_history"])
def test_a_signal_while_the_snapshot_is_taken_waits_for_it(job: Job, where: str) -> None:
    """The process gets SIGTERM while it takes its snapshot, or just before recording is
    switched off."""
    slow = f"""
original = torch.cuda.memory.{where}
def slow(*args, **kwargs):
    if torch.cuda.memory.recording():
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.05)
    return original(*args, **kwargs)
torch.cuda.memory.{where} = slow
"""
    script = BEGIN.replace("weight =", slow + "weight =") + "optimizer.step()\noptimizer.step()\ntime.sleep(60)"
    done = job.run(script)
    assert done.returncode == -signal.SIGTERM, done.stderr
    assert steps_in(job.snapshots()[0]) == 4


@pytest.mark.parametrize("end, code", [("os._exit(5)", 5), ("os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM)])
def test_the_end_waits_for_the_writer(job: Job, end: str, code: int) -> None:
    slow = """
import time as _time
def _device_traces(snapshot=torch.cuda.memory._snapshot):
    class Slow(dict):
        def __reduce__(self):
            _time.sleep(0.3)
            return dict, (dict(self),)
    return Slow(snapshot())
torch.cuda.memory._snapshot = _device_traces
"""
    script = BEGIN.replace("weight =", slow + "weight =") + "optimizer.step()\noptimizer.step()\n" + end
    done = job.run(script)
    assert done.returncode == code, done.stderr
    assert steps_in(job.snapshots()[0]) == 4
    assert job.said()[0]["why"] == ""


@pytest.mark.parametrize("end", ["1 / 0", "os._exit(1)", "os.kill(os.getpid(), signal.SIGTERM)"])
def test_a_worker_that_dies_during_the_snapshot_does_not_interrupt_it(job: Job, end: str) -> None:
    """torch's DataLoader terminates its workers as the process ends, and raises from its
    SIGCHLD handler."""
    raising = """
def died(*_):
    raise RuntimeError("a worker is killed")
signal.signal(signal.SIGCHLD, died)
def taken(original=torch.cuda.memory._snapshot):
    if os.fork() == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.2)
    return original()
torch.cuda.memory._snapshot = taken
"""
    done = job.run(BEGIN.replace("weight =", raising + "weight =") + end)
    assert done.returncode == (-signal.SIGTERM if "SIGTERM" in end else 1)
    assert "a worker is killed" not in done.stderr
    assert [r["state"] for r in job.said()] == ["written"], done.stderr


def test_a_killed_process_leaves_a_report(job: Job) -> None:
    done = job.run(BEGIN + "os.kill(os.getpid(), signal.SIGKILL)")
    assert done.returncode == -signal.SIGKILL
    assert job.snapshots() == []
    assert [r["state"] for r in job.said()] == ["recording"]


FORK = textwrap.dedent("""
    children = []
    for end in (lambda: os._exit(3), lambda: sys.exit(3), lambda: time.sleep(60)):
        pid = os.fork()
        if pid == 0:
            assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
            optimizer.step(); optimizer.step(); optimizer.step()
            end()
        children.append(pid)
    time.sleep(0.2)
    os.kill(children[2], signal.SIGTERM)
    codes = [os.waitpid(pid, 0)[1] for pid in children]
    assert [os.WIFEXITED(c) and os.WEXITSTATUS(c) for c in codes] == [3, 3, False], codes
    assert os.WTERMSIG(codes[2]) == signal.SIGTERM, codes
    assert os.listdir("traces") == []
    """)


def test_forked_workers_write_nothing_and_keep_their_exit_codes(job: Job) -> None:
    done = job.run(BEGIN + FORK)
    assert done.returncode == 0, done.stderr
    (snapshot,) = job.snapshots()
    assert steps_in(snapshot) == 2


def test_workers_of_multiprocessing_are_unharmed(job: Job) -> None:
    done = job.run(
        BEGIN
        + textwrap.dedent("""
            import multiprocessing
            with multiprocessing.get_context("fork").Pool(2) as pool:
                print(pool.map(abs, [-1, -2]))
            """)
    )
    assert (done.returncode, done.stdout) == (0, "[1, 2]\n"), done.stderr
    assert len(job.said()) == 1


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_child_that_trains_is_recorded(job: Job, method: str) -> None:
    done = job.run(
        textwrap.dedent(f"""
            import multiprocessing, os
            import torch

            def train(rank):
                os.environ["RANK"] = str(rank)
                torch.empty(1000)
                optimizer = torch.optim.SGD()
                for _ in range(3):
                    optimizer.step()

            if __name__ == "__main__":
                context = multiprocessing.get_context("{method}")
                children = [context.Process(target=train, args=(rank,)) for rank in range(2)]
                [c.start() for c in children]
                [c.join() for c in children]
                print([c.exitcode for c in children])
            """)
    )
    assert (done.returncode, done.stdout) == (0, "[0, 0]\n"), done.stderr
    assert [r["trace"] for r in job.said()] == ["train-rank0.pickle.gz", "train-rank1.pickle.gz"]
    assert [steps_in(s) for s in job.snapshots()] == [3, 3]


def test_steps_on_another_thread(job: Job) -> None:
    """The last step is made by another thread than the main thread, which then gets
    SIGTERM."""
    done = job.run(
        BEGIN
        + textwrap.dedent("""
            def more():
                for _ in range(5):
                    optimizer.step()
            thread = threading.Thread(target=more)
            thread.start(); thread.join()
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(60)
            """)
    )
    assert done.returncode == -signal.SIGTERM, done.stderr
    assert steps_in(job.snapshots()[0]) == 4


def test_terminated_from_outside_while_it_sleeps(job: Job) -> None:
    process = job.start(BEGIN + "print('ready', flush=True)\ntime.sleep(60)", job.environment())
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    begin = time.monotonic()
    process.terminate()
    process.communicate(timeout=30)
    assert process.returncode == -signal.SIGTERM
    assert time.monotonic() - begin < 20
    assert steps_in(job.snapshots()[0]) == 2
