"""One process's recording, from CUDA's initialisation to the written trace."""

from __future__ import annotations

import enum
import os
import sys
import threading
from importlib import import_module
from typing import Any, Callable, Optional

from stplan._exits import ENDED, Exits
from stplan._history import History
from stplan._imports import after_import
from stplan._output import Output
from stplan._process import described, say, stem
from stplan._settings import Settings
from stplan._steps import StepCounter

_armed = False


def arm(settings: Settings) -> None:
    """Record this process, if it ever initialises CUDA. Only the first call of
    a process counts: a launcher inside a launcher asks twice."""
    global _armed
    if _armed:
        return
    _armed = True
    after_import("torch", lambda torch: Recorder(torch, settings).arm())


class Phase(enum.Enum):
    ARMED = "waiting for CUDA"
    RECORDING = "recording"
    ENDING = "taking the snapshot or writing it"
    OVER = "written, failed, or not this process's to do"
    GONE = "over, and the process is as it was"


class Recorder:
    """Nothing that goes wrong in here may reach the job: every entry from torch
    or the interpreter catches what it raises, and reports it."""

    def __init__(self, torch: Any, settings: Settings) -> None:
        self._torch = torch
        self._settings = settings
        self._counter = StepCounter()
        self._exits = Exits(self._settle, self._forked)
        self._reset(Phase.ARMED)

    def _reset(self, phase: Phase) -> None:
        self._phase = phase
        # Taken once, by whoever ends the recording; never given back.
        self._end = threading.Lock()
        self._ender: Optional[int] = None
        self._over = threading.Event()

    def arm(self) -> None:
        """Begin right after CUDA is initialised: the allocator records nothing
        before it exists, and nothing can be allocated in between."""
        try:
            self._torch.cuda._lazy_call(self._begin)
        except Exception as error:
            say(f"cannot record this process: {described(error)}")

    def _begin(self) -> None:
        if self._phase is not Phase.ARMED:
            return
        settings = self._settings
        try:
            self._output = Output(settings.directory, settings.reports, stem(sys.argv, os.environ))
            self._output.report("recording")
            self._history = History(self._torch, self._interrupted)
            self._count_steps()
            self._history.start(settings.stacks)
            self._phase = Phase.RECORDING
            self._exits.install()
        except Exception as error:
            self._phase = Phase.OVER
            self._failed(error)

    def _count_steps(self) -> None:
        optimizer = import_module("torch.optim.optimizer")
        optimizer.register_optimizer_step_post_hook(_eager(self._torch, self._stepped))

    def _stepped(self, optimizer: object) -> None:
        """After every eager step of every optimizer."""
        if self._phase is Phase.OVER:
            # The main thread comes by here at its first step after the trace is
            # written. The hook itself stays: torch is iterating over the hooks.
            if self._exits.remove():
                self._phase = Phase.GONE
        elif self._phase is Phase.RECORDING and self._counter.stepped(optimizer):
            if self._counter.steps == self._settings.steps:
                self._finish("", in_background=True)

    def _interrupted(self) -> None:
        self._finish("its script switched the recording off", in_background=True)

    def _settle(self, why: str) -> bool:
        """Return when there is nothing left to write; False where a signal has
        interrupted this very thread on its way there."""
        self._finish(why, in_background=False)
        if not self._end.locked() or self._over.is_set():
            return True
        if self._ender in (None, threading.get_ident()):
            return False
        self._over.wait()
        return True

    def _finish(self, why: str, in_background: bool) -> None:
        """End the recording, once. why says what stopped it before its last
        step. In the background only the snapshot is taken on the caller's time;
        an interpreter that shuts down can start no thread."""
        if self._phase is not Phase.RECORDING or not self._end.acquire(blocking=False):
            return
        self._ender = threading.get_ident()
        self._phase = Phase.ENDING
        try:
            snapshot = self._take()
            if in_background:
                writer = threading.Thread(target=self._write, args=(snapshot, why), name="stplan")
                writer.start()
                self._ender = writer.ident
            else:
                self._write(snapshot, why)
        except Exception as error:
            self._failed(error)
            self._done()
        if self._exits.must_end():
            self._over.wait()
            self._exits.terminate()

    def _take(self) -> Any:
        try:
            return self._history.snapshot()
        finally:
            self._history.stop()

    def _write(self, snapshot: Any, why: str) -> None:
        if self._settings.steps == 0 and why == ENDED:
            why = ""  # What was asked for.
        try:
            traces = snapshot["device_traces"]
            events = sum(len(trace) for trace in traces)
            allocations = sum(entry["action"] == "alloc" for trace in traces for entry in trace)
            facts = {"steps": self._counter.steps, "events": events, "allocations": allocations, "why": why}
            if allocations == 0:
                self._output.report("empty", **facts)
                return
            self._output.report("writing", **facts)
            size = self._output.write(snapshot)
            self._output.report("written", bytes=size, **facts)
            self._tell(allocations, why)
        except Exception as error:
            self._failed(error)
        finally:
            self._done()

    def _done(self) -> None:
        self._phase = Phase.OVER
        self._over.set()

    def _tell(self, allocations: int, why: str) -> None:
        if self._settings.quiet:
            return
        early = f"; the job went no further: {why}" if why else ""
        done = f"{_counted(self._counter.steps, 'step')}, {_counted(allocations, 'allocation')}"
        say(f"{self._output.path}: {done}{early}")

    def _failed(self, error: Exception) -> None:
        say(f"cannot record this process: {described(error)}")
        try:
            self._output.report("failed", error=described(error))
        except Exception:
            pass  # The launcher then sees that the recording did not end.

    def _forked(self) -> None:
        """In a forked child. Before CUDA is initialised the child may be the
        one that trains; afterwards the recording is its parent's."""
        self._reset(Phase.ARMED if self._phase is Phase.ARMED else Phase.OVER)


def _eager(torch: Any, stepped: Callable[[object], None]) -> Callable[[Any, Any, Any], None]:
    """A hook for torch that calls stepped(optimizer), but not from a compiled
    step: torch.compile would trace into the recorder, and compile anew whenever
    its state changes. The one question that is asked first it folds away."""
    compiling = torch.compiler.is_compiling

    def hook(optimizer: Any, args: Any, kwargs: Any) -> None:
        if not compiling():
            stepped(optimizer)

    return hook


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
