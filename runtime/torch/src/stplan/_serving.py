"""Serves torch in this process: through the shim, or else through the pluggable
allocator."""

from __future__ import annotations

import sys
from typing import Any, Optional, Union

from stplan import _build, _exchanges, _pluggable, _shim
from stplan._errors import ServingError as ServingError
from stplan._process import described, say
from stplan._runtime import MEMORY, MOVE, Runtime


_backend: Optional[str] = None


def install(
    plan: Optional[str], memory: str = "auto", counters: Optional[str] = None, move: str = "auto", proven: int = 0
) -> str:
    """Serve this process from now on. torch has to be imported, and CUDA should not be
    initialised yet. plan: a path, or None for the pool alone; memory: one of MEMORY;
    counters: a path; device N keeps its counters in the file with N appended to it; move:
    one of MOVE; proven: the checksum of a plan that an earlier run has followed, or 0. If it
    is that of this plan, memory comes in larger granules.

    Returns "shim". If the shim cannot be built it prints one line to standard error and
    returns "pluggable". Raises ServingError; torch is then unchanged.
    """
    global _backend
    for name, value, known in (("memory", memory, MEMORY), ("move", move, MOVE)):
        if value not in known:
            raise ServingError(f"{name}: expected one of {', '.join(sorted(known))}, found {value!r}")
    if _backend is not None:
        raise ServingError("stplan serves this process already")
    torch: Any = sys.modules.get("torch")
    if torch is None:
        raise ServingError("torch is not imported")
    if torch.version.cuda is None:
        raise ServingError("this torch was built without CUDA")
    try:
        _backend = _install(torch, plan, memory, counters, move, proven)
    # RuntimeError and AttributeError may be torch's: a release may lack a function.
    except (RuntimeError, OSError, AttributeError) as error:
        raise ServingError(described(error)) from error
    serving = served()
    if serving is not None:
        _exchanges.watch(serving, lambda device: int(torch._C._cuda_getCurrentRawStream(device)))
    return _backend


def served() -> Union[_shim.Shim, Runtime, None]:
    """The shim or the runtime that serves this process, or None."""
    return _shim.installed() or _pluggable.installed()


def backend() -> Optional[str]:
    """What install returned, or None if this process is not served."""
    return _backend


def _install(
    torch: Any, plan: Optional[str], memory: str, counters: Optional[str], move: str, proven: int
) -> str:
    try:
        _shim.install(torch, plan, memory, counters, move, proven)
        return "shim"
    except (_build.BuildError, OSError) as error:
        say(f"{error}; torch is served through its C interface, which lacks some functions (docs/runtime.md)")
    _pluggable.install(torch, plan, memory, counters, move, proven)
    return "pluggable"
