"""Two threads that multiply by the same sparse matrix, each on a stream of its own. sparse.py
runs them.

    python sparse_job.py --seconds 60 [--sort]

It does what PyTorch's test test_cusparse_multiple_threads_same_device does: a product sorts
the matrix's entries and calls cuSPARSE, so it takes and frees many temporary blocks. In each
round a thread multiplies 100 times, and every number has to be 1 at its end. With --sort it
only sorts, which is a small part of a product: the entries have to come out as they were. The
last line of the output has the number of rounds, of those that came out wrong, and the error
that ended them, or "". This script does not use stplan.
"""

from __future__ import annotations

import argparse
import json
import os
import threading
import time
from typing import Any, Callable, Dict, List

import torch

DEVICE = "cuda"

# Rows of the matrix, products of a round, and threads. The first is PyTorch's test's.
SIZE, PRODUCTS, THREADS = 1024, 100, 2


def matrix() -> torch.Tensor:
    """A matrix of ones whose entries are not known to be sorted."""
    rows = torch.arange(SIZE, device=DEVICE)
    return torch.sparse_coo_tensor(torch.cartesian_prod(rows, rows).t(), torch.ones(SIZE * SIZE, device=DEVICE))


def multiply(weight: torch.Tensor) -> bool:
    """Whether every number is 1 after the products of a round."""
    value = torch.ones(SIZE, SIZE, device=DEVICE)
    for _ in range(PRODUCTS):
        value = weight.mm(value)
        value.div_(float(SIZE))
    return bool((value == 1).all())


def sort(weight: torch.Tensor) -> bool:
    """Whether the entries are as they were after each sort of a round."""
    same = torch.ones((), dtype=torch.bool, device=DEVICE)
    for _ in range(PRODUCTS):
        entries = torch.sparse_coo_tensor(weight._indices(), weight._values(), weight.shape).coalesce()
        same &= (entries.indices() == weight._indices()).all() & (entries.values() == 1).all()
    return bool(same)


def round_of(weight: torch.Tensor, operation: Callable[[torch.Tensor], bool]) -> bool:
    """One round of all threads: whether all came out right. Raises what a thread raised."""
    torch.cuda.synchronize()
    barrier = threading.Barrier(THREADS)
    right: List[bool] = []
    errors: List[Exception] = []

    def work() -> None:
        stream: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        barrier.wait()
        try:
            with torch.cuda.stream(stream):
                right.append(operation(weight))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return all(right)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--sort", action="store_true")
    options = parser.parse_args()
    found: Dict[str, Any] = {"rounds": 0, "wrong": 0, "error": ""}
    end = time.monotonic() + options.seconds
    try:
        weight = matrix()
        while time.monotonic() < end:
            right = round_of(weight, sort if options.sort else multiply)
            found["rounds"] += 1
            found["wrong"] += not right
    except Exception as error:
        found["error"] = f"{type(error).__name__}: {error}".splitlines()[0]
    print("sparse " + json.dumps(found), flush=True)
    if found["error"]:
        os._exit(1)  # the device's context may be broken, and then ending it properly hangs


if __name__ == "__main__":
    main()
