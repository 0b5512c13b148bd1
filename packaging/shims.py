"""Compiles the shim for every release of torch that it serves, against the headers of the
releases on PyPI. Neither torch nor CUDA has to be installed, and nothing of them is linked.

Headers are kept in a folder between runs (60 MB for each release). Of the wheels of torch that
they are in (up to 1 GB each) nothing else is read. What is read has to be what headers.lock says.
Whatever is the same for several releases is compiled for each and kept once."""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Set, Tuple

import fsspec
from elftools.elf.elffile import ELFFile
from packaging.utils import parse_wheel_filename
from pypi_simple import PYPI_SIMPLE_ENDPOINT, DistributionPackage, PyPISimple

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

# The Python and ABI of the wheels that are read: torch's, and those without Python code of CUDA's.
_PYTHONS = (("cp312", "cp312"), ("py3", "none"))

LOCK = zig.HERE / "headers.lock"
"""What is read of PyPI's wheels, by their requirement and machine: see Locked. --relock writes it."""

# The first release of torch whose wheel on PyPI for aarch64 has CUDA. CUDA's own are for both.
_CUDA_ON_AARCH64 = (2, 11)

# Wheels that are read at a time.
_FETCHED = 4

# Bytes that are read of a wheel at a time. Its headers lie together, in some 15 MB.
_BLOCK = 4 << 20

# Names in torch's namespace c10.
_TORCHS = re.compile(r"_Z(T[ISV])?N?K?3c10")

# The parts of a symbol's version, such as GLIBCXX_3.4.18, that say how new the C++ library has to
# be.
_CXX = ("GLIBCXX", "CXXABI", "GCC")

# What every C++ library has that a Linux with glibc 2.17 came with, that of GCC 4.8, and what
# every one has that programs with the new ABI run with, GCC 5.1's.
_OLDEST = {False: {"GLIBCXX": (3, 4, 19), "CXXABI": (1, 3, 7), "GCC": (4, 8, 0)}, True: {"GLIBCXX": (3, 4, 21), "CXXABI": (1, 3, 9), "GCC": (4, 8, 0)}}


class Libraries(NamedTuple):
    """What is known of libraries of a package. symbols: that they have. needs: the newest
    version of each part of _CXX that they ask for, such as (3, 4, 22) of GLIBCXX."""

    symbols: Set[str]
    needs: Dict[str, Tuple[int, ...]]

    @property
    def cxx11_abi(self) -> bool:
        """Whether libraries of torch were built with the new ABI of the C++ library."""
        return any("cxx11" in name and _TORCHS.match(name) for name in self.symbols)

    @classmethod
    def of(cls, paths: Iterable[Path]) -> "Libraries":
        symbols: Set[str] = set()
        needs: Dict[str, Tuple[int, ...]] = {}
        for path in paths:
            with path.open("rb") as file:
                elf = ELFFile(file)
                symbols.update(s.name for s in elf.get_section_by_name(".dynsym").iter_symbols() if s["st_shndx"] != "SHN_UNDEF")
                wanted = elf.get_section_by_name(".gnu.version_r")
                for _, versions in wanted.iter_versions() if wanted else ():
                    for version in versions:
                        family, number = parted(version.name)
                        if family in _CXX:
                            needs[family] = max(needs.get(family, ()), number)
        return cls(symbols, needs)


def parted(version: str) -> Tuple[str, Tuple[int, ...]]:
    """The family and the number of a symbol's version; no number if it is not of that form."""
    family, _, number = version.partition("_")
    parts = number.split(".")
    return family, tuple(map(int, parts)) if all(part.isdigit() for part in parts) else ()


class Wanted(NamedTuple):
    """What is read of a wheel. requirement: NAME==VERSION. machine: of zig.GOARCH. headers: what
    the names of the headers contain, or None for none. libraries: a regular expression that the
    names of the libraries match."""

    requirement: str
    machine: str
    headers: Optional[str]
    libraries: str

    def __str__(self) -> str:
        return f"{self.requirement} for {self.machine}"

    def folder(self, kept: Path) -> Path:
        return kept / f"{self.requirement.replace('==', '-')}-{self.machine}"


class Locked(NamedTuple):
    """An entry of LOCK. wheel: its file's name. sha256: of the wheel, as the index states it.
    read: the SHA-256 of what is read of it, as digest_of_folder makes it."""

    wheel: str
    sha256: str
    read: str


def demand_locked(wanted: Wanted, what: str, expected: str, found: str) -> None:
    """Raise SystemExit if something that LOCK states is another."""
    if expected != found:
        raise SystemExit(f"{wanted}: {what}: expected {expected} ({LOCK.name}), found {found}; --relock takes what is there now")


def locked(wanted: Wanted, lock: Path) -> Locked:
    """The entry of a lock file. Raises SystemExit if there is none."""
    entry = (json.loads(lock.read_text()) if lock.exists() else {}).get(wanted.requirement, {}).get(wanted.machine)
    if entry is None:
        torch, _, version = wanted.requirement.partition("==")
        of = f" --torch {version}" if torch == "torch" else ""
        raise SystemExit(f"{wanted} is not in {lock}: expected its wheel's name and digests; packaging/shims.py --relock{of} writes them")
    return Locked(**entry)


def relock(wanted: Iterable[Wanted], kept: Path, lock: Path) -> None:
    """Read everything anew, and write what has been read into a lock file. Other entries stay."""

    def read(one: Wanted) -> Locked:
        shutil.rmtree(one.folder(kept), ignore_errors=True)
        return fetch(one, one.folder(kept), None)

    wanted = list(wanted)
    with ThreadPoolExecutor(_FETCHED) as pool:
        entries = list(pool.map(read, wanted))
    found = json.loads(lock.read_text()) if lock.exists() else {}
    for one, entry in zip(wanted, entries):
        found.setdefault(one.requirement, {})[one.machine] = entry._asdict()
    lock.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")


def wheel_of(wanted: Wanted) -> Tuple[str, str, str]:
    """The file name, the SHA-256 and the URL of a wheel, as PyPI or the index of PIP_INDEX_URL
    states them: see chosen."""
    name, _, version = wanted.requirement.partition("==")
    with PyPISimple(os.environ.get("PIP_INDEX_URL", PYPI_SIMPLE_ENDPOINT)) as index:
        found = chosen(index.get_project_page(name).packages, version, wanted.machine)
    if found is None:
        raise SystemExit(f"{wanted}: the index has no wheel of it for Linux that is not yanked")
    sha256 = (found.digests or {}).get("sha256")
    if sha256 is None:
        raise SystemExit(f"{wanted}: the index states no SHA-256 of {found.filename}")
    return found.filename, sha256, found.url


def chosen(packages: Iterable[DistributionPackage], version: str, machine: str) -> Optional[DistributionPackage]:
    """The wheel of a version that pip installs for CPython 3.12 on Linux on a machine: of several
    builds the last, and none that was yanked. Headers, and the names in libraries, are the same for
    every Python."""
    builds = []
    for package in packages:
        if package.package_type != "wheel" or package.version != version or package.is_yanked:
            continue
        _, _, build, tags = parse_wheel_filename(package.filename)
        python = any((tag.interpreter, tag.abi) in _PYTHONS for tag in tags)
        if python and any("linux" in tag.platform and tag.platform.endswith(f"_{machine}") for tag in tags):
            builds.append((build, package))
    return max(builds, key=lambda found: found[0])[1] if builds else None


def content_of(wanted: Wanted, kept: Path, lock: Path = LOCK) -> Path:
    """The folder with what is wanted of a wheel, fetched unless it is there: headers and
    libraries, by their names in the wheel. Raises SystemExit if it is not what the lock says,
    also if it was there before."""
    entry, folder = locked(wanted, lock), wanted.folder(kept)
    if folder.exists():
        demand_locked(wanted, f"SHA-256 of the content of {folder}", entry.read, digest_of_folder(folder))
    else:
        fetch(wanted, folder, entry)
    return folder


def fetch(wanted: Wanted, folder: Path, expected: Optional[Locked]) -> Locked:
    """Read what is wanted of a wheel into a new folder; returns its entry. Of a wheel on an index
    that can be read in parts, nothing else is read. The folder is there only if all of it is as
    expected."""
    wheel, sha256, url = wheel_of(wanted)
    if expected is not None:
        demand_locked(wanted, "wheel", expected.wheel, wheel)
        demand_locked(wanted, f"SHA-256 of {wheel} by the index", expected.sha256, sha256)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as work:
        with fsspec.open(url, block_size=_BLOCK) as file, zipfile.ZipFile(file) as archive:
            names = archive.namelist()
            libraries = [name for name in names if re.fullmatch(wanted.libraries, name)]
            headers = [name for name in names if wanted.headers is not None and wanted.headers in name and name.endswith(".h")]
            if not libraries or (wanted.headers is not None and not headers):
                raise SystemExit(f"{url}: has {len(libraries)} libraries {wanted.libraries} and {len(headers)} headers {wanted.headers}")
            archive.extractall(Path(work) / "kept", [*headers, *libraries])
        digest = digest_of_folder(Path(work) / "kept")
        if expected is not None:
            demand_locked(wanted, f"SHA-256 of what was read of {wheel}", expected.read, digest)
        (Path(work) / "kept").rename(folder)
    print(f"{wanted}: {len(headers):,} headers and {len(libraries)} libraries of {wheel} are in {folder}", flush=True)
    return Locked(wheel, sha256, digest)


def digest_of_folder(folder: Path) -> str:
    """The SHA-256 of a line for each file below a folder, sorted: the SHA-256 of its content, two
    spaces and its name, as sha256sum prints them."""
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    lines = (f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}\n" for name in files)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path, nargs="?", help="folder for the shims and their index")
    parser.add_argument("--machine", choices=sorted(zig.GOARCH), default="x86_64")
    parser.add_argument("--headers", type=Path, default=ROOT / "build" / "headers", help="where headers are kept")
    parser.add_argument("--torch", nargs="+", default=list(TORCH), metavar="VERSION")
    parser.add_argument("--relock", action="store_true", help=f"read all anew and write it into {LOCK.name}, for every machine; compile nothing")
    asked = parser.parse_args()
    if asked.relock:
        relock({one: None for machine in sorted(zig.GOARCH) for version in asked.torch for one in Sources.of(version, machine)}, asked.headers, LOCK)
        return
    if asked.output is None:
        parser.error("output: expected a folder")
    asked.output.mkdir(parents=True, exist_ok=True)
    sources = [*_library.sources(), *_shim.sources()]
    # Each once, although several releases have the same of CUDA.
    wheels = {one: None for version in asked.torch for one in Sources.of(version, asked.machine)}
    with ThreadPoolExecutor(_FETCHED) as pool:
        list(pool.map(lambda one: content_of(one, asked.headers), wheels))
    wanted = [(version, abi) for version in asked.torch for abi in ([False, True] if version in _OLD_ABI else [True])]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        shims = list(pool.map(lambda want: compiled(*want, asked.machine, asked.headers, asked.output), wanted))
    index = {"sources": _prebuilt.digest_of(sources), "shims": shims}
    (asked.output / _prebuilt.INDEX).write_text(json.dumps(index, separators=(",", ":")) + "\n")
    files = {shim["file"] for shim in shims}
    print(f"{len(files)} shims for {len(asked.torch)} releases of torch, {asked.machine}: {sum((asked.output / f).stat().st_size for f in files):,} B")


class Sources(NamedTuple):
    """The wheels that say what a release of torch has on a machine. torch: with headers and with
    libc10_cuda. c10: with libc10 of the machine itself. runtime: CUDA's, with headers."""

    torch: Wanted
    c10: Wanted
    runtime: Wanted

    @classmethod
    def of(cls, version: str, machine: str) -> "Sources":
        release = tuple(int(part) for part in version.split(".")[:2])
        # The CUDA that this release's wheel on PyPI was built with.
        runtime = Wanted(_CUDA[13 if release >= (2, 11) else 12], machine, "/include/", r"nvidia/.*/lib/libcudart\.so\.[0-9]+")
        requirement, libraries = f"torch=={version}", r"torch/lib/libc10(_cuda)?\.so"
        own = Wanted(requirement, machine, "torch/include/", libraries)
        if machine == "x86_64" or release >= _CUDA_ON_AARCH64:
            return cls(own, own, runtime)
        return cls(own._replace(machine="x86_64"), own._replace(headers=None), runtime)


class Release(NamedTuple):
    """A release of torch: the folders of its headers and of CUDA's, and what its libraries have.
    mixed: libc10_cuda is known with the other ABI of the C++ library than libc10."""

    include: Path
    cuda: Path
    torch: Libraries
    runtime: Libraries
    mixed: bool = False

    @classmethod
    def of(cls, version: str, machine: str, kept: Path) -> "Release":
        """From what has been fetched."""
        sources = Sources.of(version, machine)
        torch, c10, runtime = (one.folder(kept) for one in sources)
        (cuda,) = runtime.glob("nvidia/*/include")
        own, cudas = Libraries.of([c10 / "torch/lib/libc10.so"]), Libraries.of([torch / "torch/lib/libc10_cuda.so"])
        # Of another machine's library the names count, and not the C++ library that it needs.
        needs = {family: max(own.needs.get(family, ()), cudas.needs.get(family, ()) if torch == c10 else ()) for family in {*own.needs, *cudas.needs}}
        libraries = Libraries(own.symbols | cudas.symbols, {family: number for family, number in needs.items() if number})
        cudart = Libraries.of(runtime.glob("nvidia/*/lib/libcudart.so.*"))
        return cls(torch / "torch" / "include", cuda, libraries, cudart, own.cxx11_abi != cudas.cxx11_abi)


def compiled(version: str, abi: bool, machine: str, kept: Path, output: Path) -> Dict[str, Any]:
    """Compile the shim for a release of torch; returns its entry in the index."""
    release = Release.of(version, machine, kept)
    c, cxx = zig.cc(machine), zig.cxx(machine)
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        # Libraries of torch's names with nothing in them: the shim asks for these names,
        # and finds the ones that torch has loaded.
        (work / "lib").mkdir()
        (work / "empty.c").write_text("")
        for name in ("libc10.so", "libc10_cuda.so"):
            _build.execute([*c, "-shared", f"-Wl,-soname,{name}", str(work / "empty.c"), "-o", str(work / "lib" / name)], name)
        (work / "include").symlink_to(release.include.resolve())
        torch = SimpleNamespace(__version__=version, compiled_with_cxx11_abi=lambda: abi)
        headers = [str(work / "include"), str(release.cuda)]
        # Checks of CUDA's calls have the names of their files. The same input gives the
        # same bytes in any folder.
        cxx += [f"-ffile-prefix-map={work}=.", f"-ffile-prefix-map={ROOT}=."]
        shim = work / "shim.so"
        _shim.compile_for(torch, [[*c, "-Wl,--no-as-needed", "-Wl,-s"], cxx], headers, str(shim))
        # The release on PyPI shows the names of one ABI.
        shown = abi == release.torch.cxx11_abi
        demand_symbols(shim, release, abi, shown, zig.cxx_libraries(machine))
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


def demand_symbols(path: Path, release: Release, abi: bool, shown: bool, cxx: Iterable[Path]) -> None:
    """Raise SystemExit if there is no place that a symbol which the shim asks for comes from, or if
    it is of a newer C++ library than the release of torch itself needs. The shim is linked to
    nothing but the C library, so auditwheel does not see the others. abi: whether it has the new
    ABI. shown: whether the libraries of the release that are known have the same; if they have
    not, any name of torch's own is taken to be there. cxx: the C++ library and GCC's for the
    shim's machine, which say which version each of their symbols came with."""
    versions = {name: version for library in cxx for name, version in _versions(library).items()}
    with path.open("rb") as file:
        asked = list(_asked(ELFFile(file)))
    for name in asked:
        if name in versions:
            family, number = parted(versions[name])
            newest = max(release.torch.needs.get(family, ()) if shown else (), _OLDEST[abi].get(family, ()))
            if number > newest:
                least = ".".join(map(str, newest))
                raise SystemExit(f"{path}: {name} is of {versions[name]}, and torch may have {family}_{least} only: make it in packaging/include/older_libstdcxx.h")
        elif name not in release.torch.symbols and name not in release.runtime.symbols:
            # Only names that hold a type of the new ABI differ between the two.
            unseen = not shown or (release.mixed and "cxx11" in name)
            if unseen and _TORCHS.match(name):
                continue
            raise SystemExit(f"{path}: {name} is in no library that torch loads: {', '.join(map(str, cxx))}, libc10, libc10_cuda, libcudart")


def _asked(shim: Any) -> Iterator[str]:
    """The symbols that a shim asks other libraries than the C library for, which has versions, and
    cannot do without."""
    wanted = shim.get_section_by_name(".gnu.version")
    for i, symbol in enumerate(shim.get_section_by_name(".dynsym").iter_symbols()):
        versioned = wanted is not None and isinstance(wanted.get_symbol(i)["ndx"], int)
        if symbol.name and symbol["st_shndx"] == "SHN_UNDEF" and symbol["st_info"]["bind"] != "STB_WEAK" and not versioned:
            yield symbol.name


@functools.lru_cache(maxsize=None)  # each shim is compared with the same two
def _versions(path: Path) -> Dict[str, str]:
    """The version of each symbol that a library has."""
    found: Dict[str, str] = {}
    with path.open("rb") as file:
        library = ELFFile(file)
        names = {v["vd_ndx"]: next(aux).name for v, aux in library.get_section_by_name(".gnu.version_d").iter_versions()}
        numbers = library.get_section_by_name(".gnu.version")
        for i, symbol in enumerate(library.get_section_by_name(".dynsym").iter_symbols()):
            number = numbers.get_symbol(i)["ndx"]
            if symbol["st_shndx"] != "SHN_UNDEF" and isinstance(number, int):
                found.setdefault(symbol.name, names.get(number & 0x7FFF, ""))
    return found


if __name__ == "__main__":
    main()
