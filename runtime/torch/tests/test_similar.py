"""Which plan of the cache serves a run that has none of its own."""

from __future__ import annotations

import hashlib
import os
import random
import struct
from pathlib import Path
from typing import List, Optional

import pytest

from conftest import plan_file
from stplan._plankey import PlanKey
from stplan._similar import difference, digests, iterations, nearest

FAMILY = "train-0123456789abcdef-"


def call(*texts: str) -> List[str]:
    return [hashlib.sha256(text.encode()).hexdigest()[:16] for text in texts]


def key(*texts: str) -> PlanKey:
    return PlanKey(FAMILY, FAMILY + "own.bin", call(*texts))


def put(folder: Path, name: str, used: float, *texts: str, family: str = FAMILY) -> str:
    plan = folder / f"{family}{name}.bin"
    plan.write_bytes(b"")
    plan.with_suffix(".call").write_text("stplan-call 1\n" + "".join(f"{digest}\n" for digest in call(*texts)))
    os.utime(plan, (used, used))
    return str(plan)


@pytest.mark.parametrize(
    "mine, other, differs",
    [
        ("a.py 1", "a.py 1", 0),
        ("a.py 1 --lr 3", "a.py 1 --lr 4", 1),
        ("a.py 1 --lr 3", "a.py 1", 2),
        ("a.py 1", "a.py 1 --lr 3", 2),
        ("a.py 1 --lr 3 --seed 4", "a.py 1 --seed 4 --lr 3", 0),
        ("a.py 1 x x y", "a.py 1 x y y", 1),
        ("a.py 1", "a.py 2", 1),  # edited
        ("a.py 1", "b.py 1", 1),  # copied
        ("a.py 1 x", "b.py 2 x", None),  # another script
        ("a.py 1 x y z", "a.py 1 u v w", None),  # too much is different
        ("a.py 1 x y", "a.py 1 u v", 2),
        ("", "a.py 1", None),
        ("a.py 1", "", None),
    ],
)
def test_the_difference_of_two_calls(mine: str, other: str, differs: Optional[int]) -> None:
    assert difference(call(*mine.split()), call(*other.split())) == differs


def test_the_difference_is_the_same_both_ways_and_at_most_the_fewest_edits() -> None:
    random.seed(3)
    for _ in range(2000):
        one, other = (["a.py", random.choice("12"), *random.choices("uvwxyz", k=random.randrange(8))] for _ in range(2))
        found = difference(call(*one), call(*other))
        assert found == difference(call(*other), call(*one))
        if found is not None:
            assert found <= edits(one, other) and (found == 0) == (one[:2] == other[:2] and sorted(one) == sorted(other))
            assert abs(len(one) - len(other)) <= found <= max(len(one), len(other)) // 2


def edits(one: List[str], other: List[str]) -> int:
    """The fewest arguments to change, add or leave out (Levenshtein)."""
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        before, row[0] = row[0], i
        for j, b in enumerate(other, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (a != b))
    return row[-1]


def test_the_plan_of_the_most_similar_run_is_taken_and_the_one_used_last(tmp_path: Path) -> None:
    assert nearest(str(tmp_path), key("a.py", "1", "--bs", "4", "--out", "3")) is None
    put(tmp_path, "0", 50, "a.py", "1", "--bs", "8", "--out", "1")
    old = put(tmp_path, "1", 10, "a.py", "1", "--bs", "4", "--out", "1")
    assert nearest(str(tmp_path), key("a.py", "1", "--bs", "4", "--out", "3")) == old
    new = put(tmp_path, "2", 20, "a.py", "1", "--bs", "4", "--out", "2")
    assert nearest(str(tmp_path), key("a.py", "1", "--bs", "4", "--out", "3")) == new
    assert nearest(str(tmp_path), key("a.py", "1", "4")) == new  # as many as half of the longer one differ
    assert nearest(str(tmp_path), key("a.py", "1")) is None
    assert nearest(str(tmp_path), key("b.py", "2", "--bs", "4", "--out", "3")) is None
    assert nearest(str(tmp_path), PlanKey(FAMILY, FAMILY + "own.bin", [])) is None


def test_plans_of_other_families_and_plans_that_say_nothing_are_left_out(tmp_path: Path) -> None:
    put(tmp_path, "0", 50, "a.py", "1", family="train-0000000000000000-")
    (tmp_path / f"{FAMILY}1.bin").write_bytes(b"")
    assert nearest(str(tmp_path), key("a.py", "1")) is None
    assert nearest(str(tmp_path / "nowhere"), key("a.py", "1")) is None


def test_of_many_plans_those_that_were_used_last_are_looked_at(tmp_path: Path) -> None:
    put(tmp_path, "own", 1, "a.py", "1", "x")
    for n in range(64):
        put(tmp_path, f"{n}", 10 + n, "a.py", "1", "y")
    assert nearest(str(tmp_path), key("a.py", "1", "x")) == str(tmp_path / f"{FAMILY}63.bin")


GOOD = "stplan-call 1\n" + 3 * "0123456789abcdef\n"


@pytest.mark.parametrize(
    "text, found",
    [
        (GOOD, 3),
        (GOOD[:-1], 0),
        (GOOD.replace(" 1", " 2"), 0),
        (GOOD.replace("f", "F"), 0),
        (GOOD + "\n", 0),
        (GOOD + "0", 0),
        ("stplan-call 1\n0123456789abcdef\n", 0),
        ("", 0),
        ("\0", 0),
        ("stplan-call 1\n" + 4000 * "0123456789abcdef\n", 0),  # longer than what is read
    ],
)
def test_a_file_that_is_no_list_of_digests_is_none(tmp_path: Path, text: str, found: int) -> None:
    (tmp_path / "a.call").write_text(text)
    assert len(digests(str(tmp_path / "a.bin"))) == found
    (tmp_path / "b.call").mkdir()
    assert digests(str(tmp_path / "b.bin")) == []


def test_the_iterations_that_a_plan_was_made_of(tmp_path: Path) -> None:
    plan = tmp_path / "a.bin"
    plan.write_bytes(plan_file(7, 9))
    assert iterations(str(plan)) == 9
    assert iterations(str(tmp_path / "none.bin")) == 0


@pytest.mark.parametrize("at, value", [(0, 1), (8, 2), (12, 1 << 31), (12, 0)])
def test_a_file_that_is_no_plan_was_made_of_none(tmp_path: Path, at: int, value: int) -> None:
    data = bytearray(plan_file(7))
    struct.pack_into("<I", data, at, value)
    plan = tmp_path / "a.bin"
    plan.write_bytes(data)
    assert iterations(str(plan)) == 0


def test_a_plan_that_was_cut_or_damaged_is_read_to_its_end(tmp_path: Path) -> None:
    plan = tmp_path / "a.bin"
    whole = plan_file(7)
    for end in range(len(whole)):
        plan.write_bytes(whole[:end])
        assert iterations(str(plan)) in (0, 7)
    elsewhere = bytearray(whole)
    struct.pack_into("<Q", elsewhere, 32 + 32 + 8, (1 << 64) - 1)  # where the device's record is said to be
    plan.write_bytes(elsewhere)
    assert iterations(str(plan)) == 0
