"""packaging/shims.py: what a shim may ask other libraries for."""

from __future__ import annotations

import importlib
import shutil
import subprocess
import sys
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


def test_a_newer_library_than_torchs_is_an_error(tmp_path: Path) -> None:
    shim = shared(tmp_path, SHIM, "-DNEWER")
    with pytest.raises(SystemExit, match=r"_ZSt28__throw_bad_array_new_lengthv is of GLIBCXX_3\.4\.29, and torch may have GLIBCXX_3\.4\.22 only"):
        shims.demand_symbols(shim, release(THERE, {"GLIBCXX": (3, 4, 22)}), False, True, libraries())
    shims.demand_symbols(shim, release(THERE, {"GLIBCXX": (3, 4, 30)}), False, True, libraries())


def test_what_is_kept_of_libraries(tmp_path: Path) -> None:
    built = shims.Libraries.of([shared(tmp_path, SHIM), *libraries()])
    assert "f" in built.symbols and "_ZSt28__throw_bad_array_new_lengthv" in built.symbols and "cudaThere" not in built.symbols
    assert built.needs["GCC"] >= (3, 0)  # libstdc++ asks libgcc for it
    built.keep_in(tmp_path)
    assert shims.Libraries.kept_in(tmp_path) == built
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
        assert shims.chosen(order, "2.10.0").filename == names[1]
    assert shims.chosen([package(names[2])], "2.10.0").filename == names[2]
    assert shims.chosen([package(names[2], yanked=True)], "2.10.0") is None
    cuda = "nvidia_cuda_runtime-13.0.96-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl"
    assert shims.chosen([pypi_simple.DistributionPackage.from_link(pypi_simple.Link(cuda, f"https://index.example/{cuda}", {}), "nvidia-cuda-runtime")], "13.0.96").filename == cuda
