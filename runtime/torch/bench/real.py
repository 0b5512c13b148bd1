"""Trains jobs of several ranks over NCCL, each rank on a GPU of its own, under
PyTorch's allocators and under stplan's plans, and writes the results as Markdown.

    python runtime/torch/bench/real.py bin/stplan > docs/results/real.md

Collectives run on streams of their own, so this shows the real cost of waits between
streams. Each job is recorded, and its ranks' plans are compiled twice. By default
`compile` reuses memory whose free is still pending, after a wait on the device. With
`--no-reuse-pending` it keeps such memory until its recorded completion. Then the job
runs natively, with expandable segments, and with both kinds of plans, side by side,
in turns of one step. With --out DIR the tables are also in DIR/real.md and every
figure is in DIR/real.json, both written as the run proceeds.

Needs torch, transformers, one GPU for each rank and, for the Megatron jobs, a
checkout (--megatron). The exit code is 1 if there is a problem: losses that differ
from native's in any bit, a job that fails, or a rank that stplan does not serve.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Sequence, Tuple

import ranks
import serve
import table
from ranks import COMPLETED, PENDING
from side_by_side import Measured, Pace, SideBySide, Start

CONFIGURATIONS = ("native", "expandable", PENDING, COMPLETED)

# The folder of each kind of plan, and the options of compile.
PLANS: Dict[str, Tuple[str, List[str]]] = {PENDING: ("pending", []), COMPLETED: ("completed", ["--no-reuse-pending"])}

# The launcher. The number of ranks and the script follow.
LAUNCHER = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]


class Job(NamedTuple):
    """arguments: passed to the script after the job's name and its steps. The
    sizes of jobs are chosen so that four copies fit on the GPUs together, one
    under each allocator."""

    name: str
    script: str
    arguments: Tuple[str, ...] = ()


def jobs(ranks: int) -> List[Job]:
    """The jobs. The memory of a rank is about the same for any number of ranks."""
    pipeline = ["--num-layers", 4 * ranks, "--num-layers-per-virtual-pipeline-stage", 2, "--pipeline-model-parallel-size", ranks]
    experts = ["--num-layers", 2 * ranks + 2, "--expert-model-parallel-size", ranks]
    return [
        Job("llama7b-pp4-VR-real", "megatron.py", ("--", *map(str, pipeline))),
        Job("moe16-ep4-real", "megatron.py", ("--", *map(str, experts))),
        Job("llama-3b-fsdp2-real", "jobs.py"),
    ]


class Kind(NamedTuple):
    """A kind of plan: the folder of its files, the binary that compiles it, and options of
    compile."""

    folder: str
    stplan: str
    options: List[str] = []


class Prepared(NamedTuple):
    """A job with its plans. recorded has the figures of each rank; compiled those of
    compile, by kind of plan and rank."""

    job: Job
    plans: Path
    recorded: List[Dict[str, Any]]
    compiled: Dict[str, List[Dict[str, Any]]]

    def same(self) -> bool:
        """Whether both kinds of plans are equal in size and waits: then no free
        is pending long enough to matter."""
        keys = ("plan_bytes", "waits", "wait_bytes")
        pending, completed = ([[device[key] for key in keys] for device in self.compiled[kind]] for kind in PLANS)
        return pending == completed


class Real(serve.Bench):
    """serve.py's bench, with launchers of several ranks in place of processes."""

    served: Sequence[str] = tuple(PLANS)  # configurations that stplan serves

    def command(self, job: Any, steps: int) -> List[str]:
        script = [str(serve.HERE / job.script), job.name, "--steps", str(steps)]
        return [*LAUNCHER, str(self.options.ranks), *script, *job.arguments]

    def prepare_all(self, jobs: List[Job]) -> Iterator[Prepared]:
        """Records all jobs and compiles every rank's plans. The recorded steps are taken
        in turns, so that frees are pending as long as in a job that runs alone."""
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
                self.problem(f"the first served process: {warm.exception()}")
        self.say(f"compiled, {time.monotonic() - begin:.0f} s after the start")

    def keep(self, folder: Path) -> None:
        """Copies the traces to a folder, named by job and rank, so that they can be
        replayed."""
        for trace in self.folder.glob("*/*-rank*.pickle.gz"):
            shutil.copy(trace, folder / f"{trace.parent.name}-{trace.name}")

    def compile(self, pool: ThreadPoolExecutor, job: Job) -> "Dict[str, List[Future[Dict[str, Any]]]]":
        """Compiles all plans of every rank, all at the same time."""
        traces = sorted((self.folder / job.name).glob("*-rank*.pickle.gz"))
        if len(traces) != self.options.ranks:
            self.problem(f"{job.name}: expected {self.options.ranks} traces, one for each rank, found {len(traces)}")
            return {kind: [] for kind in self.kinds()}

        def one(trace: Path, folder: Path, kind: Kind) -> Dict[str, Any]:
            plan = folder / trace.name.replace(".pickle.gz", ".bin")
            done = self.call([kind.stplan, "-q", "compile", str(trace), "-o", str(plan), "--json", *kind.options])
            said = json.loads(done)
            # A build of before several traces in one call (forgiving.py) prints the plan itself.
            device: Dict[str, Any] = said.get("plans", [said])[0]["devices"][0]
            return device

        compiling = {}
        for name, kind in self.kinds().items():
            folder = self.folder / job.name / kind.folder
            folder.mkdir()
            compiling[name] = [pool.submit(one, trace, folder, kind) for trace in traces]
        return compiling

    def kinds(self) -> Dict[str, Kind]:
        """The kinds of plans, by the name of the configuration that they serve."""
        return {name: Kind(folder, self.stplan, options) for name, (folder, options) in PLANS.items()}

    def start(self, prepared: Any, configuration: str) -> Start:
        command = self.command(prepared.job, self.options.rounds + ranks.WARM)
        if configuration in PLANS:
            return Start([self.stplan, "run", str(prepared.plans / PLANS[configuration][0]), "--", *command])
        return Start(command, serve.EXPANDABLE if configuration == "expandable" else {})

    def pace(self, _: Any) -> Pace:
        """All steps are taken in turns, the first ones too: collectives of two
        jobs on the same GPUs would only delay each other."""
        return Pace(0, self.options.rounds + ranks.WARM, self.options.seconds)

    def groups(self, prepared: Any) -> List[List[str]]:
        """One group, since all allocators are compared with each other. If not all fit on
        the devices, the last are left out."""
        names = [name for name in self.options.only if name != COMPLETED or not prepared.same()]
        used, total = self.device.memory()
        each = max(report["peak_reserved_bytes"] for report in prepared.recorded) + serve.OUTSIDE
        fitting = int((total - used) / each)
        for name in names[fitting:]:
            self.problem(f"{prepared.job.name}, {name}: not run, it does not fit on the devices together with the others")
        return [names[:fitting]]

    def side_by_side(self, index: int, prepared: Any, group: List[str]) -> SideBySide:
        starts = {configuration: self.start(prepared, configuration) for configuration in group}
        return SideBySide(self.folder / str(index), starts, self.options.ranks)

    def check(self, prepared: Any, measured: Dict[str, Measured]) -> None:
        """Checks the losses of every rank, and that stplan served it."""
        native = measured.get("native")
        seen = {"recorded": prepared.recorded, **{name: m.reports for name, m in measured.items()}}
        for name, reports in seen.items():
            for rank, report in enumerate(reports):
                where = f"{prepared.job.name}, {name}, rank {rank}"
                backend = (report["stplan"] or {}).get("backend")
                if backend != ("shim" if name in self.served else None):
                    self.problem(f"{where}: stplan's backend is {backend}")
                if native:
                    losses, expected = report["losses"], native.reports[rank]["losses"]
                    if not losses or losses != expected[: len(losses)]:
                        self.problem(f"{where}: {table.first_difference(losses, expected)}")

    def run(self, jobs: List[Any], out: table.Output) -> int:
        """Measures the jobs and writes the document. Returns the exit code."""
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
    parser = serve.shared_options("real", CONFIGURATIONS, rounds=12, seconds=60.0)
    parser.add_argument("--ranks", type=int, default=4, help="ranks of each job, one GPU for each")
    parser.add_argument("--recorded", type=int, default=4, help="steps that are recorded")
    parser.add_argument("--keep", help="folder to which the traces are copied")
    return parser.parse_args()


def main() -> int:
    options = arguments()
    every = {job.name: job for job in jobs(options.ranks)}
    chosen = serve.choose(options, list(every), CONFIGURATIONS)
    return serve.measure(Real, options, [every[name] for name in chosen], "real")


if __name__ == "__main__":
    sys.exit(main())
