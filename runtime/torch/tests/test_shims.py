"""packaging/shims.py: what a shim may ask other libraries for."""

from __future__ import annotations

import importlib
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, Set, Tuple

import pytest

for name in ("elftools", "fsspec", "pypi_simple"):
    pytest.importorskip(name, reason="packaging/requirements.txt is not installed")
if shutil.which("g++") is None:
    pytest.skip("no C++ compiler", allow_module_level=True)

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "packaging"))
shims: Any = importlib.import_module("shims")

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
