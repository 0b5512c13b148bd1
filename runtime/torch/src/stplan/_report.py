"""The report of a process to its launcher: one file, replaced at every change of state,
so that the launcher also learns of a process that was killed."""

from __future__ import annotations

import itertools
import json
import os
from typing import Any


class Report:
    """A report file in the launcher's folder, under a name that no other process of the
    job has. Raises OSError."""

    def __init__(self, folder: str, stem: str) -> None:
        self.name, self._path = _claim(folder, stem)

    def write(self, state: str, **facts: Any) -> None:
        """Replace the report: its state, and what else is known of this process."""
        facts.update(state=state, pid=os.getpid(), name=self.name)
        draft = self._path + ".tmp"
        with open(draft, "w", encoding="utf-8") as out:
            json.dump(facts, out)
        os.replace(draft, self._path)


def read(folder: str, name: str) -> Any:
    """The last report of the process with that name. Raises OSError or ValueError."""
    with open(os.path.join(folder, name + ".json"), encoding="utf-8") as file:
        return json.load(file)


def _claim(folder: str, stem: str) -> tuple[str, str]:
    """Reserve a name, and return it with the path of its file. Two processes may have
    the same rank, for example one that was restarted and its predecessor. A process that
    has replaced itself by exec has the same process id too, so names end in a number if
    necessary."""
    mine = f"{stem}-pid{os.getpid()}"
    names = itertools.chain((stem, mine), (f"{mine}-{n}" for n in itertools.count(2)))
    while True:
        name = next(names)
        path = os.path.join(folder, name + ".json")
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        except FileExistsError:
            continue
        return name, path
