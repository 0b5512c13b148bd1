"""What one allocation and its free cost a program that calls torch.empty.

    python runtime/torch/bench/empty.py bin/stplan

The same loop natively, with expandable segments, under stplan with its own plan,
without one, and through the C interface that serves where there is no compiler;
in turns, each alone. *meta* allocates nothing: what remains is Python's and
torch's own. Needs torch and one CUDA device.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import List

import table
from driver import Device
from side_by_side import Pace, SideBySide, Start

SIZES = (512, 64 << 10, 1 << 20, 16 << 20)
"""Bytes of the tensors, one after the other; each is gone before the next."""

CALLS = 4_000
"""Tensors of a step: few, so that what disturbs the machine disturbs all alike."""

TIMEOUT = 120.0

# Without a C++ compiler the C interface serves.
NO_COMPILER = {"CXX": "none"}

INTRODUCTION = """# What torch.empty costs

Written by `runtime/torch/bench/empty.py` on {about}. An allocation of
{sizes} bytes and its free, one after the other: the median of
{rounds} steps of {calls:,} tensors each, taken in turns, and the least; *of native* is
the median over the rounds (quartiles) of a step's time by native's in that round.
*meta* allocates nothing: Python's and torch's own share.
"""


def job(device: str, steps: int) -> None:
    """The loop. A step ends with one of an optimizer that has nothing to do, so
    that it is recorded like any other job's."""
    import torch

    from steps import Steps

    turns = Steps()
    optimizer = torch.optim.SGD([torch.zeros(1, device=device, requires_grad=True)])
    for _ in range(steps):
        with turns.step():
            for _ in range(CALLS // len(SIZES)):
                for size in SIZES:
                    torch.empty(size, dtype=torch.uint8, device=device)
            optimizer.step()
    turns.end()


def measure(stplan: str, folder: Path, rounds: int) -> List[str]:
    """The table, and what went wrong."""
    pace = Pace(rounds=rounds, seconds=TIMEOUT)
    loop = [sys.executable, os.path.abspath(__file__), "--job"]
    steps = ["--steps", str(pace.warm + pace.rounds)]
    plan = folder / "plan.bin"
    call([stplan, "record", "-o", str(folder), "--", *loop, "cuda"])
    call([stplan, "-q", "compile", *map(str, folder.glob("*.pickle.gz")), "-o", str(plan)])
    served = [*loop, "cuda", *steps]
    starts = {
        "native": Start(served),
        "expandable": Start(served, {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}),
        "stplan": Start([stplan, "run", str(plan), "--", *served]),
        "no plan": Start([stplan, "run", "--no-plan", "--", *served]),
        "no plan, C interface": Start([stplan, "run", "--no-plan", "--", *served], NO_COMPILER),
        "meta": Start([*loop, "meta", *steps]),
    }
    measured, problems = SideBySide(folder / "empty", starts).play(lambda: 0, pace, TIMEOUT)
    lines = ["| allocator | served by | µs each | least | of native | on plan |", "| --- | --- | ---: | ---: | ---: | ---: |"]
    for name, m in measured.items():
        each = [1e6 * seconds / CALLS for seconds in m.seconds]
        counters = m.report["stplan"] or {}
        planned = table.on_plan(counters) if name == "stplan" else ""
        native = measured.get("native")
        ratio = table.against(m, native, beside=True) if native and name != "native" else ""
        median, least = f"{statistics.median(each):.3f}", f"{min(each):.3f}"
        lines.append(table.line((name, counters.get("backend", "torch"), median, least, ratio, planned)))
    return [*lines, "", *problems]


def call(command: List[str]) -> None:
    subprocess.run(command, check=True, timeout=TIMEOUT, stdout=subprocess.DEVNULL)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("stplan", nargs="?", help="the binary")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--steps", type=int, default=4, help=argparse.SUPPRESS)
    parser.add_argument("--job", metavar="DEVICE", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.job:
        job(chosen.job, chosen.steps)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        lines = measure(os.path.abspath(chosen.stplan), Path(folder), chosen.rounds)
    sizes = ", ".join(f"{size:,}" for size in SIZES)
    print(INTRODUCTION.format(about=Device().about(), sizes=sizes, rounds=chosen.rounds, calls=CALLS))
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
