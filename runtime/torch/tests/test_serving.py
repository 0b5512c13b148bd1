"""The choice between the shim and the pluggable allocator, and the public functions."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, List, Tuple

import pytest

import stplan
from stplan import _build, _exchanges, _pluggable, _public, _serving, _shim
from stplan._runtime import Counters, RuntimeFailure
from stplan._settings import RUN_ENVIRONMENT

Call = Tuple[Any, ...]


class Ways:
    """Replaces both ways of serving: notes their calls, and raises if told to."""

    def __init__(self) -> None:
        self.asked: List[Tuple[str, Call]] = []
        self.shim_fails: Exception | None = None
        self.pluggable_fails: Exception | None = None

    def shim(self, torch: Any, *rest: Any) -> None:
        self.asked.append(("shim", rest))
        if self.shim_fails is not None:
            raise self.shim_fails

    def pluggable(self, torch: Any, *rest: Any) -> None:
        self.asked.append(("pluggable", rest))
        if self.pluggable_fails is not None:
            raise self.pluggable_fails


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> Ways:
    made = Ways()
    monkeypatch.setattr(_shim, "install", made.shim)
    monkeypatch.setattr(_pluggable, "install", made.pluggable)
    monkeypatch.setattr(_serving, "_backend", None)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(version=SimpleNamespace(cuda="13.0")))
    monkeypatch.delenv(RUN_ENVIRONMENT, raising=False)
    return made


def test_the_shim_comes_first(ways: Ways) -> None:
    assert _serving.install("/a/plan.bin", "plain", "/c/counters") == "shim"
    assert ways.asked == [("shim", ("/a/plan.bin", "plain", "/c/counters", "auto", 0))]
    with pytest.raises(stplan.ServingError, match="serves this process already"):
        _serving.install(None)


@pytest.mark.parametrize("error", [_build.BuildError("cannot build the shim: no C++ compiler"), OSError("it does not load")])
def test_if_the_shim_fails_the_pluggable_allocator_serves(
    ways: Ways, capfd: pytest.CaptureFixture[str], error: Exception
) -> None:
    ways.shim_fails = error
    assert _serving.install(None) == "pluggable"
    assert [way for way, _ in ways.asked] == ["shim", "pluggable"]
    assert capfd.readouterr().err == (
        f"stplan: {error}; torch is served through its C interface, which lacks some functions (docs/runtime.md)\n"
    )


def test_exchanges_are_watched_in_a_served_process(ways: Ways, monkeypatch: pytest.MonkeyPatch) -> None:
    served, watched = Served(), []
    monkeypatch.setattr(_exchanges, "watch", lambda *arguments: watched.append(arguments))
    monkeypatch.setattr(_shim, "installed", lambda: served if ways.asked else None)
    sys.modules["torch"]._C = SimpleNamespace(_cuda_getCurrentRawStream=lambda device: 100 + device)
    _serving.install(None)
    ((told, current_stream),) = watched
    assert (told, current_stream(3)) == (served, 103)


def test_a_plan_that_cannot_be_read_is_not_tried_twice(ways: Ways) -> None:
    ways.shim_fails = RuntimeFailure("plan.bin: cannot read")
    with pytest.raises(stplan.ServingError, match="^plan.bin: cannot read$"):
        _serving.install("plan.bin")
    assert [way for way, _ in ways.asked] == ["shim"]
    assert _serving.backend() is None


def test_if_both_ways_fail_torch_is_unchanged(ways: Ways) -> None:
    ways.shim_fails = _build.BuildError("cannot build the shim: no C++ compiler")
    ways.pluggable_fails = _build.BuildError("cannot build the C runtime: no C compiler")
    with pytest.raises(stplan.ServingError, match="^cannot build the C runtime: no C compiler$"):
        _serving.install(None)


@pytest.mark.parametrize(
    "error, said",
    [
        (OSError("libstplan.so: failed to map segment"), "OSError: libstplan.so: failed to map segment"),
        (AttributeError("no such allocator"), "AttributeError: no such allocator"),
        (RuntimeError("Can't swap an already initialized allocator"), "RuntimeError: Can't swap an already initialized"),
    ],
)
def test_any_error_of_the_pluggable_allocator_becomes_a_serving_error(ways: Ways, error: Exception, said: str) -> None:
    ways.shim_fails = _build.BuildError("cannot build the shim: no C++ compiler")
    ways.pluggable_fails = error
    with pytest.raises(stplan.ServingError, match=f"^{said}"):
        _serving.install(None)
    assert _serving.backend() is None


def test_a_torch_without_cuda_is_refused(ways: Ways) -> None:
    sys.modules["torch"].version.cuda = None
    with pytest.raises(stplan.ServingError, match="^this torch was built without CUDA$"):
        _serving.install(None)
    assert ways.asked == []


def test_arguments_are_checked(ways: Ways, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(stplan.ServingError, match="memory: expected one of auto, plain, virtual, found 'paged'"):
        _serving.install(None, "paged")
    with pytest.raises(stplan.ServingError, match="move: expected one of auto, off, found 'on'"):
        stplan.enable(move="on")
    monkeypatch.delitem(sys.modules, "torch")
    with pytest.raises(stplan.ServingError, match="torch is not imported"):
        _serving.install(None)
    assert ways.asked == []


def test_enable_makes_a_relative_path_absolute(ways: Ways, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    stplan.enable("plan.bin", memory="virtual", move="off")
    with pytest.raises(stplan.ServingError, match="serves this process already"):
        stplan.enable(tmp_path / "plan.bin")
    assert ways.asked == [("shim", (str(tmp_path / "plan.bin"), "virtual", None, "off", 0))]


def test_enable_has_no_effect_under_a_launcher(ways: Ways, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(RUN_ENVIRONMENT, "{}")
    stplan.enable("plan.bin")
    assert ways.asked == []


class Served:
    """Stands for an installed shim or runtime."""

    def __init__(self) -> None:
        self.marks = 0
        self.exchanges: List[Tuple[str, int, int]] = []
        self.pinned: List[Tuple[int, int]] = []

    def pin(self, address: int, size: int, pinned: bool) -> bool:
        if address >= 1 << 40 or not (pinned or (address, size) in self.pinned):
            return False
        (self.pinned.append if pinned else self.pinned.remove)((address, size))
        return True

    def counters(self, device: int) -> Counters:
        return Counters(state=2, allocations=100 + device)

    def mark(self) -> None:
        self.marks += 1

    def exchange_begins(self, device: int) -> int:
        self.exchanges.append(("begins", device, 7))
        return 7

    def exchange_enqueued(self, device: int, exchange: int) -> None:
        self.exchanges.append(("enqueued", device, exchange))

    def exchange_awaited(self, device: int, exchange: int, stream: int) -> None:
        raise AssertionError("nobody has waited")


@pytest.mark.parametrize("way", [_shim, _pluggable])
def test_stats_and_mark_in_a_served_process(monkeypatch: pytest.MonkeyPatch, way: ModuleType) -> None:
    served = Served()
    monkeypatch.setattr(way, "_installed", served)
    monkeypatch.setattr(_serving, "_backend", "shim")
    read = stplan.stats(3)
    assert (read["backend"], read["state"], read["allocations"]) == ("shim", "body", 103)
    stplan.mark()
    assert served.marks == 1


@pytest.mark.parametrize("way", [_shim, _pluggable])
def test_an_exchange_is_told_before_and_after_it(monkeypatch: pytest.MonkeyPatch, way: ModuleType) -> None:
    served = Served()
    monkeypatch.setattr(way, "_installed", served)
    begins, enqueued = ("begins", 3, 7), ("enqueued", 3, 7)
    with stplan.exchanging(3):
        assert served.exchanges == [begins]
    assert served.exchanges == [begins, enqueued]
    with pytest.raises(ZeroDivisionError), stplan.exchanging(3):
        1 // 0
    assert served.exchanges == [begins, enqueued] * 2


def tensor_at(address: int, size: int) -> Any:
    storage = SimpleNamespace(data_ptr=lambda: address, nbytes=lambda: size)
    return SimpleNamespace(untyped_storage=lambda: storage)


@pytest.mark.parametrize("way", [_shim, _pluggable])
def test_storages_are_pinned(monkeypatch: pytest.MonkeyPatch, way: ModuleType) -> None:
    served = Served()
    monkeypatch.setattr(way, "_installed", served)
    tensor = tensor_at(4096, 1000)
    kept = stplan.pin(tensor)
    assert stplan.pin(tensor) == kept and served.pinned == [(4096, 1000)] * 2
    stplan.unpin(kept)  # the tensor may be gone
    stplan.unpin(tensor)
    with pytest.raises(ValueError, match="^pinned: expected what is pinned, found 1000 bytes at 0x1000$"):
        stplan.unpin(tensor)
    with pytest.raises(ValueError, match="^tensor: expected one that stplan serves, found one at 0x20000000000$"):
        stplan.pin(tensor_at(1 << 41, 512))
    assert served.pinned == []


def test_pinning_has_no_effect_in_a_process_that_is_not_served() -> None:
    stplan.unpin(stplan.pin(tensor_at(4096, 1000)))


def test_stats_and_mark_in_a_process_that_is_not_served() -> None:
    read = stplan.stats(0)
    assert read.pop("backend") is None and read.pop("state") == "no plan"
    assert set(read.values()) == {0}
    assert set(read) == {name for name, _ in Counters._fields_} - {"fields", "state"}
    stplan.mark()
    with stplan.exchanging(0):
        pass


def test_devices_are_named_as_torch_names_them(monkeypatch: pytest.MonkeyPatch) -> None:
    class Device:
        def __init__(self, name: str) -> None:
            self.type, _, index = name.partition(":")
            self.index = int(index) if index else None

    torch: Any = ModuleType("torch")
    torch.device = Device
    torch.cuda = ModuleType("torch.cuda")
    torch.cuda.is_initialized = lambda: True
    torch.cuda.current_device = lambda: 2
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert [_public._ordinal(d) for d in (5, "cuda:3", "cuda", None)] == [5, 3, 2, 2]
    torch.cuda.is_initialized = lambda: False
    assert _public._ordinal(None) == 0
    with pytest.raises(ValueError, match="^device: expected a CUDA device, found 'cpu'$"):
        _public._ordinal("cpu")
    with pytest.raises(ValueError, match="^device: expected an ordinal of at least 0, found -1$"):
        _public._ordinal(-1)


def test_importing_stplan_does_not_import_the_modules_that_serve() -> None:
    heavy = ("ctypes", "subprocess", "stplan._serving", "stplan._shim", "stplan._pluggable")
    source = f"import sys, stplan; print(*(name for name in {heavy} if name in sys.modules))"
    environment = {"PYTHONPATH": str(Path(stplan.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-S", "-c", source], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "\n", "")
