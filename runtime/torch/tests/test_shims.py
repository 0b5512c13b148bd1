"""packaging/shims.py: what a shim may ask other libraries for, and what is read of PyPI."""

from __future__ import annotations

import hashlib
import importlib
import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any, Dict, Set, Tuple

import pytest

for name in ("elftools", "fsspec", "packaging", "pypi_simple"):
    pytest.importorskip(name, reason="packaging/requirements.txt is not installed")
if shutil.which("g++") is None:
    pytest.skip("no C++ compiler", allow_module_level=True)

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "packaging"))
shims: Any = importlib.import_module("shims")
pypi_simple: Any = importlib.import_module("pypi_simple")

# Asks torch for a function and for one that no library has, and the C++ library for one that came
# with GCC 11 and one that always was there.
SHIM = """
#include <stdexcept>
namespace c10 { void there(); }
extern "C" void nowhere();
extern "C" void cudaThere();
namespace std { [[noreturn]] void __throw_bad_array_new_length(); }
extern "C" void f(int x) {
  c10::there();
  cudaThere();
  if (x == 1) throw std::bad_alloc();
#ifdef MISSING
  nowhere();
#endif
#ifdef NEWER
  if (x == 2) std::__throw_bad_array_new_length();
#endif
}
"""


def shared(folder: Path, text: str, *flags: str) -> Path:
    """A shared library that is linked to nothing but the C library."""
    path = folder / "shim.so"
    subprocess.run(["g++", "-x", "c++", "-shared", "-fPIC", "-nostdlib", *flags, "-", "-lc", "-o", str(path)], input=text, text=True, check=True)
    return path


def release(torch: Set[str], needs: Dict[str, Tuple[int, ...]]) -> Any:
    cuda = shims.Libraries({"cudaThere"}, {})
    return shims.Release(Path(), Path(), shims.Libraries(torch, needs), cuda)


def libraries() -> Any:
    # Those that g++ links with here, wherever this system has them.
    found = [subprocess.run(["g++", f"-print-file-name={name}"], check=True, stdout=subprocess.PIPE, text=True).stdout.strip() for name in ("libstdc++.so.6", "libgcc_s.so.1")]
    return [Path(path) for path in found]


THERE = {"_ZN3c105thereEv"}


def test_what_torch_and_old_libraries_have_may_be_asked_for(tmp_path: Path) -> None:
    shims.demand_symbols(shared(tmp_path, SHIM), release(THERE, {}), False, True, libraries())


def test_a_symbol_of_no_library_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="nowhere is in no library that torch loads"):
        shims.demand_symbols(shared(tmp_path, SHIM, "-DMISSING"), release(THERE, {}), False, True, libraries())
    with pytest.raises(SystemExit, match="_ZN3c105thereEv is in no library"):
        shims.demand_symbols(shared(tmp_path, SHIM), release(set(), {}), False, True, libraries())
    # Of a build with the other ABI torch's own names are not known.
    shims.demand_symbols(shared(tmp_path, SHIM), release(set(), {}), False, False, libraries())


def test_names_of_the_other_abi_are_unknown_if_one_library_has_it(tmp_path: Path) -> None:
    named = SHIM.replace("void there();", '[[gnu::abi_tag("cxx11")]] void there();')
    mixed = release(set(), {})._replace(mixed=True)
    shims.demand_symbols(shared(tmp_path, named), mixed, True, True, libraries())
    with pytest.raises(SystemExit, match="_ZN3c105thereB5cxx11Ev is in no library"):
        shims.demand_symbols(shared(tmp_path, named), mixed._replace(mixed=False), True, True, libraries())
    with pytest.raises(SystemExit, match="_ZN3c105thereEv is in no library"):
        shims.demand_symbols(shared(tmp_path, SHIM), mixed, True, True, libraries())


def test_a_newer_library_than_torchs_is_an_error(tmp_path: Path) -> None:
    shim = shared(tmp_path, SHIM, "-DNEWER")
    with pytest.raises(SystemExit, match=r"_ZSt28__throw_bad_array_new_lengthv is of GLIBCXX_3\.4\.29, and torch may have GLIBCXX_3\.4\.22 only"):
        shims.demand_symbols(shim, release(THERE, {"GLIBCXX": (3, 4, 22)}), False, True, libraries())
    shims.demand_symbols(shim, release(THERE, {"GLIBCXX": (3, 4, 30)}), False, True, libraries())


def test_what_is_known_of_libraries(tmp_path: Path) -> None:
    built = shims.Libraries.of([shared(tmp_path, SHIM), *libraries()])
    assert "f" in built.symbols and "_ZSt28__throw_bad_array_new_lengthv" in built.symbols and "cudaThere" not in built.symbols
    assert built.needs["GCC"] >= (3, 0)  # libstdc++ asks libgcc for it
    assert not built.cxx11_abi and not shims.Libraries({"_ZN3c105thereEv"}, {}).cxx11_abi
    assert shims.Libraries({"_ZN3c105thereERKNSt7__cxx1112basic_stringE"}, {}).cxx11_abi
    assert shims.parted("GLIBCXX_3.4.18") == ("GLIBCXX", (3, 4, 18)) and shims.parted("GLIBC_PRIVATE") == ("GLIBC", ())


def test_the_wheel_that_pip_installs_is_read() -> None:
    def package(name: str, yanked: bool = False) -> Any:
        return pypi_simple.DistributionPackage.from_link(pypi_simple.Link(name, f"https://index.example/{name}", {"data-yanked": ""} if yanked else {}), "torch")

    linux = "cp312-cp312-manylinux_2_28_x86_64.whl"
    names = [
        f"torch-2.10.0-3-{linux}",
        f"torch-2.10.0-20-{linux}",
        f"torch-2.10.0-{linux}",
        "torch-2.10.0-21-cp312-cp312-manylinux_2_28_aarch64.whl",
        "torch-2.10.0-22-cp312-cp312-win_amd64.whl",
        "torch-2.10.0-23-cp313-cp313-manylinux_2_28_x86_64.whl",
        f"torch-2.10.1-24-{linux}",
        "torch-2.10.0.tar.gz",
    ]
    packages = [*map(package, names), package(f"torch-2.10.0-25-{linux}", yanked=True)]
    for order in (packages, packages[::-1]):
        assert shims.chosen(order, "2.10.0", "x86_64").filename == names[1]
        assert shims.chosen(order, "2.10.0", "aarch64").filename == names[3]
    assert shims.chosen([package(names[2])], "2.10.0", "x86_64").filename == names[2]
    assert shims.chosen([package(names[2], yanked=True)], "2.10.0", "x86_64") is None
    cuda = "nvidia_cuda_runtime-13.0.96-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl"
    assert shims.chosen([pypi_simple.DistributionPackage.from_link(pypi_simple.Link(cuda, f"https://index.example/{cuda}", {}), "nvidia-cuda-runtime")], "13.0.96", "x86_64").filename == cuda


def wheel(folder: Path, header: str) -> str:
    """A wheel of torch with a header and a library; returns the SHA-256 of the wheel."""
    path = folder / WHEEL
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("torch/include/c10/a.h", header)
        archive.writestr("torch/lib/libc10.so", "ELF")
        archive.writestr("torch/lib/libother.so", "not read")
    return hashlib.sha256(path.read_bytes()).hexdigest()


WHEEL = "torch-2.11.0-cp312-cp312-manylinux_2_28_x86_64.whl"
WANTED = shims.Wanted("torch==2.11.0", "x86_64", "torch/include/", r"torch/lib/libc10(_cuda)?\.so")


class Index:
    """An index with one wheel of torch."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.kept, self.lock = folder, folder / "headers", folder / "headers.lock"
        self.sha256 = wheel(folder, "// one")
        self.asked = 0
        monkeypatch.setattr(shims, "wheel_of", self.wheel_of)

    def wheel_of(self, wanted: Any) -> Tuple[str, str, str]:
        self.asked += 1
        return WHEEL, self.sha256, str(self.folder / WHEEL)

    def content(self) -> Path:
        found: Path = shims.content_of(WANTED, self.kept, self.lock)
        return found

    def refused(self) -> str:
        with pytest.raises(SystemExit) as caught:
            self.content()
        return str(caught.value)


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Index:
    made = Index(tmp_path, monkeypatch)
    shims.relock([WANTED], made.kept, made.lock)
    return made


def test_a_lock_states_what_is_read(index: Index) -> None:
    line = f"{hashlib.sha256(b'// one').hexdigest()}  torch/include/c10/a.h\n{hashlib.sha256(b'ELF').hexdigest()}  torch/lib/libc10.so\n"
    entry = {"wheel": WHEEL, "sha256": index.sha256, "read": hashlib.sha256(line.encode()).hexdigest()}
    assert json.loads(index.lock.read_text()) == {"torch==2.11.0": {"x86_64": entry}}
    assert index.asked == 1
    assert (index.content() / "torch/include/c10/a.h").read_text() == "// one" and index.asked == 1
    shutil.rmtree(index.kept)
    assert (index.content() / "torch/include/c10/a.h").read_text() == "// one" and index.asked == 2


def test_content_that_is_not_locked_stops_the_build(index: Index) -> None:
    read = json.loads(index.lock.read_text())["torch==2.11.0"]["x86_64"]["read"]
    (index.content() / "torch/include/c10/a.h").write_text("// two")
    said = index.refused()
    assert said.startswith("torch==2.11.0 for x86_64: SHA-256 of the content of ") and f"expected {read} (headers.lock), found " in said
    # The index states what it did, and the bytes that are read are others.
    shutil.rmtree(index.kept)
    wheel(index.folder, "// two")
    said = index.refused()
    assert said.startswith(f"torch==2.11.0 for x86_64: SHA-256 of what was read of {WHEEL}: expected {read} ")
    assert list(index.kept.iterdir()) == []
    # The index states another wheel.
    before, index.sha256 = index.sha256, "0" * 64
    assert index.refused().startswith(f"torch==2.11.0 for x86_64: SHA-256 of {WHEEL} by the index: expected {before} (headers.lock), found {index.sha256};")


def test_relock_takes_what_is_there_now(index: Index) -> None:
    index.sha256 = wheel(index.folder, "// two")
    other = {"wheel": "other.whl", "sha256": "0", "read": "1"}
    lock = json.loads(index.lock.read_text())
    index.lock.write_text(json.dumps({**lock, "torch==2.10.0": {"x86_64": other}}))
    shims.relock([WANTED], index.kept, index.lock)
    assert (index.content() / "torch/include/c10/a.h").read_text() == "// two"
    found = json.loads(index.lock.read_text())
    assert found["torch==2.10.0"] == {"x86_64": other} and found["torch==2.11.0"] != lock["torch==2.11.0"]


def test_a_release_that_is_not_locked_is_named(index: Index) -> None:
    for wanted in (WANTED._replace(requirement="torch==2.12.0"), WANTED._replace(machine="aarch64")):
        with pytest.raises(SystemExit, match=rf"^{wanted.requirement} for {wanted.machine} is not in .*headers\.lock: .*--relock --torch "):
            shims.content_of(wanted, index.kept, index.lock)
    assert index.asked == 1


def test_all_that_a_build_reads_is_locked() -> None:
    for machine in shims.zig.GOARCH:
        for version in shims.TORCH:
            for wanted in shims.Sources.of(version, machine):
                assert wanted.machine in shims.locked(wanted, shims.LOCK).wheel


def test_symbols_are_looked_up_for_the_machine() -> None:
    of = shims.Sources.of
    assert {one.machine for one in of("2.10.0", "x86_64")} == {"x86_64"}
    assert {one.machine for one in of("2.11.0", "aarch64")} == {"aarch64"}
    old = of("2.10.0", "aarch64")
    assert (old.torch.machine, old.c10.machine, old.runtime.machine) == ("x86_64", "aarch64", "aarch64")
    assert old.c10.headers is None and of("2.11.0", "aarch64").c10.headers is not None
