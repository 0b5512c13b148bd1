"""Starts what `stplan record` and `stplan run` ask of this process by environment
variables."""

from __future__ import annotations

from typing import Callable, Mapping, Optional, TypeVar

from stplan import _recorder, _run
from stplan._process import described, say
from stplan._settings import RunSettings, Settings

_Asked = TypeVar("_Asked")


def arm(environment: Mapping[str, str]) -> None:
    """Prepare this process to be recorded, served, or both. If one fails, a line on
    standard error says so, and the other is still done."""
    _arm("record", lambda: Settings.from_environment(environment), _recorder.arm)
    _arm("serve", lambda: RunSettings.from_environment(environment), _run.arm)


def _arm(verb: str, read: Callable[[], Optional[_Asked]], arm: Callable[[_Asked], None]) -> None:
    try:
        settings = read()
        if settings is not None:
            arm(settings)
    except Exception as error:
        say(f"cannot {verb} this process: {described(error)}")
