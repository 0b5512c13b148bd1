"""Trains jobs of several ranks over NCCL, a GPU each, under PyTorch's allocators
and under stplan's plans, and writes what happened as Markdown.

    python runtime/torch/bench/real.py bin/stplan > docs/results/real.md

Streams and collectives are real here, so waits cost what they cost. Each job is
recorded, and its ranks' plans are compiled twice: as `compile` does it, which
reuses memory whose free is still pending, behind a wait on the device, and with
`--no-reuse-pending`, which keeps such memory until its recorded completion. Then
the job runs natively, with expandable segments, and with the plans of either
kind, side by side, in turns of one step. With --out DIR the tables are in
DIR/real.md as well, and every figure in DIR/real.json, as far as the run has come.

Needs torch, transformers, as many GPUs as there are ranks, and for the Megatron
jobs a checkout (--megatron). Exit code 1 where anything is not as it should be:
losses that differ from native's in any bit, a job that fails, a rank that no plan
serves.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Tuple

import ranks
import serve
import table
from driver import Device
from ranks import COMPLETED, PENDING
from side_by_side import Measured, Pace, SideBySide, Start

CONFIGURATIONS = ("native", "expandable", PENDING, COMPLETED)

# The folder of each kind of plan, and what compile is told.
PLANS: Dict[str, Tuple[str, List[str]]] = {PENDING: ("pending", []), COMPLETED: ("completed", ["--no-reuse-pending"])}

# Starts the script that follows with so many ranks.
LAUNCHER = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]


class Job(NamedTuple):
    """arguments: the script's, after its name and its steps. Jobs are as large as
    four of a kind fit on the GPUs together: all that is compared takes turns."""

    name: str
    script: str
    arguments: Tuple[str, ...] = ()


def jobs(ranks: int) -> List[Job]:
    """Of about the same size per rank, however many ranks there are."""
    pipeline = ["--num-layers", 4 * ranks, "--num-layers-per-virtual-pipeline-stage", 2, "--pipeline-model-parallel-size", ranks]
    experts = ["--num-layers", 2 * ranks + 2, "--expert-model-parallel-size", ranks]
    return [
        Job("llama7b-pp4-VR-real", "megatron.py", ("--", *map(str, pipeline))),
        Job("moe16-ep4-real", "megatron.py", ("--", *map(str, experts))),
        Job("llama-3b-fsdp2-real", "jobs.py"),
    ]


class Prepared(NamedTuple):
    """A job with its plans. traces and recorded are by rank, compiled by kind of
    plan and rank."""

    job: Job
    plans: Path
    recorded: List[Dict[str, Any]]
    compiled: Dict[str, List[Dict[str, Any]]]

    def same(self) -> bool:
        """Whether nothing is pending for long enough to change a plan."""
        keys = ("plan_bytes", "waits", "wait_bytes")
        pending, completed = ([[device[key] for key in keys] for device in self.compiled[kind]] for kind in PLANS)
        return pending == completed


class Real(serve.Bench):
    """serve.py's flow, with launchers of several ranks in place of processes."""

    def command(self, job: Any, steps: int) -> List[str]:
        script = [str(serve.HERE / job.script), job.name, "--steps", str(steps)]
        return [*LAUNCHER, str(self.options.ranks), *script, *job.arguments]

    def prepare_all(self, jobs: List[Job]) -> Iterator[Prepared]:
        """Records all jobs in turns, so that frees are pending for as long as they
        are when a job has the GPUs to itself, and compiles every rank's plans."""
        begin = time.monotonic()
        with ThreadPoolExecutor() as pool:
            warm = pool.submit(self.warm)
            steps = self.options.recorded
            record = [self.stplan, "record", "--steps", str(steps), "-o"]
            starts = {job.name: Start([*record, str(self.folder / job.name), "--", *self.command(job, steps)]) for job in jobs}
            recording = SideBySide(self.folder / "recording", starts, self.options.ranks)
            timeout = min(self.options.job_timeout, self.end - time.monotonic())
            measured, problems = recording.play(lambda: 0, Pace(0, steps, self.options.job_timeout), timeout)
            for problem in problems:
                self.problem(f"recording: {problem}")
            self.say(f"recorded in {time.monotonic() - begin:.0f} s")
            if self.options.keep:
                self.keep(Path(self.options.keep))
            compiling = {job: self.compile(pool, job) for job in jobs if job.name in measured}
            for job, kinds in compiling.items():
                try:
                    compiled = {kind: [plan.result() for plan in plans] for kind, plans in kinds.items()}
                    yield Prepared(job, self.folder / job.name, measured[job.name].reports, compiled)
                except (serve.Failed, OSError, ValueError) as error:
                    self.problem(f"{job.name}: {error}")
            if warm.exception():
                self.problem(f"the first process that is served: {warm.exception()}")
        self.say(f"compiled, {time.monotonic() - begin:.0f} s after the start")

    def keep(self, folder: Path) -> None:
        """The traces, for replays: named by job and rank."""
        for trace in self.folder.glob("*/*-rank*.pickle.gz"):
            shutil.copy(trace, folder / f"{trace.parent.name}-{trace.name}")

    def compile(self, pool: ThreadPoolExecutor, job: Job) -> "Dict[str, List[Future[Dict[str, Any]]]]":
        """Both plans of every rank, all at once."""
        traces = sorted((self.folder / job.name).glob("*-rank*.pickle.gz"))
        if len(traces) != self.options.ranks:
            self.problem(f"{job.name}: {len(traces)} traces of {self.options.ranks} ranks")
            return {kind: [] for kind in PLANS}

        def one(trace: Path, folder: Path, options: List[str]) -> Dict[str, Any]:
            plan = folder / trace.name.replace(".pickle.gz", ".bin")
            done = self.call([self.stplan, "-q", "compile", str(trace), "-o", str(plan), "--json", *options])
            device: Dict[str, Any] = json.loads(done)["devices"][0]
            return device

        compiling = {}
        for kind, (name, options) in PLANS.items():
            folder = self.folder / job.name / name
            folder.mkdir()
            compiling[kind] = [pool.submit(one, trace, folder, options) for trace in traces]
        return compiling

    def start(self, prepared: Any, configuration: str) -> Start:
        command = self.command(prepared.job, self.options.rounds + ranks.WARM)
        if configuration in PLANS:
            return Start([self.stplan, "run", str(prepared.plans / PLANS[configuration][0]), "--", *command])
        return Start(command, serve.EXPANDABLE if configuration == "expandable" else {})

    def pace(self, _: Any) -> Pace:
        """Even the first steps are taken in turns: collectives of two jobs on the
        same GPUs only stand in each other's way."""
        return Pace(0, self.options.rounds + ranks.WARM, self.options.seconds)

    def groups(self, prepared: Any) -> List[List[str]]:
        """One: all are compared with each other. The last are left out where not
        all fit on the devices."""
        names = [name for name in self.options.only if name != COMPLETED or not prepared.same()]
        used, total = self.device.memory()
        each = max(report["peak_reserved_bytes"] for report in prepared.recorded) + serve.OUTSIDE
        fitting = int((total - used) / each)
        for name in names[fitting:]:
            self.problem(f"{prepared.job.name}, {name}: not run, it does not fit on the devices beside the others")
        return [names[:fitting]]

    def side_by_side(self, index: int, prepared: Any, group: List[str]) -> SideBySide:
        starts = {configuration: self.start(prepared, configuration) for configuration in group}
        return SideBySide(self.folder / str(index), starts, self.options.ranks)

    def check(self, prepared: Any, measured: Dict[str, Measured]) -> None:
        """Losses of every rank, and whether its plan served it."""
        native = measured.get("native")
        seen = {"recorded": prepared.recorded, **{name: m.reports for name, m in measured.items()}}
        for name, reports in seen.items():
            for rank, report in enumerate(reports):
                where = f"{prepared.job.name}, {name}, rank {rank}"
                backend = (report["stplan"] or {}).get("backend")
                if backend != ("shim" if name in PLANS else None):
                    self.problem(f"{where}: stplan's backend is {backend}")
                if native:
                    losses, expected = report["losses"], native.reports[rank]["losses"]
                    if not losses or losses != expected[: len(losses)]:
                        self.problem(f"{where}: {table.first_difference(losses, expected)}")

    def run_all(self, jobs: List[Job], out: table.Output) -> int:
        prepared: List[Any] = list(self.prepare_all(jobs))
        command = ["python", "runtime/torch/bench/real.py", *sys.argv[1:]]
        out.lines(ranks.header(self.device.about(), command, self.options.ranks))
        waiting: List[str] = []
        figures: Dict[str, Any] = {}
        p: Any
        for p, measured, _ in self.measure(prepared):
            self.check(p, measured)
            out.lines(ranks.rows(p.job.name, measured))
            waiting += ranks.waiting(p.job.name, measured, p.compiled)
            kept = {name: m._asdict() for name, m in measured.items()}
            figures[p.job.name] = {"compiled": p.compiled, "recorded": p.recorded, "measured": kept}
            out.keep(figures)
        out.lines(ranks.closing(waiting, self.problems))
        return 1 if self.problems else 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("stplan", help="the binary")
    parser.add_argument("--ranks", type=int, default=4, help="and GPUs")
    parser.add_argument("--jobs", help="names, separated by commas (default: all)")
    parser.add_argument("--only", help="allocators, separated by commas", default=",".join(CONFIGURATIONS))
    parser.add_argument("--recorded", type=int, default=4, help="steps that are recorded")
    parser.add_argument("--keep", help="folder that gets the traces")
    parser.add_argument("--rounds", type=int, default=12, help="timed steps of each, at most")
    parser.add_argument("--seconds", type=float, default=60.0, help="for a job's timed steps: slow ones take fewer, at least 5")
    parser.add_argument("--job-timeout", type=float, default=150.0, help="seconds")
    parser.add_argument("--budget", type=float, default=3600.0, help="seconds for everything")
    parser.add_argument("--megatron", default=os.environ.get("MEGATRON", ""), help="folder of a checkout")
    parser.add_argument("--out", default=os.environ.get("OUT"), help="folder for real.md and real.json")
    return parser.parse_args()


def main() -> int:
    options = arguments()
    every = {job.name: job for job in jobs(options.ranks)}
    chosen = serve.choose(options, list(every), CONFIGURATIONS)
    os.environ["MEGATRON"] = options.megatron
    able = [every[name] for name in chosen if options.megatron or every[name].script != "megatron.py"]
    with tempfile.TemporaryDirectory() as folder:
        bench = Real(options, Path(folder), Device())
        for name in set(chosen) - {job.name for job in able}:
            bench.problem(f"{name}: not run, there is no Megatron checkout")
        return bench.run_all(able, table.Output(options.out, "real"))


if __name__ == "__main__":
    sys.exit(main())
