"""real.py with a fake stplan, a fake launcher, fake jobs and a fake device."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import List, Tuple

import pytest

import benches
from benches import BENCH, GIB, cells

import real
from side_by_side import Measured

# One rank. It reserves memory by its allocator; BEHAVIOUR says what goes wrong.
JOB = """
import json, os, sys
sys.path.insert(0, {bench!r})
from turns import Player
allocator = os.environ.get("FAKE", "expandable" if "PYTORCH_CUDA_ALLOC_CONF" in os.environ else "native")
behaviour = os.environ["BEHAVIOUR"] if os.environ["RANK"] == "1" else ""
player = Player.from_environment(lambda: None)
player.enter()
losses = []
for step in range(int(sys.argv[3])):
    with player.step():
        if behaviour == "die " + allocator and step == 3: sys.exit("out of luck")
    losses.append((step + (0.5 if behaviour == "differ " + allocator else 0.0)).hex())
reserved = dict(native=12, expandable=11, pending=8, completed=10)[allocator] + player.rank
counters = dict(backend=None if behaviour == "unserved " + allocator else "shim", state="declined" if behaviour == "decline " + allocator else "body", planned_allocations=99, allocations=100, waits=2 * len(losses), drift_events=1)
player.leave(dict(losses=losses, seconds=player.seconds, peak_reserved_bytes=reserved << 30, peak_allocated_bytes=8 << 30,
                  stplan=counters if "FAKE" in os.environ else None))
"""

STPLAN = """#!{python}
import os, subprocess, sys
arguments = sys.argv[1:]
verb = arguments[arguments[0] == "-q"]
if verb == "record":
    os.mkdir(arguments[4])
    for rank in range(2):
        open(os.path.join(arguments[4], f"job-rank{{rank}}.pickle.gz"), "w").close()
if verb == "compile":
    open(arguments[arguments.index("-o") + 1], "w").close()
    gib = 10 if "--no-reuse-pending" in arguments and "dense" in arguments[2] else 9
    print('{{"plans": [{{"devices": [{{"plan_bytes": %d, "wait_bytes": 1, "waits": 1}}]}}]}}' % (gib << 30))
    sys.exit()
environment = dict(os.environ)
if verb == "run" and arguments[1] != "--no-plan":
    plans = arguments[1]
    assert sorted(os.listdir(plans)) == ["job-rank0.bin", "job-rank1.bin"], os.listdir(plans)
    environment["FAKE"] = os.path.basename(plans)
command = arguments[arguments.index("--") + 1:]
if command[1] != "-c":
    sys.exit(subprocess.call(command, env=environment))
"""


class World(benches.WorldOfRanks):
    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(folder, monkeypatch, STPLAN.format(python=sys.executable), JOB.format(bench=str(BENCH)))

    def run(self, *options: str, behaviour: str = "") -> Tuple[int, List[str]]:
        """Calls real.py. behaviour: what goes wrong in rank 1."""
        self.monkeypatch.setenv("BEHAVIOUR", behaviour)
        return self.call(real, "--ranks", "2", "--rounds", "6", *options)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def test_a_row_for_each_allocator_but_equal_plans_run_once(world: World) -> None:
    (world.folder / "traces").mkdir()
    code, lines = world.run("--keep", str(world.folder / "traces"))
    rows = [cells(line) for line in lines[:7]]
    four = ["native", "expandable", "stplan", "no pending"]
    assert [row[:2] for row in rows] == [["dense", name] for name in four] + [["moe", name] for name in four[:3]]
    # Reserved and allocated by rank, efficiency.
    assert rows[2][2:5] == ["8.000 9.000", "8.000 8.000", "94.12 %"]
    # On plan, waits, drift, equal losses of both ranks, with 2 steps that are not timed.
    assert rows[2][7:] == ["99.00 % 99.00 %", "2.0", "2", "16 of 16"]
    assert rows[0][6:10] == ["", "", "", ""]
    assert code == 0 and "Problems: none." in lines
    (dense, moe) = [line for line in lines if line.startswith("- ")]
    assert dense.startswith(
        "- dense: the plans of all ranks together are 2.000 GiB smaller; 4.000 GiB less are reserved, and a step takes "
    )
    assert moe == "- moe: the plans of all ranks together are 0.000 GiB smaller."
    traces = sorted(path.name for path in (world.folder / "traces").iterdir())
    assert traces == [f"{job}-job-rank{rank}.pickle.gz" for job in ("dense", "moe") for rank in (0, 1)]
    kept = json.loads((world.folder / "out" / "real.json").read_text())
    assert len(kept["dense"]["measured"]["native"]["seconds"]) == 8
    assert len(kept["dense"]["compiled"]["stplan"]) == 2


def test_losses_of_any_rank_that_differ_are_a_problem(world: World) -> None:
    code, lines = world.run("--jobs", "dense", behaviour="differ pending")
    assert cells(lines[2])[10] == "8 of 16"
    assert code == 1 and "- dense, stplan, rank 1: loss 1 of 8 is 0x1.0000000000000p-1, natively 0x0.0p+0" in lines


def test_a_rank_without_its_plan_is_a_problem(world: World) -> None:
    code, lines = world.run("--jobs", "dense", behaviour="unserved completed")
    assert code == 1 and "- dense, no pending, rank 1: stplan's backend is None" in lines


def test_plans_that_are_declined_are_named(world: World) -> None:
    _, lines = world.run("--jobs", "dense", behaviour="decline completed")
    assert cells(lines[3])[7] == "99.00 % 99.00 % declined"
    assert any("(without the reuse those of ranks 1 were declined, and the pool served them)" in line for line in lines)


def test_a_job_that_loses_a_rank_is_dropped(world: World) -> None:
    code, lines = world.run("--jobs", "dense", behaviour="die pending")
    assert [cells(line)[1] for line in lines[:3]] == ["native", "expandable", "no pending"]
    assert code == 1 and "    out of luck" in lines
    assert "- dense: the plans of all ranks together are 2.000 GiB smaller." in lines


def test_allocators_that_do_not_fit_beside_the_others_are_left_out(world: World) -> None:
    world.monkeypatch.setattr(benches.FakeDevice, "total", 44 * GIB)
    code, lines = world.run("--jobs", "dense")
    # Each allocator needs the 13 GiB of the larger rank and serve.OUTSIDE: three fit.
    assert [cells(line)[1] for line in lines if line.startswith("| dense")] == ["native", "expandable", "stplan"]
    assert code == 1 and "- dense, no pending: not run, it does not fit on the devices together with the others" in lines


def test_unknown_names(world: World) -> None:
    with pytest.raises(SystemExit, match="pool: no such job or allocator; there are dense, moe; native, "):
        world.run("--only", "native,pool")


def test_ratio_is_of_steps_in_the_same_round() -> None:
    slow, fast = (Measured([9.0, 9.0, *seconds], [], 0, 0) for seconds in ([2.0, 4.0, 6.0], [1.0, 4.0, 4.0]))
    assert real.ranks.ratio(slow, fast) == "150.00 % (125.00–175.00)"
