"""Exceptions that the public functions of this package raise."""

from __future__ import annotations


class ServingError(RuntimeError):
    """This process cannot be served and keeps torch's own allocator. The text gives
    the reason in one sentence."""
