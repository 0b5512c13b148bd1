"""Tells the runtime of torch.distributed's point-to-point calls, and which streams wait for
them.

torch.distributed.isend, irecv, send, recv and batch_isend_irecv, and frameworks that call
them or a process group itself, all end in the methods of torch's classes ProcessGroup and
Backend, and wait by those of the Work that these return. So these methods are replaced. The
functions stay what they are: P2POp and other code compare them by identity."""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import weakref
from typing import Any, Callable, List, NamedTuple, Optional

_CLASSES = ("ProcessGroup", "Backend")
_CALLS = ("send", "recv", "recv_anysource")
_WAITS = ("wait", "synchronize")

Tell = Callable[[int], int]
"""Takes the ordinal of a device on which an exchange has been enqueued just now, and returns
a number for it, or 0."""

Awaited = Callable[[int, int, int], None]
"""Takes the ordinal of a device, the number of an exchange, and the handle of a stream that
has been made to wait for it."""


def watch(tell: Tell, awaited: Awaited, current_stream: Callable[[int], int]) -> None:
    """From now on call tell after each point-to-point call with CUDA tensors, and awaited once
    the stream that current_stream(device) returns waits for it. It has no effect if this
    torch was built without torch.distributed. Neither this function nor its arguments make
    anything fail that the job does."""
    bindings = sys.modules.get("torch._C._distributed_c10d")
    teller = _Teller(tell, awaited, current_stream)
    for name in _CLASSES:
        kind = getattr(bindings, name, None)
        for call in _CALLS:
            _follow(kind, call, teller.called)
        _follow(kind, "_start_coalescing", teller.coalescing)
        _follow(kind, "_end_coalescing", teller.coalesced)
    work = getattr(bindings, "Work", object)
    for kind in () if work is object else (work, *work.__subclasses__()):
        for call in _WAITS:
            if call in vars(kind):  # of its own, not inherited
                _follow(kind, call, teller.waited)


def _follow(kind: Any, name: str, follow: Callable[..., None]) -> None:
    """Replace a method by one that calls follow after it, with its result and the same
    arguments. A class that has no such method, or cannot be changed, stays as it is."""
    method = getattr(kind, name, None)
    if method is None:
        return

    @functools.wraps(method)
    def followed(*positional: Any, **named: Any) -> Any:
        result = method(*positional, **named)
        try:
            follow(result, *positional, **named)
        except Exception:
            pass  # The exchange is the job's; that the runtime does not know of it is ours.
        return result

    with contextlib.suppress(AttributeError, TypeError):
        setattr(kind, name, followed)


class _Exchange(NamedTuple):
    device: int
    number: int


class _Teller:
    def __init__(self, tell: Tell, awaited: Awaited, current_stream: Callable[[int], int]) -> None:
        self._tell, self._awaited, self._current_stream = tell, awaited, current_stream
        self._coalescing = threading.local()
        self._works: "weakref.WeakKeyDictionary[Any, _Exchange]" = weakref.WeakKeyDictionary()

    def called(self, work: Any, group: Any, tensors: Any, *_: Any, **__: Any) -> None:
        """After a call that sends or receives tensors. NCCL takes those of one device. Between
        _start_coalescing and _end_coalescing nothing is enqueued yet."""
        device = _device(tensors)
        devices = self._devices()
        if device is not None and devices is None:
            self._exchange(work, device)
        elif device is not None and devices is not None and device not in devices:
            devices.append(device)

    def coalescing(self, *_: Any, **__: Any) -> None:
        """Calls of this thread are enqueued later from now on."""
        self._coalescing.devices = []

    def coalesced(self, work: Any, *_: Any, **__: Any) -> None:
        """After the calls since _start_coalescing have been enqueued together."""
        devices, self._coalescing.devices = self._devices() or [], None
        for device in devices:
            self._exchange(work, device)

    def waited(self, _result: Any, work: Any, *_: Any, **__: Any) -> None:
        """After the current stream has been made to wait for a work. The stream of another
        device does not count."""
        exchange = self._works.get(work)
        if exchange is not None:
            self._awaited(*exchange, self._current_stream(exchange.device))

    def _exchange(self, work: Any, device: int) -> None:
        number = self._tell(device)
        if number and work is not None:
            self._works[work] = _Exchange(device, number)

    def _devices(self) -> Optional[List[int]]:
        """The devices of this thread's calls since _start_coalescing; None outside."""
        found: Optional[List[int]] = getattr(self._coalescing, "devices", None)
        return found


def _device(tensors: Any) -> Optional[int]:
    for tensor in tensors:
        return int(tensor.get_device()) if tensor.is_cuda else None
    return None
