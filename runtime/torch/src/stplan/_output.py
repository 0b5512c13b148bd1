"""Where a process's trace goes, how it is written, and what is said of it."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import re
from typing import Any, Mapping, Optional, Sequence

SUFFIX = ".pickle.gz"

# Snapshots compress tenfold at the fastest level already.
_GZIP_LEVEL = 1

# Every Python that runs torch reads it, and it is the one that torch writes.
_PICKLE_PROTOCOL = 4


def rank(environment: Mapping[str, str]) -> Optional[str]:
    """The process's rank as its launcher gives it, None for a lone process."""
    for name in ("RANK", "LOCAL_RANK"):
        value = environment.get(name, "")
        if re.fullmatch(r"[0-9]+", value):
            return value
    return None


def stem(argv: Sequence[str], environment: Mapping[str, str]) -> str:
    """The trace's file name without suffix: the script's name, then the rank,
    or the process id where there is none."""
    script = argv[0] if argv else ""
    if script.startswith("-"):  # -c, -m: no file
        script = ""
    name = os.path.splitext(os.path.basename(script))[0]
    if name == "__main__":
        name = os.path.basename(os.path.dirname(script))
    name = re.sub(r"[^A-Za-z0-9._-]+", "_", name).strip(".-_") or "python"
    number = rank(environment)
    return f"{name}-rank{number}" if number is not None else f"{name}-pid{os.getpid()}"


class Output:
    """The files of one recording process: its trace, and its report to the
    launcher, which exists from the beginning of the recording so that the
    launcher knows of a process that was killed."""

    def __init__(self, directory: str, reports: Optional[str], stem: str) -> None:
        self._reports = reports
        self._report: Optional[str] = None
        if reports is not None:
            stem, self._report = _claim(reports, stem)
        self.path = os.path.join(directory, stem + SUFFIX)
        self.temporary = os.path.join(directory, "." + stem + SUFFIX + ".tmp")

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
        if self._report is None:
            return
        facts.update(
            state=state,
            pid=os.getpid(),
            trace=os.path.basename(self.path),
            temporary=os.path.basename(self.temporary),
        )
        draft = self._report + ".tmp"
        with open(draft, "w", encoding="utf-8") as out:
            json.dump(facts, out)
        os.replace(draft, self._report)


def _claim(reports: str, stem: str) -> tuple[str, str]:
    """Reserve a name that no other process of the job has: two may have the
    same rank, a restarted one and its predecessor for instance."""
    for name in (stem, f"{stem}-pid{os.getpid()}"):
        path = os.path.join(reports, name + ".json")
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        except FileExistsError:
            continue
        return name, path
    raise FileExistsError(f"{reports}: {stem} is taken, with this process id too")


def say(text: str) -> None:
    """One line on standard error, whole beside what other ranks print. Past
    sys.stderr, which a signal handler may have interrupted in a write."""
    try:
        os.write(2, f"stplan: {text}\n".encode(errors="replace"))
    except OSError:
        pass  # The job has closed it.
