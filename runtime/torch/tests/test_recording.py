"""What is recorded, and that recording does not change the job."""

from __future__ import annotations

import textwrap
from typing import Any

import pytest

from conftest import Job, steps_in

TRAIN = """
import torch
weight = torch.empty(1000)
optimizer = torch.optim.SGD()
for _ in range({steps}):
    optimizer.step()
"""


@pytest.mark.parametrize("asked, made, recorded", [(4, 10, 4), (1, 3, 1), (4, 4, 4), (4, 2, 2), (0, 10, 10)])
def test_the_requested_number_of_steps_is_recorded(job: Job, asked: int, made: int, recorded: int) -> None:
    done = job.run(TRAIN.format(steps=made), steps=asked)
    assert done.returncode == 0, done.stderr
    (snapshot,) = job.snapshots()
    assert steps_in(snapshot) == recorded
    first = next(e for e in snapshot["device_traces"][0] if e["action"] == "alloc")
    assert first["size"] == 1000, "the first allocation of the process is missing"
    (report,) = job.said()
    assert (report["state"], report["steps"]) == ("written", recorded)
    assert report["allocations"] == recorded + 1
    assert report["why"] == ("the process ended" if made < asked else "")


def test_recording_is_off_after_the_last_step(job: Job) -> None:
    done = job.run(
        TRAIN.format(steps=4)
        + textwrap.dedent("""
            import atexit, os, signal, threading
            [t.join() for t in threading.enumerate() if t.name == "stplan"]
            optimizer.step()
            assert not torch.cuda.memory.recording()
            assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
            assert os._exit.__module__ == "posix", os._exit
            assert torch.cuda.memory._record_memory_history.__module__ == "torch.cuda.memory"
            """)
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "order, counted",
    [
        ("abababab", 4),  # two in turn
        ("aabbbb", 5),  # one replaces the other: its first step ends no iteration
        ("abcabc", 2),
        ("aaab", 3),
    ],
)
def test_optimizers_in_turn_make_one_iteration(job: Job, order: str, counted: int) -> None:
    names = sorted(set(order))
    script = "import torch\ntorch.empty(1)\n"
    script += "".join(f"{n} = torch.optim.SGD()\n" for n in names)
    script += "".join(f"{n}.step()\n" for n in order)
    assert job.run(script, steps=0).returncode == 0
    assert job.said()[0]["steps"] == counted


def test_compiled_steps_are_not_counted(job: Job) -> None:
    """torch.compile would trace into the recorder, so its hook returns at once."""
    script = TRAIN.format(steps=2) + "torch.compiler.compiling = True\n" + "optimizer.step()\n" * 5
    assert job.run(script).returncode == 0
    assert job.said()[0]["steps"] == 2


def test_without_cuda_nothing_is_written(job: Job) -> None:
    done = job.run("import torch\ntorch.optim.SGD().step()\n")
    assert (done.returncode, done.stderr) == (0, "")
    assert job.snapshots() == [] and job.said() == []


def test_without_torch_nothing_is_imported(job: Job) -> None:
    done = job.run("import sys\nprint([m for m in ('torch', 'gzip', 'pickle') if m in sys.modules])")
    assert done.returncode == 0, done.stderr
    assert "torch" not in done.stdout


def test_cuda_without_an_allocation_has_no_trace(job: Job) -> None:
    assert job.run("import torch\ntorch.cuda.init()\n").returncode == 0
    assert job.snapshots() == []
    assert job.said()[0]["state"] == "empty"


def test_the_job_runs_if_the_allocator_cannot_record(job: Job) -> None:
    done = job.run(
        textwrap.dedent("""
            import torch
            def refuse(enabled="all", context=None, stacks="", max_entries=0):
                raise RuntimeError("this allocator does not record")
            torch.cuda.memory._record_memory_history = refuse
            torch.empty(1)
            torch.optim.SGD().step()
            print("trained")
            """)
    )
    assert (done.returncode, done.stdout) == (0, "trained\n")
    (report,) = job.said()
    assert report["state"] == "failed"
    assert report["error"] == "RuntimeError: this allocator does not record"


def test_the_job_runs_if_its_trace_cannot_be_written(job: Job) -> None:
    done = job.run("import shutil\nshutil.rmtree('traces')\n" + TRAIN.format(steps=6) + "print('trained')")
    assert (done.returncode, done.stdout) == (0, "trained\n")
    (report,) = job.said()
    assert report["state"] == "failed" and "No such file or directory" in report["error"]


def test_the_job_runs_if_its_snapshot_fails(job: Job) -> None:
    fail = "import torch\ndef fail():\n    raise RuntimeError('no snapshot')\ntorch.cuda.memory._snapshot = fail\n"
    done = job.run(fail + TRAIN.format(steps=6) + "print(torch.cuda.memory.recording())")
    assert (done.returncode, done.stdout) == (0, "False\n"), done.stderr
    (report,) = job.said()
    assert (report["state"], report["error"]) == ("failed", "RuntimeError: no snapshot")


@pytest.mark.parametrize(
    "environment, name",
    [
        ({"RANK": "3", "LOCAL_RANK": "1"}, "train-rank3"),
        ({"LOCAL_RANK": "1"}, "train-rank1"),
        ({"RANK": "../x"}, "train-pid"),
    ],
)
def test_a_trace_is_named_by_script_and_rank(job: Job, environment: Any, name: str) -> None:
    process = job.start(TRAIN.format(steps=4), {**job.environment(), **environment})
    assert process.wait(60) == 0
    process.communicate()
    (report,) = job.said()
    assert report["trace"].startswith(name)
    assert (job.traces / report["trace"]).exists()


def test_two_processes_of_one_rank_keep_their_traces(job: Job) -> None:
    env = {**job.environment(), "RANK": "0"}
    for _ in range(2):
        process = job.start(TRAIN.format(steps=4), env)
        process.communicate(timeout=60)
    names = sorted(r["trace"] for r in job.said())
    assert len(job.snapshots()) == 2
    assert any(n == "train-rank0.pickle.gz" for n in names)
    assert any(n.startswith("train-rank0-pid") for n in names)


def test_a_script_that_records_for_itself_keeps_its_recording(job: Job) -> None:
    done = job.run(
        "import torch\ntorch.cuda.init()\ntorch.cuda.memory._record_memory_history(max_entries=10)\n"
        + TRAIN.format(steps=6)
        + "print(torch.cuda.memory.recording())"
    )
    assert (done.returncode, done.stdout) == (0, "True\n")
    assert job.said()[0]["steps"] == 4


def test_if_the_script_stops_recording_the_trace_ends_there(job: Job) -> None:
    done = job.run(
        TRAIN.format(steps=2)
        + "torch.cuda.memory._record_memory_history(enabled=None)\n"
        + "print(torch.cuda.memory.recording())"
    )
    assert (done.returncode, done.stdout) == (0, "False\n"), done.stderr
    assert steps_in(job.snapshots()[0]) == 2
    assert job.said()[0]["why"] == "its script switched the recording off"


def test_a_script_can_record_itself(job: Job) -> None:
    env = job.environment()
    del env["STPLAN_RECORD"]
    env["PYTHONPATH"] += ":" + str(job_source())
    process = job.start("import stplan\nstplan.record('traces', steps=2)\n" + TRAIN.format(steps=4), env)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert steps_in(job.snapshots()[0]) == 2


def test_a_recording_has_pythons_stacks(job: Job) -> None:
    env = job.environment()
    del env["STPLAN_RECORD"]
    env["PYTHONPATH"] += ":" + str(job_source())
    noted = """
import torch.cuda.memory as memory
original = memory._record_memory_history
def noted(**options):
    if options["enabled"]:
        print(options["context"], options["stacks"])
    original(**options)
memory._record_memory_history = noted
import stplan
stplan.record('traces', steps=2)
"""
    process = job.start(noted + TRAIN.format(steps=3), env)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "all python\n"), err


def job_source() -> Any:
    from conftest import BOOTSTRAP

    return BOOTSTRAP.parents[1]
