"""Children forked from a process that trains. They never use CUDA, but free the
tensors that they inherited: they exit with 0, and the parent's tensors and
losses do not change."""

import multiprocessing
import os
import sys
from typing import List

import torch

from job import Marks, adamw, model, train


def drop(tensors: List[torch.Tensor]) -> None:
    """Frees the device tensors inherited from the parent, and computes on the CPU."""
    torch.set_num_threads(1)  # as a DataLoader's worker does: a fork has none of the threads
    tensors.clear()
    square = torch.ones(64, 64) @ torch.ones(64, 64)
    assert square.sum().item() == 64**3


def forked(tensors: List[torch.Tensor]) -> int:
    """The exit code of a child made by os.fork."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        code = 9
        try:
            drop(tensors)
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def worker(tensors: List[torch.Tensor]) -> int:
    """The exit code of a child made by multiprocessing, which ends as a
    DataLoader's worker does."""
    child = multiprocessing.get_context("fork").Process(target=drop, args=(tensors,))
    child.start()
    child.join(60)
    return -1 if child.exitcode is None else child.exitcode


def main() -> None:
    net = model()
    alone = train(net, adamw(net), range(8))
    net = model()
    optimizer = adamw(net)
    found = train(net, optimizer, range(4))
    marks = Marks()
    tensors = [marks.new(1 << n, n) for n in range(10, 24)]
    for make in (forked, worker):
        code = make(tensors)
        assert code == 0, f"the child ended with {code} ({make.__name__})"
    for mark, tensor in enumerate(tensors, start=10):
        marks.check(tensor, mark)
    assert marks.wrong() == 0, f"{marks.wrong()} wrong words"
    found += train(net, optimizer, range(4, 8))
    assert found == alone, f"with children: {found}, without: {alone}"


if __name__ == "__main__":
    main()
