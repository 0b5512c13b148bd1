"""More streams than the runtime tracks. Each allocates, and reads memory of the
others."""

import ctypes
import random

import torch

from job import Marks

EXTERNAL, ROUNDS = 64, 4000


def streams() -> "list[torch.cuda.Stream]":
    """Every stream of torch's pools, and EXTERNAL streams that torch did not make."""
    found = {}
    for priority in (0, -1, -2):
        for _ in range(32):
            stream = torch.cuda.Stream(priority=priority)
            found[stream.cuda_stream] = stream
    runtime = ctypes.CDLL("libcudart.so.%s" % (torch.version.cuda or "").split(".")[0])
    for _ in range(EXTERNAL):
        handle = ctypes.c_void_p()
        assert runtime.cudaStreamCreateWithFlags(ctypes.byref(handle), 1) == 0  # 1: cudaStreamNonBlocking
        assert handle.value is not None
        found[handle.value] = torch.cuda.ExternalStream(handle.value)
    return list(found.values())


def main() -> None:
    marks = Marks()
    torch.cuda.init()
    everywhere = streams()
    assert len(everywhere) > 64, f"{len(everywhere)} streams"
    picks = random.Random(0)
    live = []
    for mark in range(ROUNDS):
        stream = everywhere[mark] if mark < len(everywhere) else picks.choice(everywhere)
        with torch.cuda.stream(stream):
            live.append((marks.new(8 << picks.randrange(4, 18), mark), mark, stream))
        if len(live) > 3 * len(everywhere):
            tensor, old, home = live.pop(picks.randrange(len(live)))
            reader = picks.choice(everywhere)
            reader.wait_stream(home)
            with torch.cuda.stream(reader):
                marks.check(tensor, old)
            tensor.record_stream(reader)
            del tensor
    for tensor, old, home in live:
        with torch.cuda.stream(home):
            marks.check(tensor, old)
    assert marks.wrong() == 0, f"{marks.wrong()} wrong words"


if __name__ == "__main__":
    main()
