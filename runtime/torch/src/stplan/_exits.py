"""Calls a function before the process ends, however it ends.

Not covered: SIGKILL, a crash in native code, and a SIGTERM handler of the script's own
that ends the process without running Python's exit handlers.
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

ENDED = "the process ended"
"""The reason why a recording stops if the process ends normally."""


class Exits:
    """Hooks at the end of a process.

    settle(why) is called before the process ends. It returns False if the signal has
    interrupted settle's own work on this thread, which then has to finish first: that
    work asks `must_end` when it is done, and calls `terminate`.

    forked() is called in every forked child. A child inherits the parent's state but
    must not act for the parent.
    """

    def __init__(self, settle: Callable[[str], bool], forked: Callable[[], None]) -> None:
        self._settle = settle
        self._forked = forked
        self._exit = os._exit
        self._terminate_later = False

    def install(self) -> None:
        atexit.register(self._at_exit)
        os.register_at_fork(after_in_child=self._in_child)
        # Children of multiprocessing and some training scripts end with os._exit, which
        # runs no exit handler.
        setattr(os, "_exit", self._at_quick_exit)
        if _in_main_thread() and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._at_sigterm)

    def remove(self) -> bool:
        """Undo install. Returns False if this is not the main thread: only the main
        thread can restore a signal handler."""
        atexit.unregister(self._at_exit)
        if os._exit == self._at_quick_exit:
            setattr(os, "_exit", self._exit)
        if _in_main_thread() and signal.getsignal(signal.SIGTERM) == self._at_sigterm:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        return _in_main_thread()

    def must_end(self) -> bool:
        """Whether SIGTERM has arrived and its effect was postponed."""
        return self._terminate_later

    def terminate(self) -> None:
        """End the process as SIGTERM would have done. If this is not the main thread,
        our handler runs once more and then ends the process."""
        if _in_main_thread():
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)

    def _at_exit(self) -> None:
        # The interpreter sets last_type when it prints an exception that was not caught.
        error = getattr(sys, "last_type", None)
        with _undisturbed():
            self._settle(ENDED if error is None else f"the process died of {error.__name__}")

    def _at_quick_exit(self, status: int) -> None:
        with _undisturbed():
            self._settle("the process called os._exit")
        self._exit(status)

    def _at_sigterm(self, number: int, frame: Optional[FrameType]) -> None:
        with _undisturbed():
            settled = self._settle("the process was terminated (SIGTERM)")
        if settled:
            self.terminate()
        else:
            self._terminate_later = True

    def _in_child(self) -> None:
        self.remove()
        self._forked()


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Runs the block without Python's SIGCHLD handler. torch's DataLoader raises from
    that handler when a worker is terminated. Workers are terminated as the process
    ends, so the exception could interrupt the block."""
    previous = signal.getsignal(signal.SIGCHLD)
    if not _in_main_thread() or not callable(previous):
        yield  # Python handlers run only in the main thread, and only if there is one.
        return
    while signal.getsignal(signal.SIGCHLD) == previous:
        try:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        except Exception:
            pass  # A signal was pending, and its handler raised this.
    try:
        yield
    finally:
        signal.signal(signal.SIGCHLD, previous)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
