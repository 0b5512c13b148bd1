"""The history that the C runtime keeps of this process, and plans that are made of it."""

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
        self._learns = getattr(library, f"{prefix}_learns")
        self._learns.argtypes = [ctypes.c_uint, ctypes.c_int]
        self._save = getattr(library, f"{prefix}_save_history")
        self._save.argtypes = [ctypes.c_char_p, ctypes.c_int]
        self._install = getattr(library, f"{prefix}_install_plan")
        self._install.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t]

    def keep(self, room: int) -> None:
        """Have every device that is used for the first time from now on keep a history, in
        at most `room` bytes each."""
        self._keep(room)

    def step(self, optimizer: int) -> None:
        """Note that a step of an optimizer has ended. Optimizers are numbered from 0."""
        self._step(optimizer)

    def due(self, first: int, ending: bool) -> bool:
        """Say that an iteration has ended, or that the process is ending. Returns whether the
        history is to be written now: the first time after `first` iterations, and if the process ends
        since memory has run out."""
        return bool(self._learns(first, int(ending)))

    def save(self, path: str, rank: Optional[int]) -> None:
        """Write the history, and end it if it is not going to be due again. If nothing was
        allocated, no file is written. Raises OSError."""
        if self._save(os.fsencode(path), -1 if rank is None else rank) != 0:
            raise OSError(f"cannot write the history {path}")

    def install(self, path: str) -> None:
        """Have a plan serve this process from one of its next iterations on, once an iteration
        has followed it. Raises OSError."""
        error = ctypes.create_string_buffer(512)
        if self._install(os.fsencode(path), error, len(error)) != 0:
            raise OSError(error.value.decode("utf-8", "replace"))

    def drop(self) -> None:
        """End the history."""
        self._save(None, -1)
