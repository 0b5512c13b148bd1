"""stplan.enable, stplan.stats, stplan.mark, stplan.exchanging, stplan.pin and stplan.unpin.

Every Python process of a recorded or served job imports this module. So the modules that
serve memory are imported only when they are needed."""

from __future__ import annotations

import contextlib
import importlib
import os
from typing import Any, Dict, Iterator, NamedTuple, Optional, Union

from stplan._settings import RUN_ENVIRONMENT

_STATES = ("no plan", "prologue", "body", "ended", "off", "declined")


class Pin(NamedTuple):
    """Memory that stplan.pin has pinned."""

    address: int
    size: int


def enable(
    plan: Optional[Union[str, "os.PathLike[str]"]] = None, memory: str = "auto", move: str = "auto"
) -> None:
    """Serve this process's CUDA memory by a plan, or from one pool without a plan.

    plan: path of a file that `stplan compile` wrote. Each rank passes its own plan.
    memory: how memory is taken from the device: "plain" (cudaMalloc), "virtual"
        (cuMemMap: grows in place, and idle parts move), or "auto": virtual if the device
        supports it, else plain.
    move: whether idle memory may move to where it is needed: "auto", until something is seen
        that registers memory by its address, or "off": never. docs/runtime.md says who does.

    Call it before the first CUDA tensor is made. Tensors that exist already stay with
    torch's own allocator, and a plan describes a process from its beginning. If there is
    no C++ compiler, CUDA must not even be initialised. The call imports torch, and
    compiles a few files the first time on a machine. It has no effect in a process that
    `stplan run` started, whose settings count there.

    Raises ServingError if this process cannot be served, and at a second call. torch is
    then unchanged: a script that catches the error trains on torch's own allocator.
    """
    if RUN_ENVIRONMENT in os.environ:
        return
    importlib.import_module("torch")
    from stplan import _serving

    _serving.install(None if plan is None else os.path.abspath(plan), memory, move=move)


def stats(device: Any = None) -> Dict[str, Any]:
    """How a device is served. device: an ordinal, or anything that torch.device takes;
    None is the current device.

    "backend" is "shim" or "pluggable", or None if this process is not served. "state" is
    "no plan", "prologue", "body", "ended", "off" or "declined". The other entries are the
    counters of stplan.h by name: counts since the first use of the device, and sizes in
    bytes, rounded up as blocks are. They are 0 before the first allocation.

    Raises ValueError if device is not a CUDA device. Imports torch unless device is an
    ordinal.
    """
    from stplan import _serving
    from stplan._runtime import Counters

    served = _serving.served()
    counters = Counters() if served is None else served.counters(_ordinal(device))
    read = counters.as_dict()
    return {"backend": _serving.backend(), **read, "state": _STATES[read["state"]]}


def mark() -> None:
    """Mark the beginning of a step of the program. It is optional: with marks a run that
    has drifted finds its place in the plan sooner. It has no effect in a process that is
    not served."""
    served = _served()
    if served is not None:
        served.mark()


@contextlib.contextmanager
def exchanging(device: Any = None) -> Iterator[None]:
    """Tell the runtime that an exchange with another process (a receive, a collective), which
    may wait for what other processes do, is enqueued in a block of this context. Until the
    exchange is done, the runtime makes neither a stream nor the host wait for work that is
    enqueued after the block began: other processes may wait for this one meanwhile.

    device: an ordinal, or anything that torch.device takes; None is the current device.

    Point-to-point calls of torch.distributed are told without this. It is for libraries
    that communicate by themselves, and has no effect in a process that is not served.
    Raises ValueError if device is not a CUDA device. Imports torch unless device is an
    ordinal.
    """
    served = _served()
    if served is None:
        yield
        return
    ordinal = _ordinal(device)
    number = served.exchange_begins(ordinal)
    try:
        yield
    finally:
        served.exchange_enqueued(ordinal, number)


def pin(tensor: Any) -> Pin:
    """Keep the physical memory of a CUDA tensor's storage where it is until unpin, also after
    the tensor is gone. It is for libraries that register memory by its address (UCX, RDMA,
    cuFile, NVSHMEM). Once the tensor is gone the memory serves other tensors; it is not given
    back and does not move. Pins are counted.

    Returns what unpin takes if there is no tensor any more. It has no effect in a process
    that is not served. Raises ValueError if the tensor's memory is not stplan's: memory of
    graphs and MemPools is torch's own allocator's, and does not move either, but goes with
    its pool.
    """
    storage = tensor.untyped_storage()
    pinned = Pin(int(storage.data_ptr()), int(storage.nbytes()))
    served = _served()
    if served is not None and not served.pin(*pinned, True):
        raise ValueError(f"tensor: expected one that stplan serves, found one at {pinned.address:#x}")
    return pinned


def unpin(pinned: Any) -> None:
    """Undo one pin. pinned: the tensor, or what pin returned. Raises ValueError if it is not
    pinned."""
    if not isinstance(pinned, Pin):
        storage = pinned.untyped_storage()
        pinned = Pin(int(storage.data_ptr()), int(storage.nbytes()))
    served = _served()
    if served is not None and not served.pin(*pinned, False):
        raise ValueError(f"pinned: expected what is pinned, found {pinned.size} bytes at {pinned.address:#x}")




def _served() -> Any:
    """The shim or the runtime that serves this process, or None."""
    from stplan import _serving

    return _serving.served()


def _ordinal(device: Any) -> int:
    if isinstance(device, int):
        if device < 0:
            raise ValueError(f"device: expected an ordinal of at least 0, found {device}")
        return device
    torch = importlib.import_module("torch")
    named = torch.device("cuda" if device is None else device)
    if named.type != "cuda":
        raise ValueError(f"device: expected a CUDA device, found {device!r}")
    if named.index is not None:
        return int(named.index)
    return int(torch.cuda.current_device()) if torch.cuda.is_initialized() else 0
