"""Runs jobs in a card that has little more memory than they allocate, and again if they run out of
it, and prints how each run ended as Markdown.

    python runtime/torch/bench/ranout.py bin/stplan --spare 1 --jobs "dpo=python runtime/torch/bench/kinds.py dpo --figures"

Each job runs natively alone first. Then a ballast process (ballast.py) takes the device's memory,
except what the job allocated at its peak, --spare per cent of that, and what the process uses
besides: its context and kernels. There the job runs with torch's native allocator, with expandable
segments, and under `stplan run` with nothing at hand, up to --runs times with the same cache, until it
trains. A job is any command that prints the figures of steps.py. The report has the notes of `stplan run`
for each run, and how many losses equal those of the run without a ballast.

A run that fails otherwise has its last line instead: libraries that find no memory for kernels or workspaces beside
torch say so in words of their own.

Needs what the jobs need, and one CUDA device that nothing else uses. The exit code is 1 if a job fails on the
whole card, or a run hangs. What does not begin within --time-limit seconds is left out, and said.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from time import monotonic
from typing import Any, Dict, List, NamedTuple, Optional

from ballast import OUT_OF_MEMORY, SETTINGS, Ballast
from table import Output, gib, line, on_plan

# How long a run of stplan waits for its plan when it has ended.
LEARN_LIMIT = "60s"

# Seconds until a run is given up as hanging.
TIMEOUT = 150

COLUMNS = ("job", "left for tensors, GiB", "run", "ended", "peak reserved GiB", "/ allocated", "GiB moved", "on plan", "equal losses")


class Run(NamedTuple):
    """One process. ended: in words. figures: those of steps.py, or None if it failed. said: the notes of stplan."""

    name: str
    ended: str
    figures: Optional[Dict[str, Any]]
    said: List[str]


def run(name: str, command: List[str], settings: str = "") -> Run:
    """Runs it to its end."""
    environment = {**os.environ, "PYTORCH_CUDA_ALLOC_CONF": settings}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=TIMEOUT)
    said = [text for text in done.stderr.splitlines() if text.startswith("note: ")]
    if done.returncode == 0:
        found = [text[len("figures ") :] for text in done.stdout.splitlines() if text.startswith("figures ")]
        return Run(name, "trained", json.loads(found[-1]), said)
    errors = [text for text in done.stderr.splitlines() if "Error: " in text]
    short = any(sign in done.stderr for sign in OUT_OF_MEMORY)
    return Run(name, "out of memory" if short else (errors or [f"exit code {done.returncode}"])[-1], None, said)


def row(job: str, left: int, one: Run, alone: Dict[str, Any]) -> str:
    if one.figures is None:
        return line([job, gib(left), one.name, one.ended, *[""] * 5])
    figures, served = one.figures, one.figures["stplan"] or {}
    equal = sum(a == b for a, b in zip(figures["losses"], alone["losses"]))
    return line([
        job, gib(left), one.name, one.ended, gib(figures["peak_reserved_bytes"]),
        f"{figures['peak_reserved_bytes'] / figures['peak_allocated_bytes']:.4f}",
        gib(served["moved_bytes"]) if served else "", on_plan(served) if served else "", f"{equal} of {len(alone['losses'])}",
    ])  # fmt: skip


def try_job(stplan: str, name: str, command: List[str], spares: List[float], runs: int, deadline: float, out: Output) -> List[Dict[str, Any]]:
    """Prints the rows of one job, and returns the runs."""
    results: List[Dict[str, Any]] = []

    def keep(left: int, one: Run, alone: Dict[str, Any]) -> None:
        out.lines([row(name, left, one, alone)])
        figures = one.figures and {key: value for key, value in one.figures.items() if key != "stplan_steps"}
        results.append({"job": name, "left": left, "run": one.name, "ended": one.ended, "said": one.said, "figures": figures})

    ballast = Ballast()
    free = ballast.free
    first = run("native, whole card", command)
    ballast.end()
    alone = first.figures
    if alone is None:
        raise RuntimeError(f"on the whole card: {first.ended}")
    keep(free, first, alone)
    outside = free - alone["free_bytes"] - alone["reserved_bytes"]  # the context and kernels
    for spare in spares:
        ballast = Ballast()
        left = ballast.ask(ballast.free - outside - int(alone["peak_allocated_bytes"] * (1 + spare / 100))) - outside
        try:
            with tempfile.TemporaryDirectory() as cache:
                ways = [(allocator, command, settings) for allocator, settings in sorted(SETTINGS.items(), reverse=True)]
                ours = [stplan, "run", "--cache", cache, "--learn-limit", LEARN_LIMIT, "--", *command]
                ways += [(f"stplan, run {number + 1}", ours, "") for number in range(runs)]
                for way, arguments, settings in ways:
                    if monotonic() > deadline:
                        out.lines([f"{name}: {way} was left out, as time was short"])
                        return results
                    begin = monotonic()
                    one = run(way, arguments, settings)
                    print(f"{name}: {way} took {monotonic() - begin:.1f} s", file=sys.stderr, flush=True)
                    keep(left, one, alone)
                    if one.figures and way.startswith("stplan"):
                        break
        finally:
            ballast.end()
    return results


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stplan", help="the stplan binary")
    parser.add_argument("--jobs", nargs="+", required=True, help="NAME=COMMAND")
    parser.add_argument("--spare", type=float, nargs="+", default=[1.0], help="per cent of the peak allocated that are left beyond it")
    parser.add_argument("--runs", type=int, default=4, help="runs under stplan at most")
    parser.add_argument("--out", help="folder for ranout.md and ranout.json")
    parser.add_argument("--time-limit", type=float, default=500, help="seconds after which no run begins")
    arguments = parser.parse_args()
    deadline = monotonic() + arguments.time_limit
    out = Output(arguments.out, "ranout")
    out.lines([line(list(COLUMNS)), line(["---"] * len(COLUMNS))])
    results: List[Dict[str, Any]] = []
    problems: List[str] = []
    for job in arguments.jobs:
        name, _, command = job.partition("=")
        if monotonic() > deadline:
            problems.append(f"{name} was left out, as time was short")
            continue
        try:
            results += try_job(arguments.stplan, name, shlex.split(command), arguments.spare, arguments.runs, deadline, out)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            problems.append(f"{name}: {error}")
    said = [f"- {one['job']}, {one['run']}: {' '.join(one['said'])}" for one in results if one["said"]]
    out.lines(["", "Notes of stplan:", "", *said, *(["", "Problems:", "", *problems] if problems else [])])
    out.keep({"jobs": arguments.jobs, "results": results})
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
