"""largest.py: the search, and the whole with a fake stplan, a fake job and a fake ballast."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Dict, List, Tuple

import pytest

import benches
from benches import GIB, cells

import largest


@pytest.mark.parametrize("grain", [1, 2, 4])
@pytest.mark.parametrize("limit", [0, 3, 4, 5, 8, 11, 12, 17, 40, 41])
@pytest.mark.parametrize("start", [4, 8, 16])
def test_the_search_ends_at_neighbours(start: int, limit: int, grain: int) -> None:
    tried: List[int] = []

    def trains(batch: int) -> bool:
        assert batch > 0 and batch % grain == 0 and batch not in tried
        tried.append(batch)
        return batch <= limit

    assert largest.largest(trains, start, grain) == (limit // grain * grain, limit // grain * grain + grain)


def test_a_search_from_just_below_takes_two_trials() -> None:
    tried: List[int] = []
    largest.largest(lambda batch: tried.append(batch) or batch <= 8, 8, 4)  # type: ignore[func-returns-value]
    assert tried == [8, 12]


# Trains if the batch is at most what LIMITS says of the mode.
JOB = """
import json, os, sys
limits = json.loads(os.environ["LIMITS"])
if os.path.exists(os.environ.get("ENDED", "")): limits[""] = 40 # the ballast has ended
settings = os.environ["PYTORCH_CUDA_ALLOC_CONF"]
assert "{" not in settings
mode = os.environ.get("FAKE", settings)
print("noise\\nready", flush=True)
words = sys.stdin.readline().split()
assert words[0] == "--batch" and len(words) == 2
batch = int(words[1])
if mode == "learn":
    # It finds a plan if one was learned with this batch.
    plan = os.path.join(os.environ["CACHE"], words[1])
    mode = "second" if os.path.exists(plan) else "first"
    os.makedirs(os.environ["CACHE"], exist_ok=True)
    open(plan, "w").close()
name = next((name for name in limits if mode.startswith(name)), "")
if limits[name] == "broken": sys.exit("ValueError: out of luck")
if batch > limits[name]: sys.exit("torch.OutOfMemoryError: CUDA out of memory")
served = dict(moved_bytes=3 << 30, allocations=4, planned_allocations=3, state="body") if "FAKE" in os.environ else None
print("figures " + json.dumps(dict(
    seconds=[9, 2, 2], peak_allocated_bytes=4 << 30, peak_reserved_bytes=5 << 30, alloc_retries=1, free_bytes=60 << 30,
    losses=[], stplan=served, stplan_steps=[])))
"""

STPLAN = """#!{python}
import os, subprocess, sys
own, job = sys.argv[1 : sys.argv.index("--")], sys.argv[sys.argv.index("--") + 1 :]
assert own[:2] == ["-q", "run"]
environment = {{"FAKE": "pool"}} if own[2] == "--no-plan" else {{"FAKE": "learn", "CACHE": own[own.index("--cache") + 1]}}
sys.exit(subprocess.call(job, env={{**os.environ, **environment}}))
"""

# An empty name is native's.
LIMITS: Dict[str, object] = {
    "max_split": 12, "roundup": 8, "garbage": 8, "expandable_segments:True,": 12, "expandable_segments:True": 12,
    "pool": 16, "first": 16, "second": 20, "": 8,
}


class Ballast:
    total, free = 80 * GIB, 79 * GIB
    left: List[int] = []

    def ask(self, size: int) -> int:
        self.left.append(self.free - size)
        return self.free - size

    def end(self) -> None:
        if "ENDED" in os.environ:
            Path(os.environ["ENDED"]).touch()


def run(folder: Path, monkeypatch: pytest.MonkeyPatch, *options: str, **limits: object) -> Tuple[int, List[str]]:
    monkeypatch.setenv("LIMITS", json.dumps({**LIMITS, **limits}))
    monkeypatch.setattr(largest, "HERE", folder)
    monkeypatch.setattr(largest, "Ballast", Ballast)
    folder.mkdir(exist_ok=True)
    world = benches.World(folder, monkeypatch, STPLAN.format(python=sys.executable), JOB)
    (folder / "job.py").rename(folder / "trainers.py")
    monkeypatch.setattr(sys, "argv", ["largest.py", str(world.stplan), "--out", str(folder / "out"), *options])
    code = largest.main()
    return code, (folder / "out" / "largest-grpo.md").read_text().splitlines()


def test_the_largest_batch_of_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, lines = run(tmp_path, monkeypatch)
    rows = {cells(text)[0]: cells(text)[1:] for text in lines if text.startswith("| ")}
    assert code == 0 and lines[-1] == "Problems: none."
    # What native used, 19 of 79 GiB, and the slack.
    assert Ballast.left[-1] == 19 * GIB + largest.SLACK
    assert rows["native"] == ["8", "12", "4.0", "66.7 %", "4.000", "5.000", "1", "", ""]
    assert rows["native, max_split_size_mb:128"] == ["12", "16", "6.0", "100.0 %", "4.000", "5.000", "1", "", ""]
    assert rows["native, roundup_power2_divisions:8"][0] == "not above 8"
    assert rows["expandable, large_segment_size_mb:12"][0] == "not above 12"
    assert rows["stplan, no plan"] == ["16", "20", "8.0", "133.3 %", "4.000", "5.000", "1", "3.00", ""]
    assert rows["stplan, first run"] == ["16", "20", "8.0", "133.3 %", "4.000", "5.000", "1", "3.00", "75.00 %"]
    # The first run with 20 ran out of memory and left a plan, with which 20 trains.
    assert rows["stplan, second run"][:4] == ["20", "24", "10.0", "166.7 %"]
    assert "Largest batch under stplan against the best of the others: +66.7 %." in lines
    assert "Throughput under stplan against the best of the others: +66.7 %." in lines


def test_a_card_that_expandable_segments_fill_timed_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # With expandable segments the fake job trains with 12; natively it does not.
    code, lines = run(tmp_path, monkeypatch, "--reference", "12", "--filled-by", "expandable", "--rounds", "2")
    rows = {cells(text)[0]: cells(text)[1:] for text in lines if text.startswith("| ")}
    assert code == 0 and any("what the expandable allocator used alone with batch 12" in text for text in lines)
    assert rows["native"][:2] == ["8", "12"] and rows["expandable"][:4] == ["12", "16", "6.0", "100.0 %"]
    trials = json.loads((tmp_path / "out" / "largest-grpo.json").read_text())["trials"]
    assert [t["variant"] for t in trials if t["phase"] == largest.ALONE] == ["expandable"]
    runs = [(t["variant"], t["batch"]) for t in trials if t["phase"] == largest.TIMED]
    # Each round has what leaves the second run's plan, before it.
    assert runs == 2 * runs[: len(runs) // 2] and runs.count((largest.FIRST, 20)) == runs.count((largest.SECOND, 20)) == 2


def test_a_search_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut off, then with --earlier: the same table as in one call, and nothing is tried twice."""
    whole, wanted = run(tmp_path / "whole", monkeypatch)
    assert whole == 0
    monkeypatch.setattr(largest, "FOR_TIMING", 60)
    clock = iter(range(0, 10_000, 10))
    with monkeypatch.context() as slow:
        slow.setattr(largest, "monotonic", lambda: float(next(clock)))
        assert run(tmp_path / "first", monkeypatch, "--time-limit", "240")[0] == 1
    cut = tmp_path / "first" / "out" / "largest-grpo.json"
    Ballast.left.clear()
    code, lines = run(tmp_path / "second", monkeypatch, "--earlier", str(cut))
    assert code == 0 and Ballast.left == [19 * GIB + largest.SLACK]
    assert [text for text in lines if text.startswith("| ")] == [text for text in wanted if text.startswith("| ")]
    searched = [(t["variant"], t["batch"]) for t in json.loads((tmp_path / "second" / "out" / "largest-grpo.json").read_text())["trials"] if t["phase"] == largest.SEARCH]
    before = [t for t in json.loads(cut.read_text())["trials"] if t["phase"] == largest.SEARCH]
    assert 3 < len(before) < len(searched) == len(set(searched))


def test_only_second_runs_train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A first run leaves the plan with which the second trains, even if it never trains itself."""
    code, lines = run(tmp_path, monkeypatch, first=0, second=20)
    rows = {cells(text)[0]: cells(text)[1:] for text in lines if text.startswith("| ")}
    assert code == 0 and rows["stplan, second run"][:4] == ["20", "24", "10.0", "166.7 %"]


def test_earlier_trials_are_of_the_same_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path / "first", monkeypatch)
    with pytest.raises(SystemExit, match="another job"):
        run(tmp_path / "second", monkeypatch, "--steps", "7", "--earlier", str(tmp_path / "first" / "out" / "largest-grpo.json"))


def test_what_the_next_batch_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next batch trains natively without the ballast, or not even then."""
    _, lines = run(tmp_path / "small", monkeypatch)
    assert not any(text.startswith("Batch ") for text in lines)
    # The fake job allocates 4 GiB and reserves 5. The ballast leaves 19, with 14 for a context.
    monkeypatch.setenv("ENDED", str(tmp_path / "ended"))
    _, lines = run(tmp_path / "large", monkeypatch)
    assert "Batch 24 allocates 4.000 GiB at its peak, of 5.047 GiB that are left for tensors: 1.047 GiB would have been left." in lines


def test_a_run_that_fails_otherwise_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, lines = run(tmp_path, monkeypatch, pool="broken")
    rows = {cells(text)[0]: cells(text)[1:] for text in lines if text.startswith("| ")}
    assert code == 1 and rows["stplan, no plan"][:2] == ["0", "4"]
    assert "- stplan, no plan, --batch 4: exit code 1" in lines and "ValueError: out of luck" in lines


def test_what_was_found_is_kept_if_time_is_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Of the search only the first trial begins, since a trial takes as long as all are given.
    monkeypatch.setattr(largest, "FOR_TIMING", 60)
    clock = iter(range(0, 10_000, 10))
    monkeypatch.setattr(largest, "monotonic", lambda: float(next(clock)))
    code, lines = run(tmp_path, monkeypatch, "--time-limit", "100")
    rows = {cells(text)[0]: cells(text)[1:] for text in lines if text.startswith("| ")}
    assert code == 1 and list(rows)[2:] == ["native"] and rows["native"][:2] == ["8", ""]
    assert any(text.startswith("- time was short: not searched to the end: native, expandable") for text in lines)
