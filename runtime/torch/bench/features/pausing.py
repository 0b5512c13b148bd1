"""Between training steps empty_cache gives idle memory away, another allocator overwrites it,
and the next step takes memory again. What is live stays, what a stream still reads is not
given before it has been read, and the losses are those of a run that gives nothing."""

import ctypes
from typing import List

import job
import torch

MIB = 1 << 20

driver = ctypes.CDLL("libcuda.so.1")


def give() -> int:
    """Empties the cache, and returns the bytes that this gave to the device."""
    before = torch.cuda.memory_reserved()
    torch.cuda.empty_cache()
    return before - torch.cuda.memory_reserved()


def overwrite(size: int) -> None:
    """Takes memory as cudaMalloc does, writes to all of it, and frees it."""
    address = ctypes.c_uint64()
    for name, arguments in (
        ("cuMemAlloc_v2", (ctypes.byref(address), ctypes.c_size_t(size))),
        ("cuMemsetD8_v2", (address, ctypes.c_ubyte(0xA5), ctypes.c_size_t(size))),
        ("cuCtxSynchronize", ()),
        ("cuMemFree_v2", (address,)),
    ):
        code = getattr(driver, name)(*arguments)
        assert code == 0, f"{name}: error {code}"


def train(giving: bool) -> List[str]:
    net = job.model()
    optimizer = job.adamw(net)
    losses: List[str] = []
    for step in range(8):
        losses += job.train(net, optimizer, [step])
        if giving:
            given = give()
            assert given > 0, "nothing was given between two steps"
            overwrite(given)
    return losses


def read_late() -> None:
    """Another stream reads tensors that are freed, and nobody says so: right natively, where
    memory is given only once the device is idle."""
    marks, side = job.Marks(), torch.cuda.Stream()
    kept = marks.new(32 * MIB, 7)
    for mark in range(20):
        late = [marks.new(64 * MIB, mark) for _ in range(4)]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.cuda._sleep(20_000_000)
            for tensor in late:
                marks.check(tensor, mark)
        del late, tensor
        given = give()
        assert given >= 128 * MIB, f"{given} bytes of 256 MiB were given"
        overwrite(given)
    marks.check(kept, 7)
    assert marks.wrong() == 0, f"{marks.wrong()} words are wrong"


def main() -> None:
    straight = train(False)
    assert train(True) == straight
    read_late()


if __name__ == "__main__":
    main()
