"""The logic of features.py and ballast.py: which results count as passed, and the search
for the fewest recomputed layers."""

import sys
import threading
import time
from pathlib import Path
from typing import Any, Dict, Optional, Set

import pytest

from benches import BENCH

import ballast
import features


def test_every_script_is_run_and_none_uses_stplan() -> None:
    scripts = {path.name: path.read_text() for path in (BENCH / "features").glob("*.py")}
    assert {f.script for f in features.FEATURES} == scripts.keys() - {"job.py"}
    assert [name for name, text in scripts.items() if "stplan" in text] == []


def summary(**changes: Any) -> Dict[str, Any]:
    device = {"allocations": 200, "planned_allocations": 150, "refused_frees": 0}
    process = {"backend": "shim", "error": None, "devices": [{**device, **changes}]}
    return {"processes": [process]}


@pytest.mark.parametrize(
    "found, planned, problem",
    [
        (summary(), True, ""),
        (summary(planned_allocations=0), False, ""),
        (summary(planned_allocations=0), True, "nothing was served from the script's own plan"),
        (summary(refused_frees=3), True, "3 frees were refused"),
        (summary(allocations=0), False, "not served: no allocation was counted"),
        ({"processes": []}, False, "not served: no allocation was counted"),
        ({"processes": [{"backend": None, "error": "no compiler", "devices": []}]}, False, "not served: no compiler"),
    ],
)
def test_a_script_passes_only_if_it_was_served(found: Dict[str, Any], planned: bool, problem: str) -> None:
    result = features.judged(1.0, found, "its last lines", planned)
    assert result.problem.split("\n")[0] == problem
    assert result.note == ("" if problem else f"{100 * found['processes'][0]['devices'][0]['planned_allocations'] // 200} % of 200")


@pytest.mark.parametrize("visible, devices, expected", [(None, 2, {"0", "1"}), ("4,7,9", 2, {"4", "7"}), ("3", 1, {"3"})])
def test_processes_are_spread_over_devices(
    monkeypatch: pytest.MonkeyPatch, visible: Optional[str], devices: int, expected: Set[str]
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    together = threading.Barrier(2 * devices)
    asked = [sys.executable, "-c", "import os; print(os.environ['CUDA_VISIBLE_DEVICES'])"]

    def one() -> str:
        together.wait(60)  # so that every thread of the pool takes one task
        return str(features.run(asked).stdout.strip())

    with features.workers(2, devices) as pool:
        found = [future.result() for future in [pool.submit(one) for _ in range(2 * devices)]]
    assert sorted(found) == sorted([*expected] * 2)


JOB = """
import json, sys
print("ready", flush=True)
choice = sys.stdin.readline().split()
micro, recomputed = int(choice[1]), int(choice[3])
if recomputed < 31:
    sys.exit("torch.OutOfMemoryError: CUDA out of memory.")
if micro > 2:
    sys.exit("TypeError: a mistake")
print(json.dumps({"step_s": 0.5, "retries": 0, "peak_allocated_bytes": 1 << 30, "peak_reserved_bytes": 1 << 31}))
"""


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    (tmp_path / "finetune.py").write_text(JOB)
    monkeypatch.setattr(ballast, "HERE", tmp_path)
    made = ballast.Bench("stplan", [], 10, tmp_path)
    yield made
    made.close()


def test_the_least_recomputation_that_trains_is_found(bench: Any) -> None:
    bench.prepare("native")
    bench.settle()
    assert bench.least_recomputed("native", 1, 48, 3, -1) == 30
    tried = {run.choice.recomputed: run.figures is not None for run in bench.runs}
    assert tried[33] and not tried[30] and tried[36]
    assert len(bench.runs) <= 7, "each number is tried once, and only a few are tried"
    bench.runs.clear()
    assert bench.least_recomputed("native", 1, 48, 3, 24) == 30
    assert min(run.choice.recomputed for run in bench.runs) > 24, "a number that is known to fail was tried"


def test_rows_of_runs(bench: Any) -> None:
    bench.prepare("expandable")
    assert bench.go("expandable", ballast.Choice(2, 48)).row() == "| expandable | 2 | 48 | 500.0 | 1.000 | 2.000 | 0 |"
    short = bench.go("expandable", ballast.Choice(2, 0, release=True))
    assert short.row() == "| expandable, cache emptied each step | 2 | 0 | out of memory |  |  |  |"
    assert (short.speed(), bench.runs[0].speed()) == (0, 2)


def test_other_errors_do_not_count_as_out_of_memory(bench: Any) -> None:
    bench.prepare("native")
    with pytest.raises(RuntimeError, match="native, .*exit code 1\n.*a mistake"):
        bench.go("native", ballast.Choice(4, 48))


def runs(pid: str) -> bool:
    """Whether a process still runs a while after it was killed."""
    for _ in range(100):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().split()[2]
        except (FileNotFoundError, ProcessLookupError):
            return False
        if state in "ZX":
            return False
        time.sleep(0.1)
    return True


def test_a_script_that_hangs_is_killed_with_its_children(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    script = f"import subprocess, sys; p = subprocess.Popen(['sleep', '600']); open({str(pid)!r}, 'w').write(str(p.pid)); p.wait()"
    for seconds in (1, 4, 16, 64):  # a machine under load may need more than one to start the child
        monkeypatch.setattr(features, "TIMEOUT", seconds)
        done = features.run([sys.executable, "-c", script])
        assert (done.returncode, done.stderr.strip()) == (124, f"still running after {seconds} s")
        if pid.exists() and pid.read_text():
            break
    assert not runs(pid.read_text()), "the child still runs"
