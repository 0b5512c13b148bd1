"""Serving without the shim: the functions of torch._C that are replaced, and what a real
torch does with them without a GPU."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, List

import pytest

from stplan import _build, _library, _pluggable
from stplan._runtime import Range, Runtime, RuntimeFailure
from stplan._torchstats import segments

pytestmark = pytest.mark.skipif(_build.compiler("c") is None, reason="no C compiler")

PACKAGES = Path(_library.__file__).resolve().parents[1]
MIB = 1 << 20


@pytest.fixture
def library(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> str:
    # One cache for all tests of a session.
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp()))
    return _library.find()


class FakeRuntime(Runtime):
    """The real runtime, but limit needs no driver."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.limits: Dict[int, int] = {}

    def limit(self, device: int, limit: int) -> None:
        self.limits[device] = limit


class Switch:
    def __init__(self) -> None:
        self.setter: Any = None


class Cudnn:
    benchmark = Switch()


def fake_torch() -> Any:
    state = {"benchmark": True}
    return SimpleNamespace(
        _C=SimpleNamespace(
            _cuda_memoryStats=None,
            _cuda_resetPeakMemoryStats=None,
            _cuda_resetAccumulatedMemoryStats=None,
            _cuda_setMemoryFraction=None,
            _cuda_getMemoryFraction=None,
            _cuda_memorySnapshot=None,
            _cuda_record_memory_history=None,
            _cuda_emptyCache=lambda: None,
            _get_cudnn_benchmark=lambda: state["benchmark"],
            _set_cudnn_benchmark=lambda on: state.update(benchmark=on),
        ),
        backends=SimpleNamespace(cudnn=Cudnn()),
        cuda=SimpleNamespace(
            is_initialized=lambda: True,
            device_count=lambda: 1,
            get_device_properties=lambda device: SimpleNamespace(total_memory=1000 * MIB),
        ),
    )


def test_functions_that_would_raise_are_answered(library: str, capfd: pytest.CaptureFixture[str]) -> None:
    torch, runtime = fake_torch(), FakeRuntime(library)
    _pluggable._Patches(torch, runtime).apply()
    stats = torch._C._cuda_memoryStats(0)
    assert stats["allocated_bytes"]["all"] == {"current": 0, "peak": 0, "allocated": 0, "freed": 0}
    torch._C._cuda_resetPeakMemoryStats(0)
    torch._C._cuda_resetAccumulatedMemoryStats(0)
    assert torch._C._cuda_getMemoryFraction(0) == 1.0
    torch._C._cuda_setMemoryFraction(0.25, 0)
    torch._C._cuda_setMemoryFraction(0.0, 1)
    assert torch._C._cuda_getMemoryFraction(0) == 0.25
    assert runtime.limits == {0: 250 * MIB, 1: 1}
    assert torch._C._cuda_memorySnapshot(None)["segments"] == []
    assert not hasattr(torch._C, "_accelerator_getDeviceStats")
    assert capfd.readouterr().err.count("cudnn.benchmark stays off") == 1
    for enabled in ("all", "all", None):
        torch._C._cuda_record_memory_history(enabled, "all", "python")
    assert capfd.readouterr().err == (
        "stplan: memory history is not recorded: only the shim records it, and it needs a C++ compiler\n"
    )


def test_cudnn_benchmark_stays_off(library: str) -> None:
    torch = fake_torch()
    _pluggable._Patches(torch, FakeRuntime(library)).apply()
    assert not torch._C._get_cudnn_benchmark()
    Cudnn.benchmark.setter(True)
    torch._C._set_cudnn_benchmark(True)
    assert not torch._C._get_cudnn_benchmark()


def test_a_segment_is_an_extent() -> None:
    ranges = [Range(0, 512, 100, 7, 1, 1), Range(512, 1536, 0, 0, 0, 0), Range(4096, 512, 512, 7, 1, 1)]
    first, second = segments(ranges, 3)
    assert (first["address"], first["total_size"], first["allocated_size"]) == (0, 2048, 512)
    assert [b["state"] for b in first["blocks"]] == ["active_allocated", "inactive"]
    assert (second["device"], second["address"], second["requested_size"]) == (3, 4096, 512)


def test_it_cannot_be_installed_after_cuda_is_initialised() -> None:
    with pytest.raises(RuntimeFailure, match="CUDA is in use already"):
        _pluggable.install(fake_torch(), None)


def has_cuda_torch() -> bool:
    spec = importlib.util.find_spec("torch")
    folders: List[str] = list(spec.submodule_search_locations or []) if spec is not None else []
    return any(os.path.exists(os.path.join(f, "lib", "libc10_cuda.so")) for f in folders)


needs_torch = pytest.mark.skipif(not has_cuda_torch(), reason="no torch that was built with CUDA")


def run(library: str, script: str, *arguments: str) -> str:
    """Runs a script in a process of its own: what it imports and installs cannot be
    undone. Returns its standard output and standard error."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), library, *arguments],
        env={**os.environ, "PYTHONPATH": str(PACKAGES)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


# In a process of its own: other tests may have loaded torch into this one.
def test_the_runtime_does_not_start_without_torch(library: str) -> None:
    out = run(
        library,
        """
        import sys
        from stplan._runtime import Runtime
        for memory in "auto", "some":
            try:
                Runtime(sys.argv[1]).start(None, memory, None)
            except Exception as error:
                print(type(error).__name__, error, sep=": ")
        """,
    )
    assert out.splitlines() == [
        "RuntimeFailure: torch's libc10.so is not loaded in this process",
        "ValueError: memory: expected one of auto, plain, virtual, found 'some'",
    ]


@needs_torch
def test_the_real_torch_can_be_served(library: str) -> None:
    out = run(
        library,
        """
        import torch
        from stplan import _pluggable
        _pluggable.install(torch, None)
        assert torch.cuda.get_allocator_backend() == "pluggable"
        torch.cuda._initialized = True  # as far as torch.cuda can tell
        stats = torch.cuda.memory_stats(0)
        assert all(value <= 0 for value in stats.values()), stats
        assert torch.cuda.memory_allocated(0) == torch.cuda.max_memory_reserved(0) == 0
        assert torch.accelerator.memory.memory_stats.__module__ == "torch.accelerator.memory"
        assert torch._C._accelerator_getDeviceStats(0)["num_ooms"] == 0
        torch.cuda.reset_peak_memory_stats(0)
        torch.cuda.memory.reset_accumulated_memory_stats(0)
        assert torch.cuda.memory_snapshot() == []
        torch.cuda.memory._record_memory_history(enabled=None)
        assert torch.cuda.memory._snapshot()["segments"] == []
        torch.backends.cudnn.benchmark = True
        assert not torch.backends.cudnn.benchmark
        print(torch.cuda.memory_summary(0))
        try:
            _pluggable.install(torch, None)
        except RuntimeError as error:
            print("again:", error)
        """,
    )
    assert "PyTorch CUDA memory summary, device ID 0" in out
    assert "stplan: torch.backends.cudnn.benchmark stays off" in out
    assert "again: CUDA is in use already" in out


@needs_torch
def test_a_broken_plan_leaves_torch_unchanged(library: str, tmp_path: Path) -> None:
    plan = tmp_path / "plan.bin"
    plan.write_bytes(b"not a plan")
    out = run(
        library,
        """
        import sys
        import torch
        from stplan import _pluggable
        try:
            _pluggable.install(torch, sys.argv[2])
        except RuntimeError as error:
            print(type(error).__name__, error)
        print(torch.cuda.get_allocator_backend(), torch._C._cuda_memoryStats.__class__.__name__)
        """,
        str(plan),
    )
    assert out.startswith(f"RuntimeFailure {plan}: ")
    assert out.endswith("native builtin_function_or_method\n")


@needs_torch
@pytest.mark.skipif(_build.compiler("c++") is None, reason="no C++ compiler to catch with")
def test_the_exceptions_thrown_are_torchs_own(library: str, tmp_path: Path) -> None:
    source, catcher = tmp_path / "catcher.cpp", tmp_path / "catcher.so"
    source.write_text(
        textwrap.dedent(
            """
            #include <c10/util/Exception.h>
            #include <cstdio>
            template <typename F> static int caught(F call, char* text, size_t size) {
              try {
                call();
              } catch (const c10::OutOfMemoryError& e) {
                c10::OutOfMemoryError copy(e);
                std::snprintf(text, size, "%s", copy.what_without_backtrace());
                return 1;
              } catch (const c10::Error& e) {
                std::snprintf(text, size, "%s", e.what_without_backtrace());
                return 2;
              }
              return 0;
            }
            extern "C" int attempt(void (*fn)(int, const char*), int kind, char* text, size_t size) {
              return caught([&] { fn(kind, "CUDA out of memory. Tried to allocate everything there is"); }, text, size);
            }
            extern "C" int request(void* (*fn)(size_t, int, void*), int device, char* text, size_t size) {
              return caught([&] { fn(512, device, nullptr); }, text, size);
            }
            """
        )
    )
    spec = importlib.util.find_spec("torch")
    assert spec is not None and spec.submodule_search_locations is not None
    torch = Path(next(iter(spec.submodule_search_locations)))
    compiler = _build.compiler("c++")
    assert compiler is not None
    new = b"SourceLocationENSt7__cxx11" in (torch / "lib" / "libc10.so").read_bytes()
    link = [f"-I{torch / 'include'}", f"-L{torch / 'lib'}", "-lc10", f"-D_GLIBCXX_USE_CXX11_ABI={int(new)}"]
    command = [*compiler, "-std=c++17", "-fPIC", "-shared", str(source), "-o", str(catcher), *link]
    _build.execute(command, "the catcher")
    out = run(
        library,
        """
        import ctypes, sys
        import torch
        library, catcher = ctypes.CDLL(sys.argv[1]), ctypes.CDLL(sys.argv[2])
        text = ctypes.create_string_buffer(256)
        assert library.sp_throw_prepare(text, 256), text.value
        for kind in (0, 1, 0):
            print(catcher.attempt(library.sp_throw, kind, text, 256), text.value.decode())
        # Thrown through the frames of the runtime, for a device that does not exist:
        print(catcher.request(library.stplan_pluggable_malloc, 1000, text, 256), text.value.decode())
        """,
        str(catcher),
    )
    text = "CUDA out of memory. Tried to allocate everything there is"
    assert out.splitlines() == [f"1 {text}", f"2 {text}", f"1 {text}", "2 stplan: cuda:1000 is not served"]


def test_the_structures_have_the_sizes_of_stplan_h(library: str, tmp_path: Path) -> None:
    from stplan._runtime import Counters, Statistics

    program = tmp_path / "sizes"
    source = tmp_path / "sizes.c"
    source.write_text(
        '#include <stdio.h>\n#include "stplan.h"\nint main(void) { printf("%zu %zu %zu", '
        "sizeof(stplan_statistics), sizeof(stplan_counters), sizeof(stplan_range)); }\n"
    )
    compiler = _build.compiler("c")
    assert compiler is not None
    _build.execute([*compiler, f"-I{_library.SOURCES}", str(source), "-o", str(program)], "a test")
    sizes = subprocess.run([str(program)], capture_output=True, text=True).stdout
    assert [int(s) for s in sizes.split()] == [ctypes.sizeof(t) for t in (Statistics, Counters, Range)]
