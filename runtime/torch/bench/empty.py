"""Measures the time of an allocation and its free in a program that calls torch.empty.

    python runtime/torch/bench/empty.py bin/stplan

The same loop runs natively, with expandable segments, under stplan with its own plan,
under stplan without a plan, and through the C interface that serves machines without a
compiler. Their steps take turns, each alone on the device. *meta* uses the device meta,
which allocates nothing: its time is that of Python and torch. Needs torch and one CUDA
device.
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
"""Sizes of the tensors in bytes, in order. Each is freed before the next is made."""

CALLS = 4_000
"""Tensors in a step: few, so that a disturbance of the machine falls on all variants."""

TIMEOUT = 120.0
"""Seconds for one command."""

# CXX=none means that there is no C++ compiler: then the C interface serves.
NO_COMPILER = {"CXX": "none"}

INTRODUCTION = """# Time of torch.empty

Written by `runtime/torch/bench/empty.py` on {about}.
A tensor of each size ({sizes} bytes) is allocated and freed in turn. *µs each* is the time
of an allocation and its free: the median over {rounds} steps of {calls:,} tensors, taken in
turns; *least* is the smallest. *of native* divides a step's time by that of native's step
in the same round: the median over the rounds, and the quartiles. *meta* allocates nothing:
its time is that of Python and torch.
"""


def job(device: str, steps: int) -> None:
    """The loop. Each step ends with the step of an optimizer without gradients, so that
    `stplan record` counts it."""
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
    """Returns the lines of the table, and of problems."""
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
    parser.add_argument("stplan", nargs="?", help="the stplan binary")
    parser.add_argument("--rounds", type=int, default=100, help="timed steps of each variant")
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
