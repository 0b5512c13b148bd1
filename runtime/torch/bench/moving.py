"""Checks every word of tensors on several streams while idle memory moves under them, and
writes how many were wrong, as Markdown.

    python runtime/torch/bench/moving.py bin/stplan --out docs/results

Three streams allocate tensors of 64 KiB to 640 MiB, fill each with a number of its own, and free them at
random, far ahead of the device, so that memory moves while it is still in use. Before a tensor is
freed, its own stream, or another one that record_stream names, compares every word with the
number. The process may have a twelfth more memory than it keeps allocated (as
torch.cuda.set_per_process_memory_fraction has it), so much has to move. It runs natively, and under `stplan run
--no-plan` with moving on and off.

The exit code is 1 if a word is wrong, or if moving is on and the program fails or nothing moves. Without
moving, as natively, it may run out of memory. Needs torch and a CUDA device with 24 GiB.
"""

from __future__ import annotations

import argparse
import json
import random
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List, Sequence, Tuple

from table import GIB, Output

MIB = 1 << 20

# What is kept allocated, in bytes: from 16 GiB on a pool has granules of 8 MiB, beside those of 2.
KEPT = 20 * GIB

# The limit is this share above it.
SPARE = 12

# Cycles of the device's clock, about 0.4 ms, before some of the fills and checks: the host
# is then far ahead.
SLEEP = 800_000

ALLOCATORS = ("native", "no plan", "no plan, --move off")

INTRODUCTION = """# Every word, while memory moves

Written by `runtime/torch/bench/moving.py` on torch {torch}, {device}:

    {command}

Three streams allocate tensors of 64 KiB to 640 MiB, fill each with a number of its own, and free them at
random, {operations:,} of them, far ahead of the device, so that memory moves while it is still in use. Before a tensor is
freed, its own stream, or another one that `record_stream` names, compares every word with the number. 20 GiB
are kept allocated, and the process may have a twelfth more.

"""


def job(operations: int, seed: int) -> None:
    """Runs the program, and prints its figures."""
    import torch

    draw = random.Random(seed)
    device = torch.device("cuda:0")
    total = torch.cuda.get_device_properties(device).total_memory
    torch.cuda.set_per_process_memory_fraction((KEPT + KEPT / SPARE) / total, device)
    streams = [torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.Stream()]
    wrong = [torch.zeros((), dtype=torch.int64, device=device) for _ in streams]
    live: List[Tuple[Any, int, int]] = []
    kept = checked = 0

    def late() -> None:
        if draw.random() < 0.3:
            torch.cuda._sleep(SLEEP)

    def check(reader: int, tensor: Any, number: int) -> None:
        # In pieces, so that little memory is needed beside.
        for piece in tensor.split(16 * MIB):
            wrong[reader] += (piece != number).sum()

    def drop() -> None:
        nonlocal kept, checked
        tensor, number, own = live.pop(draw.randrange(len(live)))
        reader = draw.randrange(len(streams))
        if reader != own:
            streams[reader].wait_stream(streams[own])
        with torch.cuda.stream(streams[reader]):
            late()
            check(reader, tensor, number)
        if reader != own:
            tensor.record_stream(streams[reader])
        kept -= tensor.nbytes
        checked += tensor.numel()

    def size() -> int:
        kind = draw.random()
        if kind < 0.3:
            return draw.randrange(64 << 10, MIB)
        return draw.randrange(MIB, 48 * MIB) if kind < 0.7 else draw.randrange(48 * MIB, 640 * MIB)

    for number in range(1, operations + 1):
        words = size() // 4
        while live and kept + 4 * words > KEPT:
            drop()
        own = draw.randrange(len(streams))
        with torch.cuda.stream(streams[own]):
            tensor = torch.empty(words, dtype=torch.int32, device=device)
            late()
            tensor.fill_(number)
        live.append((tensor, number, own))
        kept += tensor.nbytes
    while live:
        drop()
    torch.cuda.synchronize()
    served = getattr(sys.modules.get("stplan"), "stats", None)
    print("figures", json.dumps({
        "wrong": int(sum(int(count) for count in wrong)),
        "checked": checked,
        "reserved": torch.cuda.max_memory_reserved(),
        "allocated": torch.cuda.max_memory_allocated(),
        "moved": served()["moved_bytes"] if served else 0,
        "device": torch.cuda.get_device_name(device),
        "torch": torch.__version__,
    }))


def run(stplan: str, allocator: str, operations: int, seed: int) -> Dict[str, Any]:
    """The figures of one run, or its error."""
    command = [sys.executable, str(Path(__file__).resolve()), "--job", "--operations", str(operations), "--seed", str(seed)]
    if allocator != "native":
        move = ["--move", "off"] if "off" in allocator else []
        command = [stplan, "run", "--no-plan", *move, "--", *command]
    done = subprocess.run(command, capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("figures ")]
    if done.returncode == 0 and lines:
        return dict(json.loads(lines[-1][len("figures "):]))
    said = done.stderr.strip().splitlines()
    return {"error": "out of memory" if "OutOfMemoryError" in done.stderr else said[-1] if said else f"exit {done.returncode}"}


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stplan", nargs="?", help="the stplan binary")
    parser.add_argument("--job", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--operations", type=int, default=3000, help="tensors that are allocated")
    parser.add_argument("--seed", type=int, default=1, help="first seed")
    parser.add_argument("--seeds", type=int, default=3, help="how many seeds")
    parser.add_argument("--out", help="folder for moving.md and moving.json")
    args = parser.parse_args(arguments)
    if args.job:
        job(args.operations, args.seed)
        return 0
    if args.stplan is None:
        parser.error("expected the stplan binary, found none")
    out = Output(args.out, "moving")
    found: List[Dict[str, Any]] = []
    about = {"device": "no device", "torch": "?"}
    rows = ["| seed | allocator | words compared | wrong | reserved / allocated | GiB moved |", "|---|---|---:|---:|---:|---:|"]
    problems = 0
    for seed in range(args.seed, args.seed + args.seeds):
        for allocator in ALLOCATORS:
            figures = run(args.stplan, allocator, args.operations, seed)
            found.append({"seed": seed, "allocator": allocator, **figures})
            out.keep(found)
            if "error" in figures:
                rows.append(f"| {seed} | {allocator} | {figures['error']} | | | |")
                problems += allocator == "no plan"
                continue
            about = figures
            rows.append(f"| {seed} | {allocator} | {figures['checked']:,} | {figures['wrong']} | "
                        f"{figures['reserved'] / figures['allocated']:.4f} | {figures['moved'] / GIB:.1f} |")
            problems += figures["wrong"] > 0 or (allocator == "no plan" and figures["moved"] == 0)
            print(rows[-1], file=sys.stderr, flush=True)
    command = shlex.join(["python", "runtime/torch/bench/moving.py", *arguments])
    introduction = INTRODUCTION.format(torch=about["torch"], device=about["device"], command=command, operations=args.operations)
    out.lines([*introduction.splitlines(), *rows, "", f"Problems: {problems or 'none'}."])
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
