"""Runs jobs as somebody does who has no plan, and again, beside PyTorch's allocators, and
writes reserved memory, step times from the first step on, memory that moves and losses, as
Markdown.

    python runtime/torch/bench/first_runs.py bin/stplan --out docs/results

Each job runs five times, one after the other, alone on the device: natively, natively again,
with expandable segments, under `stplan run` with an empty cache of plans, which learns its plan
and puts it in place while it runs, and under `stplan run` once more, which finds that plan.
first_runs.json has the time of every step and stplan's counters after each; first_runs_plot.py draws them.

With --rounds N all of that is done N times in turn, each time with an empty cache, and each step counts with
the least time that it took. What else a machine does makes steps longer, never shorter, so this tells apart what single runs
do not: two native runs of one job have differed by a tenth and more. Everything else is of the round that reserved the most.

A job is NAME for one of jobs.py, or NAME=COMMAND for any command that ends with a line
`figures {...}` as steps.py prints it. Needs torch, transformers and one CUDA device. The exit
code is 1 if a job fails, if losses differ from native's in any bit, or if stplan does not
serve.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Dict, List, Mapping, Sequence, Tuple

from table import GIB, Output, equal, first_difference, gib, line, on_plan

HERE = Path(__file__).resolve().parent

NATIVE, AGAIN, EXPANDABLE, FIRST, SECOND = "native", "native again", "expandable", "first run", "second run"
CONFIGURATIONS = (NATIVE, AGAIN, EXPANDABLE, FIRST, SECOND)
SERVED = (FIRST, SECOND)

# Steps whose time is compared as a whole: those in which memory moves without a plan.
EARLY = 20

# Steps after which a run of varying sizes should reserve no more.
DOZEN = 12

COLUMNS = (
    ("job", "---"),
    ("run", "---"),
    ("reserved GiB", "---:"),
    ("/ allocated", "---:"),
    ("first 20 steps, of native", "---:"),
    ("later steps, of native", "---:"),
    ("GiB moved", "---:"),
    ("on plan", "---:"),
    ("plan in place in step", "---:"),
    ("GiB grown after step 12", "---:"),
    ("equal losses", "---:"),
)

INTRODUCTION = """# First runs

Written by `runtime/torch/bench/first_runs.py`:

    {command}

Each job ran alone for {steps} steps: natively, again (*native again*), with expandable segments,
under `stplan run` with no plan at hand (*first run*), and under the same command again (*second
run*). *of native* divides the sum
of the first 20 steps' times by native's, and the median of the later ones. The first step is
left out of both: it loads kernels.{rounds} *grown after step 12* is by how much the peak of reserved memory
at the end is above that of the first 12 steps, and in brackets that of allocated memory, if it has
grown.
"""


def commands(jobs: List[str], steps: int) -> Dict[str, List[str]]:
    """The command of each job, by name."""
    made = {}
    for job in jobs:
        name, given, command = job.partition("=")
        made[name] = shlex.split(command) if given else [sys.executable, str(HERE / "jobs.py"), name, "--steps", str(steps)]
    return made


def start(configuration: str, command: List[str], stplan: str, cache: str) -> Tuple[List[str], Dict[str, str]]:
    """What is run under a configuration, and its environment."""
    environment = dict(os.environ)
    if configuration == EXPANDABLE:
        environment["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    if configuration not in SERVED:
        return command, environment
    return [stplan, "-q", "run", "--cache", cache, "--", *command], environment


def measure(configuration: str, command: List[str], stplan: str, cache: str) -> Tuple[Any, str]:
    """The figures of one run, or None, and what went wrong."""
    run, environment = start(configuration, command, stplan, cache)
    done = subprocess.run(run, env=environment, capture_output=True, text=True)
    found = [text[len("figures ") :] for text in done.stdout.splitlines() if text.startswith("figures ")]
    if done.returncode != 0 or not found:
        said = done.stderr.strip().splitlines()[-1:] or ["nothing on standard error"]
        return None, f"exit code {done.returncode}, {said[0]}"
    return json.loads(found[-1]), ""


def installed(figures: Mapping[str, Any]) -> List[int]:
    """The steps, from 0, in which plans were put in place."""
    counts = [counters["installs"] for counters in figures["stplan_steps"] or ()]
    return [i for i, n in enumerate(counts) if n > (counts[i - 1] if i > 0 else 0)]


def shares(figures: Mapping[str, Any], native: Mapping[str, Any]) -> List[str]:
    """How long the early steps took together, and the later ones in the median, of native."""
    ours, theirs = figures["seconds"], native["seconds"]
    early = sum(ours[1:EARLY]) / sum(theirs[1:EARLY])
    later = [statistics.median(seconds[EARLY:]) for seconds in (ours, theirs) if len(seconds) > EARLY]
    return [f"{100 * early:.1f} %", f"{100 * later[0] / later[1]:.1f} %" if len(later) == 2 else ""]


def grown(figures: Mapping[str, Any]) -> str:
    """By how much the peaks grow after the first dozen of steps, in GiB: of reserved memory,
    and in brackets of allocated memory."""
    peaks = figures["peaks"]
    if len(peaks) <= DOZEN:
        return ""
    reserved, allocated = (peaks[-1][kind] - peaks[DOZEN - 1][kind] for kind in ("reserved", "allocated"))
    return gib(reserved) + (f" ({gib(allocated)})" if allocated else "")


def row(job: str, configuration: str, figures: Mapping[str, Any], native: Mapping[str, Any]) -> str:
    reserved, served = figures["peak_reserved_bytes"], figures["stplan"]
    return line(
        [
            job,
            configuration,
            gib(reserved),
            f"{reserved / figures['peak_allocated_bytes']:.4f}",
            *shares(figures, native),
            f"{served['moved_bytes'] / GIB:.2f}" if served else "",
            on_plan(served) if served else "",
            ", ".join(str(i + 1) for i in installed(figures)) if served else "",
            grown(figures),
            f"{equal(figures['losses'], native['losses'])} of {len(native['losses'])}",
        ]
    )


def problems_of(configuration: str, figures: Mapping[str, Any], native: Mapping[str, Any]) -> List[str]:
    found = []
    if figures["losses"] != native["losses"]:
        found.append(f"losses differ: {first_difference(figures['losses'], native['losses'])}")
    if configuration in SERVED and not figures["stplan"]:
        found.append("stplan does not serve")
    return found


def merge(rounds: Sequence[Dict[str, Any]]) -> Dict[str, Any]:
    """One run's figures of several rounds: those that reserved the most, with the least time of each step."""
    figures = max(rounds, key=lambda of: of["peak_reserved_bytes"])
    return {**figures, "seconds": [min(times) for times in zip(*(of["seconds"] for of in rounds))]}


def run_job(
    job: str, command: List[str], stplan: str, out: Output, kept: Dict[str, Any], configurations: Sequence[str], rounds: int
) -> List[str]:
    """Runs a job under these configurations, and adds the figures to those that are kept.
    Returns the problems."""
    measured: Dict[str, List[Dict[str, Any]]] = {}
    problems: List[str] = []
    for number in range(rounds):
        with tempfile.TemporaryDirectory() as cache:
            for configuration in configurations:
                figures, wrong = measure(configuration, command, stplan, os.path.join(cache, "plans"))
                if figures is None:
                    problems.append(f"{job}, {configuration}: {wrong}")
                    if NATIVE not in measured:
                        return problems
                    continue
                measured.setdefault(configuration, []).append(figures)
                kept[job] = {name: merge(of) for name, of in measured.items()}
                out.keep(kept)
                if number == rounds - 1:
                    out.lines([row(job, configuration, kept[job][configuration], kept[job][NATIVE])])
                problems += [f"{job}, {configuration}: {text}" for text in problems_of(configuration, figures, measured[NATIVE][0])]
    return problems


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stplan", help="the stplan binary")
    parser.add_argument("--out", help="folder for first_runs.md and first_runs.json")
    parser.add_argument("--steps", type=int, default=60, help="steps of the jobs of jobs.py")
    parser.add_argument("--runs", nargs="+", default=list(CONFIGURATIONS[1:]), choices=CONFIGURATIONS[1:], metavar="RUN",
                        help="runs to make beside the native one: %(choices)s")
    parser.add_argument("--rounds", type=int, default=1, help="times that all runs are made; more tell apart what one does not")
    parser.add_argument("--jobs", nargs="+", default=["gpt2-xl-naive", "llama-7b-lora-varlen", "llama-3b-fsdp2-world8"], metavar="NAME[=COMMAND]")
    return parser.parse_args()


def main() -> int:
    options = arguments()
    out = Output(options.out, "first_runs")
    command = shlex.join(["python", "runtime/torch/bench/first_runs.py", *sys.argv[1:]])
    rounds = f" Of {options.rounds} rounds each step counts with its least time." if options.rounds > 1 else ""
    out.lines([*INTRODUCTION.format(command=command, steps=options.steps, rounds=rounds).splitlines(), ""])
    out.lines([line(name for name, _ in COLUMNS), line(rule for _, rule in COLUMNS)])
    figures: Dict[str, Any] = {}
    problems: List[str] = []
    for job, run in commands(options.jobs, options.steps).items():
        problems += run_job(job, run, os.path.abspath(options.stplan), out, figures, [NATIVE, *options.runs], options.rounds)
    out.lines(["", "Problems:" + ("" if problems else " none."), *(f"- {text}" for text in problems)])
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
