"""The programs of late_programs.py on a toy device whose streams are late.

    python late_toy.py FOLDER

FOLDER is that of the benches. Prints, for each program, the rounds with wrong words under a
forgiving allocator and under one that is not, as JSON. It is a process of its own, since
other tests need one without torch."""

from __future__ import annotations

import importlib
import json
import sys
import weakref
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Callable, Iterator, List, Set, Tuple

import torch

ROUNDS = 8


class Toy:
    """Memory of a device. What is copied late is copied at the next synchronisation. A
    forgiving allocator gives a freed block to another stream only after one."""

    def __init__(self, forgiving: bool) -> None:
        self.forgiving = forgiving
        self.free: List[Tuple[int, torch.Tensor, bool]] = []  # stream, block, whether it is settled
        self.late: List[Tuple[int, Callable[[], object]]] = []  # the stream of each copy
        self.waits: Set[Tuple[int, int]] = set()  # which stream waits for which
        self.stream = 0
        self.streams = 0

    def full(self, shape: Tuple[int], mark: int, **_: Any) -> torch.Tensor:
        block = self.block(shape[0])
        self.copy(lambda stream: (self.stream, stream) in self.waits)
        tensor = block[:]
        tensor.fill_(mark)
        weakref.finalize(tensor, self.free.append, (self.stream, block, False))
        return tensor

    def block(self, words: int) -> torch.Tensor:
        for index, (stream, block, settled) in enumerate(self.free):
            if len(block) == words and (stream == self.stream or settled or not self.forgiving):
                return self.free.pop(index)[1]
        return torch.empty(words, dtype=torch.int64)

    def copy_late(self, into: torch.Tensor, tensor: torch.Tensor, stream: Any) -> None:
        block = tensor._base  # not the tensor itself, which has to die
        self.late.append((stream.number, lambda: into.copy_(block)))

    def copy(self, chosen: Callable[[int], bool]) -> None:
        """What is copied late on the streams that are chosen is copied now."""
        for stream, copy in self.late:
            if chosen(stream):
                copy()
        self.late = [(stream, copy) for stream, copy in self.late if not chosen(stream)]

    def synchronize(self) -> None:
        self.copy(lambda stream: True)
        self.waits.clear()
        self.free = [(stream, block, True) for stream, block, _ in self.free]

    def new_stream(self, handle: int = 0) -> Any:
        self.streams += 1
        return self.named(self.streams)

    def named(self, number: int) -> Any:
        return SimpleNamespace(number=number, wait_stream=lambda other: self.waits.add((number, other.number)))

    @contextmanager
    def on(self, stream: Any) -> Iterator[None]:
        before, self.stream = self.stream, stream.number
        yield
        self.stream = before

    def torch(self) -> Any:
        """What late_programs uses of torch."""
        cuda = SimpleNamespace(
            Stream=self.new_stream,
            ExternalStream=self.new_stream,
            current_stream=lambda: self.named(self.stream),
            stream=self.on,
            synchronize=self.synchronize,
            _sleep=lambda cycles: None,
        )
        return SimpleNamespace(**{**vars(torch), "full": self.full, "cuda": cuda})


def played(programs: Any, forgiving: bool, name: str, rounds: int) -> int:
    toy = Toy(forgiving)
    own = toy.named(-1)
    driver = SimpleNamespace(handle=1, copy_late=lambda into, tensor, after: toy.copy_late(into, tensor, own))
    programs.torch = toy.torch()
    programs.Driver = lambda: driver
    programs.Late.read_late = lambda self, tensor, stream, into: toy.copy_late(into, tensor, stream)
    return int(programs.wrong_rounds(name, rounds))


def main() -> None:
    sys.path.insert(0, sys.argv[1])
    programs: Any = importlib.import_module("late_programs")
    programs.DEVICE, programs.SIZES = "cpu", (1024, 4096)
    torch.Tensor.pin_memory = lambda tensor: tensor  # type: ignore[assignment,method-assign,misc]
    print(json.dumps({name: [played(programs, forgiving, name, ROUNDS) for forgiving in (True, False)] for name in programs.PROGRAMS}))


if __name__ == "__main__":
    main()
