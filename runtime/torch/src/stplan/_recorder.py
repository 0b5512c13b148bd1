"""Records one process, from CUDA's initialisation until the trace is written."""

from __future__ import annotations

import enum
import os
import sys
import threading
from importlib import import_module
from typing import Any, Callable, Optional

from stplan._exits import ENDED, Exits
from stplan._imports import after_import
from stplan._process import described, say, stem
from stplan._settings import Settings
from stplan._steps import StepCounter

_armed = False


def arm(settings: Settings) -> None:
    """Record this process if it initialises CUDA. Only the first call in a process
    counts: two nested launchers both call it."""
    global _armed
    if _armed:
        return
    _armed = True
    after_import("torch", lambda torch: Recorder(torch, settings).arm())


class Phase(enum.Enum):
    ARMED = "waiting for CUDA"
    RECORDING = "recording"
    ENDING = "taking the snapshot or writing it"
    OVER = "written, failed, or left to the parent process"
    GONE = "over, and all hooks that can be removed are removed"


class Recorder:
    """The recorder of this process. No error may reach the job: every function that torch
    or the interpreter calls catches its exceptions and reports them."""

    def __init__(self, torch: Any, settings: Settings) -> None:
        self._torch = torch
        self._settings = settings
        self._counter = StepCounter()
        self._exits = Exits(self._settle, self._forked)
        self._reset(Phase.ARMED)

    def _reset(self, phase: Phase) -> None:
        self._phase = phase
        # Acquired once, by the caller that ends the recording, and never released.
        self._end = threading.Lock()
        self._ender: Optional[int] = None
        self._over = threading.Event()

    def arm(self) -> None:
        """Begin right after CUDA is initialised. The allocator does not exist before, and
        nothing can be allocated between the two."""
        try:
            self._torch.cuda._lazy_call(self._begin)
        except Exception as error:
            say(f"cannot record this process: {described(error)}")

    def _begin(self) -> None:
        if self._phase is not Phase.ARMED:
            return
        settings = self._settings
        try:
            # These load modules that only a recording needs, and every process loads this one.
            from stplan import _exchanges
            from stplan._exchange_marks import ExchangeMarks
            from stplan._history import History
            from stplan._output import Output

            self._output = Output(settings.directory, settings.reports, stem(sys.argv, os.environ))
            self._output.report("recording")
            self._history = History(self._torch, self._interrupted)
            self._count_steps()
            self._exchange_marks = ExchangeMarks(self._torch)
            _exchanges.watch(self._exchange_marks, lambda device: int(self._torch._C._cuda_getCurrentRawStream(device)))
            self._history.start(settings.stacks)
            self._phase = Phase.RECORDING
            self._exits.install()
        except Exception as error:
            self._phase = Phase.OVER
            self._failed(error)

    def _count_steps(self) -> None:
        optimizer = import_module("torch.optim.optimizer")
        optimizer.register_optimizer_step_post_hook(eager(self._torch, self._stepped))

    def _stepped(self, optimizer: object) -> None:
        """Called after every eager step of every optimizer."""
        if self._phase is Phase.OVER:
            # At the main thread's first step after the trace is written, the exit hooks
            # are removed. This hook stays: torch is iterating over the hooks.
            if self._exits.remove():
                self._phase = Phase.GONE
        elif self._phase is Phase.RECORDING and self._counter.stepped(optimizer):
            if self._counter.steps == self._settings.steps:
                self._finish("", in_background=True)

    def _interrupted(self) -> None:
        self._finish("its script switched the recording off", in_background=True)

    def _settle(self, why: str) -> bool:
        """End the recording and return when there is nothing left to write. Returns False
        if a signal has interrupted this same thread while it was ending the recording."""
        self._finish(why, in_background=False)
        if not self._end.locked() or self._over.is_set():
            return True
        if self._ender in (None, threading.get_ident()):
            return False
        self._over.wait()
        return True

    def _finish(self, why: str, in_background: bool) -> None:
        """End the recording; only the first call has an effect. why says what stopped it
        before its last step, "" if nothing did. With in_background a thread writes the
        trace, and the caller waits for the snapshot only. An interpreter that shuts down
        cannot start a thread, so there it has to be False."""
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
            self._exchange_marks.stop()
            self._history.stop()

    def _write(self, snapshot: Any, why: str) -> None:
        if self._settings.steps == 0 and why == ENDED:
            why = ""  # --steps 0 asks for a recording until the end.
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
        early = f"; stopped before the last step: {why}" if why else ""
        done = f"{_counted(self._counter.steps, 'step')}, {_counted(allocations, 'allocation')}"
        say(f"{self._output.path}: {done}{early}")

    def _failed(self, error: Exception) -> None:
        say(f"cannot record this process: {described(error)}")
        try:
            self._output.report("failed", error=described(error))
        except Exception:
            pass  # The launcher finds the last report, of a recording that did not end.

    def _forked(self) -> None:
        """Called in a forked child. If CUDA was not initialised before the
        fork, the child may be the process that trains, so it stays armed.
        Otherwise the recording belongs to the parent."""
        self._reset(Phase.ARMED if self._phase is Phase.ARMED else Phase.OVER)


def eager(torch: Any, stepped: Callable[[object], None]) -> Callable[[Any, Any, Any], None]:
    """A hook for torch that calls stepped(optimizer), but not while torch.compile traces
    a step: it would trace into the recorder and recompile whenever the recorder's state
    changes. torch.compile evaluates is_compiling() to a constant and drops the branch."""
    compiling = torch.compiler.is_compiling

    def hook(optimizer: Any, args: Any, kwargs: Any) -> None:
        if not compiling():
            stepped(optimizer)

    return hook


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
