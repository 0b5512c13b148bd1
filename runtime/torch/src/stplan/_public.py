"""stplan.enable, stplan.stats and stplan.mark. What serves is imported where it is
first needed: every Python process of a job that is recorded or served imports this."""

from __future__ import annotations

import importlib
import os
from typing import Any, Dict, Optional, Union

from stplan._settings import RUN_ENVIRONMENT

_STATES = ("no plan", "prologue", "body", "ended", "off", "declined")


def enable(plan: Optional[Union[str, "os.PathLike[str]"]] = None, memory: str = "auto") -> None:
    """Serve this process's CUDA memory by a plan, or from one pool without.

    plan: path of a file that `stplan compile` wrote; of several ranks each gives
        its own.
    memory: how it is taken from a device: "plain" (cudaMalloc), "virtual"
        (cuMemMap: grows in place and moves while idle), or "auto", virtual
        where the device has that.

    It belongs before the first CUDA tensor: those that exist already stay with
    torch's own allocator, and a plan expects a process from its beginning.
    Without a C++ compiler CUDA must not be initialised at all. Imports torch; the
    first time on a machine it compiles a few files. In a process that `stplan run`
    started it changes nothing: what that says counts.

    Raises ServingError where this process cannot be served, and at a second call;
    torch is then as it was, and a script that catches the error trains on its
    allocator.
    """
    if RUN_ENVIRONMENT in os.environ:
        return
    importlib.import_module("torch")
    from stplan import _serving

    _serving.install(None if plan is None else os.path.abspath(plan), memory)


def stats(device: Any = None) -> Dict[str, Any]:
    """How a device is served: bytes as blocks occupy them, counts since its first
    use. device: an ordinal, or anything that torch.device takes; None for the
    current one.

    "backend" is "shim", "pluggable", or None where this process is not served;
    "state" is "no plan", "prologue", "body", "ended", "off" or "declined"; the others are the
    counters of stplan.h by their names, 0 before the first allocation.

    Raises ValueError for what is no CUDA device, and imports torch where device is
    no ordinal.
    """
    from stplan import _serving
    from stplan._runtime import Counters

    served = _installed()
    counters = Counters() if served is None else served.counters(_ordinal(device))
    read = counters.as_dict()
    return {"backend": _serving.backend(), **read, "state": _STATES[read["state"]]}


def mark() -> None:
    """Say that a step of the program begins here. It is never needed: after
    drift the place in the plan is found sooner. Without effect in a process that
    is not served."""
    served = _installed()
    if served is not None:
        served.mark()


def _installed() -> Any:
    """What serves this process, None where nothing does."""
    from stplan import _pluggable, _shim

    return _shim.installed() or _pluggable.installed()


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
