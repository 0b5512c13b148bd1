"""late.py with a fake stplan and fake programs, and the programs themselves on a toy
device (late_toy.py)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Dict, List, Tuple

import pytest

from benches import BENCH, cells, executable
from conftest import needs_torch

import features
import late
from late import CONTROL


@needs_torch
def test_a_program_is_wrong_only_if_another_stream_gets_its_memory_too_early() -> None:
    command = [sys.executable, str(Path(__file__).with_name("late_toy.py")), str(BENCH)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    wrong = json.loads(done.stdout)
    assert list(wrong) == list(late.PROGRAMS)
    assert wrong == {name: [8 if name == CONTROL else 0, 8] for name in late.PROGRAMS}


PROGRAM = """
import json, os, sys
name = sys.argv[1]
mode = os.environ.get("FAKE", "expandable" if "PYTORCH_CUDA_ALLOC_CONF" in os.environ else "native")
behaviour = json.loads(os.environ["BEHAVIOUR"])
if behaviour.get(name + "/" + mode) == "die":
    sys.exit("out of luck")
wrong = behaviour.get(name + "/" + mode, 20 if name == "same stream" else 0)
print("late " + json.dumps({"wrong": wrong, "rounds": int(sys.argv[3])}))
"""

STPLAN = """#!{python}
import json, os, subprocess, sys
arguments = sys.argv[1:]
verb = arguments[arguments[0] == "-q"]
if verb == "record":
    folder = arguments[arguments.index("-o") + 1]
    os.makedirs(folder)
    open(os.path.join(folder, "a-pid1.pickle.gz"), "w").close()
    sys.exit()
if verb == "compile":
    open(arguments[arguments.index("-o") + 1], "w").close()
    sys.exit()
plan = arguments[arguments.index("--") - 1]
mode = "none" if plan == "--no-plan" else "another" if "another" in plan else "own"
if "plain" in arguments:
    mode += " plain"
counted = {{"allocations": 100, "planned_allocations": 98 if mode == "own" else 0, "refused_frees": 0}}
with open(arguments[arguments.index("--summary") + 1], "w") as out:
    json.dump({{"processes": [{{"backend": "shim", "error": None, "devices": [counted]}}]}}, out)
sys.exit(subprocess.call(arguments[arguments.index("--") + 1:], env={{**os.environ, "FAKE": mode}}))
"""


class World:
    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.monkeypatch = folder, monkeypatch
        self.stplan = executable(folder / "stplan", STPLAN.format(python=sys.executable))
        (folder / "programs.py").write_text(PROGRAM)
        monkeypatch.setattr(late, "SCRIPT", folder / "programs.py")
        monkeypatch.setattr(features, "about", lambda: "a fake")

    def run(self, *options: str, **behaviour: object) -> Tuple[int, Dict[str, List[str]], List[str]]:
        """Calls late.py. Returns its exit code, the rows by program, and the problems."""
        self.monkeypatch.setenv("BEHAVIOUR", json.dumps({k.replace("_", " "): v for k, v in behaviour.items()}))
        self.monkeypatch.setattr(
            sys, "argv", ["late.py", str(self.stplan), "--out", str(self.folder), "--rounds", "20", *options]
        )
        code = late.main()
        lines = (self.folder / "late.md").read_text().splitlines()
        rows = [cells(row) for row in lines if row.startswith("| ")]
        return code, {row[0]: row[1:] for row in rows[2:]}, lines[[x.startswith("Problems:") for x in lines].index(True) + 1 :]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def test_a_row_for_each_program_and_a_column_for_each_mode(world: World) -> None:
    code, rows, problems = world.run("--programs", "side stream,only copies,same stream")
    assert (code, problems) == (0, [])
    none = "0 of 20"
    assert rows["side stream"] == [none, none, none, none, f"{none} (98 % on plan)", f"{none} (0 % on plan)"]
    assert rows["same stream"][:4] == ["20 of 20"] * 4
    kept = json.loads((world.folder / "late.json").read_text())
    assert list(kept) == ["side stream", "only copies", "same stream"] and kept["only copies"]["no plan"]["rounds"] == 20


def test_wrong_rounds_under_stplan_are_a_problem(world: World) -> None:
    code, rows, problems = world.run("--programs", "side stream", **{"side stream/none plain": 7, "side stream/another": "die"})
    assert code == 1 and rows["side stream"][3:] == ["7 of 20", "0 of 20 (98 % on plan)", "FAILED"]
    assert problems[0] == "- side stream, another's plan: exit code 1"
    assert "      out of luck" in problems and "- side stream, no plan, plain: wrong in 7 of 20 rounds" in problems


def test_a_program_that_is_wrong_natively_shows_nothing(world: World) -> None:
    code, _, problems = world.run("--programs", "side stream", "--modes", "native;no plan", **{"side stream/native": 2, "side stream/none": 9})
    assert (code, problems) == (1, ["- side stream: wrong natively in 2 rounds, so the program shows nothing"])


def test_the_control_has_to_be_wrong(world: World) -> None:
    code, _, problems = world.run("--programs", CONTROL, "--modes", "native", **{"same stream/native": 0})
    assert (code, problems) == (1, ["- same stream: right natively, so this device does not show late reads"])


def test_what_does_not_begin_in_time_is_named(world: World) -> None:
    code, rows, problems = world.run("--programs", "side stream", "--modes", "native;own plan", "--budget", "0")
    assert code == 1 and rows["side stream"] == ["FAILED", "FAILED"]
    assert problems == [f"- side stream, {mode}: not run: the budget is spent" for mode in ("native", "own plan")]


def test_unknown_names(world: World) -> None:
    with pytest.raises(SystemExit, match="late.py: fast: no such program or mode; there are side stream; main waits;"):
        world.run("--programs", "fast")
