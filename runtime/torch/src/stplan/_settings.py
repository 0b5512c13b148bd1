"""The settings that a launcher passes to a process: one JSON object in an environment
variable for recording, and one in another for serving.

Every Python process of a job imports this module and those that it needs when it starts, so
heavy ones, such as dataclasses, are left out."""

from __future__ import annotations

import json
import os
from typing import Any, Callable, Mapping, MutableMapping, NamedTuple, Optional, TypeVar

ENVIRONMENT = "STPLAN_RECORD"
"""The environment variable that asks for a recording."""

RUN_ENVIRONMENT = "STPLAN_RUN"
"""The environment variable that asks to be served."""

STACKS = ("none", "python", "all")
"""Which frames of call stacks are recorded: none; Python's; Python's and C++'s."""

_Asked = TypeVar("_Asked")


class SettingsError(ValueError):
    """A setting cannot be used. The text names it and gives the reason."""


class Settings(NamedTuple):
    """Settings of a recording. directory and reports are absolute paths. reports is the
    launcher's folder for the report of each process, or None if there is no launcher."""

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
        """Check types and ranges. Raises SettingsError."""
        _demand_folder("directory", directory)
        if reports is not None:
            _demand_reports(reports)
        if not isinstance(steps, int) or isinstance(steps, bool) or steps < 0:
            raise SettingsError(f"steps: expected an integer of at least 0, found {steps!r}")
        if stacks not in STACKS:
            raise SettingsError(f"stacks: expected one of {', '.join(STACKS)}, found {stacks!r}")
        return cls(directory, steps, stacks, reports, bool(quiet))

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Optional[Settings]:
        """The launcher's settings, or None if there are none, or if the launcher has ended
        and its folder for reports is gone. Raises SettingsError."""
        return _from_environment(ENVIRONMENT, environment, cls.checked)


class RunSettings(NamedTuple):
    """Settings of a served run. plan is the path of one plan for every process, or None.
    With by_rank it is the common beginning of the plans' paths, to which a rank, with or without
    zeros before it, and ".bin" are appended. memory and move are checked by the allocator. reports is as in Settings,
    and never None. within names the report of the nearest ancestor process that has a
    plan, or is None if there is none.

    cache is a folder in which a plan is looked up, or None; plan is None then. versions is
    part of the plan's name there. learn is the number of optimizer steps after which the
    runtime's history is written, so that the launcher can make a plan of it; 0 keeps none."""

    plan: Optional[str]
    by_rank: bool
    memory: str
    move: str
    reports: str
    within: Optional[str] = None
    cache: Optional[str] = None
    versions: str = ""
    learn: int = 0

    @classmethod
    def checked(
        cls,
        plan: Any,
        by_rank: Any,
        memory: Any,
        move: Any,
        reports: Any,
        within: Any = None,
        cache: Any = None,
        versions: Any = "",
        learn: Any = 0,
    ) -> RunSettings:
        """Check types. Raises SettingsError."""
        if plan is not None and not isinstance(plan, str):
            raise SettingsError(f"plan: expected a path or null, found {plan!r}")
        if not isinstance(by_rank, bool) or (by_rank and plan is None):
            raise SettingsError(f"by_rank: expected true or false, and false without a plan, found {by_rank!r}")
        for name, value in (("memory", memory), ("move", move)):
            if not isinstance(value, str):
                raise SettingsError(f"{name}: expected a name, found {value!r}")
        _demand_reports(reports)
        if within is not None and not isinstance(within, str):
            raise SettingsError(f"within: expected a name or null, found {within!r}")
        if cache is not None:
            _demand_folder("cache", cache)
            if plan is not None:
                raise SettingsError(f"cache: expected none with a plan, found {cache!r}")
        if not isinstance(versions, str):
            raise SettingsError(f"versions: expected a text, found {versions!r}")
        if not isinstance(learn, int) or isinstance(learn, bool) or learn < 0 or (learn > 0 and cache is None):
            raise SettingsError(f"learn: expected an integer of at least 0, and 0 without a cache, found {learn!r}")
        return cls(plan, by_rank, memory, move, reports, within, cache, versions, learn)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Optional[RunSettings]:
        """The launcher's settings, or None if there are none, or if the launcher has ended
        and its folder for reports is gone. Raises SettingsError."""
        return _from_environment(RUN_ENVIRONMENT, environment, cls.checked)

    def hand_on(self, environment: MutableMapping[str, str], name: str) -> None:
        """Tell the processes that this one will start that it has a plan, or that one is
        learned from it. name is the name of this process's report."""
        environment[RUN_ENVIRONMENT] = json.dumps(self._replace(within=name)._asdict())


def _from_environment(
    variable: str, environment: Mapping[str, str], checked: Callable[..., _Asked]
) -> Optional[_Asked]:
    text = environment.get(variable)
    if text is None:
        return None
    try:
        asked = json.loads(text)
        # A process that outlives the job has its settings, and so have its children.
        if isinstance(asked, dict) and _is_missing(asked.get("reports")):
            return None
        return checked(**asked)
    except (TypeError, ValueError) as error:
        raise SettingsError(f"{variable}: {error}") from error


def _demand_folder(name: str, folder: Any) -> None:
    if not isinstance(folder, str) or not os.path.isdir(folder):
        raise SettingsError(f"{name}: expected an existing folder, found {folder!r}")


def _demand_reports(folder: Any) -> None:
    _demand_folder("reports", folder)
    # If the launcher has ended, its folder may have been made again by anybody.
    owner = os.stat(folder).st_uid
    if owner not in (0, os.geteuid()):
        raise SettingsError(f"reports: expected a folder of this user's, found one of user {owner}: {folder!r}")


def _is_missing(folder: Any) -> bool:
    if not isinstance(folder, str):
        return False
    try:
        os.stat(folder)
    except FileNotFoundError:
        return True
    except (OSError, ValueError):
        return False
    return False
