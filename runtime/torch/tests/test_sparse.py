"""sparse.py with a fake stplan and a fake job."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Dict, List, Tuple

import pytest

from benches import cells, executable

import features
import sparse

JOB = """
import json, os, sys
mode = os.environ.get("FAKE", "native") + (" sort" if "--sort" in sys.argv else "")
found = json.loads(os.environ["BEHAVIOUR"]).get(mode, {})
if found == "dies":
    sys.exit("out of luck")
print("sparse " + json.dumps({"rounds": 5, "wrong": 0, "error": "", **found}))
"""

STPLAN = """#!{python}
import os, subprocess, sys
arguments = sys.argv[1:]
at = arguments.index("--")
assert arguments[at - 1] == "--no-plan", arguments
sys.exit(subprocess.call(arguments[at + 1:], env={{**os.environ, "FAKE": " ".join(arguments[2 : at - 1]) or "stplan"}}))
"""


class World:
    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.monkeypatch = folder, monkeypatch
        self.stplan = executable(folder / "stplan", STPLAN.format(python=sys.executable))
        (folder / "job.py").write_text(JOB)
        monkeypatch.setattr(sparse, "SCRIPT", folder / "job.py")
        monkeypatch.setattr(features, "about", lambda: "a fake")

    def run(self, behaviour: Dict[str, object], *options: str) -> Tuple[int, Dict[str, List[str]], List[str]]:
        """Calls sparse.py. Returns its exit code, the rows by mode, and the errors."""
        self.monkeypatch.setenv("BEHAVIOUR", json.dumps(behaviour))
        self.monkeypatch.setattr(sys, "argv", ["sparse.py", str(self.stplan), "--out", str(self.folder), "--processes", "2", *options])
        code = sparse.main()
        lines = (self.folder / "sparse.md").read_text().splitlines()
        rows = [cells(row) for row in lines if row.startswith("| ")][2:]
        return code, {row[0]: row[1:] for row in rows}, [text for text in lines if text.startswith("- ")]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def test_a_row_for_each_mode(world: World) -> None:
    code, rows, errors = world.run({})
    assert (code, errors) == (0, [])
    assert rows == {mode.name: ["2", "10", "0", "0"] for mode in sparse.MODES}


@pytest.mark.parametrize("mode, row, expected", [("stplan", "no plan", 1), ("--memory plain sort", "no plan, plain, sorts", 1), ("native sort", "native, sorts", 0)])
def test_what_goes_wrong_is_counted(world: World, mode: str, row: str, expected: int) -> None:
    code, rows, errors = world.run({mode: {"rounds": 3, "wrong": 1, "error": "an illegal\ninstruction"}})
    assert code == expected
    assert rows[row] == ["2", "6", "2", "2"]
    assert f"- {row}: an illegal instruction" in errors
    assert rows["no plan, sorts"] == ["2", "10", "0", "0"]


def test_a_process_that_says_nothing(world: World) -> None:
    code, rows, errors = world.run({"native": "dies"}, "--modes", "native")
    assert code == 0 and rows == {"native": ["2", "0", "0", "2"]}
    assert errors == ["- native: exit code 1: out of luck"] * 2


def test_no_process_begins_after_the_budget(world: World) -> None:
    code, rows, _ = world.run({}, "--budget", "-1")
    assert code == 0 and set(map(tuple, rows.values())) == {("0", "0", "0", "0")}


def test_unknown_modes(world: World) -> None:
    with pytest.raises(SystemExit):
        world.run({}, "--modes", "fast")
