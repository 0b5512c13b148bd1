"""What a recording is asked for, and how a launcher hands it to a process."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any, Mapping, Optional

ENVIRONMENT = "STPLAN_RECORD"
"""The environment variable that holds the settings as one JSON object."""

STACKS = ("none", "python", "all")
"""No call stacks; Python frames; Python and C++ frames."""


class SettingsError(ValueError):
    """A setting that cannot be used; the text says which and why."""


@dataclass(frozen=True)
class Settings:
    """directory and reports are absolute. reports is the launcher's folder for
    what became of each process; None where there is no launcher."""

    directory: str
    steps: int
    stacks: str
    reports: Optional[str] = None
    quiet: bool = False

    @classmethod
    def checked(
        cls,
        directory: Any,
        steps: Any,
        stacks: Any,
        reports: Any = None,
        quiet: Any = False,
    ) -> Settings:
        """Settings of the right types and ranges. Raises SettingsError."""
        for name, folder in (("directory", directory), ("reports", reports)):
            if name == "reports" and folder is None:
                continue
            if not isinstance(folder, str) or not os.path.isdir(folder):
                raise SettingsError(f"{name}: expected an existing folder, found {folder!r}")
        if not isinstance(steps, int) or isinstance(steps, bool) or steps < 0:
            raise SettingsError(f"steps: expected an integer of at least 0, found {steps!r}")
        if stacks not in STACKS:
            raise SettingsError(f"stacks: expected one of {', '.join(STACKS)}, found {stacks!r}")
        return cls(directory, steps, stacks, reports, bool(quiet))

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Optional[Settings]:
        """The launcher's settings, None where there are none. Raises SettingsError."""
        text = environment.get(ENVIRONMENT)
        if text is None:
            return None
        try:
            fields = json.loads(text)
            return cls.checked(**fields)
        except (TypeError, ValueError) as error:
            raise SettingsError(f"{ENVIRONMENT}: {error}") from error
