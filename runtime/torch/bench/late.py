"""Runs programs that free tensors while streams still have to read them, under PyTorch's
allocators and under stplan, and writes how often they were wrong, as Markdown.

    python runtime/torch/bench/late.py bin/stplan --out docs/results

The programs (late_programs.py) break record_stream's rule and are right natively. Each runs
in a process of its own: natively; with expandable segments; under `stplan run --no-plan`,
with virtual memory and with plain memory; with a plan of its own, which has the next
tensor in the place of the one that is read late; and with the plan of features/job.py.
The last program is a control: it is wrong under any allocator.

Needs torch and one CUDA device. With 1000 rounds a process takes about 12 s, 4 of them for
the rounds. There are 72 runs and 13 recordings, --together at a time: 6 minutes. What
does not begin within --budget seconds is left out, and said. The exit code is 1 if a
program is wrong under stplan and not natively, if the control is right natively, or if a
process fails.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import tempfile
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional

import features
from table import Output, line

SCRIPT = Path(__file__).resolve().with_name("late_programs.py")

# The programs of that script, in the order of the rows. The last one is wrong under any
# allocator.
CONTROL = "same stream"
PROGRAMS = (
    "side stream",
    "main waits",
    "other waits for main",
    "only copies",
    "two readers",
    "external stream",
    "library's stream",
    "other thread",
    "autograd's thread",
    "pinned host buffer",
    "of a side stream",
    CONTROL,
)

EXPANDABLE = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}

# Rounds of a recording: 12 iterations of 4 sizes, so that a few are alike.
RECORDED = 48


class Mode(NamedTuple):
    """options: of `stplan run`, or None without it. plan: whose plan it gets."""

    name: str
    options: Optional[List[str]] = None
    environment: Dict[str, str] = {}
    plan: str = ""


MODES = (
    Mode("native"),
    Mode("expandable", environment=EXPANDABLE),
    Mode("no plan", ["--memory", "virtual"]),
    Mode("no plan, plain", ["--memory", "plain"]),
    Mode("own plan", ["--memory", "virtual"], plan="own"),
    Mode("another's plan", ["--memory", "virtual"], plan="another's"),
)


class Result(NamedTuple):
    """Rounds with wrong words, of all rounds. problem: why there is no figure, or "".
    note: what `stplan run` counted."""

    wrong: int = 0
    rounds: int = 0
    problem: str = ""
    note: str = ""

    def cell(self) -> str:
        if self.problem:
            return "FAILED"
        return f"{self.wrong:,} of {self.rounds:,}" + (f" ({self.note})" if self.note else "")


class Bench:
    def __init__(self, stplan: str, folder: Path, rounds: int, deadline: float) -> None:
        self.stplan = stplan
        self.folder = folder
        self.rounds = rounds
        self.deadline = deadline
        self.recorder = features.Bench(stplan, folder)

    def plan(self, name: str) -> Path:
        self._demand_time()
        return self.recorder.plan(name.replace(" ", "-"), self.command(name, RECORDED))

    def others_plan(self) -> Path:
        self._demand_time()
        return self.recorder.plan("another", [sys.executable, str(features.SCRIPTS / "job.py")])

    def command(self, name: str, rounds: int) -> List[str]:
        return [sys.executable, str(SCRIPT), name, "--rounds", str(rounds)]

    def run(self, name: str, mode: Mode, plan: "Optional[Future[Path]]") -> Result:
        self._demand_time()
        command = [*("env", *(f"{key}={value}" for key, value in mode.environment.items())), *self.command(name, self.rounds)]
        summary = self.folder / f"{name} {mode.name}.json"
        if mode.options is not None:
            how = ["--no-plan"] if plan is None else [str(plan.result())]
            command = [self.stplan, "run", *mode.options, "--summary", str(summary), *how, "--", *command]
        done = features.run(command)
        told = [text for text in done.stdout.splitlines() if text.startswith("late ")]
        if done.returncode or not told:
            return Result(problem=f"exit code {done.returncode}\n{features.last(done)}")
        found = json.loads(told[-1][len("late ") :])
        if mode.options is None:
            return Result(**found)
        judged = features.judged(0.0, json.loads(summary.read_text()), features.last(done), mode.plan == "own")
        return Result(**found, problem=judged.problem, note=f"{judged.note.split(' of ')[0]} on plan" if mode.plan else "")

    def _demand_time(self) -> None:
        if time.monotonic() > self.deadline:
            raise features.Failure("not run: the budget is spent")


def outcome(future: "Future[Result]") -> Result:
    try:
        return future.result()
    except (features.Failure, OSError, KeyError, TypeError, ValueError) as error:
        return Result(problem=str(error))


def submit(pool: ThreadPoolExecutor, bench: Bench, names: List[str], modes: List[Mode]) -> "Dict[str, Dict[str, Future[Result]]]":
    """Submits all runs. What makes plans comes first, since others wait for it: so no
    thread waits for a plan that has not begun."""
    plans: "Dict[tuple[str, str], Future[Path]]" = {}
    for mode in modes:
        for name in names:
            if mode.plan == "own":
                plans[name, "own"] = pool.submit(bench.plan, name)
    if any(mode.plan == "another's" for mode in modes):
        others = pool.submit(bench.others_plan)
        plans.update({(name, "another's"): others for name in names})
    return {name: {mode.name: pool.submit(bench.run, name, mode, plans.get((name, mode.plan))) for mode in modes} for name in names}


def problems_of(name: str, results: Dict[str, Result]) -> List[str]:
    found = [f"{name}, {mode}: {result.problem}" for mode, result in results.items() if result.problem]
    native = results.get("native", Result())
    if name == CONTROL:
        if native.rounds and not native.wrong:
            found.append(f"{name}: right natively, so this device does not show late reads")
        return found
    for mode, result in results.items():
        if result.wrong and mode != "native" and not native.wrong:
            found.append(f"{name}, {mode}: wrong in {result.wrong:,} of {result.rounds:,} rounds")
    if native.wrong:
        found.append(f"{name}: wrong natively in {native.wrong:,} rounds, so the program shows nothing")
    return found


def header(about: str, modes: List[Mode], rounds: int) -> List[str]:
    command = shlex.join(["python", "runtime/torch/bench/late.py", *sys.argv[1:]])
    return [
        "# Tensors that are freed while a stream still has to read them",
        "",
        f"Written by `runtime/torch/bench/late.py` on {about}:",
        "",
        f"    {command}",
        "",
        f"Rounds with wrong words, of {rounds:,} of each program, with tensors of 64 KiB to 96 MiB in",
        "turn. A tensor is read late by another stream and dropped without `record_stream`;",
        "then another stream than its own allocates the same size and fills it. Each program is a",
        "process of its own. *same stream* is the control: the tensor's own stream may use",
        "the memory at once, under any allocator. With a plan, the share of the allocations",
        "that it served is in brackets.",
        "",
        line(["program", *(mode.name for mode in modes)]),
        line(["---", *("---:" for _ in modes)]),
    ]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stplan", help="the stplan binary")
    parser.add_argument("--programs", help="names of programs, separated by commas; all if it is not given")
    parser.add_argument("--modes", help="names of modes, separated by semicolons; all if it is not given")
    parser.add_argument("--rounds", type=int, default=1000, help="rounds of each program in each mode (default: 1000)")
    parser.add_argument("--together", type=int, default=3, help="processes at the same time (default: 3)")
    parser.add_argument("--budget", type=float, default=500.0, help="seconds after which no process is started (default: 500)")
    parser.add_argument("--out", help="folder for late.md and late.json")
    return parser.parse_args()


def chosen(asked: Optional[str], separator: str, known: List[str]) -> List[str]:
    names = asked.split(separator) if asked else known
    unknown = [name for name in names if name not in known]
    if unknown:
        sys.exit(f"late.py: {', '.join(unknown)}: no such program or mode; there are {'; '.join(known)}")
    return names


def main() -> int:
    options = arguments()
    names = chosen(options.programs, ",", list(PROGRAMS))
    wanted = chosen(options.modes, ";", [mode.name for mode in MODES])
    modes = [mode for mode in MODES if mode.name in wanted]
    out = Output(options.out, "late")
    out.lines(header(features.about(), modes, options.rounds))
    problems: List[str] = []
    kept: Dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.together) as pool:
        bench = Bench(str(Path(options.stplan).resolve()), Path(folder), options.rounds, time.monotonic() + options.budget)
        for name, futures in submit(pool, bench, names, modes).items():
            results = {mode: outcome(future) for mode, future in futures.items()}
            out.lines([line([name, *(result.cell() for result in results.values())])])
            kept[name] = {mode: result._asdict() for mode, result in results.items()}
            out.keep(kept)
            problems += problems_of(name, results)
    out.lines(["", "Problems:" + ("" if problems else " none."), *(f"- {indented(text)}" for text in problems)])
    return 1 if problems else 0


def indented(text: str) -> str:
    """Further lines of a list's entry, as Markdown's code."""
    first, *rest = text.splitlines()
    return "\n".join([first, *(f"      {more}" for more in rest)])


if __name__ == "__main__":
    sys.exit(main())
