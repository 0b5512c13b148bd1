"""Two threads that multiply by the same sparse matrix, each on a stream of its own. sparse.py
runs them.

    python sparse_job.py --seconds 60 [--churn]

It does what PyTorch's test test_cusparse_multiple_threads_same_device does: a product sorts
the matrix's entries and calls cuSPARSE, so it takes and frees many temporary blocks. In each
round a thread multiplies 100 times, and every number has to be 1 at its end. With --churn each
thread also holds blocks of changing sizes, so that the addresses of its temporary blocks change
from product to product, as they do if streams share memory. The last line of the output has the
number of rounds, of those that came out wrong, and the error that ended them, or "". This
script does not use stplan.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import threading
import time
from typing import Any, Dict, List, Optional

import torch

DEVICE = "cuda"

# Rows of the matrix, products of a round, and threads. The first is PyTorch's test's.
SIZE, PRODUCTS, THREADS = 1024, 100, 2

# Blocks that a thread holds with --churn, and the largest of them, in bytes: that of the
# product's largest temporary block, the indices.
HELD, LARGEST = 8, 2 * SIZE * SIZE * 8


def matrix() -> torch.Tensor:
    """A matrix of ones whose entries are not known to be sorted."""
    rows = torch.arange(SIZE, device=DEVICE)
    return torch.sparse_coo_tensor(torch.cartesian_prod(rows, rows).t(), torch.ones(SIZE * SIZE, device=DEVICE))


def multiply(weight: torch.Tensor, value: torch.Tensor, stream: Any, churn: Optional[random.Random]) -> torch.Tensor:
    held: List[torch.Tensor] = []
    with torch.cuda.stream(stream):
        for _ in range(PRODUCTS):
            if churn is not None:
                held = held[-HELD:] + [torch.empty(churn.randrange(1, LARGEST), dtype=torch.int8, device=DEVICE)]
            value = weight.mm(value)
            value.div_(float(SIZE))
    torch.cuda.synchronize()
    return value


def round_of(weight: torch.Tensor, seed: Optional[int]) -> bool:
    """One round of all threads: whether all numbers are 1. Raises what a thread raised."""
    values = [torch.ones(SIZE, SIZE, device=DEVICE) for _ in range(THREADS)]
    torch.cuda.synchronize()
    barrier = threading.Barrier(THREADS)
    errors: List[Exception] = []

    def work(number: int) -> None:
        churn = None if seed is None else random.Random(seed * THREADS + number)
        stream: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        barrier.wait()
        try:
            values[number] = multiply(weight, values[number], stream, churn)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return all(bool((value == 1).all()) for value in values)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--churn", action="store_true")
    options = parser.parse_args()
    found: Dict[str, Any] = {"rounds": 0, "wrong": 0, "error": ""}
    end = time.monotonic() + options.seconds
    try:
        weight = matrix()
        while time.monotonic() < end:
            right = round_of(weight, found["rounds"] if options.churn else None)
            found["rounds"] += 1
            found["wrong"] += not right
    except Exception as error:
        found["error"] = f"{type(error).__name__}: {error}".splitlines()[0]
    print("sparse " + json.dumps(found), flush=True)
    if found["error"]:
        os._exit(1)  # the device's context may be broken, and then ending it properly hangs


if __name__ == "__main__":
    main()
