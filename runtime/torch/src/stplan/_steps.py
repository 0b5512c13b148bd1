"""Counts training iterations by the optimizer steps that are seen."""

from __future__ import annotations

from typing import Set


class StepCounter:
    """An iteration begins with the step of an optimizer that has already
    stepped in the one before; its first optimizer's step is what counts.

    So two optimizers that step in turn make one iteration, not two, and an
    optimizer that is replaced after a warm-up does not stop the count.
    """

    def __init__(self) -> None:
        self.steps = 0
        self._seen: Set[int] = set()

    def stepped(self, optimizer: object) -> bool:
        """Note a finished step; True where it is counted."""
        key = id(optimizer)
        if self._seen and key not in self._seen:
            self._seen.add(key)
            return False
        self._seen = {key}
        self.steps += 1
        return True
