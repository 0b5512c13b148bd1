"""Runs two threads that share a sparse matrix (sparse_job.py) under PyTorch's allocators and
under stplan, many times, and writes how often they went wrong, as Markdown.

    python runtime/torch/bench/sparse.py bin/stplan --out docs/results

PyTorch's test of the same has died of an illegal instruction under stplan in a few runs. This
shows how often, under which allocator, in the test's products and in the sorts alone, of which
a process makes many more in the same time. Needs torch and one CUDA device. There are 6 modes
and --processes processes in each, --together at a time, of one mode after the other: with 4
processes of 30 s, 4 at a time, 4 minutes. A process that dies is followed by the next, so the
number of rounds to compare with is in the table. What does not begin within --budget seconds is
left out. The exit code is 1 if a process goes wrong under stplan.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional

import features
from table import Output, line

SCRIPT = Path(__file__).resolve().with_name("sparse_job.py")

EXPANDABLE = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}


class Mode(NamedTuple):
    """options: of `stplan run`, or None without it. sort: only sorts, no products."""

    name: str
    options: Optional[List[str]] = None
    environment: Dict[str, str] = {}
    sort: bool = False


MODES = (
    Mode("native"),
    Mode("no plan", []),
    Mode("native, sorts", sort=True),
    Mode("expandable, sorts", environment=EXPANDABLE, sort=True),
    Mode("no plan, sorts", [], sort=True),
    Mode("no plan, plain, sorts", ["--memory", "plain"], sort=True),
)


class Result(NamedTuple):
    """One process. error: what ended it, "" if its time was over."""

    rounds: int = 0
    wrong: int = 0
    error: str = ""


def command(stplan: str, mode: Mode, seconds: float) -> List[str]:
    job = [sys.executable, str(SCRIPT), "--seconds", str(seconds), *(["--sort"] if mode.sort else [])]
    environment = ["env", *(f"{key}={value}" for key, value in mode.environment.items())]
    served = [] if mode.options is None else [stplan, "-q", "run", *mode.options, "--no-plan", "--"]
    return [*environment, *served, *job]


def run(stplan: str, mode: Mode, seconds: float, deadline: float) -> Optional[Result]:
    """One process, or None if it is too late for it."""
    if time.monotonic() > deadline:
        return None
    done = features.run(command(stplan, mode, seconds))
    told = [text for text in done.stdout.splitlines() if text.startswith("sparse ")]
    if not told:
        return Result(error=f"exit code {done.returncode}: {features.last(done)}")
    return Result(**json.loads(told[-1][len("sparse ") :]))


def row(mode: Mode, results: List[Result]) -> List[str]:
    ended = [result for result in results if result.error]
    rounds, wrong = sum(result.rounds for result in results), sum(result.wrong for result in results)
    return [mode.name, str(len(results)), f"{rounds:,}", f"{wrong:,}", str(len(ended))]


def header(about: str, seconds: float) -> List[str]:
    return [
        "# Two threads that share a sparse matrix",
        "",
        f"Written by `runtime/torch/bench/sparse.py` on {about}:",
        "",
        f"    {shlex.join(['python', 'runtime/torch/bench/sparse.py', *sys.argv[1:]])}",
        "",
        "Two threads multiply by the same sparse matrix, each on a stream of its own, as PyTorch's test",
        f"`test_cusparse_multiple_threads_same_device` does, for {seconds:.0f} s in each process. A round is 100",
        "products of each thread. *sorts*: a round is 100 sorts of the matrix's entries, which a product begins",
        "with. *wrong* rounds came out wrong, without an error.",
        "",
        line(["allocator", "processes", "rounds", "wrong", "ended by an error"]),
        line(["---", *["---:"] * 4]),
    ]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stplan", help="the stplan binary")
    parser.add_argument("--modes", help="names of modes, separated by semicolons; all if it is not given")
    parser.add_argument("--processes", type=int, default=4, help="processes in each mode (default: 4)")
    parser.add_argument("--seconds", type=float, default=30.0, help="seconds of each process (default: 30)")
    parser.add_argument("--together", type=int, default=4, help="processes at the same time (default: 4)")
    parser.add_argument("--budget", type=float, default=500.0, help="seconds after which no process is started (default: 500)")
    parser.add_argument("--out", help="folder for sparse.md and sparse.json")
    return parser.parse_args()


def main() -> int:
    options = arguments()
    known = [mode.name for mode in MODES]
    wanted = options.modes.split(";") if options.modes else known
    unknown = [name for name in wanted if name not in known]
    if unknown:
        sys.exit(f"sparse.py: --modes: expected some of {'; '.join(known)}, found {'; '.join(unknown)}")
    modes = [mode for mode in MODES if mode.name in wanted]
    out = Output(options.out, "sparse")
    out.lines(header(features.about(), options.seconds))
    stplan, deadline = str(Path(options.stplan).resolve()), time.monotonic() + options.budget
    with ThreadPoolExecutor(options.together) as pool:
        turns = [(mode, pool.submit(run, stplan, mode, options.seconds, deadline)) for mode in modes for _ in range(options.processes)]
        found: Dict[str, List[Result]] = {mode.name: [] for mode in modes}
        for mode, future in turns:
            result = future.result()
            if result is not None:
                found[mode.name].append(result)
                out.keep({name: [r._asdict() for r in results] for name, results in found.items()})
    out.lines([line(row(mode, found[mode.name])) for mode in modes])
    errors = [f"{mode.name}: {result.error}" for mode in modes for result in found[mode.name] if result.error]
    out.lines(["", "Errors:" + ("" if errors else " none."), *(f"- {' '.join(text.split())}" for text in errors)])
    return 1 if any(wrong_under_stplan(mode, found[mode.name]) for mode in modes) else 0


def wrong_under_stplan(mode: Mode, results: List[Result]) -> bool:
    return mode.options is not None and any(result.wrong or result.error for result in results)


if __name__ == "__main__":
    sys.exit(main())
