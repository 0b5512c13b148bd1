"""The compilation of the shim. If torch and CUDA's headers are installed, also the shim
itself, in the real torch without a GPU."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict

import pytest

from conftest import needs_torch
from stplan import _build, _library, _shim

HERE = Path(__file__).resolve().parent
PACKAGES = Path(_shim.__file__).resolve().parents[1]


def headers(folder: Path, version: int) -> Path:
    folder.mkdir(parents=True)
    (folder / "cuda.h").write_text("")
    (folder / "cuda_runtime_api.h").write_text(f"/* */\n#define CUDART_VERSION  {version}\n")
    return folder


def test_headers_have_to_be_of_torchs_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site")])
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "toolkit"))
    monkeypatch.delenv("CUDA_PATH", raising=False)
    old = headers(tmp_path / "toolkit" / "include", 12040)
    with pytest.raises(_build.BuildError) as caught:
        _shim._cuda_headers("99.1")
    assert "no headers of CUDA 99 (cuda_runtime_api.h and cuda.h)" in str(caught.value)
    assert f"; those in {old} are of 12.4" in str(caught.value)
    assert _shim._cuda_headers("12.8") == str(old)
    packaged = headers(tmp_path / "site" / "nvidia" / "cu99" / "include", 99000)
    assert _shim._cuda_headers("99.1") == str(packaged)
    (packaged / "cuda.h").unlink()
    with pytest.raises(_build.BuildError):
        _shim._cuda_headers("99.1")


@pytest.mark.parametrize(
    "kind, variable, problem",
    [("C++", "CXX", "no C++ compiler (c++, g++ or clang++ on PATH"), ("C", "CC", "no C compiler (cc, gcc or clang on PATH")],
)
def test_a_missing_compiler_is_named(monkeypatch: pytest.MonkeyPatch, kind: str, variable: str, problem: str) -> None:
    monkeypatch.setenv(variable, "/nowhere/compiler")
    with pytest.raises(_build.BuildError) as caught:
        _shim._compiler(kind.lower())
    assert problem in str(caught.value)


def test_the_sources_are_complete() -> None:
    names = {Path(path).name for path in _shim.sources()}
    included = (Path(_shim.SOURCES) / "all.cpp").read_text()
    assert {name for name in names if name.endswith(".cpp")} - {"all.cpp"} == {
        line.split('"')[1] for line in included.splitlines() if line.startswith("#include")
    }
    assert {"cuda_runtime.h", "host_defines.h", "allocator.h"} <= names


@pytest.mark.skipif(_build.compiler("c++") is None, reason="no C++ compiler")
@pytest.mark.parametrize("level", ["-O0", "-O2"])
def test_a_function_that_a_class_does_not_override_is_named(tmp_path: Path, level: str) -> None:
    compiler, program = _build.compiler("c++"), tmp_path / "complete_test"
    assert compiler is not None
    source = str(HERE / "shim" / "complete_test.cpp")
    _build.execute([*compiler, "-std=c++17", level, "-rdynamic", "-I", _shim.SOURCES, source, "-o", str(program), "-ldl"], "the test")
    said = subprocess.run([str(program)], stdout=subprocess.PIPE, encoding="utf-8", check=True).stdout
    assert said.split("\n") == ["[torchlike::Interface::added(char const*)]", "[]", "[torchlike::Base::allocate(int)]", ""]


def torch_of(version: str) -> Any:
    return SimpleNamespace(
        __version__=version,
        __file__="/nowhere/torch/__init__.py",
        version=SimpleNamespace(cuda="99.1", git_version="0"),
        compiled_with_cxx11_abi=lambda: True,
    )


@pytest.mark.parametrize(
    "version, problem",
    [
        ("2.5.1+cu124", "cannot build the shim: expected torch 2.6 or newer, found 2.5.1+cu124"),
        ("1.13.1", "cannot build the shim: expected torch 2.6 or newer, found 1.13.1"),
        ("unknown", "cannot build the shim: torch's version is 'unknown', expected two numbers"),
        ("2.6.0a0+git", "cannot build the shim: it does not compile"),
        ("2.15.1.dev20261101", "cannot build the shim: it does not compile"),
        (
            "3.0.0",
            "torch 3.0.0 is newer than 2.15, the newest that the shim was tested with:"
            " cannot build the shim: it does not compile",
        ),
    ],
)
def test_a_release_that_is_not_served_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str, problem: str) -> None:
    def fails(*ignored: Any) -> None:
        raise _build.BuildError("cannot build the shim: it does not compile")

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(_shim, "_cuda_headers", lambda version: "/nowhere")
    monkeypatch.setattr(_shim, "_compiler", lambda kind: [sys.executable])
    monkeypatch.setattr(_shim, "compile_for", fails)
    with pytest.raises(_build.BuildError) as caught:
        _shim.find(torch_of(version))
    assert str(caught.value) == problem


def test_a_shim_that_does_not_fit_is_not_installed(monkeypatch: pytest.MonkeyPatch, no_prebuilt: None) -> None:
    class Misfit:
        def __init__(self, path: str) -> None:
            self.path = path

        def unanswered(self) -> str:
            return "c10::Allocator::newer()"

    monkeypatch.setattr(_shim, "find", lambda torch, reason: "shim.so")
    monkeypatch.setattr(_shim, "Shim", Misfit)
    with pytest.raises(_build.BuildError) as caught:
        _shim.install(torch_of("2.16.0"), None, "auto", None)
    assert str(caught.value) == (
        "the shim does not fit torch 2.16.0: it does not override c10::Allocator::newer() of torch's allocator"
    )
    assert _shim.installed() is None


def job(source: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(source)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(PACKAGES), os.environ.get("PYTHONPATH", "")]), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        timeout=600,
        close_fds=False,
    )


@needs_torch
def test_ranks_that_start_together_compile_once(tmp_path: Path, cache: Path, no_prebuilt: None) -> None:
    compiler = _build.compiler("c++")
    assert compiler is not None
    wrapper, log = tmp_path / "compiler", tmp_path / "log"
    wrapper.write_text(f'#!/bin/sh\necho "$@" >>{log}\nexec {compiler[0]} "$@"\n')
    wrapper.chmod(0o755)
    script = """
        import torch
        from stplan import _serving
        print(_serving.install(None), torch.cuda.memory.get_allocator_backend(), torch.cuda.is_initialized())
        """
    environment = {"XDG_CACHE_HOME": str(cache), "CXX": str(wrapper)}
    with ThreadPoolExecutor(3) as pool:
        ranks = list(pool.map(lambda _: job(script, **environment), range(3)))
    for done in ranks:
        assert (done.returncode, done.stdout, done.stderr) == (0, "shim native False\n", "")
    compiled = log.read_text().splitlines()
    assert len(compiled) == 1 and "all.cpp" in compiled[0]


@needs_torch
def test_a_process_is_served_once(cache: Path) -> None:
    done = job(
        """
        import torch, stplan
        stplan.enable()
        for _ in range(2):
            try:
                stplan.enable()
            except stplan.ServingError as error:
                print(error)
        print(stplan.stats()["backend"], stplan.stats(0)["allocations"])
        stplan.mark()
        """,
        XDG_CACHE_HOME=str(cache),
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "stplan serves this process already\n" * 2 + "shim 0\n"


@needs_torch
@pytest.mark.parametrize(
    "setting, problem",
    [
        ({"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}, 'torch uses its allocator "cudaMallocAsync"'),
        ({"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}, "PYTORCH_NO_CUDA_MEMORY_CACHING"),
        ({"PLAN": "/nowhere/plan.bin"}, "/nowhere/plan.bin: cannot read: No such file or directory"),
        ({"PLAN": __file__}, f"{__file__}: bad-magic: this is no plan"),
        ({"PLAN": "/nowhere/plan.bin", "CXX": "none"}, "/nowhere/plan.bin: cannot read: No such file or directory"),
    ],
)
def test_a_process_that_cannot_be_served_gets_the_reason(cache: Path, setting: Dict[str, str], problem: str) -> None:
    done = job(
        """
        import os, torch, stplan
        backend = torch.cuda.memory.get_allocator_backend()
        try:
            stplan.enable(os.environ.get("PLAN"))
        except stplan.ServingError as error:
            print(error)
        assert torch.cuda.memory.get_allocator_backend() == backend
        """,
        XDG_CACHE_HOME=str(cache),
        **setting,
    )
    assert done.returncode == 0, done.stderr
    assert problem in done.stdout and done.stdout.count("\n") == 1
    assert done.stdout.count(setting.get("PLAN", problem)) == 1


IN_TORCH = """
    import json, os, struct, torch, stplan
    if "LATE" in os.environ:
        torch.cuda.init()
        early = torch.empty(100, device="cuda")
        stplan.enable(memory=os.environ["MEMORY"], move=os.environ["MOVE"])
        del early
    else:
        stplan.enable(memory=os.environ["MEMORY"], move=os.environ["MOVE"])
    torch.cuda.memory._record_memory_history(context="all", stacks="python")
    ours = lambda address: 1 << 45 <= address < 1 << 46  # addresses of the fake driver
    first = torch.empty(1000, device="cuda")
    second = torch.empty(5 << 20, dtype=torch.uint8, device="cuda")
    try:
        torch.empty(1 << 40, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError as error:
        said = str(error)
    snapshot = torch.cuda.memory._snapshot()
    handle, size, offset = second.untyped_storage()._share_cuda_()[1:4]
    again = second.untyped_storage()._share_cuda_()[1]
    print(json.dumps({
        "addresses": [first.data_ptr(), second.data_ptr()],
        "allocated": torch.cuda.memory_allocated(),
        "reserved": torch.cuda.memory_reserved(),
        "out of memory": [said, torch.cuda.memory_stats()["num_ooms"]],
        "segments": sum(s["total_size"] for s in snapshot["segments"] if ours(s["address"])),
        "actions": [e["action"] for e in snapshot["device_traces"][0] if ours(e.get("addr", 0))],
        "names": snapshot["device_traces"][0][-1]["frames"][-1]["name"],
        "handle": [list(handle[:2]), len(handle), offset, handle == again],
        "header": struct.unpack_from("<iiQQ", handle, 2)[2:],
        "summary": "PyTorch CUDA memory summary" in torch.cuda.memory_summary(),
        "stats": stplan.stats("cuda"),
    }), flush=True)
    os._exit(0)
    """


@needs_torch
# A blind judge ignores waits: it must find reuses that are not ordered.
@pytest.mark.parametrize("memory, blind", [("auto", False), ("plain", False), ("auto", True)])
def test_reuse_is_ordered_on_the_device(cache: Path, device: Dict[str, str], memory: str, blind: bool) -> None:
    reading, writing = os.pipe()
    os.set_inheritable(reading, True)
    os.set_inheritable(writing, True)
    environment = {"FAKE_LOG": str(writing), "FAKE_LOG_READ": str(reading), "MEMORY": memory, "XDG_CACHE_HOME": str(cache)}
    if blind:
        environment["IGNORE_WAITS"] = "1"
    done = job((HERE / "shim" / "ordered.py").read_text(), **environment, **device)
    os.close(reading)
    os.close(writing)
    assert done.returncode == 0, done.stderr
    allocations, unordered, waits = map(int, done.stdout.split())
    assert allocations > 900 and waits > 500
    assert unordered > 100 if blind else unordered == 0


@needs_torch
@pytest.mark.parametrize(
    "memory, move, late", [("auto", "auto", {}), ("plain", "auto", {}), ("auto", "auto", {"LATE": "1"}), ("auto", "off", {})]
)
def test_torch_on_a_simulated_device(
    cache: Path, device: Dict[str, str], memory: str, move: str, late: Dict[str, str]
) -> None:
    done = job(IN_TORCH, XDG_CACHE_HOME=str(cache), MEMORY=memory, MOVE=move, **late, **device)
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(done.stdout)
    low = 0x200000000000 if memory == "auto" else 0x300000000000
    assert all(low <= address < low + (1 << 44) for address in told["addresses"])
    assert told["allocated"] == 4096 + (5 << 20) == told["stats"]["allocated_bytes"]
    assert told["segments"] == told["stats"]["reserved_bytes"] <= told["reserved"]
    said, times = told["out of memory"]
    assert said.startswith("CUDA out of memory. Tried to allocate 1024.00 GiB. GPU 0 has a total capacity of") and times == 1
    taken = "segment_map" if (memory, move) == ("auto", "auto") else "segment_alloc"
    assert told["actions"] == [taken, "alloc", taken, "alloc"] and told["names"] == "<module>"
    kind, length, offset, stable = told["handle"]
    # For 5 MiB: of 2 MiB, or one in which memory stays.
    size, granules = (2 << 20, 3) if move == "auto" else (20 << 20, 1)
    version = kind[0]  # the version that torch's native allocator writes
    assert 1 <= version <= 3 and kind[1] == ord("e" if memory == "auto" else "c") and stable
    header = 24 if version < 3 else 32
    assert length == (2 + header + 4 * granules if memory == "auto" else 2 + 64) and offset == 0
    if memory == "auto":
        assert told["header"] == [size, granules]
    assert told["summary"] and told["stats"]["backend"] == "shim" and told["stats"]["failed_allocations"] == 2


BOUNDED = """
    import os, torch, stplan
    stplan.enable()
    first = torch.empty(100 << 20, dtype=torch.uint8, device="cuda")
    try:
        torch.empty(60 << 20, dtype=torch.uint8, device="cuda")
        print("served", flush=True)
    except torch.OutOfMemoryError as error:
        print(str(error).count("128.00 MiB allowed"), flush=True)
    os._exit(0)
    """


@needs_torch
@pytest.mark.parametrize("setting, said", [("expandable_segments:True", "served"), ("per_process_memory_fraction:0.25", "1")])
def test_settings_of_the_native_allocator(
    cache: Path, device: Dict[str, str], setting: str, said: str
) -> None:
    done = job(BOUNDED, XDG_CACHE_HOME=str(cache), PYTORCH_CUDA_ALLOC_CONF=setting, **device)
    assert (done.returncode, done.stdout) == (0, said + "\n"), done.stderr


LATE = """
    import os, torch, stplan
    early = torch.empty(1000, device="cuda")
    stplan.enable()
    seen = [torch.cuda.memory_allocated()]
    late = torch.empty(1000, device="cuda")
    seen.append(torch.cuda.memory_allocated())
    del early
    print(*seen, torch.cuda.memory_allocated(), stplan.stats()["allocated_bytes"], flush=True)
    os._exit(0)
    """


@needs_torch
def test_a_process_with_tensors_already_can_be_served(cache: Path, device: Dict[str, str]) -> None:
    done = job(LATE, XDG_CACHE_HOME=str(cache), **device)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["4096", "8192", "4096", "4096"]


REGISTERED = """
    import os, torch, stplan
    stplan.enable()
    torch.cuda.memory._record_memory_history(context=None)
    tensor = torch.empty(30 << 20, dtype=torch.uint8, device="cuda")
    pinned = stplan.pin(tensor)
    del tensor
    torch.cuda.empty_cache()
    kept = stplan.stats("cuda")["reserved_bytes"]
    stplan.unpin(pinned)
    torch.cuda.empty_cache()
    actions = [e["action"] for e in torch.cuda.memory._snapshot()["device_traces"][0] if "segment" in e["action"]]
    print(kept >> 20, stplan.stats("cuda")["reserved_bytes"], *actions, flush=True)
    os._exit(0)
    """


@needs_torch
@pytest.mark.parametrize("hook, actions", [("1", "segment_alloc segment_free"), ("0", "segment_map segment_unmap")])
def test_memory_that_is_registered_stays(cache: Path, device: Dict[str, str], hook: str, actions: str) -> None:
    done = job(REGISTERED, XDG_CACHE_HOME=str(cache), TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK=hook, **device)
    assert (done.returncode, done.stdout) == (0, f"30 0 {actions}\n"), done.stderr
    said = "stplan: from now on memory does not move: TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK is set: NCCL registers it\n"
    assert done.stderr == (said if hook == "1" else "")


@needs_torch
@pytest.mark.parametrize("compiler, ranks", [("", 1), ("", 2), ("none", 1), ("none", 2)])
def test_a_capture_of_several_ranks_ends_moving(
    cache: Path, device: Dict[str, str], compiler: str, ranks: int, request: pytest.FixtureRequest
) -> None:
    """Torch says that a capture begins, and how many ranks there are, through the shim and
    through the C interface."""
    if compiler:
        request.getfixturevalue("no_prebuilt")
    done = job(
        """
        import os, torch, stplan
        stplan.enable()
        torch.empty(1000, device="cuda")
        class Group:
            is_available = is_initialized = staticmethod(lambda: True)
            get_world_size = staticmethod(lambda: int(os.environ["RANKS"]))
        import sys
        sys.modules["torch.distributed"] = Group
        pool = torch.cuda.graph_pool_handle()
        torch._C._cuda_beginAllocateCurrentThreadToPool(0, pool)
        torch.cuda.empty_cache()
        held = stplan.stats(0)["reserved_bytes"]
        torch._C._cuda_endAllocateToPool(0, pool)
        torch.cuda.empty_cache()
        print(stplan.stats()["backend"], held > 0, stplan.stats(0)["reserved_bytes"], flush=True)
        os._exit(0)
        """,
        XDG_CACHE_HOME=str(cache),
        RANKS=str(ranks),
        **({"CXX": compiler} if compiler else {}),
        **device,
    )
    assert (done.returncode, done.stdout) == (0, f"{'pluggable' if compiler else 'shim'} True 0\n"), done.stderr
    assert done.stderr.count("memory does not move: one of several ranks captures a graph") == (ranks == 2)


@needs_torch
@pytest.mark.parametrize("compiler, backend", [("", "shim"), ("none", "pluggable")])
def test_an_exchange_has_its_event_once_it_is_enqueued(
    cache: Path, device: Dict[str, str], compiler: str, backend: str, request: pytest.FixtureRequest
) -> None:
    """Through the shim and through the C interface: none is recorded in the block, one of the
    whole device behind it, also if what is called there fails, and if the block begins before
    the device's first request, which the device is opened by."""
    if compiler:
        request.getfixturevalue("no_prebuilt")
    done = job(
        """
        import os, torch, stplan
        from stplan import _serving
        stplan.enable()
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        os.environ["FAKE_LOG"] = str(writing)
        def recorded():
            os.write(writing, b"\\n")
            return os.read(reading, 1 << 16).count(b"whole")
        with stplan.exchanging():
            torch.empty(1000, device="cuda")
            seen = [recorded()]
        seen.append(recorded())
        with stplan.exchanging():
            seen.append(recorded())
        seen.append(recorded())
        try:
            with stplan.exchanging("cuda:0"):
                raise OSError
        except OSError:
            seen.append(recorded())
        served = _serving.served()
        numbers = {served.exchange_begins(0) for _ in range(100)}
        for number in numbers:
            served.exchange_enqueued(0, number)
            served.exchange_awaited(0, number, 0)
        print(stplan.stats()["backend"], seen, len(numbers), min(numbers) > 0, flush=True)
        os._exit(0)
        """,
        XDG_CACHE_HOME=str(cache),
        **({"CXX": compiler} if compiler else {}),
        **device,
    )
    assert (done.returncode, done.stdout) == (0, f"{backend} [0, 1, 0, 1, 1] 100 True\n"), done.stderr


@needs_torch
def test_the_shim_on_a_simulated_device(tmp_path: Path) -> None:
    torch: Any = importlib.import_module("torch")
    c, cxx = _build.compiler("c"), _build.compiler("c++")
    assert c is not None and cxx is not None
    torch_headers, cuda_headers = Path(torch.__file__).parent / "include", Path(_shim._cuda_headers(torch.version.cuda))
    runtime, program = tmp_path / "runtime.o", tmp_path / "shim_test"
    _build.execute([*c, *_shim._C_FLAGS, "-r", "-nodefaultlibs", *_library.sources((".c",)), "-o", str(runtime)], "the C runtime")
    cudart = next((cuda_headers.parent / "lib").glob("libcudart.so.*"), None)
    if cudart is None:
        pytest.skip("no library of CUDA's runtime beside its headers")
    libraries = [str(torch_headers.parent / "lib"), str(cudart.parent)]
    _build.execute(
        [
            *cxx,
            *("-O1", "-rdynamic", "-w", "-DFAKE_CUDA_DEVICES=2", "-I", _shim.SOURCES, *_shim.cxx_flags(torch, str(torch_headers), str(cuda_headers))),
            *(str(HERE / "shim" / name) for name in ("shim_test.cpp", "fake_cuda.cpp")),
            *(str(runtime), "-o", str(program), "-L", libraries[0], "-lc10", "-lc10_cuda", str(cudart)),
            *(f"-Wl,-rpath,{folder}" for folder in libraries),
            *("-lpthread", "-ldl"),
        ],
        "the test",
    )
    done = subprocess.run([str(program)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", timeout=300)
    print(done.stdout)
    assert done.returncode == 0, done.stdout
