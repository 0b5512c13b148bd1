"""Compiles the shim for every release of torch that it serves, against the headers of the
releases on PyPI. Neither torch nor CUDA has to be installed, and nothing of them is linked.

Headers are kept in a folder between runs (20 MB for each release); the wheels of torch that
they are taken from (up to 1 GB each) are deleted one by one. Whatever is the same for
several releases is compiled for each and kept once."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, List

from elftools.elf.elffile import ELFFile

import zig

ROOT = zig.HERE.parent
sys.path.insert(0, str(ROOT / "runtime" / "torch" / "src"))

from stplan import _build, _library, _prebuilt, _shim  # noqa: E402

TORCH = ("2.6.0", "2.7.0", "2.7.1", "2.8.0", "2.9.0", "2.9.1", "2.10.0", "2.11.0", "2.12.0", "2.12.1", "2.13.0", "2.14.0", "2.14.1", "2.15.0")
"""Every release of torch from the oldest that the shim serves to the newest on PyPI."""

# torch 2.6 is on PyPI with the old ABI of the C++ library and on download.pytorch.org with
# both. Later releases have the new one.
_OLD_ABI = ("2.6.0",)

# CUDA's headers, by major release. The shim uses nothing that differs between minor ones.
_CUDA = {12: "nvidia-cuda-runtime-cu12==12.8.90", 13: "nvidia-cuda-runtime==13.0.96"}

# What libstdc++ and libgcc of manylinux_2_28 have (PEP 600): those of GCC 8.
_NEWEST = {"GLIBCXX": (3, 4, 24), "CXXABI": (1, 3, 11)}


def headers_of(requirement: str, inside: str, folder: Path) -> Path:
    """The headers of a package, downloaded into folder unless they are there: its wheel's
    files with `inside` in their names."""
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as work:
            # Headers are the same for every Python and machine; torch has CUDA's on x86-64.
            kind = ["--python-version", "3.12", "--only-binary", ":all:"]
            kind += [f"--platform=manylinux_2_{minor}_x86_64" for minor in (28, 27, 17)]
            kind += ["--platform=manylinux2014_x86_64", "--platform=manylinux1_x86_64"]
            pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-cache-dir", *kind, "-d", work]
            subprocess.run([*pip, requirement], check=True)
            (wheel,) = Path(work).glob("*.whl")
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(Path(work) / "kept", [n for n in archive.namelist() if inside in n and n.endswith(".h")])
            (Path(work) / "kept").rename(folder)
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path, help="folder for the shims and their index")
    parser.add_argument("--machine", choices=sorted(zig.GOARCH), default="x86_64")
    parser.add_argument("--headers", type=Path, default=ROOT / "build" / "headers", help="where headers are kept")
    parser.add_argument("--torch", nargs="+", default=list(TORCH), metavar="VERSION")
    asked = parser.parse_args()
    asked.output.mkdir(parents=True, exist_ok=True)
    sources = [*_library.sources(), *_shim.sources()]
    for version in asked.torch:
        torch_headers(version, asked.headers)
    wanted = [(version, abi) for version in asked.torch for abi in ([False, True] if version in _OLD_ABI else [True])]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        shims = list(pool.map(lambda want: compiled(*want, asked.machine, asked.headers, asked.output), wanted))
    index = {"sources": _prebuilt.digest_of(sources), "shims": shims}
    (asked.output / _prebuilt.INDEX).write_text(json.dumps(index, separators=(",", ":")) + "\n")
    files = {shim["file"] for shim in shims}
    print(f"{len(files)} shims for {len(asked.torch)} releases of torch, {asked.machine}: {sum((asked.output / f).stat().st_size for f in files):,} B")


def torch_headers(version: str, kept: Path) -> "tuple[Path, Path]":
    """The folders of a release's headers, and of those of CUDA."""
    # The CUDA that this release's wheel on PyPI was built with.
    major = 13 if int(version.split(".")[1]) >= 11 else 12
    torch = headers_of(f"torch=={version}", "torch/include/", kept / f"torch-{version}")
    (cuda,) = headers_of(_CUDA[major], "/include/", kept / f"cuda-{major}").glob("nvidia/*/include")
    return torch / "torch" / "include", cuda


def compiled(version: str, abi: bool, machine: str, kept: Path, output: Path) -> Dict[str, Any]:
    """Compile the shim for a release of torch; returns its entry in the index."""
    include, cuda = torch_headers(version, kept)
    c, cxx = zig.cc(machine), zig.cxx(machine)
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        # Libraries of torch's names with nothing in them: the shim asks for these names,
        # and finds the ones that torch has loaded.
        (work / "lib").mkdir()
        (work / "empty.c").write_text("")
        for name in ("libc10.so", "libc10_cuda.so"):
            _build.execute([*c, "-shared", f"-Wl,-soname,{name}", str(work / "empty.c"), "-o", str(work / "lib" / name)], name)
        (work / "include").symlink_to(include.resolve())
        torch = SimpleNamespace(__version__=version, compiled_with_cxx11_abi=lambda: abi)
        headers = [str(work / "include"), str(cuda)]
        # Checks of CUDA's calls have the names of their files. The same input gives the
        # same bytes in any folder.
        cxx += [f"-ffile-prefix-map={work}=.", f"-ffile-prefix-map={ROOT}=."]
        shim = work / "shim.so"
        _shim.compile_for(torch, [[*c, "-Wl,--no-as-needed", "-Wl,-s"], cxx], headers, str(shim))
        demand_old_symbols(shim)
        names = included([*cxx, *_shim.cxx_flags(torch, *headers)], work / "include")
        # Its version is compared by name, and changes nothing else.
        names = [name for name in names if not name.endswith("torch/version.h")]
        digest = hashlib.sha256(shim.read_bytes()).hexdigest()[:16]
        file = f"libstplan_shim-{digest}.so"
        shutil.copyfile(shim, output / file)
        (output / file).chmod(0o755)
        print(f"torch {version}, _GLIBCXX_USE_CXX11_ABI={int(abi)}: {file}", flush=True)
        return {
            "file": file,
            "torch": ".".join(version.split(".")[:2]),
            "cxx11_abi": abi,
            "names": names,
            "headers": _prebuilt.digest_of(names, str(work / "include")),
        }


def included(compiler: List[str], folder: Path) -> List[str]:
    """The headers of torch that the shim includes, relative to their folder, sorted."""
    rule = subprocess.run(
        [*compiler, "-MM", str(Path(_shim.SOURCES) / "all.cpp")], check=True, stdout=subprocess.PIPE, encoding="utf-8"
    ).stdout
    paths = (Path(word) for word in rule.replace("\\\n", " ").split()[1:])
    return sorted({str(path.relative_to(folder)) for path in paths if folder in path.parents})


def demand_old_symbols(path: Path) -> None:
    """Raise SystemExit if the shim asks libstdc++ for more than manylinux_2_28 has. The
    shim is not linked to it, so auditwheel does not see this. This system's own libstdc++
    says which version of it each symbol came with."""
    versions: Dict[str, str] = {}
    for library in ("libstdc++.so.6", "libgcc_s.so.1"):
        found = subprocess.run(["gcc", f"-print-file-name={library}"], check=True, stdout=subprocess.PIPE, encoding="utf-8")
        with open(found.stdout.strip(), "rb") as file:
            versions.update(_versions(ELFFile(file)))
    with path.open("rb") as file:
        undefined = [s.name for s in ELFFile(file).get_section_by_name(".dynsym").iter_symbols() if s["st_shndx"] == "SHN_UNDEF"]
    for name in undefined:
        family, _, number = versions.get(name, "").partition("_")
        if family in _NEWEST and tuple(map(int, number.split("."))) > _NEWEST[family]:
            raise SystemExit(f"{path}: {name} is of {versions[name]}: make it in packaging/include/older_libstdcxx.h")


def _versions(library: Any) -> Dict[str, str]:
    """The version of each symbol that a library has."""
    names = {v["vd_ndx"]: next(aux).name for v, aux in library.get_section_by_name(".gnu.version_d").iter_versions()}
    numbers = library.get_section_by_name(".gnu.version")
    found: Dict[str, str] = {}
    for i, symbol in enumerate(library.get_section_by_name(".dynsym").iter_symbols()):
        number = numbers.get_symbol(i)["ndx"]
        if symbol["st_shndx"] != "SHN_UNDEF" and isinstance(number, int):
            found.setdefault(symbol.name, names.get(number & 0x7FFF, ""))
    return found


if __name__ == "__main__":
    main()
