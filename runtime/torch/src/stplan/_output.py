"""The trace file of a recorded process, and its report to the launcher."""

from __future__ import annotations

import gzip
import os
import pickle
from typing import Any, Optional

from stplan._report import Report

SUFFIX = ".pickle.gz"

# gzip's level, 1 (fastest) to 9: at 1 a snapshot is compressed tenfold already.
_GZIP_LEVEL = 1

# torch writes this protocol, and every Python that runs torch can read it.
_PICKLE_PROTOCOL = 4


class Output:
    """The files of one recording process: its trace and, if there is a launcher, its
    report, which exists from the beginning of the recording on."""

    def __init__(self, directory: str, reports: Optional[str], stem: str) -> None:
        self._report = None if reports is None else Report(reports, stem)
        name = stem if self._report is None else self._report.name
        self.path = os.path.join(directory, name + SUFFIX)
        self.temporary = os.path.join(directory, "." + name + SUFFIX + ".tmp")

    def write(self, snapshot: Any) -> int:
        """Write a temporary file, rename it to the trace's path, and return its size in
        bytes. If it raises, OSError for example, the temporary file is removed."""
        try:
            # This replaces the temporary file of an earlier job that was killed.
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
        """Replace the report that the launcher will read."""
        if self._report is not None:
            trace, temporary = os.path.basename(self.path), os.path.basename(self.temporary)
            self._report.write(state, trace=trace, temporary=temporary, **facts)
