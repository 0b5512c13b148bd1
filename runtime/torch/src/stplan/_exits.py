"""The ways in which a process ends, and one chance to act before each.

Not covered: SIGKILL, a crash in native code, a handler for SIGTERM that the
script installs itself and that does not end the interpreter in order.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import threading
from types import FrameType
from typing import Callable, Iterator, Optional

ENDED = "it ended"
"""Why a recording stops where a process ends in order."""


class Exits:
    """settle(why) is called before the process ends. It returns False where it
    is itself what the signal has interrupted and still has to go on: it then
    asks `must_end` when it is done, and calls `terminate`.

    forked() is called in every forked child, which inherits the state of the
    parent but must not act for it.
    """

    def __init__(self, settle: Callable[[str], bool], forked: Callable[[], None]) -> None:
        self._settle = settle
        self._forked = forked
        self._exit = os._exit
        self._terminate_later = False

    def install(self) -> None:
        atexit.register(self._at_exit)
        os.register_at_fork(after_in_child=self._in_child)
        # Children of multiprocessing and some training scripts leave this way,
        # which runs no exit handler.
        setattr(os, "_exit", self._at_quick_exit)
        if _in_main_thread() and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._at_sigterm)

    def remove(self) -> bool:
        """Leave the process as it was. False where another than the main thread
        calls, which cannot undo everything."""
        atexit.unregister(self._at_exit)
        if os._exit == self._at_quick_exit:
            setattr(os, "_exit", self._exit)
        if _in_main_thread() and signal.getsignal(signal.SIGTERM) == self._at_sigterm:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        return _in_main_thread()

    def must_end(self) -> bool:
        """A signal asked the process to end and had to wait."""
        return self._terminate_later

    def terminate(self) -> None:
        """End as SIGTERM would have ended it. From another than the main thread
        it goes through the handler once more."""
        if _in_main_thread():
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)

    def _at_exit(self) -> None:
        # Set by the interpreter when it prints an exception that nobody caught.
        error = getattr(sys, "last_type", None)
        with _undisturbed():
            self._settle(ENDED if error is None else f"it died of {error.__name__}")

    def _at_quick_exit(self, status: int) -> None:
        with _undisturbed():
            self._settle("it called os._exit")
        self._exit(status)

    def _at_sigterm(self, number: int, frame: Optional[FrameType]) -> None:
        with _undisturbed():
            settled = self._settle("it was terminated (SIGTERM)")
        if settled:
            self.terminate()
        else:
            self._terminate_later = True

    def _in_child(self) -> None:
        self.remove()
        self._forked()


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Without SIGCHLD's handler: torch's DataLoader raises from it when a worker
    is terminated, which happens as the process ends, and would end the last act
    too."""
    previous = signal.getsignal(signal.SIGCHLD)
    if not _in_main_thread() or not callable(previous):
        yield  # No handler of Python's runs here.
        return
    while signal.getsignal(signal.SIGCHLD) == previous:
        try:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        except Exception:
            pass  # Raised by the handler: the signal was pending.
    try:
        yield
    finally:
        signal.signal(signal.SIGCHLD, previous)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
