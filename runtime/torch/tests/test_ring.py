"""ring.py with a fake stplan and fake ranks, and the ranks themselves over gloo. On a
simulated device their request makes memory move."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any, Dict, List, Tuple

import pytest

from benches import BENCH, cells, executable
from conftest import needs_torch

import features
import ring

SOURCE = BENCH.parent / "src"

OVER_GLOO = """
    import sys
    sys.path.insert(0, {bench!r})
    import torch
    import ring_job
    ring_job.UNIT, ring_job.GROWTH, ring_job.DEVICE, ring_job.BACKEND = 1024, 512, "cpu", "gloo"
    torch.cuda.set_device = torch.cuda.synchronize = lambda *_: None
    sys.exit(ring_job.main())
    """


def ranks_over_gloo(folder: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    script = folder / "ranks.py"
    script.write_text(textwrap.dedent(OVER_GLOO.format(bench=str(BENCH))))
    env = {name: value for name, value in os.environ.items() if name != "RANK"}
    return subprocess.run([sys.executable, str(script), *options], env=env, capture_output=True, text=True, timeout=120)


@needs_torch
@pytest.mark.parametrize("ranks", [2, 3])
def test_every_rank_receives_what_the_one_before_it_sends(tmp_path: Path, ranks: int) -> None:
    done = ranks_over_gloo(tmp_path, "--ranks", str(ranks), "--rounds", "3")
    assert done.returncode == 0, done.stderr
    assert ring.judged(0, done.stdout, done.stderr, ranks, 3) == ring.Run("finished", 3, 0)


@needs_torch
def test_a_rank_that_hangs_says_where(tmp_path: Path) -> None:
    """A rank waits for the other one, which does not come."""
    script = tmp_path / "ranks.py"
    done = ranks_over_gloo(tmp_path, "--ranks", "2", "--rounds", "1")
    assert done.returncode == 0 and script.exists()
    env = {**os.environ, "RANK": "0", "STORE": str(tmp_path / "store")}
    command = [sys.executable, str(script), "--ranks", "2", "--limit", "8"]
    alone = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
    assert alone.returncode == 1
    run = ring.judged(1, alone.stdout, alone.stderr, 2, 6)
    assert (run.state, run.rounds) == ("hung", 0) and "ring_job.py" in alone.stderr


MOVES = """
    import os, sys
    sys.path.insert(0, {bench!r})
    import stplan, torch
    stplan.enable()
    import ring_job
    moved = []
    for unit in (7 << 20, 8 << 20):  # the simulated device has 128 MiB
        kept = ring_job.in_pieces(unit)
        torch.cuda.synchronize()
        before = ring_job.moved_bytes()
        large = ring_job.request(unit)
        moved.append(ring_job.moved_bytes() > before)
        del kept, large
    print(moved, flush=True)
    os._exit(0)
    """


@needs_torch
def test_the_request_makes_memory_move(cache: Path, device: Dict[str, str]) -> None:
    script = textwrap.dedent(MOVES.format(bench=str(BENCH)))
    env = {**os.environ, **device, "PYTHONPATH": str(SOURCE), "XDG_CACHE_HOME": str(cache)}
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "[True, True]\n"), done.stderr


RANKS = """
import json, os, sys, time
options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
mode = os.environ.get("FAKE", "native")
behaviour = json.loads(os.environ["BEHAVIOUR"]).get(mode + " " + options["--ranks"], "")
rounds = int(options["--rounds"])
for rank in range(int(options["--ranks"])):
    for number in range(2 if behaviour and rank else rounds):
        print("ring " + json.dumps({"rank": rank, "rounds": number + 1, "moved_bytes": 0 if mode == "native" else 5 << 20}), flush=True)
if behaviour == "hang":
    time.sleep(60)
if behaviour == "say":
    sys.exit("Timeout (0:00:45)!\\nin irecv")
if behaviour == "die":
    sys.exit("out of luck")
"""

STPLAN = """#!{python}
import os, subprocess, sys
arguments = sys.argv[1:]
verb = arguments[arguments[0] == "-q"]
if verb == "record":
    assert arguments[-4:-2] == ["--rounds", "3"], arguments
    folder = arguments[arguments.index("-o") + 1]
    os.makedirs(folder)
    for rank in range(2):
        open(os.path.join(folder, f"ranks-rank{{rank}}.pickle.gz"), "w").close()
    sys.exit()
if verb == "compile":
    sys.exit(0 if arguments[-1].endswith("plans") else 9)
plan = arguments[arguments.index("--") - 1]
sys.exit(subprocess.call(arguments[arguments.index("--") + 1:], env={{**os.environ, "FAKE": "none" if plan == "--no-plan" else "plan"}}))
"""


class World:
    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.monkeypatch = folder, monkeypatch
        self.stplan = executable(folder / "stplan", STPLAN.format(python=sys.executable))
        (folder / "ranks.py").write_text(RANKS)
        monkeypatch.setattr(ring, "SCRIPT", folder / "ranks.py")
        monkeypatch.setattr(ring, "devices", lambda: 4)
        monkeypatch.setattr(features, "about", lambda: "a fake")

    def run(self, *options: str, **behaviour: str) -> Tuple[int, Dict[Any, List[str]], List[str]]:
        """Calls ring.py. Returns its exit code, the rows by ranks and mode, and the
        problems. behaviour: what goes wrong, by mode and number of ranks."""
        self.monkeypatch.setenv("BEHAVIOUR", json.dumps({k.replace("_", " "): v for k, v in behaviour.items()}))
        self.monkeypatch.setattr(sys, "argv", ["ring.py", str(self.stplan), "--out", str(self.folder), "--runs", "2", *options])
        code = ring.main()
        lines = (self.folder / "ring.md").read_text().splitlines()
        rows = [cells(row) for row in lines if row.startswith("| ")][2:]
        return code, {tuple(row[:2]): row[2:] for row in rows}, lines[[x.startswith("Problems:") for x in lines].index(True) + 1 :]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def test_a_row_for_each_number_of_ranks_and_mode(world: World) -> None:
    code, rows, problems = world.run()
    assert (code, problems) == (0, [])
    names = ["2 ranks, two groups", "ring of 3 ranks"]
    assert list(rows) == [(name, mode) for name in names for mode in ring.MODES]
    assert rows["2 ranks, two groups", "native"] == ["finished"] * 2
    assert rows["ring of 3 ranks", "plan of half"] == ["finished, 15 MiB moved"] * 2
    kept = json.loads((world.folder / "ring.json").read_text())
    assert kept["ring of 3 ranks, no plan"][1]["rounds"] == 6


@pytest.mark.parametrize("behaviour, state, said", [("hang", "hung", "still running after 2 s"), ("say", "hung", "in irecv"), ("die", "failed", "out of luck")])
def test_a_run_that_does_not_finish_is_a_problem(world: World, behaviour: str, state: str, said: str) -> None:
    code, rows, problems = world.run("--ranks", "2", "--limit", "2", none_2=behaviour)
    assert code == 1
    assert rows["2 ranks, two groups", "no plan"] == [f"**{state}** after 2 rounds, 10 MiB moved"] * 2
    assert rows["2 ranks, two groups", "plan of half"] == ["finished, 10 MiB moved"] * 2
    assert problems[0] == f"- 2 ranks, two groups, no plan: {state}" and f"      {said}" in problems


def test_what_does_not_begin_in_time_is_named(world: World) -> None:
    code, rows, problems = world.run("--ranks", "2", "--modes", "plan of half", "--budget", "0")
    assert code == 1 and rows == {("2 ranks, two groups", "plan of half"): ["**failed** after 0 rounds", ""]}
    assert problems == ["- 2 ranks, two groups, plan of half: failed", "      not run: the budget is spent"]


def test_unknown_modes(world: World) -> None:
    with pytest.raises(SystemExit):
        world.run("--modes", "fast")
