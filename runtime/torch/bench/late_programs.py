"""Programs that free a tensor while a stream still has to read it, without record_stream,
and are right under PyTorch's native allocator. late.py runs them.

    python late_programs.py NAME --rounds N

In each round a tensor is filled with a number, read late, that is, by a copy behind a
kernel that takes a while, and dropped at once. Then a stream allocates a tensor of the same
size and fills it. If that happens before the copy, the copy has wrong words. The last line
of the output has the number of rounds with wrong words. This script does not use stplan.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import threading
from typing import Any, Callable, Dict, List

import torch

DEVICE = "cuda"

# Bytes of the tensors of one round, in turn: one of torch's small blocks, and large ones
# that are parts of a block and blocks of their own.
SIZES = (64 << 10, 1536 << 10, 24 << 20, 96 << 20)

# Cycles of the device's clock, about 2 ms: many times what the host takes to free and
# allocate.
SLEEP = 4_000_000

# A library that has no such kernel overwrites memory of its own: 16 times 512 MiB are
# about 3 ms at 3 TB/s.
SCRATCH, TIMES = 512 << 20, 16


class Driver:
    """A library's own stream: torch is told neither of the stream nor of its work."""

    def __init__(self) -> None:
        self._cuda = ctypes.CDLL("libcuda.so.1")
        self._stream, self._event = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cuStreamCreate", ctypes.byref(self._stream), 1)  # CU_STREAM_NON_BLOCKING
        self._call("cuEventCreate", ctypes.byref(self._event), 2)  # CU_EVENT_DISABLE_TIMING
        self._scratch = torch.empty(SCRATCH, dtype=torch.int8, device=DEVICE)

    @property
    def handle(self) -> int:
        return self._stream.value or 0

    def copy_late(self, target: torch.Tensor, source: torch.Tensor, after: torch.cuda.Stream) -> None:
        self._call("cuEventRecord", self._event, ctypes.c_void_p(after.cuda_stream))
        self._call("cuStreamWaitEvent", self._stream, self._event, 0)
        for _ in range(TIMES):
            self._call("cuMemsetD8Async", ctypes.c_uint64(self._scratch.data_ptr()), 0, ctypes.c_size_t(SCRATCH), self._stream)
        addresses = (ctypes.c_uint64(tensor.data_ptr()) for tensor in (target, source))
        self._call("cuMemcpyDtoDAsync_v2", *addresses, ctypes.c_size_t(source.nbytes), self._stream)

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._cuda, name)(*arguments)
        if code:
            raise OSError(f"{name}: expected 0 (CUDA_SUCCESS), found error {code}")


class Late:
    """The streams of a program, and where its late reads go. Everything that lasts is made
    before the first round."""

    def __init__(self) -> None:
        self.main = torch.cuda.current_stream()
        self.reader, self.copier, self.other = (torch.cuda.Stream() for _ in range(3))
        self.read = {size: self.filled(size, 0) for size in SIZES}
        self.read_too = {size: self.filled(size, 0) for size in SIZES}
        self.host = {size: torch.zeros(size // 8, dtype=torch.int64).pin_memory() for size in SIZES}

    def filled(self, size: int, mark: int) -> torch.Tensor:
        """A new tensor of the current stream."""
        return torch.full((size // 8,), mark, dtype=torch.int64, device=DEVICE)

    def read_late(self, tensor: torch.Tensor, stream: torch.cuda.Stream, into: torch.Tensor) -> None:
        """Copies a tensor on a stream, a while after the current stream's work so far. This
        allocates nothing."""
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            torch.cuda._sleep(SLEEP)
            into.copy_(tensor, non_blocking=True)

    def allocates(self, stream: torch.cuda.Stream) -> torch.Tensor:
        """Makes a stream known to the allocator."""
        with torch.cuda.stream(stream):
            return self.filled(SIZES[0], 0)

    def overwrites(self, size: int, stream: torch.cuda.Stream) -> torch.Tensor:
        with torch.cuda.stream(stream):
            return self.filled(size, -1)


Round = Callable[[int, int], List[torch.Tensor]]
"""One round, of a size and a number. It returns the tensors that live to its end."""


def side_stream(late: Late) -> Round:
    def round(size: int, mark: int) -> List[torch.Tensor]:
        tensor = late.filled(size, mark)
        late.read_late(tensor, late.reader, late.read[size])
        del tensor
        return [late.allocates(late.reader), late.overwrites(size, late.other)]

    return round


def main_waits(late: Late) -> Round:
    """The stream of the tensor waits for the reader right after the free, and before its
    own next allocation."""

    def round(size: int, mark: int) -> List[torch.Tensor]:
        tensor = late.filled(size, mark)
        late.read_late(tensor, late.reader, late.read[size])
        del tensor
        late.main.wait_stream(late.reader)
        return [late.overwrites(size, late.other), late.filled(size, -2)]

    return round


def other_waits(late: Late) -> Round:
    """The next stream waits for the tensor's, which is not enough."""

    def round(size: int, mark: int) -> List[torch.Tensor]:
        tensor = late.filled(size, mark)
        late.read_late(tensor, late.reader, late.read[size])
        del tensor
        late.other.wait_stream(late.main)
        return [late.overwrites(size, late.other)]

    return round


def only_copies(late: Late) -> Round:
    """The reader never allocates, so that the allocator has never heard of it."""

    def round(size: int, mark: int) -> List[torch.Tensor]:
        tensor = late.filled(size, mark)
        late.read_late(tensor, late.copier, late.read[size])
        del tensor
        return [late.overwrites(size, late.other)]

    return round


def two_readers(late: Late) -> Round:
    def round(size: int, mark: int) -> List[torch.Tensor]:
        tensor = late.filled(size, mark)
        late.read_late(tensor, late.copier, late.read[size])
        late.read_late(tensor, late.reader, late.read_too[size])
        del tensor
        return [late.overwrites(size, late.other)]

    return round


def external_stream(late: Late) -> Round:
    external = torch.cuda.ExternalStream(Driver().handle)

    def round(size: int, mark: int) -> List[torch.Tensor]:
        tensor = late.filled(size, mark)
        late.read_late(tensor, external, late.read[size])
        del tensor
        return [late.overwrites(size, late.other)]

    return round


def library(late: Late) -> Round:
    driver = Driver()

    def round(size: int, mark: int) -> List[torch.Tensor]:
        tensor = late.filled(size, mark)
        driver.copy_late(late.read[size], tensor, late.main)
        del tensor
        return [late.overwrites(size, late.other)]

    return round


def other_thread(late: Late) -> Round:
    """The last reference is dropped by another thread, and a third one allocates."""

    def round(size: int, mark: int) -> List[torch.Tensor]:
        held = [late.filled(size, mark)]
        late.read_late(held[0], late.reader, late.read[size])
        made: List[torch.Tensor] = []
        for work in (held.clear, lambda: made.append(late.overwrites(size, late.other))):
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
        return made

    return round


def backward(late: Late) -> Round:
    """Everything happens in autograd's thread for the device."""
    made: List[torch.Tensor] = []

    class Reads(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, value: torch.Tensor, size: int, mark: int) -> torch.Tensor:
            context.asked = size, mark
            return value.clone()

        @staticmethod
        def backward(context: Any, *gradients: torch.Tensor) -> Any:
            size, mark = context.asked
            tensor = late.filled(size, mark)
            late.read_late(tensor, late.reader, late.read[size])
            del tensor
            made.append(late.overwrites(size, late.other))
            return gradients[0], None, None

    # The gradient is there before, so that the tensor's own stream allocates nothing after
    # the tensor is dropped: that might take its memory under any allocator.
    leaf = torch.ones(1, device=DEVICE, requires_grad=True)
    leaf.grad = torch.zeros(1, device=DEVICE)

    def round(size: int, mark: int) -> List[torch.Tensor]:
        made.clear()
        Reads.apply(leaf, size, mark).backward()  # type: ignore[no-untyped-call]
        return made

    return round


def pinned(late: Late) -> Round:
    """The late read goes to pinned memory of the host."""

    def round(size: int, mark: int) -> List[torch.Tensor]:
        tensor = late.filled(size, mark)
        late.read_late(tensor, late.copier, late.host[size])
        del tensor
        return [late.overwrites(size, late.other)]

    return round


def of_a_side_stream(late: Late) -> Round:
    """The tensor is a side stream's, and the main stream allocates next."""

    def round(size: int, mark: int) -> List[torch.Tensor]:
        with torch.cuda.stream(late.other):
            tensor = late.filled(size, mark)
            late.read_late(tensor, late.reader, late.read[size])
            del tensor
        return [late.overwrites(size, late.main)]

    return round


def same_stream(late: Late) -> Round:
    """The control: the tensor's own stream may use its memory again at once, under any
    allocator, so the copy is wrong. This shows that wrong words are seen."""

    def round(size: int, mark: int) -> List[torch.Tensor]:
        tensor = late.filled(size, mark)
        late.read_late(tensor, late.reader, late.read[size])
        del tensor
        return [late.overwrites(size, late.main)]

    return round


PROGRAMS: Dict[str, Callable[[Late], Round]] = {
    "side stream": side_stream,
    "main waits": main_waits,
    "other waits for main": other_waits,
    "only copies": only_copies,
    "two readers": two_readers,
    "external stream": external_stream,
    "library's stream": library,
    "other thread": other_thread,
    "autograd's thread": backward,
    "pinned host buffer": pinned,
    "of a side stream": of_a_side_stream,
    "same stream": same_stream,
}


def wrong_rounds(name: str, rounds: int) -> int:
    """Runs a program, and returns the number of rounds with wrong words."""
    late = Late()
    run = PROGRAMS[name](late)
    # Its steps tell a recorder where an iteration begins.
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1, device=DEVICE))])
    wrong = 0
    for number in range(rounds):
        size, mark = SIZES[number % len(SIZES)], number + 1
        targets = {"two readers": [late.read[size], late.read_too[size]]}
        held = run(size, mark)
        torch.cuda.synchronize()
        if name == "pinned host buffer":  # compared on the device, which is faster
            late.read[size].copy_(late.host[size])
        wrong += any(bool((read != mark).any()) for read in targets.get(name, [late.read[size]]))
        held.clear()
        if number % len(SIZES) == len(SIZES) - 1:
            optimizer.step()
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=sorted(PROGRAMS))
    parser.add_argument("--rounds", type=int, default=1000)
    options = parser.parse_args()
    wrong = wrong_rounds(options.name, options.rounds)
    print("late " + json.dumps({"wrong": wrong, "rounds": options.rounds}), flush=True)


if __name__ == "__main__":
    main()
