"""stplan.pause, stplan.resume, stplan.paused and stplan.memory.

As in _public.py, the modules that serve memory are imported only when they are needed."""

from __future__ import annotations

import contextlib
import sys
from typing import Any, Dict, Iterator, Optional

from stplan._errors import PauseError
from stplan._public import _ordinal, _served

_EVERY = -1


def pause(device: Any = None) -> int:
    """Give idle CUDA memory to other allocators and processes, until resume or until it is
    needed again, and return the bytes given.

    device: an ordinal, or anything that torch.device takes; None is every device of this
    process.

    It waits until the device has done everything that was enqueued. Tensors stay where they
    are, and so does the plan: its addresses are kept, and only its idle memory goes. memory
    says what else stays. Allocations work as ever and take what they need back from the
    device.

    Raises PauseError if a graph is being captured, and if the device does not take memory
    back; ValueError if device is not a CUDA device. In a process that is not served it is
    torch.cuda.empty_cache.
    """
    ordinal = _EVERY if device is None else _ordinal(device)
    served = _served()
    return _emptied() if served is None else int(served.lending.pause(ordinal))


def resume(device: Any = None, bytes: Optional[int] = None) -> int:
    """Take back what pause or torch.cuda.empty_cache gave and what is not back yet, and
    return the bytes. It is optional: without it memory comes back as it is needed, a little
    later each time.

    device: as for pause. bytes: at most this many on each device, rounded up to 2 MiB; None is
    all.

    Raises PauseError if the memory is not there any more, since another allocator or process
    has it, or because of set_per_process_memory_fraction. Whatever was there has been taken
    then, and the rest comes as it is needed: if it is still missing then, torch raises
    torch.OutOfMemoryError. Raises ValueError for a bad argument. With plain memory, or if
    memory does not move, nothing is taken before it is needed.
    """
    ordinal = _EVERY if device is None else _ordinal(device)
    if bytes is not None and bytes < 0:
        raise ValueError(f"bytes: expected at least 0, found {bytes}")
    served = _served()
    if served is None:
        return 0
    taken, enough = served.lending.resume(ordinal, bytes)
    if not enough:
        raise PauseError(
            f"the device has not enough memory left: {taken:,} bytes were taken back; the rest is taken as it is"
            " needed. Another allocator or process has it, or set_per_process_memory_fraction limits this one"
        )
    return int(taken)


@contextlib.contextmanager
def paused(device: Any = None) -> Iterator[int]:
    """pause before a block and resume after it; the value is the bytes given. What is not
    there any more afterwards is no error here: it is taken when it is needed."""
    given = pause(device)
    try:
        yield given
    finally:
        with contextlib.suppress(PauseError):
            resume(device)


def memory(device: Any = None) -> Dict[str, int]:
    """Where the memory of a device is that this process has reserved, in bytes: what pause
    would give, what stays, and why.

    device: an ordinal, or anything that torch.device takes; None is the current device.

    "given": what pause gave and what is not back yet; it is not reserved any more.
    "idle": what pause would give.
    "live": tensors.
    "beside": free, but in one granule of 2 MiB with a tensor; if memory is plain or does not
        move, in one piece with it.
    "pinned": free, but pinned by stplan.pin.
    "plan": free, but keeps the plan's addresses; all that is free of a plan whose memory is
        plain or does not move.
    "pools": what torch's own allocator has besides: graphs and MemPools.

    All are 0 in a process that is not served. Raises ValueError if device is not a CUDA
    device.
    """
    from stplan._lending import Memory

    served = _served()
    if served is None:
        return dict.fromkeys([*(field[0] for field in Memory._fields_), "pools"], 0)
    found: Dict[str, int] = served.lending.survey(_ordinal(device))
    return found


def _emptied() -> int:
    """Empty torch's own cache; the bytes that this gave back."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return 0
    devices = range(torch.cuda.device_count())
    before = sum(torch.cuda.memory_reserved(d) for d in devices)
    torch.cuda.empty_cache()
    return int(before - sum(torch.cuda.memory_reserved(d) for d in devices))
