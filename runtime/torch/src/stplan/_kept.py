"""The history that the C runtime keeps of this process."""

from __future__ import annotations

import ctypes
import os
from typing import Optional


class Kept:
    """The functions of a loaded library, whose names begin with `prefix`."""

    def __init__(self, library: ctypes.CDLL, prefix: str) -> None:
        self._keep = getattr(library, f"{prefix}_keep_history")
        self._keep.restype, self._keep.argtypes = None, [ctypes.c_uint64]
        self._step = getattr(library, f"{prefix}_step")
        self._step.restype, self._step.argtypes = None, [ctypes.c_uint]
        self._save = getattr(library, f"{prefix}_save_history")
        self._save.argtypes = [ctypes.c_char_p, ctypes.c_int]

    def keep(self, room: int) -> None:
        """Have every device that is used for the first time from now on keep a history, in
        at most `room` bytes each."""
        self._keep(room)

    def step(self, optimizer: int) -> None:
        """Note that a step of an optimizer has ended. Optimizers are numbered from 0."""
        self._step(optimizer)

    def save(self, path: str, rank: Optional[int]) -> None:
        """Write the history and end it. If nothing was allocated, no file is written.
        Raises OSError."""
        if self._save(os.fsencode(path), -1 if rank is None else rank) != 0:
            raise OSError(f"cannot write the history {path}")

    def drop(self) -> None:
        """End the history."""
        self._save(None, -1)
