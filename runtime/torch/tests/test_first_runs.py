"""first_runs.py with a fake stplan and a fake job."""

from __future__ import annotations

import json
import sys
import xml.etree.ElementTree as xml
from pathlib import Path
from typing import List, Tuple

import pytest

import benches
from benches import cells

import first_runs
import first_runs_plot

# A step takes a second natively, two in the first run until the plan is in place in step 6.
JOB = """
import json, os, sys
mode = os.environ.get("FAKE", "native")
if "expandable_segments:True" in os.environ.get("PYTORCH_CUDA_ALLOC_CONF", ""): mode = "expandable"
if os.environ["BEHAVIOUR"] == "die " + mode: sys.exit("out of luck")
steps, first = 30, mode == "first"
times = os.path.join(os.path.dirname(__file__), mode)  # a byte for each run of this kind
open(times, "a").write("x")
busy = os.environ["BEHAVIOUR"] == "busy" and os.path.getsize(times)  # another program is in the way in a step of each run
counted = [dict(backend="shim", state="body", allocations=10, planned_allocations=5 * (not first or i > 5), moved_bytes=3 << 30,
                installs=int(first and i >= 5)) for i in range(steps)] if mode in ("first", "second") else []
if os.environ["BEHAVIOUR"] == "unserved " + mode: counted = []
print("figures " + json.dumps(dict(
    losses=[float(i + (os.environ["BEHAVIOUR"] == "differ " + mode)).hex() for i in range(3)],
    seconds=[9] + [50 if busy == i else 2 if first and i < 5 else 1 for i in range(1, steps)],
    peaks=[dict(reserved=(5 << 30) + (i // 20 << 30), allocated=(3 << 30) + (i // 20 * first << 30)) for i in range(steps)],
    peak_reserved_bytes=6 << 30, peak_allocated_bytes=4 << 30, stplan=counted[-1] if counted else None, stplan_steps=counted)))
"""

# The first run leaves a plan in the cache, the second one finds it.
STPLAN = """#!{python}
import os, subprocess, sys
arguments = sys.argv[1:]
assert arguments[:3] == ["-q", "run", "--cache"] and arguments[4] == "--"
found = os.path.exists(arguments[3])
os.makedirs(arguments[3], exist_ok=True)
sys.exit(subprocess.call(arguments[5:], env={{**os.environ, "FAKE": "second" if found else "first"}}))
"""


def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, behaviour: str = "", *options: str) -> Tuple[int, List[str]]:
    monkeypatch.setenv("BEHAVIOUR", behaviour)
    world = benches.World(tmp_path, monkeypatch, STPLAN.format(python=sys.executable), JOB)
    return world.call(first_runs, "--jobs", f"toy={sys.executable} {tmp_path / 'job.py'}", *options)


def test_five_runs_of_a_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, lines = run(tmp_path, monkeypatch)
    assert code == 0 and lines[-1] == "Problems: none."
    rows = {cells(text)[1]: cells(text) for text in lines if text.startswith("| toy")}
    assert list(rows) == ["native", "native again", "expandable", "first run", "second run"]
    assert rows["native"] == ["toy", "native", "6.000", "1.5000", "100.0 %", "100.0 %", "", "", "", "1.000", "3 of 3"]
    # 19 early steps, 4 of which take twice as long.
    assert rows["first run"][4:] == ["121.1 %", "100.0 %", "3.00", "50.00 %", "6", "1.000 (1.000)", "3 of 3"]
    assert rows["second run"][4:] == ["100.0 %", "100.0 %", "3.00", "50.00 %", "", "1.000", "3 of 3"]


def test_of_rounds_each_step_counts_with_its_least_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, lines = run(tmp_path, monkeypatch, "busy", "--rounds", "2", "--runs", "first run", "second run")
    rows = [cells(text) for text in lines if text.startswith("| toy")]
    assert code == 0 and [row[1] for row in rows] == ["native", "first run", "second run"]
    assert [row[4] for row in rows] == ["100.0 %", "121.1 %", "100.0 %"]
    assert all((tmp_path / mode).read_text() == "xx" for mode in ("native", "first", "second"))  # each with a cache of its own


@pytest.mark.parametrize(
    "behaviour, problem",
    [
        ("die native", "- toy, native: exit code 1, out of luck"),
        ("die second", "- toy, second run: exit code 1, out of luck"),
        ("unserved first", "- toy, first run: stplan does not serve"),
        ("differ expandable", "- toy, expandable: losses differ: loss 1 of 3 is 0x1.0000000000000p+0, natively 0x0.0p+0"),
    ],
)
def test_what_goes_wrong_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, behaviour: str, problem: str) -> None:
    code, lines = run(tmp_path, monkeypatch, behaviour)
    assert code == 1 and lines[-1] == problem


def test_step_times_are_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def figures(seconds: List[float], installs: List[int]) -> object:
        return {"seconds": seconds, "stplan_steps": [{"installs": n} for n in installs]}

    one, other, empty = tmp_path / "one.json", tmp_path / "other.json", tmp_path / "empty.json"
    one.write_text(json.dumps({"a < b": {"native": figures([4, 1, 2], []), "first run": figures([4, 2, 1], [0, 1, 1])}, "none": {}}))
    other.write_text(json.dumps({"c": {"native": figures([1], [])}}))
    monkeypatch.setattr(sys, "argv", ["first_runs_plot.py", str(one), str(other)])
    assert first_runs_plot.main() == 0
    drawn = xml.fromstring(capsys.readouterr().out)
    lines = [[tuple(map(float, point.split(","))) for point in line.get("points", "").split()] for line in drawn.findall(".//{*}polyline")]
    assert [len(line) for line in lines] == [3, 3, 1] and len(drawn.findall(".//{*}circle")) == 1
    first, second, third = lines[0]
    assert first[0] < second[0] < third[0] and first[1] < third[1] < second[1]  # the longer, the higher
    assert first[1] + second[1] == pytest.approx(2 * third[1])  # 2 s is in the middle of 1 and 4
    assert {"a < b", "c"} <= {text.text for text in drawn.findall(".//{*}text")}
    empty.write_text("[]")
    monkeypatch.setattr(sys, "argv", ["first_runs_plot.py", str(empty)])
    assert first_runs_plot.main() == 1 and str(empty) in capsys.readouterr().err
