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
from typing import Any, Callable, List, NamedTuple, Optional, Protocol

_CLASSES = ("ProcessGroup", "Backend")
_CALLS = ("send", "recv", "recv_anysource")
_WAITS = ("wait", "synchronize")


class Follows(Protocol):
    """What is told of exchanges: the shim or the C runtime (stplan.h). Devices are ordinals."""

    def exchange_begins(self, device: int) -> int:
        """An exchange is about to be enqueued. Returns a number for it, or 0."""

    def exchange_enqueued(self, device: int, exchange: int) -> None:
        """The call that was to enqueue it has returned or failed."""

    def exchange_awaited(self, device: int, exchange: int, stream: int) -> None:
        """A stream, by its handle, has been made to wait for it."""


def watch(runtime: Follows, current_stream: Callable[[int], int]) -> None:
    """From now on tell the runtime of each point-to-point call with CUDA tensors, before it
    and after it, and once the stream that current_stream(device) returns waits for it. It has
    no effect if this torch was built without torch.distributed. Neither this function nor its
    arguments make anything fail that the job does."""
    bindings = sys.modules.get("torch._C._distributed_c10d")
    teller = _Teller(runtime, current_stream)
    for name in _CLASSES:
        kind = getattr(bindings, name, None)
        for call in _CALLS:
            teller.follow(kind, call, teller.call_begins, teller.called)
        teller.follow(kind, "_start_coalescing", _nothing, teller.coalescing)
        teller.follow(kind, "_end_coalescing", teller.coalesced_begin, teller.coalesced)
    work = getattr(bindings, "Work", object)
    for kind in () if work is object else (work, *work.__subclasses__()):
        for call in _WAITS:
            if call in vars(kind):  # of its own, not inherited
                teller.follow(kind, call, _nothing, teller.waited)


class _Exchange(NamedTuple):
    device: int
    number: int


def _nothing(*_: Any, **__: Any) -> None:
    """Nothing is told before this call."""


def _told(tell: Callable[..., None], *positional: Any, **named: Any) -> None:
    """Call tell, whose failures are not the job's: the exchange is the job's, and that the
    runtime does not know of it is ours."""
    with contextlib.suppress(Exception):
        tell(*positional, **named)


class _Teller:
    def __init__(self, runtime: Follows, current_stream: Callable[[int], int]) -> None:
        self._runtime, self._current_stream = runtime, current_stream
        self._coalescing = threading.local()
        self._works: "weakref.WeakKeyDictionary[Any, _Exchange]" = weakref.WeakKeyDictionary()

    def follow(self, kind: Any, name: str, before: Callable[..., None], after: Callable[..., None]) -> None:
        """Replace a method by one that calls before and after around it, with the same
        arguments. before adds to a list the exchanges that it has said to begin; they are
        said to be enqueued once the method has returned or failed. after gets that list and
        the result, and is not called if the method fails. A class that has no such method, or
        cannot be changed, stays as it is."""
        method = getattr(kind, name, None)
        if method is None:
            return

        @functools.wraps(method)
        def followed(*positional: Any, **named: Any) -> Any:
            begun: List[_Exchange] = []
            try:
                _told(before, begun, *positional, **named)
                result = method(*positional, **named)
            finally:
                for exchange in begun:
                    _told(self._runtime.exchange_enqueued, *exchange)
            _told(after, begun, result, *positional, **named)
            return result

        with contextlib.suppress(AttributeError, TypeError):
            setattr(kind, name, followed)

    def call_begins(self, begun: List[_Exchange], group: Any, tensors: Any, *_: Any, **__: Any) -> None:
        """Before a call that sends or receives tensors. NCCL takes those of one device. Between
        _start_coalescing and _end_coalescing it enqueues nothing yet."""
        device = _device(tensors)
        if device is not None and self._devices() is None:
            self._begin(begun, device)

    def called(self, begun: List[_Exchange], work: Any, group: Any, tensors: Any, *_: Any, **__: Any) -> None:
        """After such a call."""
        self._remember(work, begun)
        device, devices = _device(tensors), self._devices()
        if device is not None and devices is not None and device not in devices:
            devices.append(device)

    def coalescing(self, *_: Any, **__: Any) -> None:
        """Calls of this thread are enqueued later from now on."""
        self._coalescing.devices = []

    def coalesced_begin(self, begun: List[_Exchange], *_: Any, **__: Any) -> None:
        """Before the calls since _start_coalescing are enqueued together."""
        devices, self._coalescing.devices = self._devices() or [], None
        for device in devices:
            self._begin(begun, device)

    def coalesced(self, begun: List[_Exchange], work: Any, *_: Any, **__: Any) -> None:
        """After they have been enqueued."""
        self._remember(work, begun)

    def waited(self, _begun: List[_Exchange], _result: Any, work: Any, *_: Any, **__: Any) -> None:
        """After the current stream has been made to wait for a work. The stream of another
        device does not count."""
        exchange = self._works.get(work)
        if exchange is not None:
            self._runtime.exchange_awaited(*exchange, self._current_stream(exchange.device))

    def _begin(self, begun: List[_Exchange], device: int) -> None:
        number = self._runtime.exchange_begins(device)
        if number:
            begun.append(_Exchange(device, number))

    def _remember(self, work: Any, begun: List[_Exchange]) -> None:
        """Note the exchange of a work; of several, the last one."""
        if begun and work is not None:
            self._works[work] = begun[-1]

    def _devices(self) -> Optional[List[int]]:
        """The devices of this thread's calls since _start_coalescing; None outside."""
        found: Optional[List[int]] = getattr(self._coalescing, "devices", None)
        return found


def _device(tensors: Any) -> Optional[int]:
    """The ordinal of CUDA tensors in a list; None of others. Anything else is left as it is:
    what can be gone through once is the call's own."""
    for tensor in tensors if isinstance(tensors, (list, tuple)) else ():
        return int(tensor.get_device()) if tensor.is_cuda else None
    return None
