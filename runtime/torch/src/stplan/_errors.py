"""Exceptions that the public functions of this package raise."""

from __future__ import annotations


class ServingError(RuntimeError):
    """This process cannot be served and keeps torch's own allocator. The text gives
    the reason in one sentence."""


class PauseError(RuntimeError):
    """Memory could not be given to others, or not be taken back. What was not given or taken
    is as before, and the process goes on. The text gives the reason."""
