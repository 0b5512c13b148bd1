"""Replaces stplan._serving.install in every process. The real function exchanges
torch's allocator; this one prints its arguments and writes the counters that
COUNTERS gives, a JSON object of devices with their fields. It returns BACKEND,
or "shim" if that is not set. If REFUSE is set, it raises that text."""

import ctypes
import json
import os
import sys


def install(plan, memory="auto", counters=None, move="auto"):
    assert not sys.modules["torch"].cuda.is_initialized()
    if os.environ.get("REFUSE"):
        raise _serving.ServingError(os.environ["REFUSE"])
    named = plan and os.path.relpath(plan)
    moves = "" if move == "auto" else f", move {move}"
    sys.stderr.write(f"asked {os.environ.get('RANK')}: {named} {memory}{moves}\n")
    for device, found in json.loads(os.environ.get("COUNTERS", "{}")).items():
        counted = Counters(**{"fields": ctypes.sizeof(Counters) // 8, **found})
        with open(f"{counters}{device}", "wb") as out:
            out.write(bytes(counted))
    return os.environ.get("BACKEND") or "shim"


if "stplan" in sys.modules:
    from stplan import _serving
    from stplan._runtime import Counters

    _serving.install = install
