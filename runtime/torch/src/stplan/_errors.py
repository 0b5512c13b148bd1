"""What calls of this package raise."""

from __future__ import annotations


class ServingError(RuntimeError):
    """torch's own allocator stays; the text says why, in one sentence."""
