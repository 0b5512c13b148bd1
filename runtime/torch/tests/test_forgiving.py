"""forgiving.py with two fake builds of stplan, a fake launcher, fake jobs and a fake
device."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Dict, List, Tuple

import pytest

import benches
from benches import BENCH, cells

import forgiving
from side_by_side import Measured

# One rank. A build's name and whether there is a plan are in FAKE. Each step has 3 waits
# before and 5 after, and the first one moves 1 GiB if there is no plan.
JOB = """
import json, os, sys
sys.path.insert(0, {bench!r})
from turns import Player
mode = os.environ.get("FAKE", "native")
behaviour = os.environ["BEHAVIOUR"] if os.environ["RANK"] == "1" else ""
player = Player.from_environment(lambda: None)
player.enter()
losses, counted = [], []
for step in range(int(sys.argv[3])):
    with player.step():
        if behaviour == "die " + mode and step == 3: sys.exit("out of luck")
    losses.append((step + (0.5 if behaviour == "differ " + mode else 0.0)).hex())
    waits = (step + 1) * (3 if mode.startswith("before") else 5)
    counted.append(dict(backend="shim", waits=waits, moved_bytes=(1 << 30) if "plan" in mode else 0))
served = mode != "native" and behaviour != "unserved " + mode
player.leave(dict(losses=losses, seconds=player.seconds, peak_reserved_bytes=(8 + player.rank) << 30,
                  peak_allocated_bytes=8 << 30, stplan=counted[-1] if served else None, stplan_steps=counted if served else []))
"""

STPLAN = """#!{python}
import os, subprocess, sys
arguments = sys.argv[1:]
build = {build!r}
with open({calls!r}, "a") as calls: calls.write(build + " " + " ".join(arguments) + "\\n")
verb = arguments[arguments[0] == "-q"]
if verb == "record":
    os.mkdir(arguments[4])
    for rank in range(2):
        open(os.path.join(arguments[4], f"job-rank{{rank}}.pickle.gz"), "w").close()
if verb == "compile":
    with open(arguments[arguments.index("-o") + 1], "w") as plan: plan.write(build)
    print('{{"plans": [{{"devices": [{{"plan_bytes": 1}}]}}]}}')
    sys.exit()
environment = dict(os.environ)
if verb == "run":
    plan = arguments[1]
    environment["FAKE"] = build + (" (no plan)" if plan == "--no-plan" else "")
    if plan != "--no-plan":
        for rank in range(2):
            assert open(os.path.join(plan, f"job-rank{{rank}}.bin")).read() == build
command = arguments[arguments.index("--") + 1:]
if command[1] != "-c":
    sys.exit(subprocess.call(command, env=environment))
"""


class World(benches.WorldOfRanks):
    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        texts = {build: STPLAN.format(python=sys.executable, build=build, calls=str(folder / "calls")) for build in ("before", "after")}
        super().__init__(folder, monkeypatch, texts["after"], JOB.format(bench=str(BENCH)))
        self.old = folder / "old"
        self.old.write_text(texts["before"])
        self.old.chmod(0o755)

    def run(self, *options: str, behaviour: str = "") -> Tuple[int, List[str]]:
        self.monkeypatch.setenv("BEHAVIOUR", behaviour)
        return self.call(forgiving, "--before", str(self.old), "--ranks", "2", "--rounds", "6", *options)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def test_both_builds_serve_with_and_without_a_plan(world: World) -> None:
    code, lines = world.run()
    rows = [cells(line) for line in lines if line.startswith("| ")]
    five = ["native", "before", "after", "before (no plan)", "after (no plan)"]
    assert [row[:2] for row in rows] == [[job, name] for job in ("dense", "moe") for name in five]
    # Waits a step, moved in all, moved in a timed step, reserved, equal losses; both ranks.
    assert rows[0][3:] == ["", "", "", "", "8.000 9.000", "16 of 16"]
    assert rows[1][4:] == ["6.0", "0.000", "0.000", "8.000 9.000", "16 of 16"]
    assert rows[2][4] == "10.0" and "(" in rows[2][3]
    assert rows[4][3:7] == ["", "10.0", "2.000", "0.000"]
    compared = [line for line in lines if line.startswith("- ")]
    assert [line.split(": ")[0] for line in compared] == [
        f"- {job}, {kind} a plan" for job in ("dense", "moe") for kind in ("with", "without")
    ]
    assert all(" of the time before, 6 rounds" in line for line in compared)
    assert code == 0 and "Problems: none." in lines
    kept = json.loads((world.folder / "out" / "forgiving.json").read_text())
    assert set(kept["dense"]["measured"]) == set(five) and len(kept["dense"]["compiled"]["before"]) == 2
    # Both builds' shims are compiled before anything is timed.
    calls = (world.folder / "calls").read_text().splitlines()
    assert sum(" -c import torch" in call for call in calls) == 2


@pytest.mark.parametrize(
    "behaviour, problem",
    [
        ("differ after", "- dense, after, rank 1: loss 1 of 8 is 0x1.0000000000000p-1, natively 0x0.0p+0"),
        ("unserved before (no plan)", "- dense, before (no plan), rank 1: stplan's backend is None"),
        ("die after", "    out of luck"),
    ],
)
def test_what_goes_wrong_is_a_problem(world: World, behaviour: str, problem: str) -> None:
    code, lines = world.run("--jobs", "dense", behaviour=behaviour)
    assert code == 1 and problem in lines


def test_chosen_configurations(world: World) -> None:
    code, lines = world.run("--jobs", "moe", "--only", "before (no plan),after (no plan)")
    assert code == 0
    assert [cells(line)[:2] for line in lines if line.startswith("| ")] == [["moe", "before (no plan)"], ["moe", "after (no plan)"]]
    with pytest.raises(SystemExit, match="pool: no such job or allocator"):
        world.run("--only", "pool")


def test_a_missing_binary_is_named(world: World) -> None:
    with pytest.raises(SystemExit, match="nowhere: expected an stplan binary, found no file"):
        world.run("--before", "nowhere")


def test_a_step_that_takes_longer_is_said() -> None:
    def timed(*seconds: float) -> Measured:
        return Measured([9.0, 9.0, *seconds], [], 0, 0)

    def compared(*seconds: float) -> List[str]:
        measured: Dict[str, Measured] = {"before": timed(1.0, 2.0, 4.0), "after": timed(*seconds)}
        return forgiving.comparisons("dense", measured)

    assert compared(1.005, 2.01, 4.02) == ["- dense, with a plan: 100.50 % (100.50–100.50) of the time before, 3 rounds"]
    assert compared(1.02, 2.02, 3.0)[0].endswith("3 rounds")
    assert compared(1.5, 2.04, 4.08) == [
        "- dense, with a plan: 102.00 % (102.00–126.00) of the time before, 3 rounds; longer by more than 1 %"
    ]
    assert forgiving.comparisons("dense", {"before": timed(1.0)}) == []
