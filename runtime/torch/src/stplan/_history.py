"""torch.cuda.memory's own recorder, shared with a script that uses it too."""

from __future__ import annotations

import inspect
import sys
from typing import Any, Callable


class History:
    """One recording. torch is the job's module: this package imports none.

    interrupted is called before the script switches the recording off, while
    everything recorded can still be read.
    """

    def __init__(self, torch: Any, interrupted: Callable[[], None]) -> None:
        self._memory = torch.cuda.memory
        self._interrupted = interrupted
        self._original = self._memory._record_memory_history
        self._script_records = False

    def start(self, stacks: str) -> None:
        """Begin, with everything kept: a ring that overflows would lose the
        beginning. Raises what torch raises, for example under an allocator that
        cannot record."""
        options = {
            "enabled": "all",
            "context": None if stacks == "none" else "all",
            "stacks": "all" if stacks == "all" else "python",
            "max_entries": sys.maxsize,
        }
        # Without it torch notes optimizer steps of this one thread only, and
        # CUDA may be initialised on another than the one that trains.
        if "global_record_annotations" in inspect.signature(self._original).parameters:
            options["global_record_annotations"] = True
        self._original(**options)
        self._memory._record_memory_history = self._called_by_script

    def snapshot(self) -> Any:
        """What torch.cuda.memory._dump_snapshot would pickle."""
        return self._memory._snapshot()

    def stop(self) -> None:
        """End it, unless the script records for itself by now."""
        # Bound methods are made anew at every access: equal, never identical.
        if self._memory._record_memory_history == self._called_by_script:
            self._memory._record_memory_history = self._original
        if not self._script_records:
            self._original(enabled=None)

    def _called_by_script(self, enabled: Any = "all", *args: Any, **kwargs: Any) -> Any:
        self._script_records = True
        if not enabled:
            self._interrupted()
        return self._original(enabled, *args, **kwargs)
