"""Has the runtime keep its history of this process, and writes it once, so that the
launcher can make a plan of it for the next run."""

from __future__ import annotations

import threading
from importlib import import_module
from typing import Any, Dict, Optional

from stplan._exits import Exits
from stplan._process import described, say
from stplan._recorder import eager
from stplan._steps import StepCounter

# Bytes of history for each device. An allocation and its free take four or five, so it
# lasts for millions, and a training step has thousands to a hundred thousand. It is
# nothing beside the memory of a machine with GPUs.
_ROOM = 16 << 20

# Optimizers are told apart up to this one; a process has a few.
_MOST_OPTIMIZERS = 255

# stplan_state of stplan.h: the plan has been served to its end, or does not fit this run.
_ENDED, _OFF = 3, 4


class Learner:
    """Writes the history after this many optimizer steps, or when the process ends before.

    served: the shim or the runtime that serves this process. path: of the file. rank: this
    process's. found: a plan of an earlier run is served. Then the history is written only
    if that plan does not fit this run, or has come to its end.

    No error may reach the job: every function that torch or the interpreter calls catches
    its exceptions."""

    def __init__(self, torch: Any, served: Any, path: str, steps: int, rank: Optional[str], found: bool) -> None:
        self._torch = torch
        self._served = served
        self._path = path
        self._steps = steps
        self._rank = None if rank is None else int(rank)
        self._found = found
        self._counter = StepCounter()
        self._numbers: Dict[int, int] = {}  # of optimizers, by id
        self._exits = Exits(self._settle, self._forked)
        # Acquired once, by the caller that ends the history, and never released.
        self._end = threading.Lock()
        self._ender: Optional[int] = None
        self._over = threading.Event()
        self._gone = False  # over, and all hooks that can be removed are removed

    def begin(self) -> None:
        """Call it after the allocator was installed, and before anything is allocated."""
        self._served.history.keep(_ROOM)
        optimizer = import_module("torch.optim.optimizer")
        optimizer.register_optimizer_step_post_hook(eager(self._torch, self._stepped))
        self._exits.install()

    def _stepped(self, optimizer: object) -> None:
        """Called after every eager step of every optimizer."""
        if self._over.is_set():
            self._gone = self._gone or self._exits.remove()
            return
        try:
            number = self._numbers.setdefault(id(optimizer), len(self._numbers))
            self._served.history.step(min(number, _MOST_OPTIMIZERS - 1))
            if self._counter.stepped(optimizer) and self._counter.steps == self._steps:
                self._finish()
        except Exception as error:
            self._failed(error)

    def _settle(self, why: str) -> bool:
        self._finish()
        if not self._over.is_set() and self._ender == threading.get_ident():
            return False
        self._over.wait()
        return True

    def _finish(self) -> None:
        """Write the history, or drop it; only the first call has an effect."""
        if not self._end.acquire(blocking=False):
            return
        self._ender = threading.get_ident()
        try:
            if self._wanted():
                self._served.history.save(self._path, self._rank)
            else:
                self._served.history.drop()
        except Exception as error:
            self._failed(error)
        self._over.set()
        if self._exits.must_end():
            self._exits.terminate()

    def _wanted(self) -> bool:
        """Whether a plan can be made that the cache does not have."""
        if not self._found:
            return True
        devices = range(self._torch.cuda.device_count())
        return any(self._served.counters(device).state in (_ENDED, _OFF) for device in devices)

    def _failed(self, error: Exception) -> None:
        say(f"nothing is learned from this process: {described(error)}")

    def _forked(self) -> None:
        """Called in a forked child: the history is the parent's."""
        self._end = threading.Lock()
        self._end.acquire()
        self._over.set()
