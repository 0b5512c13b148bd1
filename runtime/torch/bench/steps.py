"""What every measured job has in common: its steps, taken in turns where a
conductor started it, and what it hands in."""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from typing import Any, Dict, Iterator, List

import torch

from turns import Player


class Steps:
    """The steps of one process. Made when everything is imported and before CUDA
    is initialised: it waits until the device is this job's."""

    def __init__(self) -> None:
        self._player = Player.from_environment(torch.cuda.synchronize)
        self._witnesses: List[str] = []
        self._counters: List[Dict[str, Any]] = []
        self._player.enter()

    @contextmanager
    def step(self) -> Iterator[None]:
        """Around one training step."""
        with self._player.step():
            yield
        served = getattr(sys.modules.get("stplan"), "stats", None)
        if served:
            self._counters.append(served())

    def witness(self, *values: Any) -> None:
        """What tells one run from another, to the last bit: numbers or tensors
        with one element. None is passed over."""
        self._witnesses += [float(value).hex() for value in values if value is not None]

    def end(self) -> None:
        """After the last step: prints the figures and hands them in. Bytes are
        torch's own counts, of the whole process; `stplan` is what
        `stplan.stats()` says where it serves this process, else None, and
        `stplan_steps` what it said after each step."""
        stats = torch.cuda.memory_stats()
        figures: Dict[str, Any] = {
            "rank": self._player.rank,
            "seconds": self._player.seconds,
            "losses": self._witnesses,
            "peak_allocated_bytes": stats["allocated_bytes.all.peak"],
            "peak_active_bytes": stats["active_bytes.all.peak"],
            "peak_reserved_bytes": stats["reserved_bytes.all.peak"],
            "reserved_bytes": stats["reserved_bytes.all.current"],
            "alloc_retries": stats["num_alloc_retries"],
            "stplan": self._counters[-1] if self._counters else None,
            "stplan_steps": self._counters,
        }
        # One write: the ranks of a job share their standard output.
        print(f"figures {json.dumps(figures)}\n", end="", flush=True)
        self._player.leave(figures)
