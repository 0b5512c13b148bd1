"""late.py with a fake stplan and fake programs, and the programs themselves on a toy
device whose streams are late."""

from __future__ import annotations

import json
import sys
import weakref
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Dict, Iterator, List, Set, Tuple

import pytest

pytest.importorskip("torch", reason="torch is not installed")

from benches import cells
import torch

import features
import late
import late_programs
from late_programs import CONTROL, PROGRAMS


class Toy:
    """Memory of a device. What is copied late is copied at the next synchronisation. A
    forgiving allocator gives a freed block to another stream only after one."""

    def __init__(self, forgiving: bool) -> None:
        self.forgiving = forgiving
        self.free: List[Tuple[int, torch.Tensor, bool]] = []  # stream, block, whether it is settled
        self.late: List[Tuple[int, Callable[[], object]]] = []  # the stream of each copy
        self.waits: Set[Tuple[int, int]] = set()  # which stream waits for which
        self.stream = 0
        self.streams = 0

    def full(self, shape: Tuple[int], mark: int, **_: Any) -> torch.Tensor:
        block = self.block(shape[0])
        self.copy(lambda stream: (self.stream, stream) in self.waits)
        tensor = block[:]
        tensor.fill_(mark)
        weakref.finalize(tensor, self.free.append, (self.stream, block, False))
        return tensor

    def block(self, words: int) -> torch.Tensor:
        for index, (stream, block, settled) in enumerate(self.free):
            if len(block) == words and (stream == self.stream or settled or not self.forgiving):
                return self.free.pop(index)[1]
        return torch.empty(words, dtype=torch.int64)

    def copy_late(self, into: torch.Tensor, tensor: torch.Tensor, stream: Any) -> None:
        block = tensor._base  # not the tensor itself, which has to die
        self.late.append((stream.number, lambda: into.copy_(block)))

    def copy(self, chosen: Callable[[int], bool]) -> None:
        """What is copied late on the streams that are chosen is copied now."""
        for stream, copy in self.late:
            if chosen(stream):
                copy()
        self.late = [(stream, copy) for stream, copy in self.late if not chosen(stream)]

    def synchronize(self) -> None:
        self.copy(lambda stream: True)
        self.waits.clear()
        self.free = [(stream, block, True) for stream, block, _ in self.free]

    def new_stream(self, handle: int = 0) -> Any:
        self.streams += 1
        return self.named(self.streams)

    def named(self, number: int) -> Any:
        return SimpleNamespace(number=number, wait_stream=lambda other: self.waits.add((number, other.number)))

    @contextmanager
    def on(self, stream: Any) -> Iterator[None]:
        before, self.stream = self.stream, stream.number
        yield
        self.stream = before

    def torch(self) -> Any:
        """What late_programs uses of torch."""
        cuda = SimpleNamespace(
            Stream=self.new_stream,
            ExternalStream=self.new_stream,
            current_stream=lambda: self.named(self.stream),
            stream=self.on,
            synchronize=self.synchronize,
            _sleep=lambda cycles: None,
        )
        return SimpleNamespace(**{**vars(torch), "full": self.full, "cuda": cuda})


def played(monkeypatch: pytest.MonkeyPatch, forgiving: bool, name: str, rounds: int) -> int:
    toy = Toy(forgiving)
    monkeypatch.setattr(late_programs, "torch", toy.torch())
    monkeypatch.setattr(late_programs, "DEVICE", "cpu")
    monkeypatch.setattr(late_programs, "SIZES", (1024, 4096))
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor)
    monkeypatch.setattr(late_programs.Late, "read_late", lambda self, tensor, stream, into: toy.copy_late(into, tensor, stream))
    own = toy.named(-1)
    driver = SimpleNamespace(handle=1, copy_late=lambda into, tensor, after: toy.copy_late(into, tensor, own))
    monkeypatch.setattr(late_programs, "Driver", lambda: driver)
    return late_programs.wrong_rounds(name, rounds)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_is_wrong_only_if_another_stream_gets_its_memory_too_early(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    assert played(monkeypatch, True, name, 8) == (8 if name == CONTROL else 0)
    assert played(monkeypatch, False, name, 8) == 8


PROGRAM = """
import json, os, sys
name = sys.argv[1]
mode = os.environ.get("FAKE", "expandable" if "PYTORCH_CUDA_ALLOC_CONF" in os.environ else "native")
behaviour = json.loads(os.environ["BEHAVIOUR"])
if behaviour.get(name + "/" + mode) == "die":
    sys.exit("out of luck")
wrong = behaviour.get(name + "/" + mode, 20 if name == "same stream" else 0)
print("late " + json.dumps({"wrong": wrong, "rounds": int(sys.argv[3])}))
"""

STPLAN = """#!{python}
import json, os, subprocess, sys
arguments = sys.argv[1:]
verb = arguments[arguments[0] == "-q"]
if verb == "record":
    folder = arguments[arguments.index("-o") + 1]
    os.makedirs(folder)
    open(os.path.join(folder, "a-pid1.pickle.gz"), "w").close()
    sys.exit()
if verb == "compile":
    open(arguments[arguments.index("-o") + 1], "w").close()
    sys.exit()
plan = arguments[arguments.index("--") - 1]
mode = "none" if plan == "--no-plan" else "another" if "another" in plan else "own"
if "plain" in arguments:
    mode += " plain"
counted = {{"allocations": 100, "planned_allocations": 98 if mode == "own" else 0, "refused_frees": 0}}
with open(arguments[arguments.index("--summary") + 1], "w") as out:
    json.dump({{"processes": [{{"backend": "shim", "error": None, "devices": [counted]}}]}}, out)
sys.exit(subprocess.call(arguments[arguments.index("--") + 1:], env={{**os.environ, "FAKE": mode}}))
"""


class World:
    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.monkeypatch = folder, monkeypatch
        self.stplan = folder / "stplan"
        self.stplan.write_text(STPLAN.format(python=sys.executable))
        self.stplan.chmod(0o755)
        (folder / "programs.py").write_text(PROGRAM)
        monkeypatch.setattr(late, "SCRIPT", folder / "programs.py")
        monkeypatch.setattr(features, "about", lambda: "a fake")

    def run(self, *options: str, **behaviour: object) -> Tuple[int, Dict[str, List[str]], List[str]]:
        """Calls late.py. Returns its exit code, the rows by program, and the problems."""
        self.monkeypatch.setenv("BEHAVIOUR", json.dumps({k.replace("_", " "): v for k, v in behaviour.items()}))
        self.monkeypatch.setattr(
            sys, "argv", ["late.py", str(self.stplan), "--out", str(self.folder), "--rounds", "20", *options]
        )
        code = late.main()
        lines = (self.folder / "late.md").read_text().splitlines()
        rows = [cells(row) for row in lines if row.startswith("| ")]
        return code, {row[0]: row[1:] for row in rows[2:]}, lines[[x.startswith("Problems:") for x in lines].index(True) + 1 :]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def test_a_row_for_each_program_and_a_column_for_each_mode(world: World) -> None:
    code, rows, problems = world.run("--programs", "side stream,only copies,same stream")
    assert (code, problems) == (0, [])
    none = "0 of 20"
    assert rows["side stream"] == [none, none, none, none, f"{none} (98 % on plan)", f"{none} (0 % on plan)"]
    assert rows["same stream"][:4] == ["20 of 20"] * 4
    kept = json.loads((world.folder / "late.json").read_text())
    assert list(kept) == ["side stream", "only copies", "same stream"] and kept["only copies"]["no plan"]["rounds"] == 20


def test_wrong_rounds_under_stplan_are_a_problem(world: World) -> None:
    code, rows, problems = world.run("--programs", "side stream", **{"side stream/none plain": 7, "side stream/another": "die"})
    assert code == 1 and rows["side stream"][3:] == ["7 of 20", "0 of 20 (98 % on plan)", "FAILED"]
    assert problems[0] == "- side stream, another's plan: exit code 1"
    assert "      out of luck" in problems and "- side stream, no plan, plain: wrong in 7 of 20 rounds" in problems


def test_a_program_that_is_wrong_natively_shows_nothing(world: World) -> None:
    code, _, problems = world.run("--programs", "side stream", "--modes", "native;no plan", **{"side stream/native": 2, "side stream/none": 9})
    assert (code, problems) == (1, ["- side stream: wrong natively in 2 rounds, so the program shows nothing"])


def test_the_control_has_to_be_wrong(world: World) -> None:
    code, _, problems = world.run("--programs", CONTROL, "--modes", "native", **{"same stream/native": 0})
    assert (code, problems) == (1, ["- same stream: right natively, so this device does not show late reads"])


def test_what_does_not_begin_in_time_is_named(world: World) -> None:
    code, rows, problems = world.run("--programs", "side stream", "--modes", "native;own plan", "--budget", "0")
    assert code == 1 and rows["side stream"] == ["FAILED", "FAILED"]
    assert problems == [f"- side stream, {mode}: not run: the budget is spent" for mode in ("native", "own plan")]


def test_unknown_names(world: World) -> None:
    with pytest.raises(SystemExit, match="late.py: fast: no such program or mode; there are side stream; main waits;"):
        world.run("--programs", "fast")
