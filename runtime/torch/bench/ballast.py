"""Trains a job beside a process that leaves it too little memory, and finds out which
configurations train at all and how fast they are.

    python runtime/torch/bench/ballast.py bin/stplan > docs/results/ballast.md

The job is finetune.py. Its faster configuration is recorded, compiled and run once alone
under `stplan run`. Then a ballast process takes the device's memory, except what that run
used. PyTorch's own allocators try the same configuration, and then configurations that
need less memory. Every configuration that trains is timed, one process at a time.

Needs torch, transformers and one CUDA device that nothing else uses. The exit code is 1
if stplan does not train, or if another allocator trains the same configuration.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional

HERE = Path(__file__).resolve().parent

# Bytes that the ballast leaves free in addition to what the first run used, for pages and
# kernels that another process may load. Every run gets them.
SLACK = 48 << 20

# Seconds until a run is given up as hanging.
TIMEOUT = 60

SETTINGS = {"expandable": "expandable_segments:True", "native": ""}

# Settings that are recommended against fragmentation. They are tried with the faster
# configuration only.
ADVISED = {
    "native, max_split_size_mb:64": "max_split_size_mb:64",
    "expandable, large_segment_size_mb:12": "expandable_segments:True,large_segment_size_mb:12",
}

OUT_OF_MEMORY = ("OutOfMemoryError", "CUDA error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED")


class Choice(NamedTuple):
    """A configuration of the job: the number of sequences in a micro-batch, the number of
    recomputed layers, and whether torch's cache is emptied before each optimizer step."""

    micro: int
    recomputed: int
    release: bool = False

    def arguments(self) -> str:
        return f"--micro {self.micro} --recomputed {self.recomputed}{' --release' if self.release else ''}"


class Run(NamedTuple):
    """The result of one run. figures are those that finetune.py prints, or None if it ran
    out of memory."""

    allocator: str
    choice: Choice
    figures: Optional[Dict[str, Any]]

    def speed(self) -> float:
        """Optimizer steps per second; 0 if it does not train."""
        return 1 / self.figures["step_s"] if self.figures else 0.0

    def row(self) -> str:
        micro, recomputed, release = self.choice
        cells = [self.allocator + (", cache emptied each step" if release else ""), str(micro), str(recomputed)]
        if self.figures is None:
            return "| " + " | ".join([*cells, "out of memory", "", "", ""]) + " |"
        sizes = (gib(self.figures[f"peak_{kind}_bytes"]) for kind in ("allocated", "reserved"))
        return "| " + " | ".join([*cells, f"{1000 * self.figures['step_s']:.1f}", *sizes, str(self.figures["retries"])]) + " |"


class Waiting:
    """A process that imports everything, prints "ready" and then waits for arguments on
    standard input. It does not use the GPU before that."""

    def __init__(self, name: str, settings: str, command: List[str], folder: Path) -> None:
        """name: for errors. settings: of torch's allocator. folder: for temporary files."""
        self.name = name
        self._ready = False
        self.errors = tempfile.TemporaryFile("w+", dir=folder)
        self.process = subprocess.Popen(
            command, env={**os.environ, "PYTORCH_CUDA_ALLOC_CONF": settings},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True, start_new_session=True,
        )

    def ready(self) -> None:
        """Waits until it has imported everything, or has ended."""
        assert self.process.stdout
        while not self._ready:
            line = self.process.stdout.readline()
            self._ready = not line or line.strip() == "ready"

    def go(self, arguments: str) -> Optional[str]:
        """Runs it to its end with further arguments. Returns its standard output, or None if
        it ran out of memory. RuntimeError if it fails otherwise."""
        try:
            said, _ = self.process.communicate(arguments + "\n", timeout=TIMEOUT)
        except subprocess.TimeoutExpired:
            self.drop()
            raise RuntimeError(f"{self.name}, {arguments}: still running after {TIMEOUT} s") from None
        if self.process.returncode == 0:
            return said
        self.errors.seek(0)
        errors = self.errors.read()
        if not any(sign in errors for sign in OUT_OF_MEMORY):
            raise RuntimeError(f"{self.name}, {arguments}: exit code {self.process.returncode}\n{errors[-2000:]}")
        return None

    def drop(self) -> None:
        """Kills the process and all processes that it started, if it still runs."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


class Ballast:
    """The other process, which holds memory by torch.empty."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--hold"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.total = 0  # bytes of the device
        self.free = self.ask(0)  # bytes that are free beside the ballast's CUDA context

    def ask(self, size: int) -> int:
        """Makes the ballast take `size` more bytes. Returns the free bytes after that."""
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(f"{size}\n")
        self.process.stdin.flush()
        free, self.total = map(int, self.process.stdout.readline().split())
        return free

    def end(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait()


def hold() -> None:
    import torch

    held = []
    for line in sys.stdin:
        held.append(torch.empty(int(line), dtype=torch.uint8, device="cuda"))
        print(*torch.cuda.mem_get_info(), flush=True)


class Bench:
    def __init__(self, stplan: str, job: List[str], steps: int, folder: Path) -> None:
        """job: the arguments of finetune.py that all configurations share."""
        self.stplan, self.job, self.steps, self.folder = stplan, job, steps, folder
        self.waiting: Dict[str, List[Waiting]] = {}
        self.runs: List[Run] = []

    def prepare(self, allocator: str, *prefix: str) -> None:
        settings = {**SETTINGS, **ADVISED}.get(allocator, "")
        command = [*prefix, sys.executable, str(HERE / "finetune.py"), *self.job, "--gate"]
        self.waiting.setdefault(allocator, []).append(Waiting(allocator, settings, command, self.folder))

    def settle(self) -> None:
        """Waits until all processes have imported, so that imports disturb no timing."""
        for processes in self.waiting.values():
            for process in processes:
                process.ready()

    def go(self, allocator: str, choice: Choice, steps: int = 0) -> Run:
        if not self.waiting.get(allocator):
            self.prepare(allocator)
        said = self.waiting[allocator].pop(0).go(f"{choice.arguments()} --steps {steps or self.steps}")
        run = Run(allocator, choice, None if said is None else json.loads(said.splitlines()[-1]))
        self.runs.append(run)
        return run

    def plan(self, choice: Choice) -> Path:
        """Records the configuration under the native allocator, and compiles a plan."""
        traces, plan = self.folder / "traces", self.folder / "plan.bin"
        self.prepare("recorded", self.stplan, "record", "--steps", "4", "-o", str(traces), "--")
        if self.go("recorded", choice, 5).figures is None:
            raise RuntimeError("out of memory while it was recorded without a ballast")
        compiled = [self.stplan, "-q", "compile", *map(str, traces.iterdir()), "-o", str(plan)]
        subprocess.run(compiled, check=True, stdout=sys.stderr)
        return plan

    def least_recomputed(self, allocator: str, micro: int, layers: int, grain: int, most_failed: int) -> int:
        """Finds the smallest number of recomputed layers that trains, by
        bisection in steps of `grain` layers, and runs the next larger number
        too, which may be faster when memory is scarce. most_failed is a number
        that is known to fail, or -1. Returns the largest number that failed."""
        tried: Dict[int, bool] = {}

        def trains(parts: int) -> bool:
            if parts not in tried:
                tried[parts] = shown(self.go(allocator, Choice(micro, parts * grain))).figures is not None
            return tried[parts]

        low, high = most_failed // grain, layers // grain
        if not trains(high):
            return layers
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if trains(middle) else (middle, high)
        if high < layers // grain:
            trains(high + 1)
        return low * grain

    def close(self) -> None:
        for processes in self.waiting.values():
            for process in processes:
                process.drop()


def gib(size: float) -> str:
    return f"{size / 2**30:.3f}"


def shown(run: Run) -> Run:
    print(run.row(), flush=True)
    return run


# Processes that are started in advance, by allocator: as many as the search is likely to
# need. If more are needed, they are started then.
PROCESSES = {"expandable": 8, "native": 6, **dict.fromkeys(ADVISED, 1)}


def measure(bench: Bench, micro: int, layers: int, grain: int) -> int:
    target = Choice(micro, layers)
    for allocator, number in PROCESSES.items():
        for _ in range(number):
            bench.prepare(allocator)
    ballast = Ballast()
    card = ballast.free
    plan = bench.plan(target)
    for _ in range(2):
        bench.prepare("stplan", bench.stplan, "run", str(plan), "--")
    bench.settle()
    alone = bench.go("stplan", target)
    if alone.figures is None:
        raise RuntimeError("stplan: out of memory without a ballast")
    footprint = card - alone.figures["free_bytes"]
    left = ballast.ask(card - footprint - SLACK)
    print(f"Alone, the process used {gib(footprint)} GiB under stplan, its CUDA context included; the ballast")
    print(f"leaves {gib(left)} GiB of the card's {gib(card)} GiB.\n")
    print("| allocator | micro-batch | layers recomputed | ms/step | peak allocated GiB | peak reserved GiB | retries |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    bench.runs.clear()

    served = shown(bench.go("stplan", target))
    same = [shown(bench.go(a, target._replace(release=release))) for a in SETTINGS for release in (False, True)]
    for allocator in ADVISED:
        shown(bench.go(allocator, target))
    failed = -1
    for allocator in SETTINGS:  # in this order: native needs at least as much as expandable
        failed = bench.least_recomputed(allocator, micro // 2, layers, grain, failed)
    ballast.end()

    best = max((r for r in bench.runs if r.allocator != "stplan"), key=Run.speed)
    if served.figures is None:
        print("\nstplan does not train it.")
        return 1
    if best.figures is None:
        print("\nNothing trains without stplan.")
    else:
        gain = served.speed() / best.speed() - 1
        print(f"\nThroughput under stplan against the fastest of the others: {100 * gain:+.1f} %.")
    return 1 if any(run.figures for run in same) else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stplan", nargs="?", help="the stplan binary")
    parser.add_argument("--model", default="gpt2-xl", help="a model of finetune.py")
    parser.add_argument("--sequences", type=int, default=4, help="sequences in an optimizer step of any configuration")
    parser.add_argument("--micro", type=int, default=2, help="sequences in a micro-batch of the faster configuration")
    parser.add_argument("--layers", type=int, default=48, help="layers of the model")
    parser.add_argument("--grain", type=int, default=3, help="the search varies recomputed layers in steps of this number")
    parser.add_argument("--steps", type=int, default=6, help="optimizer steps of each run")
    parser.add_argument("--hold", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.hold:
        hold()
        return 0
    print("# Training beside a process that leaves too little memory\n")
    print(f"Written by `runtime/torch/bench/ballast.py`: {chosen.model}, full fine-tuning in bf16 by `finetune.py`,")
    print(f"micro-batch {chosen.micro} with every layer recomputed, compared with the configurations that fit without")
    print(f"stplan. Every configuration takes {chosen.sequences} sequences in an optimizer step.\n")
    with tempfile.TemporaryDirectory() as folder:
        job = ["--model", chosen.model, "--sequences", str(chosen.sequences)]
        bench = Bench(os.path.abspath(chosen.stplan), job, chosen.steps, Path(folder))
        try:
            return measure(bench, chosen.micro, chosen.layers, chosen.grain)
        finally:
            bench.close()


if __name__ == "__main__":
    sys.exit(main())
