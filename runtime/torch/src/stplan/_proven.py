"""The mark beside a plan in the cache: an earlier run has followed that plan. The launcher writes
it when a job has ended (cmd/stplan/plan_mark.go)."""

from __future__ import annotations

import os
import re

_MARK = re.compile(rb"stplan-proven 1 ([0-9a-f]{16})\n")

# Bytes of a mark, and one more, so that a longer file is none.
_LENGTH = len("stplan-proven 1 0123456789abcdef\n") + 1


def checksum(plan: str) -> int:
    """The checksum of the plan that the mark beside the file `plan` is of; 0 if there is none that
    can be read. Whether it is that of the file is the runtime's to say, which reads the plan: the
    launcher of another node may replace it at any time."""
    try:
        with open(os.path.splitext(plan)[0] + ".proven", "rb") as file:
            found = _MARK.fullmatch(file.read(_LENGTH))
    except OSError:
        return 0
    return 0 if found is None else int(found[1], 16)
