"""Runs a job under a plan that was made of another one, and writes what that costs, as
Markdown.

    python runtime/torch/bench/unlike.py bin/stplan --out docs/results

The job (unlike_job.py) runs under `stplan run` with an empty cache, and leaves a plan there. Then
it runs with another model, another batch size, sequences of half the length, and its iterations
in a random order, and finds that plan each time: natively, with expandable segments, without a
plan, with the plan that was found, and with it while another may be learned. As a control it
also runs once as it was. Every run gets a copy of the cache.

Runs are made --together at a time, since only memory, losses and messages are compared.
unlike.json has all figures. What does not begin within --time-limit seconds is left out, and
said. Needs torch, transformers and one CUDA device. The exit code is 1 if a loss is not
native's to the last bit, if the plan was not found, if it makes a run reserve more than MORE
above what no plan does, if a process says more than it should, or if a process fails.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from table import GIB, Output, equal, first_difference, gib, line

SCRIPT = Path(__file__).resolve().with_name("unlike_job.py")

ENVIRONMENT = "STPLAN_BENCH_UNLIKE"

ITSELF, MODEL, BATCH, LENGTH, SHUFFLED = "itself", "another model", "another batch size", "half the length", "shuffled"
WAYS = (ITSELF, MODEL, BATCH, LENGTH, SHUFFLED)
"""In what a run differs from that of which the plan was made: the values of the environment
variable above."""

NATIVE, EXPANDABLE, POOL, FOUND, LEARNING = "native", "expandable", "no plan", "found plan", "found plan, learning"

# Lines that a process may print while it runs. With a plan that does not fit it says so once,
# and once more if another plan takes its place.
LINES = {POOL: 0, FOUND: 1, LEARNING: 2}

# How much more than without a plan a run may reserve: what docs/runtime.md says a plan that does
# not fit costs at most before it is given up, and some granules of 2 MiB.
MORE, GRANULES = 1.03, 16 << 20

# Seconds until a run is given up as hanging.
TIMEOUT = 120

COLUMNS = (
    ("the plan's job with", "---"),
    ("run", "---"),
    ("reserved GiB", "---:"),
    ("/ allocated", "---:"),
    ("of bytes on plan", "---:"),
    ("GiB moved", "---:"),
    ("plans put in place", "---:"),
    ("lines", "---:"),
    ("equal losses", "---:"),
)

INTRODUCTION = """# Jobs that are unlike their plan

Written by `runtime/torch/bench/unlike.py`:

    {command}

A small language model was trained for {steps} steps under `stplan run`, which learned a plan. Then it
was changed without stplan's knowledge, and found that plan. *found plan* is `stplan run --no-learn`,
*found plan, learning* is `stplan run`, and *no plan* `stplan run --no-plan`. *lines* is what the
process printed meanwhile; all of it is below the table.
"""


class Result(NamedTuple):
    """figures: what the job printed, or None. device: the row of `stplan run --summary`, if there
    is one. plan: the file that served it. said: lines of the process. notes: those of the
    launcher."""

    figures: Optional[Dict[str, Any]]
    device: Dict[str, Any] = {}
    plan: Optional[str] = None
    said: List[str] = []
    notes: List[str] = []
    wrong: str = ""


class Bench:
    def __init__(self, stplan: str, steps: int, folder: Path, deadline: float) -> None:
        self.stplan, self.folder, self.deadline = stplan, folder, deadline
        self.command = [sys.executable, str(SCRIPT), "--steps", str(steps)]
        self.cache = folder / "learned"

    def learn(self) -> Result:
        """The first run, which leaves a plan in the cache."""
        return self._run(ITSELF, "learned", ["--cache", str(self.cache)])

    def run(self, way: str, configuration: str) -> Result:
        if time.monotonic() > self.deadline:
            return Result(None, wrong="left out, time was short")
        if configuration in (NATIVE, EXPANDABLE):
            return self._run(way, configuration, None)
        if configuration == POOL:
            return self._run(way, configuration, ["--no-plan"])
        cache = self.folder / f"{way} {configuration}"
        shutil.copytree(self.cache, cache)
        return self._run(way, configuration, ["--cache", str(cache), *(["--no-learn"] if configuration == FOUND else [])])

    def _run(self, way: str, configuration: str, options: Optional[List[str]]) -> Result:
        settings = {EXPANDABLE: "expandable_segments:True"}.get(configuration, "")
        environment = {**os.environ, ENVIRONMENT: way, "PYTORCH_CUDA_ALLOC_CONF": settings}
        summary = self.folder / f"{way} {configuration}.json"
        command = self.command
        if options is not None:
            command = [self.stplan, "run", "--summary", str(summary), *options, "--", *command]
        try:
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TIMEOUT)
        except subprocess.TimeoutExpired:
            return Result(None, wrong=f"still running after {TIMEOUT} s")
        found = [text[len("figures ") :] for text in done.stdout.splitlines() if text.startswith("figures ")]
        lines = done.stderr.splitlines()
        if done.returncode != 0 or not found:
            raised = [text for text in lines if "Error" in text] or lines or ["nothing on standard error"]
            return Result(None, wrong=f"exit code {done.returncode}, {raised[-1]}")
        said, notes = ([text for text in lines if text.startswith(start)] for start in ("stplan: ", "note: "))
        figures = {name: value for name, value in json.loads(found[-1]).items() if name != "stplan_steps"}
        if options is None:
            return Result(figures)
        processes = json.loads(summary.read_text())["processes"]
        device, plan = ((processes[0]["devices"] or [{}])[0], processes[0]["plan"]) if processes else ({}, None)
        return Result(figures, device, plan, said, notes)


def row(way: str, configuration: str, result: Result, native: Result) -> str:
    figures, device = result.figures, result.device
    if figures is None:
        return line([way, configuration, result.wrong, *[""] * 6])
    losses = figures["losses"]
    planned = configuration in (FOUND, LEARNING)
    return line([
        way,
        configuration,
        gib(figures["peak_reserved_bytes"]),
        f"{figures['peak_reserved_bytes'] / figures['peak_allocated_bytes']:.4f}",
        f"{100 * device['planned_bytes_fraction']:.2f} %" if planned and device else "",
        f"{device['moved_bytes'] / GIB:.2f}" if device else "",
        device["installs"] if planned and device else "",
        len(result.said) if configuration in LINES else "",
        f"{equal(losses, native.figures['losses'])} of {len(losses)}" if native.figures else "",
    ])


def wrong(way: str, configuration: str, result: Result, native: Result, pool: Result) -> List[str]:
    """The problems of a run."""
    figures = result.figures
    if figures is None:
        return [result.wrong]
    found = []
    if native.figures and figures["losses"] != native.figures["losses"]:
        found.append(f"losses differ: {first_difference(figures['losses'], native.figures['losses'])}")
    if configuration in LINES and not result.device:
        found.append("stplan does not serve")
    if configuration in LINES and len(result.said) > LINES[configuration]:
        found.append(f"{len(result.said)} lines, expected at most {LINES[configuration]}")
    if configuration in (FOUND, LEARNING):
        reserved = figures["peak_reserved_bytes"]
        if result.plan is None:
            found.append("the plan was not found")
        if pool.figures and reserved > MORE * pool.figures["peak_reserved_bytes"] + GRANULES:
            found.append(f"reserves {gib(reserved)} GiB, without a plan {gib(pool.figures['peak_reserved_bytes'])}")
    return found


def messages(way: str, configuration: str, result: Result) -> List[str]:
    return [f"- {way}, {configuration}: `{text}`" for text in [*result.said, *result.notes]]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stplan", help="the stplan binary")
    parser.add_argument("--out", help="folder for unlike.md and unlike.json")
    parser.add_argument("--steps", type=int, default=24, help="optimizer steps of each run")
    parser.add_argument("--together", type=int, default=4, help="runs at a time; one takes at most 12 GiB")
    parser.add_argument("--time-limit", type=float, default=200, help="seconds after which no run begins")
    return parser.parse_args()


def measure(bench: Bench, together: int, out: Output) -> Tuple[List[str], List[str]]:
    """Runs everything, and writes the table. Returns the messages and the problems."""
    learned = bench.learn()
    if learned.figures is None:
        return [], [f"{ITSELF}, learned: {learned.wrong}"]
    results: Dict[str, Dict[str, Result]] = {way: {"learned": learned} if way == ITSELF else {} for way in WAYS}
    said: List[str] = []
    problems: List[str] = []
    with ThreadPoolExecutor(together) as threads:
        jobs = {(way, name): threads.submit(bench.run, way, name) for way in WAYS for name in (NATIVE, EXPANDABLE, POOL, FOUND, LEARNING)}
        for (way, name), job in jobs.items():
            results[way][name] = result = job.result()
            native, pool = results[way][NATIVE], results[way].get(POOL, Result(None))
            out.lines([row(way, name, result, native)])
            out.keep({way: {name: result._asdict() for name, result in made.items()} for way, made in results.items()})
            said += messages(way, name, result)
            problems += [f"{way}, {name}: {text}" for text in wrong(way, name, result, native, pool)]
    return said, problems


def main() -> int:
    options = arguments()
    begin = time.monotonic()
    out = Output(options.out, "unlike")
    command = shlex.join(["python", "runtime/torch/bench/unlike.py", *sys.argv[1:]])
    out.lines([*INTRODUCTION.format(command=command, steps=options.steps).splitlines(), ""])
    out.lines([line(name for name, _ in COLUMNS), line(rule for _, rule in COLUMNS)])
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(os.path.abspath(options.stplan), options.steps, Path(folder), begin + options.time_limit)
        said, problems = measure(bench, options.together, out)
    out.lines(["", "What was said:", *said, "", "Problems:" + ("" if problems else " none."), *(f"- {text}" for text in problems)])
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
