"""The steps and the report of a measured job. If a conductor has started the job, its
steps take turns with those of others (turns.py)."""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from typing import Any, Dict, Iterator, List

import torch

from turns import Player


class Steps:
    """The steps of one process. Construct it after all imports and before CUDA is
    initialised: it waits until the conductor lets the job use the device."""

    def __init__(self) -> None:
        self._player = Player.from_environment(torch.cuda.synchronize)
        self._witnesses: List[str] = []
        self._counters: List[Dict[str, Any]] = []
        self._peaks: List[Dict[str, int]] = []
        self._player.enter()

    @contextmanager
    def step(self) -> Iterator[None]:
        """The context of one training step."""
        with self._player.step():
            yield
        stats = torch.cuda.memory_stats()
        self._peaks.append({kind: stats[f"{kind}_bytes.all.peak"] for kind in ("reserved", "allocated")})
        served = getattr(sys.modules.get("stplan"), "stats", None)
        if served:
            self._counters.append(served())

    def witness(self, *values: Any) -> None:
        """Keeps values by which runs are compared, to the last bit: numbers, or tensors
        with one element. None is skipped."""
        self._witnesses += [float(value).hex() for value in values if value is not None]

    def end(self) -> None:
        """Prints the figures after the last step, and reports them to the
        conductor. Sizes are torch's statistics of the whole process, in bytes.
        `stplan` is the value of `stplan.stats()` if stplan serves this process,
        else None; `stplan_steps` has its values after each step. `peaks` has the most bytes
        reserved and allocated up to the end of each step, and `free_bytes` what the device
        has left."""
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
            "peaks": self._peaks,
            "free_bytes": torch.cuda.mem_get_info()[0],
            "stplan": self._counters[-1] if self._counters else None,
            "stplan_steps": self._counters,
        }
        # Printed by one write, since the ranks of a job share their standard output.
        print(f"figures {json.dumps(figures)}\n", end="", flush=True)
        self._player.leave(figures)
