"""Runs one job under several allocators at the same time, on one device.

Timed steps are taken in turns (turns.py); everything else is done in parallel.
At the end the processes exit one after the other. The memory that becomes free
at an exit is all that the process held.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Tuple

from turns import Conductor, TurnsError

# Rounds of timed steps before the number of further rounds is set, by the time that these
# took.
FIRST_ROUNDS = 3

# Lines of a failed process's output that are shown.
LAST = 8

# Seconds between SIGTERM and SIGKILL, so that a launcher can end its job.
GRACE = 5.0


class Pace(NamedTuple):
    """warm: number of steps before the timed ones. rounds: largest number of timed steps;
    fewer are taken, but at least 5, if that many would take longer than `seconds`."""

    warm: int = 2
    rounds: int = 8
    seconds: float = 30.0


class Start(NamedTuple):
    """How a job is started under one allocator."""

    command: List[str]
    environment: Mapping[str, str] = {}


class Measured(NamedTuple):
    """seconds: time of each timed step; the slowest rank counts. reports: the figures of
    each rank (steps.py). returned_bytes: device memory that became free when the process
    exited. code: its exit code."""

    seconds: List[float]
    reports: List[Dict[str, Any]]
    returned_bytes: int
    code: int

    @property
    def report(self) -> Dict[str, Any]:
        """The report of the first rank: the only one, or that of the first device."""
        return self.reports[0]


class SideBySide:
    """The processes of one job, or its launchers, with `ranks` ranks each. The
    constructor starts them. They wait for play before they use the device."""

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
        """Runs the job. Returns the figures of the allocators that finished,
        and the problems. used returns the bytes of device memory in use;
        timeout is in seconds. timed is called after the last timed step: from
        then on the machine may be used for other work."""
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
            raise TurnsError(f"a process does not exit: {error}") from error

    def _watch(self) -> None:
        """Drops the jobs whose process has ended before it asked to enter."""
        for name, process in self.processes.items():
            if process.poll() is not None:
                self.conductor.lose(name)

    def close(self) -> None:
        """Ends the processes that still run; a launcher gets GRACE seconds to
        end its job. A second call has no effect."""
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
