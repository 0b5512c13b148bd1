"""Tensors are sent between processes through torch.multiprocessing: both
processes use the same memory."""

from typing import Any

import torch
import torch.multiprocessing as multiprocessing

from job import churn

WORDS = 1 << 20


def child(inbox: Any, outbox: Any) -> None:
    for number in range(3):
        tensor = inbox.get()
        right = bool((tensor == number).all())
        tensor.add_(100)
        torch.cuda.synchronize()
        outbox.put(right)
        del tensor
    own = torch.full((WORDS,), 7, dtype=torch.int64, device="cuda")
    torch.cuda.synchronize()
    outbox.put(own)
    inbox.get()  # waits until the parent has checked it


def main() -> None:
    context = multiprocessing.get_context("spawn")
    inbox, outbox = context.Queue(), context.Queue()
    process = context.Process(target=child, args=(inbox, outbox))
    process.start()
    churn()
    for number in range(3):
        tensor = torch.full((WORDS << number,), number, dtype=torch.int64, device="cuda")
        torch.cuda.synchronize()
        inbox.put(tensor)
        assert outbox.get(timeout=60), f"tensor {number} arrived damaged"
        assert bool((tensor == number + 100).all()), f"what the child wrote into tensor {number} is not seen"
        del tensor
        torch.cuda.ipc_collect()
    received = outbox.get(timeout=60)
    churn()
    assert bool((received == 7).all()), "the child's tensor arrived damaged"
    del received
    inbox.put(None)
    process.join(60)
    assert process.exitcode == 0, f"the child ended with {process.exitcode}"


if __name__ == "__main__":
    main()
