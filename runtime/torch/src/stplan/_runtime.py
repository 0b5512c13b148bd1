"""ctypes declarations for the C runtime: pluggable.h, and the types of stplan.h that it
uses."""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Any, Dict, List, Optional, Tuple

from stplan._kept import Kept
from stplan._lending import Lending

MEMORY = {"plain": 0, "virtual": 1, "auto": 2}
"""How memory is taken from a device: the values of sp_cuda_memory in prim_cuda.h."""

MOVE = {"auto": 0, "off": 1}
"""Whether memory may move: the values of stplan_settings.still."""

ALLOCATE, FREE = "stplan_pluggable_malloc", "stplan_pluggable_free"
"""Names of the functions that torch calls. stplan_pluggable_malloc throws C++ exceptions
and must not be called from Python."""


class RuntimeFailure(RuntimeError):
    """The C runtime cannot start. The text gives the reason."""


Ranks = ctypes.CFUNCTYPE(ctypes.c_int)
"""stplan_ranks."""


def _world_size() -> int:
    """How many ranks the job has that this process belongs to, as far as torch.distributed
    knows. The runtime calls it when a graph is captured."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return 1
    return int(distributed.get_world_size())


ranks = Ranks(_world_size)


class _Settings(ctypes.Structure):
    _fields_ = [
        ("plan", ctypes.c_char_p),
        ("counters", ctypes.c_char_p),
        ("memory", ctypes.c_int),
        ("still", ctypes.c_int),
        ("ranks", Ranks),
        ("proven", ctypes.c_uint64),
    ]


class Stat(ctypes.Structure):
    """stplan_stat: one quantity."""

    _fields_ = [(name, ctypes.c_uint64) for name in ("current", "peak", "added", "removed")]
    current: int
    peak: int
    added: int
    removed: int


class Usage(ctypes.Structure):
    """stplan_usage, of live blocks: their number, the bytes they occupy, and the bytes
    requested."""

    _fields_ = [(name, Stat) for name in ("blocks", "bytes", "requested")]
    blocks: Stat
    bytes: Stat
    requested: Stat


class Statistics(ctypes.Structure):
    """stplan_statistics."""

    _fields_ = [(name, Usage) for name in ("all", "small", "large")] + [
        (name, Stat) for name in ("reserved", "extents", "small_reserved", "small_extents")
    ]
    all: Usage
    small: Usage
    large: Usage
    reserved: Stat
    extents: Stat
    small_reserved: Stat
    small_extents: Stat


class Counters(ctypes.Structure):
    """stplan_counters."""

    _fields_ = [
        (name, ctypes.c_uint64)
        for name in (
            "fields",
            "state",
            "allocated_bytes",
            "peak_allocated_bytes",
            "reserved_bytes",
            "peak_reserved_bytes",
            "allocations",
            "allocation_bytes",
            "planned_allocations",
            "planned_bytes",
            "frees",
            "refused_frees",
            "failed_allocations",
            "growths",
            "clashes",
            "drift_events",
            "resyncs",
            "waits",
            "events_recorded",
            "moved_bytes",
            "displaced_allocations",
            "installs",
            "followed_plan",
            "followed_bytes",
            "fitting_bytes",
            "plan_granule_bytes",
        )
    ]
    fields: int
    failed_allocations: int
    growths: int

    def as_dict(self) -> Dict[str, int]:
        """Every counter by its name in stplan.h, without `fields`."""
        return {field[0]: getattr(self, field[0]) for field in self._fields_[1:]}


class Range(ctypes.Structure):
    """stplan_range: a live block, or a range of free memory."""

    _fields_ = [
        ("address", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
        ("requested", ctypes.c_uint64),
        ("stream", ctypes.c_uint64),
        ("live", ctypes.c_uint32),
        ("first", ctypes.c_uint32),
        ("small", ctypes.c_uint32),
    ]
    address: int
    size: int
    requested: int
    stream: int
    live: int
    first: int


class Runtime:
    """The library at path, loaded once. Device ordinals are CUDA's."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._library = library = ctypes.CDLL(path)
        size, device = ctypes.c_size_t, ctypes.c_int
        settings, error = ctypes.POINTER(_Settings), ctypes.c_char_p
        read = [device, ctypes.POINTER(Statistics), ctypes.POINTER(Counters)]
        self._start = _function(library, "start", ctypes.c_int, [settings, error, size])
        self._read = _function(library, "read", ctypes.c_int, read)
        self._reset_peaks = _function(library, "reset_peaks", None, [device])
        self._reset_sums = _function(library, "reset_sums", None, [device])
        self._mark = _function(library, "mark", None, [])
        self._exchange_begins = _function(library, "exchange_begins", ctypes.c_uint64, [device])
        self._exchange_enqueued = _function(library, "exchange_enqueued", None, [device, ctypes.c_uint64])
        self._exchange_awaited = _function(library, "exchange_awaited", None, [device, ctypes.c_uint64, ctypes.c_uint64])
        self._pin = _function(library, "pin", ctypes.c_int, [ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int])
        self.history = Kept(library, "stplan")
        self.lending = Lending(library, "stplan_pluggable")
        self._limit = _function(library, "limit", None, [device, ctypes.c_uint64])
        self._ranges = _function(library, "ranges", size, [device, ctypes.POINTER(Range), size])

    def start(
        self, plan: Optional[str], memory: str, counters: Optional[str], move: str = "auto", proven: int = 0
    ) -> None:
        """Start the runtime and read the plan. proven: as in stplan_settings. Raises RuntimeFailure, and ValueError if
        memory is not in MEMORY or move not in MOVE."""
        for name, value, known in (("memory", memory, MEMORY), ("move", move, MOVE)):
            if value not in known:
                raise ValueError(f"{name}: expected one of {', '.join(sorted(known))}, found {value!r}")
        error = ctypes.create_string_buffer(512)
        settings = _Settings(_path(plan), _path(counters), MEMORY[memory], MOVE[move], ranks, proven)
        if self._start(ctypes.byref(settings), error, len(error)) != 0:
            raise RuntimeFailure(error.value.decode("utf-8", "replace"))

    def address(self, name: str) -> int:
        """The address of the function stplan_pluggable_NAME."""
        found = ctypes.cast(getattr(self._library, f"stplan_pluggable_{name}"), ctypes.c_void_p).value
        assert found is not None
        return found

    def read(self, device: int) -> Tuple[Statistics, Counters]:
        """The device's figures; all zero if nothing was requested of it yet."""
        statistics, counters = Statistics(), Counters()
        self._read(device, ctypes.byref(statistics), ctypes.byref(counters))
        return statistics, counters

    def counters(self, device: int) -> Counters:
        return self.read(device)[1]

    def mark(self) -> None:
        """Mark the beginning of a step of the program."""
        self._mark()

    def exchange_begins(self, device: int) -> int:
        """Say that an exchange with another process is about to be enqueued on a device. Returns
        its number for the functions below, or 0 if it is not followed."""
        return int(self._exchange_begins(device))

    def exchange_enqueued(self, device: int, exchange: int) -> None:
        """Say that the call which was to enqueue an exchange has returned or failed. Once for
        each number."""
        self._exchange_enqueued(device, exchange)

    def exchange_awaited(self, device: int, exchange: int, stream: int) -> None:
        """Say that a stream, by its handle, has been made to wait for an exchange."""
        self._exchange_awaited(device, exchange, stream)

    def pin(self, address: int, size: int, pinned: bool) -> bool:
        """Pin memory of a live block, or unpin it. False if the runtime has no such block,
        or no such pin."""
        return bool(self._pin(address, size, int(pinned)) == 0)

    def reset_peaks(self, device: int) -> None:
        self._reset_peaks(device)

    def reset_sums(self, device: int) -> None:
        self._reset_sums(device)

    def limit(self, device: int, limit: int) -> None:
        """Set the largest number of bytes that may be reserved; 0 means no limit."""
        self._limit(device, limit)

    def ranges(self, device: int) -> List[Range]:
        """All memory of the device, by extent, the ranges of each in order of address."""
        room = self._ranges(device, None, 0)
        while True:
            ranges = (Range * room)()
            count = self._ranges(device, ranges, room)
            if count <= room:  # more if another thread has allocated since the last call
                return list(ranges)[:count]
            room = count


def _function(library: ctypes.CDLL, name: str, result: Any, arguments: List[Any]) -> Any:
    function = getattr(library, f"stplan_pluggable_{name}")
    function.restype = result
    function.argtypes = arguments
    return function


def _path(path: Optional[str]) -> Optional[bytes]:
    return None if path is None else os.fsencode(path)
