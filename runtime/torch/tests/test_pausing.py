"""pause, resume, paused and memory: their arguments and errors; and, if torch is installed,
what a second process finds of the memory that a first one gives."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, List, Optional, Tuple

import pytest

import stplan
from conftest import needs_torch
from stplan import _lending, _shim
from test_shim import job

MIB = 1 << 20


class Lending:
    """Stands for the functions of the C runtime."""

    def __init__(self) -> None:
        self.calls: List[Tuple[Any, ...]] = []
        self.enough = True

    def pause(self, device: int) -> int:
        self.calls.append(("pause", device))
        return 100

    def resume(self, device: int, most: Optional[int]) -> Tuple[int, bool]:
        self.calls.append(("resume", device, most))
        return 60, self.enough

    def survey(self, device: int) -> Dict[str, int]:
        self.calls.append(("survey", device))
        return {"given": 100}


@pytest.fixture
def lending(monkeypatch: pytest.MonkeyPatch) -> Lending:
    made = Lending()
    monkeypatch.setattr(_shim, "_installed", SimpleNamespace(lending=made))
    return made


def test_devices_and_bytes_are_passed_on(lending: Lending) -> None:
    assert (stplan.pause(), stplan.pause(3)) == (100, 100)
    assert (stplan.resume(), stplan.resume(2, bytes=7)) == (60, 60)
    assert stplan.memory(1) == {"given": 100}
    assert lending.calls == [("pause", -1), ("pause", 3), ("resume", -1, None), ("resume", 2, 7), ("survey", 1)]
    with pytest.raises(ValueError, match="^bytes: expected at least 0, found -1$"):
        stplan.resume(bytes=-1)
    with pytest.raises(ValueError, match="^device: expected an ordinal of at least 0, found -1$"):
        stplan.pause(-1)


def test_memory_that_is_gone_is_an_error_of_resume_alone(lending: Lending) -> None:
    lending.enough = False
    with pytest.raises(stplan.PauseError, match="^the device has not enough memory left: 60 bytes were taken back; the rest"):
        stplan.resume()
    with stplan.paused() as given:
        lending.calls.clear()
    assert given == 100 and lending.calls == [("resume", -1, None)]
    with pytest.raises(ZeroDivisionError), stplan.paused(0):
        raise ZeroDivisionError
    assert lending.calls[-1] == ("resume", 0, None)


class Library:
    """Stands for a loaded library whose calls fail."""

    def __init__(self, status: int) -> None:
        for name in ("pause", "resume", "survey"):
            setattr(self, f"any_{name}", Function(status))


class Function:
    def __init__(self, status: int) -> None:
        self.status, self.argtypes = status, []

    def __call__(self, *ignored: Any) -> int:
        return self.status


@pytest.mark.parametrize(
    "status, paused, resumed",
    [
        (7, "^a graph is being captured, or a MemPool is in use", "^the device does not answer$"),
        (6, "^the device does not answer, or does not take all idle memory back; it has taken 0 bytes$", "^the device does not answer$"),
    ],
)
def test_what_fails_is_named(status: int, paused: str, resumed: str) -> None:
    failing = _lending.Lending(Library(status), "any")  # type: ignore[arg-type]
    with pytest.raises(stplan.PauseError, match=paused):
        failing.pause(0)
    with pytest.raises(stplan.PauseError, match=resumed):
        failing.resume(0, None)


def test_a_process_that_is_not_served_empties_torchs_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    reserved = {0: 50, 1: 70}
    cuda = SimpleNamespace(
        is_initialized=lambda: True,
        device_count=lambda: 2,
        memory_reserved=reserved.__getitem__,
        empty_cache=lambda: reserved.update({0: 20, 1: 60}),
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    assert (stplan.pause(), stplan.resume(), set(stplan.memory(0).values())) == (40, 0, {0})
    cuda.is_initialized = lambda: False
    assert stplan.pause() == 0


OTHER = """
    import ctypes, sys
    driver, handle = ctypes.CDLL("libcuda.so.1"), ctypes.c_uint64()
    for line in sys.stdin:  # bytes to take, or, if negative, to give back
        size = int(line)
        if size > 0:
            print(driver.cuMemCreate(ctypes.byref(handle), ctypes.c_size_t(size), None, 0), flush=True)
        else:
            print(driver.cuMemUnmap(0, ctypes.c_size_t(-size)), flush=True)
    """

GIVEN_TO_ANOTHER = """
    import os, subprocess, sys, torch, stplan
    MIB = 1 << 20
    other = subprocess.Popen([sys.executable, os.environ["OTHER"]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    def asks(mib):
        other.stdin.write(f"{mib * MIB}\\n")
        other.stdin.flush()
        return int(other.stdout.readline())
    def tensor(mib):
        return torch.empty(mib * MIB, dtype=torch.uint8, device="cuda")
    stplan.enable()
    weights, large = tensor(31), tensor(180)
    del large
    print("while it is ours:", asks(100))
    given = stplan.pause()
    where = stplan.memory()
    print(given // MIB, where["given"] == given, where["idle"], where["live"] // MIB, stplan.stats()["reserved_bytes"] // MIB)
    print("afterwards:", asks(100))
    try:
        stplan.resume()
    except stplan.PauseError as error:
        print(error)
    for wanted in (180, 90):
        try:
            print(tensor(wanted).numel() // MIB)
        except torch.cuda.OutOfMemoryError as error:
            print(str(error)[:24])
    print("back:", asks(-100), stplan.resume() >= 0, tensor(180).numel() // MIB, weights.numel() // MIB)
    pool = torch.cuda.graph_pool_handle()
    torch._C._cuda_beginAllocateCurrentThreadToPool(0, pool)
    try:
        stplan.pause()
    except stplan.PauseError as error:
        print(str(error)[:28], stplan.memory()["idle"] // MIB)
    torch._C._cuda_endAllocateToPool(0, pool)
    torch.cuda.empty_cache()
    print(stplan.stats()["reserved_bytes"] // MIB, asks(200), flush=True)
    os._exit(0)
    """


@needs_torch
@pytest.mark.parametrize("compiler", ["", "none"])
def test_another_process_gets_the_memory(cache: Path, device: Dict[str, str], tmp_path: Path, compiler: str) -> None:
    """The device has 256 MiB. Beside 31 of weights, 180 are idle: another process cannot have
    100 MiB before the pause, and can after it."""
    (tmp_path / "other.py").write_text(textwrap.dedent(OTHER))
    (tmp_path / "device").write_bytes(bytes(8))
    done = job(
        GIVEN_TO_ANOTHER,
        XDG_CACHE_HOME=str(cache),
        FAKE_DEVICE=str(tmp_path / "device"),
        OTHER=str(tmp_path / "other.py"),
        **({"CXX": compiler} if compiler else {}),
        **device,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "while it is ours: 2",
        "180 True 0 31 32",
        "afterwards: 0",
        "the device has not enough memory left: 67,108,864 bytes were taken back; the rest is taken as it is needed."
        " Another allocator or process has it, or set_per_process_memory_fraction limits this one",
        "CUDA out of memory. Trie",
        "90",
        "back: 0 True 180 31",
        "a graph is being captured, o 180",
        "32 0",
    ]
