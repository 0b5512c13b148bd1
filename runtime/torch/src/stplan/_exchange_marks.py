"""Marks exchanges in a recording, by annotations that `stplan compile` reads (docs/recording.md)."""

from __future__ import annotations

import itertools
from typing import Any


class ExchangeMarks:
    """Is told of exchanges as the runtime is (_exchanges.Follows), and annotates them: by
    "stplan.exchange#N" that exchange N begins, and by "stplan.awaited#N@STREAM" that the stream with this
    handle waits for it. Numbers begin at 1. torch is the module that the job imported."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._numbers = itertools.count(1)
        self._on = True

    def stop(self) -> None:
        """Annotate nothing from now on."""
        self._on = False

    def exchange_begins(self, device: int) -> int:
        if not self._on:
            return 0
        number = next(self._numbers)
        self._annotate(device, f"stplan.exchange#{number}")
        return number

    def exchange_enqueued(self, device: int, exchange: int) -> None:
        """Says nothing that a plan needs."""

    def exchange_awaited(self, device: int, exchange: int, stream: int) -> None:
        if self._on:
            self._annotate(device, f"stplan.awaited#{exchange}@{stream}")

    def _annotate(self, device: int, name: str) -> None:
        """torch notes an annotation for the current device."""
        with self._torch.cuda.device(device), self._torch.autograd.profiler.record_function(name):
            pass
