"""Compilers for machines of another kind or with an older C library: the package ziglang of
PyPI, which has clang and the symbols of every glibc."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import List

# The oldest glibc that the files ask for: manylinux_2_17, the oldest that runs Go 1.24's
# binaries and that PyPI's torch has been built for. Lower costs nothing and serves nobody.
GLIBC = "2.17"

GOARCH = {"x86_64": "amd64", "aarch64": "arm64"}
"""Go's names of the machines that wheels are made for, by the wheel's."""

HERE = Path(__file__).resolve().parent


def cc(machine: str) -> List[str]:
    """The C compiler for Linux on a machine, one of GOARCH."""
    return [sys.executable, "-m", "ziglang", "cc", "-target", f"{machine}-linux-gnu.{GLIBC}"]


def cxx(machine: str) -> List[str]:
    """The C++ compiler with the headers of GCC's C++ library, which torch uses; zig brings
    clang's. Raises SystemExit if this system has no such headers for the machine."""
    for root, own in ((Path("/usr"), f"{machine}-linux-gnu"), (Path(f"/usr/{machine}-linux-gnu"), "")):
        for generic in sorted((root / "include/c++").glob("[0-9]*"), key=lambda p: -int(p.name)):
            special = root / "include" / own / "c++" / generic.name if own else generic / f"{machine}-linux-gnu"
            if (special / "bits/c++config.h").exists():
                folders = [HERE / "include", generic, special]
                # -I and not -isystem: zig's own C headers have to come behind these. operator
                # delete with a size is newer than GCC 4.8's library.
                return [*cc(machine), *(f"-I{folder}" for folder in folders), "-include", "older_libstdcxx.h", "-fno-sized-deallocation"]
    raise SystemExit(f"no headers of libstdc++ for {machine}: install libstdc++-dev, or its -{machine}-cross package")


def cxx_libraries(machine: str) -> List[Path]:
    """GCC's C++ library and libgcc for a machine, as this system has them. Raises SystemExit if
    it has none."""
    folders = [Path(f"/usr/{machine}-linux-gnu/lib"), Path(f"/usr/lib/{machine}-linux-gnu"), Path(f"/lib/{machine}-linux-gnu")]
    if machine == os.uname().machine:
        folders.append(Path("/usr/lib64"))
    found = []
    for name in ("libstdc++.so.6", "libgcc_s.so.1"):
        paths = [folder / name for folder in folders if (folder / name).exists()]
        if not paths:
            raise SystemExit(f"no {name} for {machine}: install libstdc++, or its -{machine}-cross package")
        found.append(paths[0])
    return found


def command(parts: List[str]) -> str:
    """A compiler as CC and CXX name it."""
    return shlex.join(parts)
