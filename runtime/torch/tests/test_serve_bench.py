"""serve.py and empty.py with a fake stplan, fake jobs and a fake device: what they start,
compare and write."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Dict, List, Tuple

import pytest

import benches
from benches import BENCH, GIB, cells

import empty
import serve
import table
from side_by_side import Measured

# The job. Other environment variables name its allocator; BEHAVIOUR says what goes wrong.
JOB = """
import json, os, sys
sys.path.insert(0, {bench!r})
from turns import Player
allocator = os.environ.get("FAKE", "expandable" if "PYTORCH_CUDA_ALLOC_CONF" in os.environ else "native")
behaviour = json.loads(os.environ["BEHAVIOUR"]).get(sys.argv[1] + " " + allocator, "")
steps = int(sys.argv[3])
device = {device!r}
def hold(count):
    with open(os.path.join(device, str(os.getpid())), "w") as out: out.write(str(count))
player = Player.from_environment(lambda: None)
player.enter()
reserved = dict(native=12, expandable=11, stplan=10, pool=10)[allocator] << 30
hold(reserved + (1 << 29) + ((1 << 30) if behaviour == "leak" else 0))
losses = []
for step in range(steps):
    with player.step():
        if behaviour == "die" and step == 5: sys.exit("out of luck")
        losses.append((1.0 / (step + 1) + (1e-9 if behaviour == "differ" and step == 9 else 0)).hex())
counters = dict(backend="pluggable" if behaviour == "weak" else "shim", state="body", planned_allocations=999, allocations=1000, waits=3, drift_events=1)
figures = dict(losses=losses, seconds=player.seconds, peak_reserved_bytes=reserved, reserved_bytes=reserved,
               peak_allocated_bytes=reserved - (1 << 30) if allocator != "stplan" else reserved,
               stplan=counters if allocator in ("stplan", "pool") else None)
print("figures", json.dumps(figures), flush=True)
player.leave(figures)
os.path.exists(os.path.join(device, str(os.getpid()))) and os.unlink(os.path.join(device, str(os.getpid())))
"""

STPLAN = """#!{python}
import os, subprocess, sys
arguments = sys.argv[1:]
with open({calls!r}, "a") as out: out.write(" ".join(arguments) + "\\n")
verb = arguments[arguments[0] == "-q"]
if verb == "record":
    folder = arguments[2]
    os.makedirs(folder, exist_ok=True)
    open(os.path.join(folder, "job-pid1.pickle.gz"), "w").close()
if verb == "compile":
    open(arguments[arguments.index("-o") + 1], "w").close()
    print('{{"plans": [{{"devices": [{{"plan_bytes": 10}}]}}]}}')
    sys.exit()
environment = dict(os.environ)
if verb == "run":
    environment["FAKE"] = "pool" if "--no-plan" in arguments else "stplan"
command = arguments[arguments.index("--") + 1:]
if command[1] != "-c":
    sys.exit(subprocess.call(command, env=environment))
"""


class FakeDevice:
    def __init__(self, folder: Path, total: int) -> None:
        self.folder, self.total = folder, total

    def memory(self) -> Tuple[int, int]:
        return sum(int(path.read_text()) for path in self.folder.iterdir()), self.total

    def about(self) -> str:
        return "a fake"


class World(benches.World):
    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (folder / "device").mkdir()
        stplan = STPLAN.format(python=sys.executable, calls=str(folder / "calls"))
        super().__init__(folder, monkeypatch, stplan, JOB.format(bench=str(BENCH), device=str(folder / "device")))
        monkeypatch.setattr(serve, "JOBS", [serve.Job("dense", "job.py", 1), serve.Job("moe", "job.py", 1, steady=False)])
        self.gib = 139

    def run(self, *options: str, **behaviour: str) -> Tuple[int, List[str]]:
        """Calls serve.py. behaviour: what goes wrong, by job and allocator."""
        told = {key.replace("_", " "): value for key, value in behaviour.items()}
        self.monkeypatch.setenv("BEHAVIOUR", json.dumps(told))
        self.monkeypatch.setattr(serve, "Device", lambda: FakeDevice(self.folder / "device", self.gib * GIB))
        return self.call(serve, *options)

    def kept(self) -> Dict[str, Any]:
        kept: Dict[str, Any] = json.loads((self.folder / "out" / "serve.json").read_text())
        return kept


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def test_a_row_for_each_job_and_allocator(world: World) -> None:
    code, lines = world.run("--seconds", "0")
    rows = [cells(line) for line in lines[:10]]
    assert [row[:2] for row in rows] == [[job, name] for job in ("dense", "moe") for name in serve.CONFIGURATIONS]
    # Job, allocator, reserved, allocated, efficiency, outside.
    assert rows[0][2:6] == ["12.000", "11.000", "75.00 %", "0.500"]
    assert rows[1][2:6] == ["10.000", "10.000", "90.00 %", "0.500"]
    assert rows[1][8:11] == ["99.90 %", "3", "1"]
    assert rows[3][2:6] == ["11.000", "10.000", "81.82 %", "0.500"]
    # In a job whose steps are alike, only native and stplan take all steps.
    assert [row[11] for row in rows] == ["20 of 20"] * 2 + ["7 of 7"] * 3 + ["20 of 20"] * 5
    # The time of the second native process is given relative to the first.
    assert rows[2][1] == "native again" and "%" in rows[2][7]
    assert code == 0 and "Problems: none." in lines
    assert any(line.startswith("- dense: reserved is 11.11 % above peak allocated") for line in lines)
    assert not any("GiB, expandable segments" in line for line in lines)
    kept = world.kept()
    assert len(kept["jobs"]["dense"]["measured"]["native"]["seconds"]) == 5
    # serve.json gives the same document.
    assert table.document([kept])[-len(lines):] == lines
    calls = (world.folder / "calls").read_text().splitlines()
    assert sum(" -c import torch" in call for call in calls) == 1
    assert sum(call.startswith("record") for call in calls) == 2


def test_losses_that_differ_are_a_problem(world: World) -> None:
    code, lines = world.run("--jobs", "dense", dense_stplan="differ")
    assert cells(lines[1])[11] == "9 of 20"
    (problem,) = [line for line in lines if line.startswith("- dense, stplan: loss 10 of 20 is 0x1.99999")]
    assert code == 1 and problem.endswith("natively 0x1.999999999999ap-4")


def test_unaccounted_memory_is_a_problem(world: World) -> None:
    code, lines = world.run("--jobs", "dense", dense_stplan="leak")
    assert cells(lines[1])[5] == "1.500"
    assert code == 1 and sum("its exit freed +1,024 MiB more" in line for line in lines) == 1


def test_a_process_that_is_not_served_by_the_shim_is_a_problem(world: World) -> None:
    code, lines = world.run("--jobs", "dense", dense_pool="weak")
    assert code == 1 and "- dense, no plan: stplan's backend is pluggable" in lines


def test_a_job_that_dies_is_a_problem_and_the_others_are_compared(world: World) -> None:
    code, lines = world.run(dense_stplan="die", moe_native="die")
    assert [cells(line)[:2] for line in lines[:3]] == [["dense", n] for n in ("native", "native again", "expandable")]
    assert code == 1 and lines.count("    out of luck") == 3
    problems = [line for line in lines if line.startswith("- ") and "exit code" in line]
    failed = ("dense: stplan", "moe: native", "moe: native again")
    assert problems == [f"- {name}: exit code 1; its last lines:" for name in failed]


def test_allocators_that_do_not_fit_together_run_alone(world: World) -> None:
    world.gib = 44
    code, lines = world.run("--jobs", "dense")
    assert code == 0
    assert ["alone" in cells(line)[7] for line in lines[:5]] == [False, False, False, True, True]


def test_no_time_left(world: World) -> None:
    code, lines = world.run("--jobs", "dense", "--budget", "20")
    assert code == 1
    assert any("not run, " in line and line.endswith("s are left of the budget of 20 s") for line in lines)


def test_unknown_names(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="sparse: no such job or allocator; there are dense, moe; native, "):
        world.run("--jobs", "sparse")


def test_a_document_of_several_calls_has_the_last_results_of_each_job(world: World) -> None:
    world.run("--jobs", "dense", dense_stplan="differ")
    first = world.kept()
    world.run(dense_stplan="", moe_stplan="differ")
    lines = table.document([first, world.kept()])
    assert sum(line.startswith("| dense | stplan |") for line in lines) == 1
    assert not any(line.startswith("- dense, stplan: loss") for line in lines)
    assert any(line.startswith("- moe, stplan: loss 10 of 20") for line in lines)
    assert sum(line.startswith("    python runtime/torch/bench/serve.py ") for line in lines) == 2


def test_against_native_round_by_round() -> None:
    native = Measured([1.0, 2.0, 10.0], [], 0, 0)
    own = Measured([1.1, 2.0, 9.0], [], 0, 0)
    assert table.against(own, native, beside=True) == "100.0 % (95.0–105.0)"
    assert table.against(own, native, beside=False).endswith(", alone")


def test_first_difference() -> None:
    assert table.first_difference(["a", "b"], ["a", "c"]) == "loss 2 of 2 is b, natively c"
    assert table.first_difference([], ["a"]) == "0 losses, native has 1"


def test_times() -> None:
    assert table.times([0.001, 0.002, 0.003, 0.004, 0.010]) == "3.0 (2.0–4.0)"
    assert table.times([]) == ""


def test_outside_leaves_out_memory_still_reserved() -> None:
    measured = Measured([], [{"reserved_bytes": 5, "peak_reserved_bytes": 9}], 12, 0)
    assert table.outside(measured) == 7


LOOP = """
import json, os, sys, time
sys.path.insert(0, {bench!r})
from turns import Player
player = Player.from_environment(lambda: None)
player.enter()
for step in range(int(sys.argv[4]) if sys.argv[3:] else 4):
    with player.step():
        time.sleep(0.002)
c = dict(backend="shim", state="ended", planned_allocations=1, allocations=2) if "FAKE" in os.environ else None
player.leave(dict(stplan=c, compiler=os.environ.get("CXX", "")))
"""


def test_empty_measures_every_allocator(world: World) -> None:
    loop = world.folder / "loop.py"
    loop.write_text(LOOP.format(bench=str(BENCH)))
    world.monkeypatch.setattr(empty, "__file__", str(loop))
    lines = empty.measure(str(world.stplan), world.folder, 4)
    rows = [cells(line) for line in lines[2:] if line]
    assert [row[0] for row in rows] == ["native", "expandable", "stplan", "no plan", "no plan, C interface", "meta"]
    # 2 ms for 4,000 calls.
    assert all(0.5 <= float(row[3]) <= float(row[2]) < 100 for row in rows)
    assert [row[4] != "" for row in rows] == [False] + [True] * 5
    assert [row[5] for row in rows] == ["", "", "50.00 % ended", "", "", ""]
    assert [row[1] for row in rows] == ["torch", "torch", "shim", "shim", "shim", "torch"]
