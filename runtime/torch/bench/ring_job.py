"""Ranks that each post a receive and then allocate, before they send. ring.py runs them.

    python ring_job.py --ranks 3 [--rounds N] [--limit SECONDS]

Rank r receives from the rank before it and sends to the rank after it. A host that waits,
between the two, for everything on its device waits for its receive; if all do, none of them
ever sends. Natively nothing waits. Two ranks use two groups, one for each direction: in one
communicator a send would stay behind the receive on any allocator. The memory of each rank
is in pieces then, so that under stplan the request may need memory to move.

Without RANK in the environment the script starts the ranks, each on a GPU of its own. After
each round a rank prints its progress. A rank that takes longer than --limit seconds prints
where it is and ends. This script does not use stplan.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import subprocess
import sys
import tempfile
from typing import Any, List

import torch
import torch.distributed as dist

# Bytes of the blocks that memory is divided into in the first round, and by how much they
# grow from round to round, so that what was free before does not hold the next request. A
# request is as large as 3 of them.
UNIT, GROWTH = 64 << 20, 8 << 20

DEVICE, BACKEND = "cuda", "nccl"


def in_pieces(unit: int) -> List[torch.Tensor]:
    """Every second of 8 blocks, the last one too: 4 units lie free before them, and no 2 together."""
    blocks = [torch.empty(unit, dtype=torch.int8, device=DEVICE) for _ in range(8)]
    return blocks[1::2]


def request(unit: int) -> torch.Tensor:
    return torch.empty(3 * unit, dtype=torch.int8, device=DEVICE)


def moved_bytes() -> int:
    served = getattr(sys.modules.get("stplan"), "stats", None)
    return int(served()["moved_bytes"]) if served else 0


def introduce(rank: int, ranks: int, groups: List[Any]) -> None:
    """An exchange in both directions on every pair of ranks and in every group, so that all
    communicators exist. To make one, both ranks have to call."""
    word = torch.zeros(1, device=DEVICE)
    for group in groups:
        for low in range(ranks):
            for high in range(low + 1, ranks):
                for source, target in ((low, high), (high, low)):
                    if rank == source:
                        dist.send(word, target, group=group)
                    elif rank == target:
                        dist.recv(word, source, group=group)
    torch.cuda.synchronize()


def exchange(rank: int, ranks: int, groups: List[Any], number: int) -> None:
    """One round: receive, allocate, send."""
    before, after = (rank - 1) % ranks, (rank + 1) % ranks
    # The group of a message is its sender's: all ranks of a ring have the same one.
    receiving, sending = groups[before % len(groups)], groups[rank % len(groups)]
    mine, theirs = (torch.full((1024,), float(value), device=DEVICE) for value in (number * ranks + rank, -1))
    unit = UNIT + number * GROWTH
    kept = in_pieces(unit)
    torch.cuda.synchronize()
    received = dist.irecv(theirs, before, group=receiving)
    large = request(unit)
    sent = dist.isend(mine, after, group=sending)
    for work in (received, sent):
        assert work is not None
        work.wait()
    large.zero_()
    assert bool((theirs == number * ranks + before).all()), f"round {number}: received wrong numbers"
    del kept, large


def run(rank: int, ranks: int, rounds: int, store: str) -> None:
    torch.cuda.set_device(rank)
    # With a device_id here all pairs would share one communicator, and its one stream.
    dist.init_process_group(BACKEND, init_method=f"file://{store}", rank=rank, world_size=ranks)
    groups = [dist.new_group(), dist.new_group()] if ranks == 2 else [dist.new_group()]
    introduce(rank, ranks, groups)
    for number in range(rounds):
        exchange(rank, ranks, groups, number)
        progress = {"rank": rank, "rounds": number + 1, "moved_bytes": moved_bytes()}
        # Printed by one write, since the ranks share their standard output.
        print(f"ring {json.dumps(progress)}\n", end="", flush=True)
    dist.destroy_process_group()


def start(ranks: int) -> int:
    """Starts the ranks, and returns the largest of their exit codes."""
    with tempfile.TemporaryDirectory() as folder:
        own = {"WORLD_SIZE": str(ranks), "STORE": os.path.join(folder, "store")}
        command = [sys.executable, *sys.argv]
        jobs = [subprocess.Popen(command, env={**os.environ, **own, "RANK": str(r), "LOCAL_RANK": str(r)}) for r in range(ranks)]
        return max(abs(job.wait()) for job in jobs)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--limit", type=float, default=45.0, help="seconds of a rank, its start included")
    options = parser.parse_args()
    if "RANK" not in os.environ:
        return start(options.ranks)
    faulthandler.dump_traceback_later(options.limit, exit=True)
    run(int(os.environ["RANK"]), options.ranks, options.rounds, os.environ["STORE"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
