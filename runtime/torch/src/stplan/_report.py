"""What a process tells its launcher: one file that is replaced as things go on,
so that the launcher knows of a process that was killed meanwhile."""

from __future__ import annotations

import itertools
import json
import os
from typing import Any


class Report:
    """A report under a name that no other process of the job has. folder is the
    launcher's. Raises OSError."""

    def __init__(self, folder: str, stem: str) -> None:
        self.name, self._path = _claim(folder, stem)

    def write(self, state: str, **facts: Any) -> None:
        """Replace what the launcher will read of this process."""
        facts.update(state=state, pid=os.getpid(), name=self.name)
        draft = self._path + ".tmp"
        with open(draft, "w", encoding="utf-8") as out:
            json.dump(facts, out)
        os.replace(draft, self._path)


def read(folder: str, name: str) -> Any:
    """What the process of that name has written. Raises OSError or ValueError."""
    with open(os.path.join(folder, name + ".json"), encoding="utf-8") as file:
        return json.load(file)


def _claim(folder: str, stem: str) -> tuple[str, str]:
    """Reserve a name: two processes may have the same rank, a restarted one and
    its predecessor for instance, and one that has replaced itself (exec) has the
    same process id too."""
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
