"""Runs ranks that receive, allocate and then send (ring_job.py), natively and under
stplan, and writes which of them hang, as Markdown.

    python runtime/torch/bench/ring.py bin/stplan --out docs/results

Two ranks have a group for each direction; with three GPUs or more there is also a ring of
three ranks. Each runs several times: natively, under `stplan run --no-plan`, and with plans
of the first half of its rounds. Nothing moves in a round that is planned, and the requests
of later rounds are larger. A run that hangs is ended after --limit seconds. Needs torch and two CUDA
devices. A run takes about 15 s; with three GPUs there are 18 of them, and 2 recordings: 5
minutes, if none hangs. What does not begin within --budget seconds is left out, and said.
The exit code is 1 if a run does not finish.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Dict, List, NamedTuple

import features
from table import Output, line

SCRIPT = Path(__file__).resolve().with_name("ring_job.py")

MODES = ("native", "no plan", "plan of half")

# Seconds by which a rank ends earlier than the run is given up, so that it can say where it
# hangs.
EARLIER = 5.0

# What faulthandler prints when a rank's time is over.
HANGS = "Timeout ("


class Run(NamedTuple):
    """One run. rounds: those that all ranks finished; moved_bytes: of all ranks together.
    state: "finished", "hung" or "failed"; said: the last lines of a run that did not
    finish."""

    state: str
    rounds: int = 0
    moved_bytes: int = 0
    said: str = ""

    def cell(self) -> str:
        moved = f", {self.moved_bytes >> 20:,} MiB moved" if self.moved_bytes else ""
        return ("finished" if self.state == "finished" else f"**{self.state}** after {self.rounds} rounds") + moved


def judged(code: int, out: str, err: str, ranks: int, rounds: int) -> Run:
    """What a run came to, by the progress that its ranks printed."""
    last: Dict[int, Any] = {}
    for text in out.splitlines():
        if text.startswith("ring "):
            progress = json.loads(text[len("ring ") :])
            last[progress["rank"]] = progress
    done = min((last[rank]["rounds"] if rank in last else 0) for rank in range(ranks))
    moved = sum(progress["moved_bytes"] for progress in last.values())
    if code == 0 and done == rounds:
        return Run("finished", done, moved)
    hung = code == 124 or HANGS in err
    return Run("hung" if hung else "failed", done, moved, "\n".join(err.strip().splitlines()[-15:]))


class Bench:
    def __init__(self, stplan: str, folder: Path, options: argparse.Namespace) -> None:
        self.stplan = stplan
        self.options = options
        self.recorder = features.Bench(stplan, folder)
        self.deadline = time.monotonic() + options.budget

    def command(self, ranks: int, rounds: int) -> List[str]:
        given = {"--ranks": ranks, "--rounds": rounds, "--limit": max(1.0, self.options.limit - EARLIER)}
        return [sys.executable, str(SCRIPT), *(str(part) for pair in given.items() for part in pair)]

    def start(self, mode: str, ranks: int) -> List[str]:
        """The command of a mode. It records and compiles, if the mode has a plan. Raises
        features.Failure."""
        command = self.command(ranks, self.options.rounds)
        if mode == "native":
            return command
        plan = "--no-plan"
        if mode != "no plan":
            half = max(1, self.options.rounds // 2)
            plan = str(self.recorder.plan(f"{ranks}-ranks", self.command(ranks, half)))
        return [self.stplan, "-q", "run", "--memory", "virtual", plan, "--", *command]

    def runs(self, mode: str, ranks: int) -> List[Run]:
        """The runs of a mode, up to the last that begins in time."""
        found: List[Run] = []
        try:
            self._demand_time()
            command = self.start(mode, ranks)
            for _ in range(self.options.runs):
                self._demand_time()
                found.append(self.run(command, ranks))
        except (features.Failure, OSError) as error:
            found.append(Run("failed", said=str(error)))
        return found

    def run(self, command: List[str], ranks: int) -> Run:
        done = features.run(command, self.options.limit)
        return judged(done.returncode, done.stdout, done.stderr, ranks, self.options.rounds)

    def _demand_time(self) -> None:
        if time.monotonic() > self.deadline:
            raise features.Failure("not run: the budget is spent")


def name_of(ranks: int) -> str:
    return "2 ranks, two groups" if ranks == 2 else f"ring of {ranks} ranks"


def header(about: str, options: argparse.Namespace) -> List[str]:
    command = shlex.join(["python", "runtime/torch/bench/ring.py", *sys.argv[1:]])
    return [
        "# Ranks that receive, allocate and then send",
        "",
        f"Written by `runtime/torch/bench/ring.py` on {about}:",
        "",
        f"    {command}",
        "",
        f"In each of {options.rounds} rounds every rank posts a receive, allocates, and then sends. Its",
        "memory is in pieces, so that under stplan the request may need memory to move. The",
        "communicators exist before. The plan has the first half of the rounds; what is requested",
        f"later is larger. Each row is {options.runs} runs; what they moved is of all ranks together.",
        "",
        line(["ranks", "allocator", *(f"run {number + 1}" for number in range(options.runs))]),
        line(["---"] * (2 + options.runs)),
    ]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stplan", help="the stplan binary")
    parser.add_argument("--ranks", help="numbers of ranks, separated by commas; 2, and 3 if there are GPUs for it")
    parser.add_argument("--modes", default=",".join(MODES), help=f"modes, separated by commas (default: {','.join(MODES)})")
    parser.add_argument("--runs", type=int, default=3, help="runs in each mode (default: 3)")
    parser.add_argument("--rounds", type=int, default=6, help="rounds of a run (default: 6)")
    parser.add_argument("--limit", type=float, default=50.0, help="seconds until a run is given up (default: 50)")
    parser.add_argument("--budget", type=float, default=480.0, help="seconds after which no run is started (default: 480)")
    parser.add_argument("--out", help="folder for ring.md and ring.json")
    options = parser.parse_args()
    options.modes = options.modes.split(",")
    unknown = [mode for mode in options.modes if mode not in MODES]
    if unknown:
        parser.error(f"--modes: expected some of {', '.join(MODES)}, found {', '.join(unknown)}")
    options.ranks = [int(ranks) for ranks in options.ranks.split(",")] if options.ranks else [2, 3] if devices() > 2 else [2]
    return options


def devices() -> int:
    import torch

    return torch.cuda.device_count()


def main() -> int:
    options = arguments()
    out = Output(options.out, "ring")
    out.lines(header(features.about(), options))
    kept: Dict[str, Any] = {}
    problems: List[str] = []
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(str(Path(options.stplan).resolve()), Path(folder), options)
        for ranks in options.ranks:
            for mode in options.modes:
                runs = bench.runs(mode, ranks)
                cells = [run.cell() for run in runs] + [""] * (options.runs - len(runs))
                out.lines([line([name_of(ranks), mode, *cells])])
                kept[f"{name_of(ranks)}, {mode}"] = [run._asdict() for run in runs]
                out.keep(kept)
                problems += [f"{name_of(ranks)}, {mode}: {run.state}\n{run.said}" for run in runs if run.state != "finished"]
    out.lines(["", "Problems:" + ("" if problems else " none.")])
    for text in problems:
        first, *rest = text.splitlines()
        out.lines([f"- {first}", *(f"      {more}" for more in rest)])
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
