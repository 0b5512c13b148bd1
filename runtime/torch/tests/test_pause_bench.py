"""The logic of pause.py: which results are wrong, and its rows. The loop itself needs a GPU."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Dict

import pytest

from benches import cells

import pause

PLAN = pause.Variant("plan", "pause", ["plan.bin"])


def result(**changes: Any) -> Dict[str, Any]:
    """What a loop prints that gave 10 GiB in 40 ms and took 8 GiB back in 20 ms."""
    figure = {
        "given": 10 << 30, "give_s": 0.04, "taken": 8 << 30, "take_s": 0.02, "held": 5 << 30, "neighbour": 90 << 30, "iteration_s": 0.5,
    }
    figure.update({key: value for key, value in changes.items() if key in figure})
    made = {
        "figures": [figure] * pause.ITERATIONS,
        "losses": ["0x1p0", "0x1p1"],
        "reserved": 15 << 30,
        "gone": "the device has not enough memory left: 0 bytes",
        "stplan": {"state": "body", "allocations": 4, "planned_allocations": 3},
    }
    made.update({key: value for key, value in changes.items() if key in made})
    return made


@pytest.mark.parametrize(
    "changes, said",
    [
        ({}, []),
        ({"given": 0, "taken": 0}, ["gave 0.000 GiB, expected at least 1"]),
        ({"neighbour": 6 << 30}, ["the other process got 6.000 GiB, less than was given"]),
        ({"losses": ["0x1p0", "0x1p2"]}, ["loss 2 of 2 is 0x1p2, natively 0x1p1"]),
        ({"stplan": None}, ["stplan did not serve it"]),
        ({"gone": ""}, ["the memory was gone in the last iteration, and resume did not say so: ''"]),
        ({"given": 2 << 30, "taken": 1 << 30, "gone": ""}, []),  # the other process leaves more than that
        ({"taken": 1 << 30}, ["what was given was not taken back, apart from what generating took"]),
        ({"stplan": {"state": "off"}}, ["the plan is off"]),
    ],
)
def test_what_is_wrong_is_said(changes: Dict[str, Any], said: "list[str]") -> None:
    assert pause.wrong(PLAN, result(**changes), result()) == [f"plan: {text}" for text in said]


def test_natively_nothing_is_asked_of_stplan() -> None:
    native = pause.Variant("native", "empty_cache")
    assert pause.wrong(native, result(stplan=None, gone="", taken=0), None) == []


def test_a_row_has_the_time_of_a_gibibyte() -> None:
    found = cells(pause.row("plan", result(), result()))
    assert found == ["plan", "10.00", "40.0", "4.0", "20.0", "2.5", "5.00", "500", "15.00", "75.00 %", "2 of 2"]
    assert len(found) == len(pause.COLUMNS)


STPLAN = """#!{python}
import json, sys
if sys.argv[1] == "record":
    open(sys.argv[3] + "/train.pickle.gz", "w").close()
elif sys.argv[2] == "compile":
    assert sys.argv[3].endswith("/train.pickle.gz") and sys.argv[4] == "-o"
else:
    assert sys.argv[1:3] == ["-q", "run"] and "--loop own --job" in " ".join(sys.argv)
    if "host" in sys.argv:
        sys.exit("no memory")
    print("noise")
    print(json.dumps({result!r}))
"""


def test_every_variant_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stplan, made = tmp_path / "stplan", result()
    stplan.write_text(STPLAN.format(python=sys.executable, result=made))
    stplan.chmod(0o755)
    python = tmp_path / "python"  # in whose place the native loop runs
    python.write_text(f"#!/bin/sh\necho '{json.dumps(made)}'\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    lines, problems = pause.measure(str(stplan), "own", tmp_path)
    names = [cells(line)[0] for line in lines[2:]]
    assert names == ["native", "expandable", "no plan", "plan", "plan, empty_cache"]
    assert problems == ["plan, optimizer on the host: exit code 1: no memory"]
