"""Puts a stand-in for stplan._serving.install into every process: where the real
one exchanges torch's allocator, this one says what it was asked for and leaves
the counters of COUNTERS behind, a JSON object of devices with their fields. It
says that it has put BACKEND in place, or the shim; with REFUSE in the environment
it raises that text."""

import ctypes
import json
import os
import sys


def install(plan, memory="auto", counters=None):
    assert not sys.modules["torch"].cuda.is_initialized()
    if os.environ.get("REFUSE"):
        raise _serving.ServingError(os.environ["REFUSE"])
    named = plan and os.path.relpath(plan)
    sys.stderr.write(f"asked {os.environ.get('RANK')}: {named} {memory}\n")
    for device, found in json.loads(os.environ.get("COUNTERS", "{}")).items():
        counted = Counters(**{"fields": ctypes.sizeof(Counters) // 8, **found})
        with open(f"{counters}{device}", "wb") as out:
            out.write(bytes(counted))
    return os.environ.get("BACKEND") or "shim"


if "stplan" in sys.modules:
    from stplan import _serving
    from stplan._runtime import Counters

    _serving.install = install
