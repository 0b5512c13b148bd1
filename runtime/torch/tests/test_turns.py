"""turns.py, with jobs that need no device."""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
from pathlib import Path
from typing import Dict, Iterator, List

import pytest

from benches import BENCH

import turns

# A job that logs when each of its steps begins and ends.
JOB = """
import os, sys, time
sys.path.insert(0, {bench!r})
from turns import Player
player = Player.from_environment(lambda: None)
log = open({log!r}, "a", buffering=1)
def note(what): log.write(f"{{player.name}} {{player.rank}} {{what}}\\n")
note("here")
player.enter()
note("entered")
for step in range(int(sys.argv[1])):
    with player.step():
        note(f"begin {{step}}")
        time.sleep(0.002)
        note(f"end {{step}}")
    if sys.argv[2:] == [str(step)]:
        os._exit(3)
player.leave({{"steps": len(player.seconds), "rank": player.rank}})
note("left")
"""


class Stage:
    """Jobs under a conductor, and the log that they all write."""

    def __init__(self, folder: Path, **ranks: int) -> None:
        self.log = folder / "log"
        self.script = folder / "job.py"
        self.script.write_text(JOB.format(bench=str(BENCH), log=str(self.log)))
        self.conductor = turns.Conductor(str(folder), ranks, time.monotonic() + 30)
        self.processes: Dict[str, List["subprocess.Popen[bytes]"]] = {}

    def start(self, name: str, *arguments: str) -> None:
        self.processes[name] = [
            subprocess.Popen(
                [sys.executable, str(self.script), *arguments],
                env={**self.conductor.environment(name), "RANK": str(rank)},
                stderr=subprocess.DEVNULL,
            )
            for rank in range(self.conductor.ranks[name])
        ]

    def exited(self, name: str) -> None:
        assert [process.wait(10) for process in self.processes[name]] == [0] * len(self.processes[name])

    def lines(self) -> List[str]:
        return self.log.read_text().splitlines()

    def close(self) -> None:
        self.conductor.close()
        for process in itertools.chain(*self.processes.values()):
            process.kill()
            process.wait()


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path, a=1, b=2)
    yield made
    made.close()


def test_steps_in_turns_do_not_overlap(stage: Stage) -> None:
    stage.start("a", "6")
    stage.start("b", "6")
    stage.conductor.enter()
    stage.conductor.together(2)
    before = len(stage.lines())
    seconds = stage.conductor.in_turns(3)
    alone = [line.split()[0] for line in stage.lines()[before:] if "begin" in line]
    # Three rounds in rotating order: a b, b a, a b. Each of b's two ranks begins once in
    # a round.
    assert [name for name, _ in itertools.groupby(alone)] == ["a", "b", "a", "b"]
    assert alone.count("a") == 3 and alone.count("b") == 6
    events = [line.split() for line in stage.lines()[before:]]
    for name in "ab":
        for turn in range(2, 5):
            own = [i for i, e in enumerate(events) if e[0] == name and e[3:] == [str(turn)]]
            assert own == list(range(own[0], own[-1] + 1))
    assert {name: len(times) for name, times in seconds.items()} == {"a": 3, "b": 3}
    assert all(0.002 <= s < 5 for times in seconds.values() for s in times)
    stage.conductor.together()
    stage.conductor.leave(stage.exited)
    assert stage.conductor.reports("b") == [{"steps": 6, "rank": 0}, {"steps": 6, "rank": 1}]


def test_jobs_enter_when_all_have_come_and_leave_one_by_one(stage: Stage) -> None:
    stage.start("a", "1")
    stage.start("b", "2")
    stage.conductor.enter()
    stage.conductor.together(5)
    left: List[List[str]] = []

    def exited(name: str) -> None:
        stage.exited(name)
        left.append([line for line in stage.lines() if line.endswith("left")])

    stage.conductor.leave(exited)
    assert [line.split()[2] for line in stage.lines()[:3]] == ["here"] * 3
    assert left[0] == ["a 0 left"] and sorted(left[1][1:]) == ["b 0 left", "b 1 left"]


def test_a_job_with_fewer_steps_does_not_stop_the_others(stage: Stage) -> None:
    stage.start("a", "2")
    stage.start("b", "5")
    stage.conductor.enter()
    stage.conductor.together(1)
    seconds = stage.conductor.in_turns(4)
    assert {name: len(times) for name, times in seconds.items()} == {"a": 1, "b": 4}
    stage.conductor.leave(stage.exited)


def test_the_others_go_on_if_a_job_dies(stage: Stage) -> None:
    stage.start("a", "9", "3")
    stage.start("b", "9")
    stage.conductor.enter()
    stage.conductor.together(2)
    seconds = stage.conductor.in_turns(4)
    assert stage.conductor.jobs() == ["b"] and len(seconds["b"]) == 4
    stage.conductor.together()
    stage.conductor.leave(stage.exited)


def test_a_job_that_never_connects(stage: Stage) -> None:
    stage.start("b", "1")
    stage.conductor.deadline = time.monotonic() + 1
    with pytest.raises(turns.TurnsError, match="out of time: a: 0 of 1 processes connected; b: "):
        stage.conductor.enter()


def test_all_jobs_lost(stage: Stage) -> None:
    stage.conductor.lose("a")
    stage.conductor.lose("b")
    with pytest.raises(turns.TurnsError, match="no job is left"):
        stage.conductor.enter()


def test_without_a_conductor_nothing_waits() -> None:
    synchronised = []
    player = turns.Player.from_environment(lambda: synchronised.append(1), {})
    player.enter()
    with player.step():
        pass
    player.leave({})
    assert len(player.seconds) == 1 and len(synchronised) == 2
