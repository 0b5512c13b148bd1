"""Runs one job under several allocators, side by side.

What is not timed they do at the same time; timed steps are taken in turns
(turns.py). In the end they exit one after the other, and what the device gets
back from each is all the memory that its process held.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Tuple

from turns import Conductor, TurnsError

# Steps in turns before it is decided how many more there is time for.
FIRST_ROUNDS = 3

# Lines of a failed process that are told.
LAST = 8

# Seconds that a process gets to end after SIGTERM.
GRACE = 5.0


class Pace(NamedTuple):
    """warm: steps before the timed ones. rounds: timed steps, at most; fewer, but
    at least 5, where all of them would take longer than `seconds`."""

    warm: int = 2
    rounds: int = 8
    seconds: float = 30.0


class Start(NamedTuple):
    """How a job is started under one allocator."""

    command: List[str]
    environment: Mapping[str, str] = {}


class Measured(NamedTuple):
    """seconds: of each timed step, of the slowest rank. reports: what the ranks
    handed in (steps.py). returned_bytes: what the device had more when the
    process was gone."""

    seconds: List[float]
    reports: List[Dict[str, Any]]
    returned_bytes: int
    code: int

    @property
    def report(self) -> Dict[str, Any]:
        """Of the first rank: the only one, or that of the first device."""
        return self.reports[0]


class SideBySide:
    """The processes of one job, or launchers of so many ranks each. They are
    started when this is made, and wait before they touch the device until play
    is called."""

    def __init__(self, folder: Path, starts: Mapping[str, Start], ranks: int = 1) -> None:
        folder.mkdir()
        self.folder = folder
        self.conductor = Conductor(str(folder), dict.fromkeys(starts, ranks))
        self.processes = {name: self._popen(name, start) for name, start in starts.items()}

    def _popen(self, name: str, start: Start) -> "subprocess.Popen[bytes]":
        with open(self._log(name), "wb") as log:
            return subprocess.Popen(
                start.command,
                env={**os.environ, **start.environment, **self.conductor.environment(name)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def play(
        self, used: Callable[[], int], pace: Pace, timeout: float, timed: Callable[[], None] = lambda: None
    ) -> Tuple[Dict[str, Measured], List[str]]:
        """Returns the figures of those that came through, and what went wrong.
        used: bytes of device memory in use; timeout in seconds. timed is called
        after the last timed step, when the machine may be disturbed again."""
        self.conductor.deadline = time.monotonic() + timeout
        measured: Dict[str, Measured] = {}
        problems: List[str] = []
        try:
            self._play(used, pace, measured, timed)
        except TurnsError as error:
            problems.append(str(error))
        finally:
            self.close()
        for name in self.processes:
            if name not in measured or measured[name].code != 0:
                problems.append(f"{name}: {self._end(name)}")
        return measured, problems

    def _play(
        self, used: Callable[[], int], pace: Pace, measured: Dict[str, Measured], timed: Callable[[], None]
    ) -> None:
        conductor = self.conductor
        conductor.enter(self._watch)
        conductor.together(pace.warm)
        seconds = conductor.in_turns(FIRST_ROUNDS)
        round_seconds = sum(sorted(times)[len(times) // 2] for times in seconds.values() if times)
        fitting = max(5, int(pace.seconds / round_seconds)) if round_seconds else 0
        for name, more in conductor.in_turns(max(0, min(pace.rounds, fitting) - FIRST_ROUNDS)).items():
            seconds[name] += more
        timed()
        conductor.together()
        held = used()

        def exited(name: str) -> None:
            nonlocal held
            code = self.processes[name].wait(max(1.0, conductor.deadline - time.monotonic()))
            now = used()
            measured[name] = Measured(seconds[name], conductor.reports(name), held - now, code)
            held = now

        try:
            conductor.leave(exited)
        except subprocess.TimeoutExpired as error:
            raise TurnsError(f"does not exit: {error}") from error

    def _watch(self) -> None:
        """One that ends before it has come never will."""
        for name, process in self.processes.items():
            if process.poll() is not None:
                self.conductor.lose(name)

    def close(self) -> None:
        """Ends what still runs; a launcher gets the time to end its job. May be
        called again."""
        self.conductor.close()
        for kill in (signal.SIGTERM, signal.SIGKILL):
            for process in self.processes.values():
                if process.poll() is None:
                    os.killpg(process.pid, kill)
            for process in self.processes.values():
                try:
                    process.wait(GRACE)
                except subprocess.TimeoutExpired:
                    continue

    def _log(self, name: str) -> Path:
        return self.folder / f"{name.replace(' ', '-')}.log"

    def _end(self, name: str) -> str:
        code: Optional[int] = self.processes[name].returncode
        last = self._log(name).read_text(errors="replace").strip().splitlines()[-LAST:]
        return f"exit code {code}; its last lines:\n" + "\n".join(f"    {line}" for line in last)
