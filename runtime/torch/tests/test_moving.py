"""moving.py with a fake stplan and a fake program."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Dict, List, Tuple

import pytest

from benches import cells, executable

import moving

# Each allocator does as BEHAVIOUR says: figures that differ from the usual ones, or how it ends.
JOB = """
import json, os, sys
found = json.loads(os.environ["BEHAVIOUR"]).get(os.environ.get("FAKE", "native"), {})
if isinstance(found, str):
    sys.exit(found)
assert sys.argv[1:] == ["--job", "--operations", "7", "--seed", os.environ["SEED"]], sys.argv
usual = {"wrong": 0, "checked": 1234, "reserved": 3 << 30, "allocated": 2 << 30, "moved": 5 << 30 if os.environ.get("FAKE") == "no plan" else 0}
print("noise")
print("figures " + json.dumps({**usual, "device": "a fake", "torch": "9", **found}))
"""

STPLAN = """#!{python}
import os, subprocess, sys
arguments = sys.argv[1:]
at = arguments.index("--")
fake = {{("run", "--no-plan"): "no plan", ("run", "--no-plan", "--move", "off"): "no plan, --move off"}}[tuple(arguments[:at])]
sys.exit(subprocess.call(arguments[at + 1:], env={{**os.environ, "FAKE": fake}}))
"""


class World:
    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.monkeypatch = folder, monkeypatch
        self.stplan = executable(folder / "stplan", STPLAN.format(python=sys.executable))
        (folder / "job.py").write_text(JOB)
        monkeypatch.setattr(moving, "__file__", str(folder / "job.py"))
        monkeypatch.setenv("SEED", "4")

    def run(self, behaviour: Dict[str, Any]) -> Tuple[int, Dict[str, List[str]], str]:
        """Calls moving.py. Returns its exit code, the rows by allocator, and the last line."""
        self.monkeypatch.setenv("BEHAVIOUR", json.dumps(behaviour))
        code = moving.main([str(self.stplan), "--operations", "7", "--seed", "4", "--seeds", "1", "--out", str(self.folder)])
        lines = (self.folder / "moving.md").read_text().splitlines()
        rows = [cells(row) for row in lines if row.startswith("| 4 ")]
        return code, {row[1]: row[2:] for row in rows}, lines[-1]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def test_a_row_for_each_allocator(world: World) -> None:
    code, rows, last = world.run({})
    assert code == 0 and last == "Problems: none."
    assert rows == {
        "native": ["1,234", "0", "1.5000", "0.0"],
        "no plan": ["1,234", "0", "1.5000", "5.0"],
        "no plan, --move off": ["1,234", "0", "1.5000", "0.0"],
    }
    kept = json.loads((world.folder / "moving.json").read_text())
    assert [row["allocator"] for row in kept] == list(moving.ALLOCATORS)


@pytest.mark.parametrize("behaviour", [
    {"native": {"wrong": 1}},
    {"no plan, --move off": {"wrong": 2}},
    {"no plan": {"wrong": 1}},
    {"no plan": {"moved": 0}},
    {"no plan": "torch.OutOfMemoryError: no more"},
    {"no plan": "out of luck"},
])
def test_problems(world: World, behaviour: Dict[str, Any]) -> None:
    code, _, last = world.run(behaviour)
    assert code == 1 and last == "Problems: 1."


def test_running_out_of_memory_without_moving_is_no_problem(world: World) -> None:
    oom = "torch.OutOfMemoryError: no more"
    code, rows, _ = world.run({"native": oom, "no plan, --move off": oom})
    assert code == 0
    assert rows["native"] == rows["no plan, --move off"] == ["out of memory", "", "", ""]


def test_why_a_program_failed(world: World) -> None:
    _, rows, _ = world.run({"no plan": "out of luck"})
    assert rows["no plan"][0] == "out of luck"
