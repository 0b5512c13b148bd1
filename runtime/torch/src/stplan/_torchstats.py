"""Converts the runtime's figures into the forms that torch returns."""

from __future__ import annotations

from typing import Any, Dict, List, Sequence

from stplan._runtime import Range, Stat, Statistics

_NONE = Stat()


def memory_stats(statistics: Statistics, device_allocations: int, out_of_memory: int) -> Dict[str, Any]:
    """The value of torch.cuda.memory_stats_as_nested_dict(). Blocks in memory for small blocks,
    and that memory, are counted for the small pool, as `segments` says that its segments are
    small: programs compare the two. The runtime has no inactive splits, no
    max_split_size and no retries, so these figures are 0 or -1."""
    everything, small, large = statistics.all, statistics.small, statistics.large
    blocks = _pools(everything.blocks, small.blocks, large.blocks)
    occupied = _pools(everything.bytes, small.bytes, large.bytes)
    nothing = _pools(_NONE, _NONE, _NONE)
    return {
        "num_alloc_retries": 0,
        "num_ooms": out_of_memory,
        "num_sync_all_streams": 0,
        "num_device_alloc": device_allocations,
        "num_device_free": statistics.extents.removed,
        "max_split_size": -1,
        "allocation": blocks,
        "active": blocks,
        "segment": _memory(statistics.extents, statistics.small_extents),
        "inactive_split": nothing,
        "allocated_bytes": occupied,
        "active_bytes": occupied,
        "requested_bytes": _pools(everything.requested, small.requested, large.requested),
        "reserved_bytes": _memory(statistics.reserved, statistics.small_reserved),
        "inactive_split_bytes": nothing,
        "oversize_allocations": _stat(_NONE),
        "oversize_segments": _stat(_NONE),
    }


def segments(ranges: Sequence[Range], device: int) -> List[Dict[str, Any]]:
    """The value of torch.cuda.memory_snapshot(): one segment for each extent."""
    found: List[Dict[str, Any]] = []
    for r in ranges:
        if r.first:
            found.append(_segment(r, device))
        segment = found[-1]
        segment["total_size"] += r.size
        if r.live:
            segment["allocated_size"] += r.size
            segment["active_size"] += r.size
            segment["requested_size"] += r.requested
        segment["blocks"].append(
            {
                "address": r.address,
                "size": r.size,
                "requested_size": r.requested,
                "state": "active_allocated" if r.live else "inactive",
                "frames": [],
            }
        )
    return found


def _segment(first: Range, device: int) -> Dict[str, Any]:
    # The stream is 0: blocks of one extent may belong to different streams.
    return {
        "device": device,
        "address": first.address,
        "total_size": 0,
        "allocated_size": 0,
        "active_size": 0,
        "requested_size": 0,
        "stream": 0,
        "segment_type": "small" if first.small else "large",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "frames": [],
        "blocks": [],
    }


def _pools(everything: Stat, small: Stat, large: Stat) -> Dict[str, Dict[str, int]]:
    return {"all": _stat(everything), "small_pool": _stat(small), "large_pool": _stat(large)}


def _memory(everything: Stat, small: Stat) -> Dict[str, Dict[str, int]]:
    """Of memory. What is not small is large; its peak is that of all, less what is small now."""
    large = Stat(
        everything.current - small.current,
        max(0, everything.peak - small.current),
        max(0, everything.added - small.added),
        max(0, everything.removed - small.removed),
    )
    return _pools(everything, small, large)


def _stat(stat: Stat) -> Dict[str, int]:
    return {"current": stat.current, "peak": stat.peak, "allocated": stat.added, "freed": stat.removed}
