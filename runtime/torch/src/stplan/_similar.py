"""The plan of a similar run: of the same script on the same devices, with other arguments. A folder
for the output, a name or a seed are arguments too, and few of them decide what is allocated. Such a plan costs
places if it does not fit, and then the run has one of its own made, as every run does that goes beyond
its plan (device_learn.h)."""

from __future__ import annotations

import contextlib
import os
import re
import struct
from collections import Counter
from typing import List, Optional, Sequence

from stplan._plankey import PlanKey

# Bytes of such a file: 3,800 arguments. Commands of training jobs have some hundred.
_LENGTH = 1 << 16

# Plans that are looked at, from the one that was used last. It takes 20 us for each on a local disk, and a
# millisecond on a shared one.
_LOOKED_AT = 64

# The beginning of a plan file of version 1 (docs/planfile.md), and of an entry of its section table. A file has eight sections for
# each device and one more; no machine has a thousand devices.
_HEADER = struct.Struct("<8sII16x")
_SECTION = struct.Struct("<IIQ16x")
_MAGIC = b"\x89STPLAN\n"
_MOST_SECTIONS = 8 * 1000 + 1
_DEVICE, _ITERATIONS_AT = 2, 96

_DIGESTS = re.compile(rb"stplan-call 1\n((?:[0-9a-f]{16}\n){2,})")


def nearest(folder: str, key: PlanKey) -> Optional[str]:
    """The path of the plan in the cache `folder` whose run differs the least from this one, or None. Of
    several it is the one that was used last."""
    differences = {plan: difference(key.call, digests(plan)) for plan in _last_used(folder, key.family)}
    similar = {plan: differs for plan, differs in differences.items() if differs is not None}
    return min(similar, key=lambda plan: similar[plan], default=None)


def _last_used(folder: str, family: str) -> List[str]:
    plans = []
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(family) and entry.name.endswith(".bin"):
                with contextlib.suppress(OSError):
                    plans.append((entry.stat().st_mtime_ns, entry.path))
    return [path for _, path in sorted(plans, reverse=True)[:_LOOKED_AT]]


def digests(plan: str) -> List[str]:
    """The digests beside a plan in the cache (plan_call.go), or none if there are none that can be read."""
    with contextlib.suppress(OSError), open(os.path.splitext(plan)[0] + ".call", "rb") as file:
        found = _DIGESTS.fullmatch(file.read(_LENGTH))
        if found is not None:
            return found[1].decode().split()
    return []


def iterations(plan: str) -> int:
    """How many iterations of a run a plan was made of, the most of any device: 0 if the file does not say so. It is the
    runtime that decides whether a file is a plan."""
    most = 0
    with contextlib.suppress(OSError, struct.error), open(plan, "rb") as file:
        magic, version, sections = _HEADER.unpack(file.read(_HEADER.size))
        if magic != _MAGIC or version != 1 or sections > _MOST_SECTIONS:
            return 0
        for kind, _, offset in _SECTION.iter_unpack(file.read(sections * _SECTION.size)):
            if kind == _DEVICE:
                file.seek(min(offset, os.path.getsize(plan)) + _ITERATIONS_AT)
                most = max(most, *struct.unpack("<I", file.read(4)))
    return most


def difference(mine: Sequence[str], other: Sequence[str]) -> Optional[int]:
    """How many digests of two programs differ, or None if the programs are not similar: they share neither
    the script's path nor its content, or less than half in all. The order of arguments does not count."""
    if not mine or not other or (mine[0] != other[0] and mine[1] != other[1]):
        return None
    longer = max(len(mine), len(other))
    same = int(mine[0] == other[0]) + int(mine[1] == other[1]) + sum((Counter(mine[2:]) & Counter(other[2:])).values())
    return longer - same if 2 * same >= longer else None
