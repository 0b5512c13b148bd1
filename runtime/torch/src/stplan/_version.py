"""The version of stplan, which stands in stplan.h only."""

from __future__ import annotations

import os
import re

_HEADER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "csrc", "stplan.h")


def _read() -> str:
    with open(_HEADER, encoding="utf-8") as header:
        found = re.search(r'^#define STPLAN_VERSION "([^"]+)"$', header.read(), re.MULTILINE)
    if found is None:
        raise ImportError(f"{_HEADER}: expected a line #define STPLAN_VERSION, found none")
    return found[1]


__version__ = _read()
