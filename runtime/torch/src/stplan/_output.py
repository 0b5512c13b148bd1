"""Where a process's trace goes, how it is written, and what is said of it."""

from __future__ import annotations

import gzip
import os
import pickle
from typing import Any, Optional

from stplan._report import Report

SUFFIX = ".pickle.gz"

# Snapshots compress tenfold at the fastest level already.
_GZIP_LEVEL = 1

# Every Python that runs torch reads it, and it is the one that torch writes.
_PICKLE_PROTOCOL = 4


class Output:
    """The files of one recording process: its trace, and its report to the
    launcher, where there is one, from the beginning of the recording on."""

    def __init__(self, directory: str, reports: Optional[str], stem: str) -> None:
        self._report = None if reports is None else Report(reports, stem)
        name = stem if self._report is None else self._report.name
        self.path = os.path.join(directory, name + SUFFIX)
        self.temporary = os.path.join(directory, "." + name + SUFFIX + ".tmp")

    def write(self, snapshot: Any) -> int:
        """Write the trace under its name in one step; returns its bytes.
        Raises OSError, with the temporary file removed."""
        try:
            # A file of an earlier job that was killed may lie there.
            with open(self.temporary, "wb") as raw:
                with gzip.GzipFile("", "wb", _GZIP_LEVEL, raw, mtime=0) as out:
                    pickle.dump(snapshot, out, _PICKLE_PROTOCOL)
                size = raw.tell()
            os.replace(self.temporary, self.path)
        except BaseException:
            if os.path.exists(self.temporary):
                os.unlink(self.temporary)
            raise
        return size

    def report(self, state: str, **facts: Any) -> None:
        """Replace what the launcher will read of this process."""
        if self._report is not None:
            trace, temporary = os.path.basename(self.path), os.path.basename(self.temporary)
            self._report.write(state, trace=trace, temporary=temporary, **facts)
