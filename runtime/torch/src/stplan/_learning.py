"""Has the runtime keep its history of this process, and writes it when a plan is to be made of
it. The launcher makes the plan, keeps it for the next run, and tells this process of it, which
is then served by it while it goes on."""

from __future__ import annotations

import os
import threading
from importlib import import_module
from typing import Any, Dict, Optional

from stplan._exits import Exits
from stplan._process import described, say
from stplan._recorder import eager
from stplan._similar import iterations
from stplan._steps import StepCounter

# Bytes of history for each device. An allocation and its free take four or five, so it
# lasts for millions, and a training step has thousands to a hundred thousand. It is
# nothing beside the memory of a machine with GPUs.
_ROOM = 16 << 20

# Seconds that the job waits for a plan to be opened. Most take milliseconds, and are there before the
# next iteration then.
_PATIENCE = 0.05

# Optimizers are told apart up to this one; a process has a few.
_MOST_OPTIMIZERS = 255

# A plan of a similar run wastes memory if more than 1/_SHARE of what is allocated, and _MORE bytes, are reserved beyond it.
# The pool alone reserves no more (docs/runtime.md), and one that does has a plan put in place.
_SHARE = 55
_MORE = 20 << 20

# Iterations after which such a plan is known to waste memory, unless it was made of fewer: a run has the largest of its batches late. Of
# 36 the last plan of a first run is made (device_learn.h), which knows what comes now and then. At four steps LLaMA-Factory's
# LoRA lost a plan that fitted it wholly for one of these four, and moved three times what it reserves.
_KNOWN = 36


class Learner:
    """Writes the history after this many iterations, again if later ones go beyond the plan, and
    when the process ends before. The runtime says when (device_learn.h).

    served: the shim or the runtime that serves this process. path: of the files, without their
    ends: PATH.N.history is the Nth history, or PATH.N.last.history if the process ends, and PATH.N.plan holds the
    launcher's answer, the path of the plan, or nothing if there is none. rank: this process's. similar: the plan of a similar run that serves
    it, if one does. If that run was larger its plan may fit this one and still take as much memory, so the history is
    written then too, for a plan of this run's own.

    No error may reach the job: every function that torch or the interpreter calls catches
    its exceptions."""

    def __init__(self, torch: Any, served: Any, path: str, steps: int, rank: Optional[str], similar: Optional[str] = None) -> None:
        self._torch = torch
        self._served = served
        self._path = path
        self._steps = steps
        self._rank = None if rank is None else int(rank)
        self._similar = similar is not None
        self._known = min(iterations(similar), _KNOWN) if similar is not None else 0
        self._counter = StepCounter()
        self._numbers: Dict[int, int] = {}  # of optimizers, by id
        self._exits = Exits(self._settle, self._forked)
        # Held while a history is written. A signal may come meanwhile, on the same thread.
        self._lock = threading.RLock()
        self._writing = False
        self._over = threading.Event()
        self._gone = False  # over, and all hooks that can be removed are removed
        self._histories = 0
        self._asked: Optional[str] = None  # the file of the answer that is awaited
        self._installing: Optional[threading.Thread] = None
        self._installs: Optional[int] = None  # plans in place when the last one came, until it is

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
            if self._counter.stepped(optimizer):
                self._iterated()
        except Exception as error:
            self._failed(error)

    def _iterated(self) -> None:
        """An iteration has ended: write the history if it is due, or have the plan that was made
        of it put in place."""
        due = self._served.history.due(self._steps, False) or (self._counter.steps >= self._steps and self._wastes())
        if self._asked is not None:
            self._answer(self._asked)
        elif due and not (self._installing and self._installing.is_alive()):
            self._write()
        if self._installs is not None and self._in_place() > self._installs:
            self._installs = None
            say(f"a plan that was learned in this run serves it from step {self._counter.steps} on")

    def _wastes(self) -> bool:
        """Whether this process needs a plan of its own since that of a similar run wastes memory, on any device."""
        if not self._similar or self._histories > 0 or self._counter.steps < self._known:
            return False
        for device in range(self._torch.cuda.device_count()):
            now = self._served.counters(device)
            if now.peak_reserved_bytes > now.peak_allocated_bytes + now.peak_allocated_bytes // _SHARE + _MORE:
                return True
        return False

    def _answer(self, file: str) -> None:
        """Take the launcher's answer, if it is there."""
        try:
            with open(file, encoding="utf-8") as answer:
                plan = answer.read()
        except FileNotFoundError:
            return
        self._asked = None
        os.unlink(file)
        if plan:
            self._installing = threading.Thread(target=self._install, args=(plan,), name="stplan-install")
            self._installing.start()
            self._installing.join(_PATIENCE)

    def _install(self, plan: str) -> None:
        """On a thread of its own, as opening a plan of 100,000 allocations takes half a second: the job goes on
        meanwhile."""
        try:
            installs = self._in_place()
            self._served.history.install(plan)
            self._installs = installs
        except OSError:
            pass  # it is of no use in this run, and kept for the next
        except Exception as error:
            self._failed(error)

    def _in_place(self) -> int:
        """How many plans were put in place while this run went on."""
        return sum(self._served.counters(device).installs for device in range(self._torch.cuda.device_count()))

    def _write(self, last: bool = False) -> None:
        """Write the history; if it is the last time, only if it is due."""
        with self._lock:
            if self._over.is_set():
                return
            self._writing = True
            try:
                if not last or self._served.history.due(self._steps, True) or self._wastes():
                    self._save(last)
                else:
                    self._served.history.drop()
            except Exception as error:
                self._failed(error)
            self._writing = False
            if last:
                self._over.set()
        if self._exits.must_end():
            self._settle("")
            self._exits.terminate()

    def _save(self, last: bool) -> None:
        self._histories += 1
        name = f"{self._path}.{self._histories}"
        self._asked = f"{name}.plan"
        self._served.history.save(f"{name}.last.history" if last else f"{name}.history", self._rank)

    def _settle(self, why: str) -> bool:
        with self._lock:
            if self._writing:
                return False
            self._write(last=True)
        return True

    def _failed(self, error: Exception) -> None:
        say(f"nothing is learned from this process: {described(error)}")

    def _forked(self) -> None:
        """Called in a forked child: the history is the parent's."""
        self._lock = threading.RLock()
        self._over.set()
