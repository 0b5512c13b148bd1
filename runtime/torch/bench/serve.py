"""Trains jobs of many kinds under PyTorch's allocators and under stplan, side
by side on one GPU, and writes the results as Markdown.

    python runtime/torch/bench/serve.py bin/stplan > docs/results/serve.md

Each job is recorded, and its plan is compiled. Then it runs natively, with its
plan, natively a second time (which shows how much two equal processes differ),
with expandable segments, and under stplan without a plan. Timed steps are taken
in turns. With --out DIR the tables are also in DIR/serve.md and every figure is
in DIR/serve.json, both written as the run proceeds.

Needs torch, transformers, torchvision, peft and one CUDA device; the Megatron
jobs need a checkout (--megatron). The exit code is 1 if there is a problem:
losses that differ from native's in any bit, a job that fails, or a process that
holds more or less memory than its figures say.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import shlex
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Sequence, Tuple

import table
from driver import Device
from side_by_side import Measured, Pace, SideBySide, Start

HERE = Path(__file__).resolve().parent
GIB = 1 << 30

# Number of steps that are recorded.
STEPS = 4

# The smallest number of timed steps under each allocator, so that medians and
# quartiles mean something.
LEAST = 5

# Bytes that a process may hold in addition to torch's memory, for its context
# and kernels. At most 0.74 GiB was measured (docs/results/serve.md).
OUTSIDE = 3 * GIB // 2

# If not all of them fit on the device together, they run in groups of this order.
CONFIGURATIONS = ("native", "stplan", "native again", "expandable", "no plan")
SERVED = ("stplan", "no plan")
EXPANDABLE = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}


class Job(NamedTuple):
    """script: a file in this folder. gib: the device memory that its recording
    takes, about. steady: whether every step allocates the same. arguments:
    passed to the script after its options."""

    name: str
    script: str
    gib: int
    steady: bool = True
    arguments: Tuple[str, ...] = ()


# Megatron's jobs get a smaller global batch than in megatron.py: fewer micro-batches take
# less time and the same memory.
JOBS = [
    Job("gpt2-xl-naive", "jobs.py", 44),
    Job("gpt2-xl-ckpt", "jobs.py", 26),
    Job("llama-7b-lora-varlen", "jobs.py", 26, steady=False),
    Job("gpt345-pp2-VR", "megatron.py", 11, arguments=("--global-batch-size", "128")),
    Job("resnet50", "jobs.py", 15),
    Job("llama-3b-fsdp2-world8", "jobs.py", 43),
    Job("qwen3-moe-eager", "jobs.py", 46, steady=False),
    Job("llama7b-pp4last-VR", "megatron.py", 50, arguments=("--global-batch-size", "16")),
    Job("llama-1b-ckpt-accum4", "jobs.py", 18),
]


class Prepared(NamedTuple):
    """A job with its plan. recorded: its figures (steps.py) while it was recorded."""

    job: Job
    plan: Path
    compiled: Dict[str, Any]
    recorded: Dict[str, Any]


class Room:
    """Device memory in GiB, shared by the recordings that run at the same time."""

    def __init__(self, gib: int) -> None:
        self._all = self._free = gib
        self._changed = threading.Condition()

    @contextmanager
    def taken(self, gib: int) -> Iterator[None]:
        """Waits until `gib` GiB are free, or all of the memory if that is less, and takes
        them."""
        gib = min(gib, self._all)
        with self._changed:
            self._changed.wait_for(lambda: self._free >= gib)
            self._free -= gib
        try:
            yield
        finally:
            with self._changed:
                self._free += gib
                self._changed.notify_all()


class Failed(Exception):
    """A command failed. The text has its exit code and its last output."""


class Bench:
    def __init__(self, options: argparse.Namespace, folder: Path, device: Any) -> None:
        self.options = options
        self.stplan = os.path.abspath(options.stplan)
        self.folder = folder
        self.device = device
        self.end = time.monotonic() + options.budget
        self.problems: List[str] = []

    def prepare(self, jobs: List[Job]) -> Iterator[Prepared]:
        """Records and compiles the jobs, as many at the same time as fit on the
        device, and yields them in their order."""
        used, total = self.device.memory()
        room = Room((total - used) // GIB)
        with ThreadPoolExecutor(len(jobs) + 1) as pool:
            warm = pool.submit(self.warm) if set(SERVED) & set(self.options.only) else None
            ready = [pool.submit(self.record, job, room) for job in jobs]
            for job, prepared in zip(jobs, ready):
                try:
                    yield prepared.result()
                except (Failed, OSError, ValueError, LookupError, subprocess.TimeoutExpired) as error:
                    self.problem(f"{job.name}: {error}")
            if warm and warm.exception():
                self.problem(f"the first served process: {warm.exception()}")

    def warm(self) -> None:
        """Serves one process, so that the shim is compiled and cached before anything is
        timed."""
        touch = "import torch; torch.empty(1, device='cuda')"
        for stplan in self.binaries():
            self.call([stplan, "run", "--no-plan", "--", sys.executable, "-c", touch])

    def binaries(self) -> List[str]:
        """The stplan binaries that serve. Each may have a shim of its own."""
        return [self.stplan]

    def record(self, job: Job, room: Room) -> Prepared:
        traces = self.folder / f"{job.name}-traces"
        record = [self.stplan, "record", "-o", str(traces), "--steps", str(STEPS), "--"]
        with room.taken(job.gib + 1):
            begin = time.monotonic()
            stdout = self.call([*record, *self.command(job, STEPS)])
        (trace,) = traces.glob("*.pickle.gz")
        plan = self.folder / f"{job.name}.bin"
        compiled = json.loads(self.call([self.stplan, "-q", "compile", str(trace), "-o", str(plan), "--json"]))
        figures = [line for line in stdout.splitlines() if line.startswith("figures ")]
        self.say(f"{job.name}: recorded and compiled in {time.monotonic() - begin:.0f} s")
        return Prepared(job, plan, compiled["plans"][0]["devices"][0], json.loads(figures[0].split(" ", 1)[1]))

    def command(self, job: Job, steps: int) -> List[str]:
        options = ["--steps", str(steps), *(("--", *job.arguments) if job.arguments else ())]
        return [sys.executable, str(HERE / job.script), job.name, *options]

    def start(self, prepared: Prepared, configuration: str) -> Start:
        """How to start the job under one allocator. All of its steps run natively and
        with its plan, to compare the losses. If its steps are alike, the other
        allocators only run the warm and the timed steps, which show the same peaks."""
        pace = self.pace(prepared)
        short = prepared.job.steady and configuration not in ("native", "stplan")
        command = self.command(prepared.job, pace.warm + pace.rounds if short else self.options.steps)
        if configuration == "stplan":
            return Start([self.stplan, "run", str(prepared.plan), "--", *command])
        if configuration == "no plan":
            return Start([self.stplan, "run", "--no-plan", "--", *command])
        return Start(command, EXPANDABLE if configuration == "expandable" else {})

    def pace(self, prepared: Any) -> Pace:
        """As many timed steps as the options allow and as there is time for."""
        step = min(prepared.recorded["seconds"]) * len(self.groups(prepared)[0])
        most = min(self.options.rounds, self.options.steps - self.options.warm)
        rounds = min(most, max(LEAST, int(self.options.seconds / step)))
        return Pace(self.options.warm, rounds, self.options.seconds)

    def groups(self, prepared: Prepared) -> List[List[str]]:
        """The configurations in groups that fit on the device together, in
        their order."""
        used, total = self.device.memory()
        each = prepared.recorded["peak_reserved_bytes"] * 1.04 + OUTSIDE
        count = max(1, int((total - used) / each))
        return [self.options.only[i : i + count] for i in range(0, len(self.options.only), count)]

    def measure(self, prepared: List[Prepared]) -> Iterator[Tuple[Prepared, Dict[str, Measured], List[str]]]:
        """Runs every group. Yields each job's figures, and the allocators that took
        turns with native. When a group has taken its timed steps, the processes of the
        next group are started: they import meanwhile, and do not use the device yet."""
        plan = [(p, group) for p in prepared for group in self.groups(p)]
        started: List[SideBySide] = []
        measured: Dict[str, Measured] = {}
        beside: List[str] = []

        def start(count: int) -> None:
            for index in range(len(started), min(count, len(plan))):
                started.append(self.side_by_side(index, *plan[index]))

        try:
            for index, (p, group) in enumerate(plan):
                start(index + 1)
                measured.update(self.play(p, group, started[index], functools.partial(start, index + 2)))
                beside = group if "native" in group else beside
                if index + 1 == len(plan) or plan[index + 1][0] is not p:
                    if measured:
                        yield p, measured, beside
                    measured, beside = {}, []
        finally:
            for each in started:
                each.close()

    def side_by_side(self, index: int, prepared: Prepared, group: List[str]) -> SideBySide:
        starts = {configuration: self.start(prepared, configuration) for configuration in group}
        return SideBySide(self.folder / str(index), starts)

    def play(
        self, prepared: Prepared, group: List[str], processes: SideBySide, timed: Callable[[], None]
    ) -> Dict[str, Measured]:
        name = f"{prepared.job.name}, {', '.join(group)}"
        left = self.end - time.monotonic()
        if left < self.options.job_timeout / 4:
            processes.close()
            self.problem(f"{name}: not run, {left:.0f} s are left of the budget of {self.options.budget:.0f} s")
            return {}
        begin = time.monotonic()
        timeout = min(left, self.options.job_timeout)
        measured, problems = processes.play(lambda: self.device.memory()[0], self.pace(prepared), timeout, timed)
        for problem in problems:
            self.problem(f"{prepared.job.name}: {problem}")
        self.say(f"{name}: {time.monotonic() - begin:.0f} s")
        return measured

    def check(self, prepared: Prepared, measured: Dict[str, Measured]) -> None:
        """Checks the losses, the memory held outside of torch's, and that
        stplan served."""
        job = prepared.job.name
        for name, m in measured.items():
            backend = (m.report["stplan"] or {}).get("backend")
            if backend != ("shim" if name in SERVED else None):
                self.problem(f"{job}, {name}: stplan's backend is {backend}")
        native = measured.get("native")
        if native is None:
            return
        for name, losses in [("recorded", prepared.recorded["losses"])] + [(n, m.report["losses"]) for n, m in measured.items()]:
            if not losses or losses != native.report["losses"][: len(losses)]:
                self.problem(f"{job}, {name}: {table.first_difference(losses, native.report['losses'])}")
        for name, m in measured.items():
            apart = table.outside(m) - table.outside(native)
            if abs(apart) > self.options.tolerance << 20:
                self.problem(
                    f"{job}, {name}: its exit freed {apart / (1 << 20):+,.0f} MiB more than its reserved memory"
                    " and what a native process holds in addition"
                )

    def call(self, command: List[str]) -> str:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=max(1.0, min(self.options.job_timeout, self.end - time.monotonic()))
        )
        if done.returncode:
            raise Failed(f"{shlex.join(command)}: exit code {done.returncode}\n{done.stderr[-2000:]}")
        return done.stdout

    def problem(self, text: str) -> None:
        self.problems.append(text)
        self.say(f"PROBLEM: {text}")

    def say(self, text: str) -> None:
        print(f"[{self.options.budget - (self.end - time.monotonic()):4.0f} s] {text}", file=sys.stderr, flush=True)

    def run(self, jobs: List[Any], out: table.Output) -> int:
        """Measures the jobs and writes the document. Returns the exit code."""
        prepared = list(self.prepare(jobs))
        command = ["python", "runtime/torch/bench/serve.py", *sys.argv[1:]]
        kept: Dict[str, Any] = {"about": self.device.about(), "command": shlex.join(command), "jobs": {}}
        out.lines(table.header([kept]))
        for p, measured, beside in self.measure(prepared):
            self.check(p, measured)
            job = {"steady": p.job.steady, "beside": beside, "compiled": p.compiled, "recorded": p.recorded}
            kept["jobs"][p.job.name] = {**job, "measured": {name: m._asdict() for name, m in measured.items()}}
            kept["problems"] = self.problems
            out.lines(table.rows(p.job.name, kept["jobs"][p.job.name]))
            out.keep(kept)
        out.lines(table.closing(list(kept["jobs"].items()), self.problems))
        return 1 if self.problems else 0


def arguments() -> argparse.Namespace:
    parser = shared_options("serve", CONFIGURATIONS, rounds=20, seconds=Pace().seconds)
    parser.add_argument("--steps", type=int, default=20, help="steps of each job; their losses are compared")
    parser.add_argument("--warm", type=int, default=Pace().warm, help="steps before the timed ones")
    parser.add_argument("--tolerance", type=int, default=64, help="MiB outside of torch's memory by which a process may differ from native's")
    return parser.parse_args()


def shared_options(name: str, allocators: Sequence[str], rounds: int, seconds: float) -> argparse.ArgumentParser:
    """The options of serve.py and real.py, with defaults for --rounds and
    --seconds. name: of the files that are written."""
    parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("stplan", help="the stplan binary")
    parser.add_argument("--jobs", help="names of jobs, separated by commas; all if it is not given")
    parser.add_argument("--only", default=",".join(allocators), help="allocators, separated by commas")
    parser.add_argument("--rounds", type=int, default=rounds, help="largest number of timed steps under each allocator")
    parser.add_argument("--seconds", type=float, default=seconds, help=f"time for a job's timed steps; slow jobs take fewer of them, at least {LEAST}")
    parser.add_argument("--job-timeout", type=float, default=150.0, help="seconds until a job or a command is given up")
    parser.add_argument("--budget", type=float, default=3600.0, help="seconds for everything")
    parser.add_argument("--megatron", default=os.environ.get("MEGATRON", ""), help="folder of a checkout of Megatron-LM")
    parser.add_argument("--out", default=os.environ.get("OUT"), help=f"folder for {name}.md and {name}.json")
    return parser


def choose(options: argparse.Namespace, jobs: Sequence[str], allocators: Sequence[str]) -> List[str]:
    """The names of the jobs that --jobs asks for, all by default. Turns --only
    into a list. Exits if a name is unknown."""
    options.only = options.only.split(",")
    chosen = options.jobs.split(",") if options.jobs else list(jobs)
    unknown = [name for name in chosen if name not in jobs] + [name for name in options.only if name not in allocators]
    if unknown:
        script = Path(sys.argv[0]).name
        sys.exit(f"{script}: {', '.join(unknown)}: no such job or allocator; there are {', '.join(jobs)}; {', '.join(allocators)}")
    return chosen


def measure(make: Callable[..., Bench], options: argparse.Namespace, jobs: Sequence[Any], name: str) -> int:
    """Measures the jobs, except Megatron's if there is no checkout, with the Bench that
    `make` makes. Writes NAME.md and NAME.json, and returns the exit code."""
    os.environ["MEGATRON"] = options.megatron
    with tempfile.TemporaryDirectory() as folder:
        bench = make(options, Path(folder), Device())
        able = [job for job in jobs if options.megatron or job.script != "megatron.py"]
        for job in jobs:
            if job not in able:
                bench.problem(f"{job.name}: not run, --megatron names no checkout")
        return bench.run(able, table.Output(options.out, name))


def main() -> int:
    options = arguments()
    chosen = choose(options, [job.name for job in JOBS], CONFIGURATIONS)
    return measure(Bench, options, [job for job in JOBS if job.name in chosen], "serve")


if __name__ == "__main__":
    sys.exit(main())
