"""Counts training iterations by their optimizer steps."""

from __future__ import annotations

from typing import Set


class StepCounter:
    """Counts iterations. A new iteration begins when an optimizer steps that has already
    stepped in the one before. The first step of each iteration is counted.

    So two optimizers that step in turn make one iteration, not two. If an optimizer is
    replaced after a warm-up, the count goes on.
    """

    def __init__(self) -> None:
        self.steps = 0
        self._seen: Set[int] = set()

    def stepped(self, optimizer: object) -> bool:
        """Note a finished step. Returns True if it begins an iteration."""
        key = id(optimizer)
        if self._seen and key not in self._seen:
            self._seen.add(key)
            return False
        self._seen = {key}
        self.steps += 1
        return True
