"""Uses torch.cuda.memory's recorder, which the script may use at the same time."""

from __future__ import annotations

import inspect
import sys
from typing import Any, Callable


class History:
    """One recording. torch is the module that the job imported.

    interrupted() is called if the script switches the recording off, just before that
    happens: everything recorded can still be read then.
    """

    def __init__(self, torch: Any, interrupted: Callable[[], None]) -> None:
        self._memory = torch.cuda.memory
        self._interrupted = interrupted
        self._original = self._memory._record_memory_history
        self._script_records = False

    def start(self, stacks: str) -> None:
        """Begin to record, without a bound on the number of events: torch's ring buffer
        would overwrite the first ones. Raises what torch raises, for example if the
        current allocator cannot record."""
        options = {
            "enabled": "all",
            "context": None if stacks == "none" else "all",
            "stacks": "all" if stacks == "all" else "python",
            "max_entries": sys.maxsize,
        }
        # Without this option torch records the optimizer steps of this thread only, and
        # the training thread may be another than the one that initialises CUDA.
        if "global_record_annotations" in inspect.signature(self._original).parameters:
            options["global_record_annotations"] = True
        self._original(**options)
        self._memory._record_memory_history = self._called_by_script

    def snapshot(self) -> Any:
        """The object that torch.cuda.memory._dump_snapshot would pickle."""
        return self._memory._snapshot()

    def stop(self) -> None:
        """End the recording, unless the script has started one of its own."""
        # Each access makes a new bound method, so compare with == and not with `is`.
        if self._memory._record_memory_history == self._called_by_script:
            self._memory._record_memory_history = self._original
        if not self._script_records:
            self._original(enabled=None)

    def _called_by_script(self, enabled: Any = "all", *args: Any, **kwargs: Any) -> Any:
        self._script_records = True
        if not enabled:
            self._interrupted()
        return self._original(enabled, *args, **kwargs)
