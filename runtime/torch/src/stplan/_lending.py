"""Idle memory that is given to others for a while: the functions of the C runtime for it."""

from __future__ import annotations

import ctypes
from typing import Any, Dict, List, Optional, Tuple

from stplan._errors import PauseError

_OK, _NO_MEMORY, _HELD = 0, 1, 7
"""Values of stplan_status."""

_ALL = (1 << 64) - 1


class Memory(ctypes.Structure):
    """stplan_memory: where a device's reserved memory is, in bytes."""

    _fields_ = [(name, ctypes.c_uint64) for name in ("given", "idle", "live", "beside", "pinned", "plan")]


class Lending:
    """The functions of a loaded library, whose names begin with `prefix`. A device of -1
    stands for all."""

    def __init__(self, library: ctypes.CDLL, prefix: str) -> None:
        amount, device = ctypes.POINTER(ctypes.c_uint64), ctypes.c_int
        self._pause = _function(library, f"{prefix}_pause", [device, amount])
        self._resume = _function(library, f"{prefix}_resume", [device, ctypes.c_uint64, amount])
        self._survey = _function(library, f"{prefix}_survey", [device, ctypes.POINTER(Memory), amount])

    def pause(self, device: int) -> int:
        """Give idle memory back, and return the bytes. Raises PauseError."""
        given = ctypes.c_uint64()
        status = self._pause(device, ctypes.byref(given))
        if status == _HELD:
            raise PauseError("a graph is being captured, or a MemPool is in use: pause before that, or after it")
        if status != _OK:
            raise PauseError(f"the device does not answer, or does not take all idle memory back; it has taken {given.value:,} bytes")
        return given.value

    def resume(self, device: int, most: Optional[int]) -> Tuple[int, bool]:
        """Take back up to `most` bytes on each device. Returns the bytes taken, and whether
        the device had that many."""
        taken = ctypes.c_uint64()
        status = self._resume(device, _ALL if most is None else most, ctypes.byref(taken))
        if status not in (_OK, _NO_MEMORY):
            raise PauseError("the device does not answer")
        return taken.value, status == _OK

    def survey(self, device: int) -> Dict[str, int]:
        """stplan_memory by the names of its fields, and "pools": what torch's own allocator
        or captures of graphs have reserved besides."""
        memory, pools = Memory(), ctypes.c_uint64()
        self._survey(device, ctypes.byref(memory), ctypes.byref(pools))
        return {**{field[0]: getattr(memory, field[0]) for field in Memory._fields_}, "pools": pools.value}


def _function(library: ctypes.CDLL, name: str, arguments: List[Any]) -> Any:
    function = getattr(library, name)
    function.argtypes = arguments
    return function
