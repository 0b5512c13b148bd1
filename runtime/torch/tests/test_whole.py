"""A job is recorded, compiled and served by the stplan binary, with the real torch on a
simulated device."""

from __future__ import annotations

import json
import os
import shutil
import signal
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List

import pytest

from conftest import needs_torch

ROOT = Path(__file__).resolve().parents[3]

pytestmark = [needs_torch, pytest.mark.skipif(shutil.which("go") is None, reason="no go to build stplan with")]

# Nothing is computed on the device. Three weights are kept, and each step allocates and
# frees four activations.
TRAIN = """
import os, sys, torch

def train(steps):
    parameter = torch.nn.Parameter(torch.zeros(3))
    optimizer = torch.optim.SGD([parameter])
    weights = [torch.empty(300_000, dtype=torch.uint8, device="cuda") for _ in range(3)]
    for _ in range(steps):
        activations = [torch.empty(size << 20, dtype=torch.uint8, device="cuda") for size in (1, 3, 2, 5)]
        del activations
        parameter.grad = torch.ones(3)
        optimizer.step()

if __name__ == "__main__":
    train(int(sys.argv[1]))
    os.kill(os.getpid(), int(sys.argv[2]))
"""

# Starts ranks without setting RANK, as torch's tutorials do.
RANKS = """
import os, sys, torch
import train

def rank(number, count, steps):
    os.environ.update(MASTER_ADDR="localhost")
    store = torch.distributed.FileStore("store" + str(steps), count)
    torch.distributed.init_process_group("gloo", rank=number, world_size=count, store=store)
    train.train(steps + number)
    torch.distributed.destroy_process_group()

if __name__ == "__main__":
    torch.multiprocessing.spawn(rank, (2, int(sys.argv[1])), nprocs=2)
"""


@pytest.fixture(scope="session")
def stplan(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("bin") / "stplan")
    subprocess.run(["go", "build", "-o", path, "./cmd/stplan"], cwd=ROOT, check=True)
    return path


class Whole:
    def __init__(self, folder: Path, stplan: str, environment: Dict[str, str]) -> None:
        self.folder = folder
        self._stplan = stplan
        self._environment = environment
        (folder / "train.py").write_text(TRAIN)
        (folder / "ranks.py").write_text(RANKS)
        (folder / "plans").mkdir()

    def __call__(self, *arguments: str, code: int = 0, **variables: str) -> str:
        """Run stplan, and return its standard error. out is its standard output."""
        own = {k: v for k, v in os.environ.items() if k not in ("RANK", "LOCAL_RANK", "PYTHONPATH")}
        done = subprocess.run(
            [self._stplan, *arguments],
            cwd=self.folder,
            env={**own, **self._environment, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            timeout=300,
        )
        assert done.returncode == code, done.stderr
        self.out = done.stdout
        return done.stderr

    def compiled(self, *command: str) -> List[str]:
        """Record a job, compile its traces, and return the names of the plans."""
        self("record", "--", *command)
        self("compile", *map(str, sorted((self.folder / "traces").iterdir())), "-o", "plans")
        return sorted(path.name for path in (self.folder / "plans").glob("*.bin"))

    def summary(self) -> Any:
        return json.loads((self.folder / "summary.json").read_text())


@pytest.fixture
def whole(tmp_path: Path, stplan: str, cache: Path, device: Dict[str, str]) -> Whole:
    return Whole(tmp_path, stplan, {"XDG_CACHE_HOME": str(cache), **device})


def job(steps: int, end: int = 0) -> List[str]:
    return [sys.executable, "train.py", str(steps), str(end)]


def test_a_plan_serves_more_steps_than_were_recorded(whole: Whole) -> None:
    whole.compiled(*job(6))
    for steps, end, code in (6, 0, 0), (30, signal.SIGKILL, 128 + signal.SIGKILL):
        said = whole("run", "plans", "--summary", "summary.json", "--", *job(steps, end), code=code)
        assert "on plan" in said and "stplan:" not in said
        (process,) = whole.summary()["processes"]
        (served,) = process["devices"]
        assert process["backend"] == "shim" and served["allocations"] == 3 + 4 * steps
        assert served["planned_fraction"] == 1 and served["drift_events"] == 0
        assert served["peak_reserved_bytes"] == served["plan_bytes"] == served["peak_allocated_bytes"]
        assert served["recorded_peak_reserved_bytes"] > served["plan_bytes"]


def test_a_plan_is_served_without_a_compiler_too(whole: Whole, no_prebuilt: None) -> None:
    whole.compiled(*job(6))
    said = whole("run", "plans", "--summary", "summary.json", "--", *job(10), CXX="none")
    assert said.count("served through PyTorch's C interface") == 1
    (process,) = whole.summary()["processes"]
    assert process["backend"] == "pluggable" and process["devices"][0]["planned_fraction"] == 1


def test_ranks_of_multiprocessing_get_their_plans(whole: Whole) -> None:
    assert whole.compiled(sys.executable, "ranks.py", "6") == ["ranks-rank0.bin", "ranks-rank1.bin"]
    whole("run", "plans", "--summary", "summary.json", "--", sys.executable, "ranks.py", "8")
    processes = whole.summary()["processes"]
    assert [Path(p["plan"]).name for p in processes] == ["ranks-rank0.bin", "ranks-rank1.bin"]
    assert [p["devices"][0]["allocations"] for p in processes] == [3 + 4 * 8, 3 + 4 * 9]
    assert [p["devices"][0]["planned_fraction"] for p in processes] == [1, 1]


# Steps until a plan serves the process for five of them.
LEARNS = """
import time, torch, stplan
parameter = torch.nn.Parameter(torch.zeros(3))
optimizer = torch.optim.SGD([parameter])
weights = [torch.empty(300_000, dtype=torch.uint8, device="cuda") for _ in range(3)]
left, end = 5, time.monotonic() + 60
while left > 0 and time.monotonic() < end:
    activations = [torch.empty(size * 1_100_000, dtype=torch.uint8, device="cuda") for size in (1, 3, 2, 5)]
    del activations
    parameter.grad = torch.ones(3)
    optimizer.step()
    left -= stplan.stats()["planned_allocations"] > 0
    time.sleep(0.01)
"""


@pytest.mark.parametrize("backend", ["shim", "pluggable"])
def test_a_plan_is_learned_and_put_in_place_in_the_same_run(whole: Whole, backend: str, request: pytest.FixtureRequest) -> None:
    if backend == "pluggable":
        request.getfixturevalue("no_prebuilt")
    (whole.folder / "train.py").write_text(LEARNS)
    variables = {"shim": {}, "pluggable": {"CXX": "none"}}[backend]
    command = ["run", "--cache", "cache", "--summary", "summary.json", "--", sys.executable, "train.py"]
    said = whole(*command, RANK="0", **variables)
    (line,) = [line for line in said.splitlines() if "learned in this run" in line]
    assert line.startswith("stplan: a plan that was learned in this run serves it from step ")
    (process,) = whole.summary()["processes"]
    (device,) = process["devices"]
    assert (process["plan"], process["backend"]) == (None, backend)
    assert (device["installs"], device["plan_state"]) == (1, "body")
    assert device["planned_allocations"] == 4 * 5
    # The run has followed it since it came. The next run has it from the beginning.
    (plan,) = (whole.folder / "cache").glob("*.bin")
    mark = plan.with_suffix(".proven")
    checksum = struct.unpack_from("<Q", plan.read_bytes(), 24)[0]
    assert mark.read_text() == f"stplan-proven 1 {checksum:016x}\n"
    mark.unlink()
    whole(*command, RANK="0", **variables)
    (process,) = whole.summary()["processes"]
    assert process["plan"] is not None and process["devices"][0]["planned_allocations"] == 3 + 4 * 5
    # That run has followed it too. A damaged mark changes nothing, and is replaced.
    assert mark.read_text() == f"stplan-proven 1 {checksum:016x}\n"
    mark.write_text("no mark")
    whole(*command, RANK="0", **variables)
    (process,) = whole.summary()["processes"]
    assert process["devices"][0]["planned_allocations"] == 3 + 4 * 5
    assert mark.read_text() == f"stplan-proven 1 {checksum:016x}\n"


# Data decide what each step allocates: of other data it is something else.
DECIDED = """
import random, torch

draw = random.Random(open("data").read())
parameter = torch.nn.Parameter(torch.zeros(3))
optimizer = torch.optim.SGD([parameter])
for _ in range(12):
    held = []
    for _ in range(30):
        held.append(torch.empty(draw.randrange(20, 60) * 100_000, dtype=torch.uint8, device="cuda"))
        if len(held) > 6 and draw.random() < 0.7:
            del held[draw.randrange(len(held))]
    del held
    parameter.grad = torch.ones(3)
    optimizer.step()
"""


def test_a_run_is_planned_as_a_whole_until_runs_differ(whole: Whole) -> None:
    (whole.folder / "train.py").write_text(DECIDED)
    states = []
    for data in "first", "first", "other", "first", "first":
        (whole.folder / "data").write_text(data)
        whole("run", "--cache", "cache", "--summary", "summary.json", "--", sys.executable, "train.py", RANK="0")
        ((device,),) = [process["devices"] for process in whole.summary()["processes"]]
        states.append((device["plan_state"], round(device["planned_fraction"], 1)))
        (plan,) = (whole.folder / "cache").glob("*.bin")
        assert not plan.with_suffix(".call").exists()  # it serves no similar run
    assert states == [("no plan", 0), ("ended", 1), ("off", 0), ("declined", 0), ("declined", 0)]


# A stage of a pipeline that posts its next receive before it awaits the last one. The process group is one that
# sends nothing.
PIPELINE = """
import sys, time, torch, torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore
import stplan

dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
new = lambda mib: torch.empty(mib << 20, dtype=torch.uint8, device="cuda")
parameter = torch.nn.Parameter(torch.zeros(3))
optimizer = torch.optim.SGD([parameter])
other = torch.cuda.Stream()

def receive():
    buffer = new(8)
    return buffer, dist.irecv(buffer, 1)

weight, awaited = new(32), receive()
left, end = int(sys.argv[1]), time.monotonic() + 60
while left > 0 and time.monotonic() < end:
    for _ in range(6):
        following = receive()
        awaited[1].wait()
        hidden = new(3)
        awaited[0].record_stream(other)
        awaited = following
        del hidden
    parameter.grad = torch.ones(3)
    optimizer.step()
    left -= sys.argv[2] == "steps" or stplan.stats()["planned_allocations"] > 0
    time.sleep(0.01)
"""


def test_exchanges_are_recorded_and_learned(whole: Whole) -> None:
    """A recording tells of them, and so does what the runtime keeps of a run: both plans leave room for memory
    that cannot be waited for yet."""
    (whole.folder / "train.py").write_text(PIPELINE)
    whole("record", "--steps", "5", "--", sys.executable, "train.py", "8", "steps")
    (trace,) = (whole.folder / "traces").iterdir()
    whole("compile", str(trace), "-o", "plan.bin", "--json")
    recorded = json.loads(whole.out)["plans"][0]["devices"][0]
    assert recorded["exchanges"] in (6 * 5, 6 * 5 - 1)
    whole("run", "--cache", "cache", "--", sys.executable, "train.py", "5", "learned", RANK="0")
    (learned,) = (whole.folder / "cache").glob("*.bin")
    for plan in ("plan.bin", str(learned)):
        whole("inspect", plan, "--json")
        (device,) = json.loads(whole.out)["devices"]
        assert device["buffers_end"] == "completed"
    # Learned: 8 MiB are held while the next 8 are allocated, where 3 MiB are at the peak.
    assert device["peak_active_bytes"] == device["peak_allocated_bytes"] + (5 << 20)
