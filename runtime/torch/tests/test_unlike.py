"""unlike.py with a fake stplan and a fake job, and what the real job does in each way."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import List, Tuple

import pytest

import benches
from benches import cells
from conftest import needs_torch

import unlike

JOB = """
import json, os, sys
way, mode, behaviour = os.environ["STPLAN_BENCH_UNLIKE"], os.environ.get("FAKE", "native"), os.environ["BEHAVIOUR"]
if "expandable_segments:True" in os.environ["PYTORCH_CUDA_ALLOC_CONF"]: mode = "expandable"
if behaviour == f"die {way} {mode}": sys.exit("ValueError: out of luck")
for _ in range((2 if behaviour == f"talk {way} {mode}" else mode == "found" and way != "itself")):
    print("stplan: cuda:0: the plan does not fit", file=sys.stderr)
print("noise", file=sys.stderr)
print("figures " + json.dumps(dict(
    losses=[float(len(way) + (behaviour == f"differ {way} {mode}")).hex()] * 3, stplan_steps=[],
    peak_reserved_bytes=(9 if behaviour == f"more {way} {mode}" else 6) << 30, peak_allocated_bytes=4 << 30)))
"""

STPLAN = """#!{python}
import json, os, subprocess, sys
own, job = sys.argv[1 : sys.argv.index("--")], sys.argv[sys.argv.index("--") + 1 :]
assert own[:2] == ["run", "--summary"]
mode, plan = "pool", None
if "--cache" in own:
    cache = own[own.index("--cache") + 1]
    learnt = os.path.join(cache, "plan.bin")
    mode = "found" if "--no-learn" in own else "learning"
    plan = learnt if os.path.exists(learnt) and os.environ["BEHAVIOUR"] != "lost" else None
    os.makedirs(cache, exist_ok=True)
    # A run that learns changes its cache, which another one may not see.
    assert not os.path.exists(os.path.join(cache, "changed"))
    if plan is None:
        open(learnt, "w").close()
    elif mode == "learning":
        open(os.path.join(cache, "changed"), "w").close()
device = {{"planned_bytes_fraction": 0.25, "moved_bytes": 3 << 30, "installs": 1}}
with open(own[2], "w") as out:
    json.dump({{"processes": [{{"plan": plan, "devices": [] if os.environ["BEHAVIOUR"] == "unserved" else [device]}}]}}, out)
code = subprocess.call(job, env={{**os.environ, "FAKE": mode}})
print("note: " + ("none" if plan is None else "a plan of an earlier run serves this one"), file=sys.stderr)
sys.exit(code)
"""


def run(folder: Path, monkeypatch: pytest.MonkeyPatch, behaviour: str = "", *options: str) -> Tuple[int, List[str]]:
    monkeypatch.setenv("BEHAVIOUR", behaviour)
    monkeypatch.setattr(unlike, "SCRIPT", folder / "job.py")
    return benches.World(folder, monkeypatch, STPLAN.format(python=sys.executable), JOB).call(unlike, *options)


def test_every_way_is_run_in_every_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, lines = run(tmp_path, monkeypatch)
    assert code == 0 and lines[-1] == "Problems: none."
    rows = [cells(text) for text in lines if text.startswith("| ")]
    configurations = ["native", "expandable", "no plan", "found plan", "found plan, learning"]
    assert [row[:2] for row in rows] == [[way, name] for way in unlike.WAYS for name in configurations]
    assert rows[5] == ["another model", "native", "6.000", "1.5000", "", "", "", "", "3 of 3"]
    assert rows[8] == ["another model", "found plan", "6.000", "1.5000", "25.00 %", "3.00", "1", "1", "3 of 3"]
    assert rows[7][4:] == ["", "3.00", "", "0", "3 of 3"]
    assert "- another model, found plan: `stplan: cuda:0: the plan does not fit`" in lines
    assert "- itself, found plan: `note: a plan of an earlier run serves this one`" in lines


@pytest.mark.parametrize(
    "behaviour, problem",
    [
        ("die shuffled found", "- shuffled, found plan: exit code 1, ValueError: out of luck"),
        ("differ shuffled learning", "- shuffled, found plan, learning: losses differ: loss 1 of 3 is 0x1.2000000000000p+3, natively 0x1.0000000000000p+3"),
        ("talk shuffled found", "- shuffled, found plan: 2 lines, expected at most 1"),
        ("more shuffled learning", "- shuffled, found plan, learning: reserves 9.000 GiB, without a plan 6.000"),
        ("lost", "- shuffled, found plan, learning: the plan was not found"),
        ("unserved", "- shuffled, found plan, learning: stplan does not serve"),
    ],
)
def test_what_goes_wrong_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, behaviour: str, problem: str) -> None:
    code, lines = run(tmp_path, monkeypatch, behaviour)
    assert code == 1 and lines[-1] == problem


def test_what_would_begin_too_late_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, lines = run(tmp_path, monkeypatch, "", "--time-limit", "0")
    assert code == 1 and lines[-1] == "- shuffled, found plan, learning: left out, time was short"


@needs_torch
def test_the_job_differs_from_itself_in_one_thing() -> None:
    import unlike_job

    itself = unlike_job.iterations(24, unlike.ITSELF)
    assert unlike_job.iterations(24, unlike.MODEL) == itself
    assert unlike_job.iterations(24, unlike.BATCH) == [i._replace(batch=16) for i in itself]
    assert unlike_job.iterations(24, unlike.LENGTH) == [i._replace(length=i.length // 2) for i in itself]
    shuffled = unlike_job.iterations(24, unlike.SHUFFLED)
    assert shuffled != itself and sorted(shuffled) == sorted(itself)
