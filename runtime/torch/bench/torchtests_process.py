"""One process of torchtests_worker.py, from its start to its end, and what it left."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from torchtests_outcomes import DIED, FAILED, HUNG, PASSED, Ended, Outcome

WORKER = Path(__file__).resolve().parent / "torchtests_worker.py"

# Imported by a process before it waits for its turn on the device. They do not initialise
# CUDA; other modules of torch.testing do.
PRELOAD = ("torch", "torch.testing._internal.common_utils")

# Seconds until a process is ended that does not get as far as its first test. The import
# of torch and of a test file takes about 10 s, several times that if many start at once.
LOADING = 150.0

# Seconds between the signals that end a process: the first lets Python print where it is,
# the second lets stplan write its summary.
GRACE = 3.0

# A test that takes long in the reference may take this many times as long elsewhere before
# it counts as hanging, even if that is more than the limit.
SLOWER = 3.0

# Seconds between two looks at a process.
LOOK = 0.05

# Lines and characters of a test's output that are kept.
LINES, CHARACTERS = 15, 3000


class Clock:
    """When everything has to end, in seconds of time.monotonic. cut ends it now."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        return self._end - time.monotonic()

    def cut(self) -> None:
        self._end = 0.0


class Mode(NamedTuple):
    """How a test process is started: prefix stands before its command. {summary} in it is
    the file for the summary of `stplan run`."""

    name: str
    prefix: Tuple[str, ...] = ()


class Limits(NamedTuple):
    """In seconds: one test, and the import of a file."""

    test: float
    loading: float = LOADING


class Process:
    """One process of the worker, from its start to its end."""

    def __init__(
        self, folder: Path, mode: Mode, path: Path, tests: Optional[Sequence[str]], environment: Mapping[str, str], cwd: Path, wait: bool,
        forks: bool = False,
    ) -> None:
        folder.mkdir()
        self._folder = folder
        self._events, self._log = folder / "events", folder / "log"
        self._events.touch()
        self._summary = folder / "summary.json"
        request = {"file": str(path), "tests": tests, "events": str(self._events), "log": str(self._log), "preload": PRELOAD, "wait": wait, "forks": forks}
        (folder / "request.json").write_text(json.dumps(request))
        prefix = [part.format(summary=self._summary) for part in mode.prefix]
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(
                [*prefix, sys.executable, str(WORKER), str(folder / "request.json")],
                env={**os.environ, **environment},
                cwd=cwd,
                stdin=subprocess.PIPE if wait else subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._read = 0
        self._pid = self._process.pid
        self._state = "started"
        self._since = time.monotonic()
        self._results: Dict[str, Outcome] = {}
        self._fixtures: List[Tuple[str, Outcome]] = []
        self._running, self._from = "", 0
        self._missing: Tuple[str, ...] = ()
        self._loaded = False
        self._unloadable: Optional[Outcome] = None
        self._listed: Optional[List[Tuple[str, List[str]]]] = None

    def finish(self, limits: Limits, clock: Clock, turn: "Turn", known: Mapping[str, float]) -> Ended:
        """Waits for the end. The process goes on from the point where it waits when it
        has its turn on the device. known: seconds of tests in the reference."""
        outcome, why, cut = "", "", False
        try:
            while not self._over():
                self._look()
                if self._state == "ready" and turn.take():
                    assert self._process.stdin is not None
                    with suppress(BrokenPipeError):
                        self._process.stdin.write(b"\n")
                        self._process.stdin.close()
                    self._enter("going")
                limit = self._limit(limits, known)
                if clock.left() <= 0:
                    cut, why = True, "the time was over"
                    self._end(signal.SIGTERM)
                elif self._state != "ready" and time.monotonic() - self._since > limit:
                    outcome, why = HUNG, self._hung(limit)
                    self._end(signal.SIGABRT)
                else:
                    time.sleep(LOOK)
            self._sweep()
        finally:
            turn.give()
        self._look()
        code = self._process.wait()
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()
        seconds = time.monotonic() - self._since
        text = self._text(self._from)
        if not why and (code != 0 or self._state != "done"):
            outcome, why = DIED, death(code, text)
        ended = Ended(
            self._results, self._running, round(seconds, 3), self._missing, self._unloadable, tuple(self._fixtures), self._listed,
            outcome or PASSED, why, last_lines(text) if why else (), cut, self._served(), self._loaded,
        )
        shutil.rmtree(self._folder, ignore_errors=True)
        return ended

    def _limit(self, limits: Limits, known: Mapping[str, float]) -> float:
        if self._state == "begin":
            return max(limits.test, SLOWER * known.get(self._running, 0.0))
        return limits.test if self._state in ("end", "loaded", "done") else limits.loading

    def _over(self) -> bool:
        """Whether the process has ended. It is not yet waited for, so that its group's
        number is not given to another process before _sweep."""
        return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def _sweep(self) -> None:
        """Ends what the process has left behind, which may hold memory of the device."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _end(self, first: int) -> None:
        """Ends the process: with the signal, to the worker itself; then as a user would;
        then surely."""
        with suppress(ProcessLookupError):
            os.kill(self._pid, first)
        for send in (signal.SIGTERM, signal.SIGKILL):
            until = time.monotonic() + GRACE
            while not self._over() and time.monotonic() < until:
                time.sleep(LOOK)
            if self._over():
                return
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, send)
        os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)

    def _hung(self, limit: float) -> str:
        where = {"begin": "", "end": "between tests, ", "loaded": "before the first test, ", "done": "at exit, "}
        return f"{where.get(self._state, 'while the file was loaded, ')}still running after {limit:.0f} s"

    def _enter(self, state: str) -> None:
        self._state, self._since = state, time.monotonic()

    def _look(self) -> None:
        """Reads the events that are new."""
        with open(self._events, "rb") as file:
            file.seek(self._read)
            data = file.read()
        complete = data[: data.rfind(b"\n") + 1]
        self._read += len(complete)
        for line in complete.splitlines():
            self._take(json.loads(line))

    def _take(self, event: Dict[str, Any]) -> None:
        kind = event["event"]
        if kind == "started":
            self._pid = event["pid"]
        elif kind == "begin":
            self._running, self._from = event["test"], event["log"]
        elif kind == "end":
            printed = self._text(self._from, event["log"])
            bad = event["outcome"] == FAILED
            output = last_lines(printed + "\n" + event["text"]) if bad else ()
            self._results[event["test"]] = Outcome(event["outcome"], event["seconds"], event["why"], output)
            self._running, self._from = "", event["log"]
        elif kind == "fixture":
            self._fixtures.append((event["what"], Outcome(event["outcome"], 0.0, event["why"], last_lines(event["text"]))))
            return
        elif kind == "unloadable":
            self._unloadable = Outcome(event["outcome"], 0.0, f"the file does not load: {event['why']}", last_lines(event["text"]))
        elif kind == "loaded":
            self._missing, self._loaded = tuple(event["missing"]), True
        elif kind == "listed":
            self._listed = [(name, lines) for name, lines in event["tests"]]
        self._enter(kind)

    def _text(self, begin: int, end: Optional[int] = None) -> str:
        """The end of the output between two positions."""
        with open(self._log, "rb") as file:
            end = os.fstat(file.fileno()).st_size if end is None else end
            file.seek(max(begin, end - 4 * CHARACTERS))
            return file.read(max(0, end - file.tell())).decode(errors="replace")

    def _served(self) -> Optional[Dict[str, Any]]:
        with suppress(OSError, ValueError):
            summary: Dict[str, Any] = json.loads(self._summary.read_text())
            return summary
        return None


def last_lines(text: str) -> Tuple[str, ...]:
    return tuple(text.strip()[-CHARACTERS:].splitlines()[-LINES:])


def death(code: int, text: str) -> str:
    """How a process ended, on one line. code is a shell's, or Popen's."""
    number = -code if code < 0 else code - 128
    try:
        how = f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        how = f"exit code {code}"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # The reason of a C++ exception; the innermost Python line that faulthandler shows; the
    # last line.
    telling = [line for line in lines if line.startswith("what():")]
    for index, line in enumerate(lines[:-1]):
        if line.endswith("(most recent call first):") and line.startswith("Current thread"):
            telling.append(lines[index + 1])
    return ": ".join([how, *(telling[:1] or lines[-1:])])[:300]


class Turn:
    """A place among the serial processes: it has to hold the locks of its devices while
    its tests run."""

    def __init__(self, locks: Sequence[threading.Lock] = ()) -> None:
        self._locks = locks
        self._held: List[threading.Lock] = []

    def take(self) -> bool:
        """Takes all locks, or none. Does not wait."""
        for lock in self._locks:
            if not lock.acquire(blocking=False):
                self.give()
                return False
            self._held.append(lock)
        return True

    def give(self) -> None:
        while self._held:
            self._held.pop().release()
