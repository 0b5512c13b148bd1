"""Tells the runtime of torch.distributed's point-to-point calls.

torch.distributed.isend, irecv, send, recv and batch_isend_irecv, and frameworks that call
them or a process group itself, all end in the methods of torch's classes ProcessGroup and
Backend. So these methods are replaced. The functions stay what they are: P2POp and other
code compare them by identity."""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from typing import Any, Callable, Optional, Set

_CLASSES = ("ProcessGroup", "Backend")
_CALLS = ("send", "recv", "recv_anysource")

Tell = Callable[[int], None]
"""Takes the ordinal of a device on which an exchange has been enqueued just now."""


def watch(tell: Tell) -> None:
    """From now on call tell(device) after each point-to-point call with CUDA tensors. It
    has no effect if this torch was built without torch.distributed. Neither this function
    nor tell makes anything fail that the job does."""
    bindings = sys.modules.get("torch._C._distributed_c10d")
    teller = _Teller(tell)
    for name in _CLASSES:
        kind = getattr(bindings, name, None)
        # A class that cannot be changed keeps its methods.
        with contextlib.suppress(AttributeError, TypeError):
            for call in _CALLS:
                _follow(kind, call, teller.called)
            _follow(kind, "_end_coalescing", teller.coalesced)


def _follow(kind: Any, name: str, follow: Callable[..., None]) -> None:
    """Replace a method by one that calls follow with the same arguments after it."""
    method = getattr(kind, name)

    @functools.wraps(method)
    def followed(*positional: Any, **named: Any) -> Any:
        result = method(*positional, **named)
        try:
            follow(*positional, **named)
        except Exception:
            pass  # The exchange is the job's; that the runtime does not know of it is ours.
        return result

    setattr(kind, name, followed)


class _Teller:
    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._coalescing = threading.local()

    def called(self, group: Any, tensors: Any, *_: Any, **__: Any) -> None:
        """After a call that sends or receives tensors. NCCL takes those of one device."""
        device = _device(tensors)
        if device is not None:
            # Between _start_coalescing and _end_coalescing nothing is enqueued yet. A
            # device that was told too early is told again at the end.
            self._devices().add(device)
            self._tell(device)

    def coalesced(self, *_: Any, **__: Any) -> None:
        """After the calls since _start_coalescing have been enqueued together."""
        devices = self._devices()
        while devices:
            self._tell(devices.pop())

    def _devices(self) -> Set[int]:
        """The devices of this thread's calls since the last _end_coalescing."""
        found: Optional[Set[int]] = getattr(self._coalescing, "devices", None)
        if found is None:
            found = self._coalescing.devices = set()
        return found


def _device(tensors: Any) -> Optional[int]:
    for tensor in tensors:
        return int(tensor.get_device()) if tensor.is_cuda else None
    return None
