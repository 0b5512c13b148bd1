"""Runs scripts that use features of torch natively, under `stplan run` with a
plan, and under `stplan run` without a plan, and prints which passed, as Markdown.

    python runtime/torch/bench/features.py bin/stplan > docs/results/features.md

The scripts are in features/. They do not use stplan, and each asserts its own success.
A plan is made from a recording of the same script or, if the script is not a training
job, of features/job.py. Needs torch and one CUDA device. With --devices N, N devices
share the work; each process still uses one. The exit code is 1 if anything fails.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

SCRIPTS = Path(__file__).resolve().parent / "features"

# Processes that run on a device at the same time. Most of the time of each is the import
# of torch, so several are faster, but the device's memory has to hold all of them.
TOGETHER = 6

# Seconds until a process is ended as hanging.
TIMEOUT = 75

RANKS = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


class Feature(NamedTuple):
    """A script. With own its plan is made from a recording of itself, else from job.py's.
    options are those of `stplan run`."""

    title: str
    script: str
    arguments: Tuple[str, ...] = ()
    own: bool = False
    launcher: Tuple[str, ...] = ()
    options: Tuple[str, ...] = ()

    def command(self) -> List[str]:
        return [sys.executable, *self.launcher, str(SCRIPTS / self.script), *self.arguments]


# In order of time, the slowest first, so that the last process ends soon after
# the others.
FEATURES = [
    Feature("torch.compile, reduce-overhead", "compiled.py", ("reduce-overhead",)),
    Feature("torch.compile", "compiled.py", own=True),
    Feature("fuzz: sizes, streams, lifetimes", "fuzz.py", own=True),
    Feature("DDP over gloo, 2 ranks on one GPU", "ddp.py", own=True, launcher=RANKS),
    Feature("CUDA IPC, torch.multiprocessing", "ipc.py", options=("--memory", "plain")),
    Feature("DataLoader: forked workers, pinned", "dataloader.py", own=True),
    Feature("OutOfMemoryError survived", "oom.py"),
    Feature("CUDA graphs", "graphs.py"),
    Feature("CUDA graphs of training steps", "graphed_training.py"),
    Feature("record_stream", "record_stream.py", own=True),
    Feature("160 streams", "many_streams.py"),
    Feature("16 threads, frees across them", "threads.py", own=True),
    Feature("checkpoint saved and loaded", "checkpoint.py", own=True),
    Feature("evaluation between steps", "evaluation.py", own=True),
    Feature("activation checkpointing", "recompute.py", own=True),
    Feature("cudnn.benchmark", "cudnn.py", own=True),
    Feature("pinned memory, asynchronous copies", "pinned.py"),
    Feature("memory statistics", "counted.py"),
    Feature("memory fraction, empty_cache", "limits.py"),
    Feature("idle memory given to others", "pausing.py", own=True),
    Feature("memory snapshot and history", "snapshot.py"),
    Feature("MemPool", "mempool.py"),
    Feature("caching_allocator_alloc", "raw.py"),
    Feature("forked children", "fork.py", own=True),
    Feature("exit with everything alive", "leaving.py"),
]


class Result(NamedTuple):
    """One run of a script: seconds, the failure or "", and what `stplan run` counted."""

    seconds: float
    problem: str = ""
    note: str = ""


class Failure(Exception):
    """A command of stplan failed."""


class Bench:
    def __init__(self, stplan: str, folder: Path) -> None:
        self.stplan = stplan
        self.folder = folder

    def plan(self, name: str, command: List[str]) -> Path:
        """Records the command to its end and compiles its plan. Returns the
        plan's path, or a folder of plans if the command has several ranks."""
        traces = self.folder / name / "traces"
        self.must([self.stplan, "record", "--steps", "0", "-o", str(traces), "--", *command])
        plans = self.folder / name / "plans"
        plans.mkdir()
        found = sorted(traces.iterdir())
        if len(found) == 1:
            plans /= "plan.bin"
        self.must([self.stplan, "-q", "compile", *map(str, found), "-o", str(plans)])
        return plans

    def must(self, command: List[str]) -> None:
        done = run(command)
        if done.returncode != 0:
            raise Failure(f"{' '.join(command[:3])}: exit code {done.returncode}\n{last(done)}")

    def served(self, feature: Feature, name: str, plan: Optional[Path]) -> Result:
        summary = self.folder / f"{name}.json"
        how = ["--no-plan"] if plan is None else [str(plan)]
        options = [*feature.options, "--summary", str(summary)]
        begin = time.monotonic()
        done = run([self.stplan, "run", *options, *how, "--", *feature.command()])
        seconds = time.monotonic() - begin
        if done.returncode != 0:
            return Result(seconds, problem(done))
        return judged(seconds, json.loads(summary.read_text()), last(done), plan is not None and feature.own)


def native(feature: Feature) -> Result:
    begin = time.monotonic()
    done = run(feature.command())
    return Result(time.monotonic() - begin, problem(done))


def judged(seconds: float, summary: Dict[str, Any], said: str, planned: bool) -> Result:
    """The result of a script that exited with 0: it has passed only if stplan
    served it."""
    native = [p["error"] for p in summary["processes"] if p["backend"] is None]
    devices = [d for p in summary["processes"] for d in p["devices"]]
    total = sum(d["allocations"] for d in devices)
    on_plan = sum(d["planned_allocations"] for d in devices)
    refused = sum(d["refused_frees"] for d in devices)
    if native or total == 0:
        return Result(seconds, f"not served: {'; '.join(map(str, native)) or 'no allocation was counted'}\n{said}")
    if refused:
        return Result(seconds, f"{refused} frees were refused\n{said}")
    if planned and on_plan == 0:
        return Result(seconds, f"nothing was served from the script's own plan\n{said}")
    return Result(seconds, note=f"{100 * on_plan / total:.0f} % of {total:,}")


class Place(threading.local):
    """The variables that name the device of this thread's processes. They are
    empty, so any device is used, unless `workers` made the thread."""

    environment: Mapping[str, str] = {}


PLACE = Place()


def workers(together: int, devices: int) -> ThreadPoolExecutor:
    """A pool of `together` threads for each of the first visible devices."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(devices)))
    turns = itertools.cycle(visible.split(",")[:devices])

    def take() -> None:
        PLACE.environment = {"CUDA_VISIBLE_DEVICES": next(turns)}

    return ThreadPoolExecutor(together * devices, initializer=take)


def run(command: List[str], limit: Optional[float] = None) -> "subprocess.CompletedProcess[str]":
    """Runs the command in a session of its own, so that at the time limit its
    children can be killed too. limit: in seconds; TIMEOUT if it is not given."""
    seconds = TIMEOUT if limit is None else limit
    environment = {**os.environ, **PLACE.environment}
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", cwd=SCRIPTS, start_new_session=True
    )
    try:
        out, err = process.communicate(timeout=seconds)
        return subprocess.CompletedProcess(command, process.returncode, out, err)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        return subprocess.CompletedProcess(command, 124, out, f"{err}\nstill running after {seconds:g} s")


def problem(done: "subprocess.CompletedProcess[str]") -> str:
    return "" if done.returncode == 0 else f"exit code {done.returncode}\n{last(done)}"


def last(done: "subprocess.CompletedProcess[str]") -> str:
    return "\n".join((done.stdout + done.stderr).strip().splitlines()[-15:])


def cell(result: Optional[Result]) -> str:
    if result is None:
        return ""
    note = f"; {result.note}" if result.note else ""
    return f"{'FAILED' if result.problem else 'passed'} ({result.seconds:.0f} s{note})"


def outcome(future: "Future[Result]") -> Result:
    try:
        return future.result()
    except (Failure, OSError, KeyError, ValueError) as error:
        return Result(0.0, f"{type(error).__name__}: {error}")


def about() -> str:
    import torch

    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "no device"
    return f"torch {torch.__version__}, {device}, Python {sys.version.split()[0]}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stplan", nargs="?", help="the stplan binary; without it the scripts run only natively")
    parser.add_argument("--only", default="", help="regular expression for the scripts to run")
    parser.add_argument("--together", type=int, default=TOGETHER, help="processes that run on a device at the same time")
    parser.add_argument("--devices", type=int, default=1, help="number of GPUs")
    options = parser.parse_args()
    features = [f for f in FEATURES if re.search(options.only, f"{f.script} {' '.join(f.arguments)}")]

    print("# Features of torch\n")
    print(f"Written by `runtime/torch/bench/features.py` on {about()}.")
    print("Each script asserts its own success, and does not use stplan. In brackets: the seconds")
    print("of the whole process, with the import of torch and with other processes on the same")
    print("device; the share of its allocations that the plan served; and the number of all.")
    print("*recording* says which script's recording the plan was made from.\n")
    print("| | script | native | with a plan | recording | without a plan |\n| --- | --- | --- | --- | --- | --- |")
    problems: List[str] = []
    with tempfile.TemporaryDirectory() as folder, workers(options.together, options.devices) as pool:
        bench = Bench(str(Path(options.stplan).resolve()), Path(folder)) if options.stplan else None
        for feature, futures in submit(pool, features, bench):
            results = {mode: outcome(future) for mode, future in futures.items()}
            cells = [cell(results.get(mode)) for mode in ("native", "plan", "no plan")]
            script = " ".join([feature.script, *feature.arguments])
            plan = "its own" if feature.own else "job.py's"
            print(f"| {feature.title} | {script} | {cells[0]} | {cells[1]} | {plan} | {cells[2]} |", flush=True)
            failed = [f"{script}, {mode}: {r.problem}" for mode, r in results.items() if r.problem]
            print("\n".join(failed), end="\n" * bool(failed), file=sys.stderr, flush=True)
            problems += failed
    print(f"\n{len(features)} scripts, {len(problems)} failures.")
    for text in problems:
        print("\n" + "\n".join("    " + line for line in text.splitlines()))
    return 1 if problems else 0


def submit(
    pool: ThreadPoolExecutor, features: List[Feature], bench: Optional[Bench]
) -> "List[Tuple[Feature, Dict[str, Future[Result]]]]":
    """Submits all runs. The shared plan comes first, since others wait for it."""
    shared = pool.submit(bench.plan, "job", [sys.executable, str(SCRIPTS / "job.py")]) if bench else None
    rows = []
    for number, feature in enumerate(features):
        futures = {"native": pool.submit(native, feature)}
        if bench and shared:
            futures["no plan"] = pool.submit(bench.served, feature, f"{number}-no-plan", None)
            futures["plan"] = pool.submit(with_plan, bench, feature, str(number), shared)
        rows.append((feature, futures))
    return rows


def with_plan(bench: Bench, feature: Feature, name: str, shared: "Future[Path]") -> Result:
    plan = bench.plan(name, feature.command()) if feature.own else shared.result()
    return bench.served(feature, f"{name}-plan", plan)


if __name__ == "__main__":
    sys.exit(main())
