"""Serves torch through the shim: a C++ allocator, compiled against the installed torch, in
a wheel for many releases of torch or else once on this machine."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Iterator, List, Optional, Tuple

from stplan import _build, _library, _prebuilt
from stplan._kept import Kept
from stplan._lending import Lending
from stplan._process import say
from stplan._runtime import MEMORY, MOVE, Counters, Ranks, RuntimeFailure, ranks

SOURCES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "shim")

_C_FLAGS = ("-std=c11", "-O2", "-fPIC", "-fvisibility=hidden", "-fexceptions")
# Symbols are exported because the shim recognises its own functions by them
# (complete.h).
_CXX_FLAGS = ("-O2", "-fPIC", "-fvisibility=default", "-w")

# The oldest and the newest release of torch that the shim was tested with. An older one
# is refused: its allocator interface is another. A newer one is tried: the shim has to
# compile, and is then checked for functions that it lacks.
_OLDEST, _NEWEST = (2, 6), (2, 15)

# The first release of torch whose headers need C++20.
_CXX20 = (2, 14)


class Shim:
    """The compiled shim, loaded."""

    def __init__(self, path: str) -> None:
        self._library = library = ctypes.CDLL(path)
        library.stplan_shim_unanswered.restype = ctypes.c_char_p
        library.stplan_shim_install.restype = ctypes.c_char_p
        library.stplan_shim_install.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_int, Ranks, ctypes.c_uint64]
        library.stplan_shim_pin.argtypes = [ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int]
        self.history = Kept(library, "stplan_shim")
        self.lending = Lending(library, "stplan_shim")
        library.stplan_shim_read.argtypes = [ctypes.c_int, ctypes.POINTER(Counters)]
        library.stplan_shim_exchange_begins.restype = ctypes.c_uint64
        library.stplan_shim_exchange_begins.argtypes = [ctypes.c_int]
        library.stplan_shim_exchange_enqueued.restype = None
        library.stplan_shim_exchange_enqueued.argtypes = [ctypes.c_int, ctypes.c_uint64]
        library.stplan_shim_exchange_awaited.restype = None
        library.stplan_shim_exchange_awaited.argtypes = [ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64]

    def unanswered(self) -> Optional[str]:
        """The first function of this torch's allocator interface that the shim does not
        override, or None if it overrides all of them. Only then may it be installed."""
        name = self._library.stplan_shim_unanswered()
        return None if name is None else str(name.decode("utf-8", "replace"))

    def install(self, plan: Optional[str], memory: str, counters: Optional[str], move: str, proven: int) -> None:
        """Raises RuntimeFailure, and KeyError if memory is not in MEMORY or move not in MOVE."""
        problem = self._library.stplan_shim_install(_path(plan), _path(counters), MEMORY[memory], MOVE[move], ranks, proven)
        if problem is not None:
            raise RuntimeFailure(problem.decode("utf-8", "replace"))

    def counters(self, device: int) -> Counters:
        """The device's counters; all zero if nothing was requested of it yet."""
        read = Counters()
        self._library.stplan_shim_read(device, ctypes.byref(read))
        return read

    def mark(self) -> None:
        """Mark the beginning of a step of the program."""
        self._library.stplan_shim_mark()

    def exchange_begins(self, device: int) -> int:
        """Say that an exchange with another process is about to be enqueued on a device. Returns
        its number for the functions below, or 0 if it is not followed."""
        return int(self._library.stplan_shim_exchange_begins(device))

    def exchange_enqueued(self, device: int, exchange: int) -> None:
        """Say that the call which was to enqueue an exchange has returned or failed. Once for
        each number."""
        self._library.stplan_shim_exchange_enqueued(device, exchange)

    def exchange_awaited(self, device: int, exchange: int, stream: int) -> None:
        """Say that a stream, by its handle, has been made to wait for an exchange."""
        self._library.stplan_shim_exchange_awaited(device, exchange, stream)

    def pin(self, address: int, size: int, pinned: bool) -> bool:
        """Pin memory of a live block, or unpin it. False if the runtime has no such block,
        or no such pin."""
        return bool(self._library.stplan_shim_pin(address, size, int(pinned)))


_installed: Optional[Shim] = None


def install(
    torch: Any, plan: Optional[str], memory: str, counters: Optional[str], move: str = "auto", proven: int = 0
) -> None:
    """Serve this process from now on; arguments as for _pluggable.install.

    Raises BuildError if the shim cannot be compiled or does not fit this torch, OSError
    if it does not load, RuntimeFailure if torch uses another allocator than its native
    one or the plan is refused. torch is then unchanged.
    """
    global _installed
    shim = _load(torch)
    shim.install(plan, memory, counters, move, proven)
    _installed = shim


def _load(torch: Any) -> Shim:
    """The prebuilt shim for this torch, or if there is none that fits, one that is compiled
    here."""
    release = _demanded(torch)
    path, reason = _prebuilt.find(torch, release, [*_library.sources(), *sources()])
    if path is not None:
        try:
            return _checked(Shim(path), torch)
        except (OSError, _build.BuildError) as error:
            reason = f"the prebuilt shim {path} cannot be used: {error}"
    try:
        return _checked(Shim(find(torch, reason)), torch)
    except _build.BuildError as error:
        if reason is None:
            raise
        raise _build.BuildError(f"{reason}; {error}") from error


def _checked(shim: Shim, torch: Any) -> Shim:
    """The shim, if it overrides all that this torch asks of an allocator."""
    unknown = shim.unanswered()
    if unknown is not None:
        raise _build.BuildError(
            f"the shim does not fit torch {torch.__version__}: it does not override {unknown} of torch's allocator"
        )
    return shim


def installed() -> Optional[Shim]:
    """The shim that serves this process, or None."""
    return _installed


def find(torch: Any, reason: Optional[str] = None) -> str:
    """The path of the compiled shim for this torch, from the cache or compiled now. reason
    is why no prebuilt one serves; it is printed if this process compiles one. Raises
    BuildError."""
    release = _demanded(torch)
    compilers = [_compiler("c"), _compiler("c++")]
    headers = [os.path.join(os.path.dirname(torch.__file__), "include"), _cuda_headers(torch.version.cuda)]
    # This file is part of the key because it holds the compilers' options.
    parts = [_content(path) for path in (*_library.sources(), *sources(), __file__)]
    parts += [_build.identity(command) for command in compilers]
    parts += [repr((headers, torch.__version__, torch.version.git_version)).encode()]

    def build(path: str) -> None:
        if reason is not None:
            say(f"{reason}; it is compiled now, once")
        compile_for(torch, compilers, headers, path)

    try:
        return _build.cached("libstplan_shim.so", parts, build)
    except OSError as error:
        raise _build.BuildError(f"cannot build the shim: {error}") from error
    except _build.BuildError as error:
        if release <= _NEWEST:
            raise
        raise _build.BuildError(
            f"torch {torch.__version__} is newer than {_named(_NEWEST)}, the newest that the shim was tested with: {error}"
        ) from error


def _demanded(torch: Any) -> Tuple[int, ...]:
    """The release of torch. Raises BuildError if it is too old."""
    release = _release_of(torch)
    if release < _OLDEST:
        raise _build.BuildError(
            f"cannot build the shim: expected torch {_named(_OLDEST)} or newer, found {torch.__version__}"
        )
    return release


def _release_of(torch: Any) -> Tuple[int, ...]:
    """Major and minor version: (2, 11) for torch 2.11.0+cu130."""
    found = re.match(r"(\d+)\.(\d+)", torch.__version__)
    if found is None:
        raise _build.BuildError(f"cannot build the shim: torch's version is {torch.__version__!r}, expected two numbers")
    return tuple(int(number) for number in found.groups())


def _named(release: Tuple[int, ...]) -> str:
    return ".".join(map(str, release))


def sources() -> List[str]:
    """Paths of the shim's files, sorted."""
    return sorted(
        os.path.join(folder, name)
        for folder, _, names in os.walk(SOURCES)
        for name in names
        if name.endswith((".cpp", ".h"))
    )


def compile_for(torch: Any, compilers: List[List[str]], headers: List[str], path: str) -> None:
    """Compile the C runtime and the shim in parallel, and link them. compilers: commands
    for C and C++. headers: folders of torch's headers, beside which lib has its libraries,
    and of CUDA's. Of torch only the version and the ABI are asked. Raises BuildError."""
    torch_headers, cuda_headers = headers
    c, cxx = compilers
    stem = os.path.splitext(path)[0]
    objects = [f"{stem}.runtime.o", f"{stem}.shim.o"]
    # -r merges the objects of all C files into one.
    runtime = [*c, *_C_FLAGS, "-r", "-nodefaultlibs", *_library.sources((".c",)), "-o", objects[0]]
    shim = [
        *cxx,
        *_CXX_FLAGS,
        *cxx_flags(torch, *headers),
        *("-c", os.path.join(SOURCES, "all.cpp"), "-o", objects[1]),
    ]
    libraries = os.path.join(os.path.dirname(torch_headers), "lib")
    # The C compiler links: the shim has to use the C++ library that torch has loaded,
    # and a C++ compiler may link another one into the file.
    link = [*c, "-shared", *objects, "-o", path, "-L", libraries, "-lc10", "-lc10_cuda", "-lpthread", "-ldl"]
    try:
        with ThreadPoolExecutor(2) as pool:
            for done in [pool.submit(_build.execute, command, "the shim") for command in (runtime, shim)]:
                done.result()
        _build.execute(link, "the shim")
    finally:
        for name in objects:
            if os.path.exists(name):
                os.unlink(name)


def cxx_flags(torch: Any, torch_headers: str, cuda_headers: str) -> List[str]:
    """The C++ compiler's options for this torch's headers."""
    return [
        "-std=c++20" if _release_of(torch) >= _CXX20 else "-std=c++17",
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
        *("-I", os.path.join(SOURCES, "include", "first")),
        *("-I", _library.SOURCES),
        *("-I", torch_headers),
        *("-I", os.path.join(torch_headers, "torch", "csrc", "api", "include")),
        *("-I", cuda_headers),
        *("-idirafter", os.path.join(SOURCES, "include", "last")),
    ]


def _compiler(kind: str) -> List[str]:
    found = _build.compiler(kind)
    if found is None:
        usual, variable = ("c++, g++ or clang++", "CXX") if kind == "c++" else ("cc, gcc or clang", "CC")
        raise _build.BuildError(
            f"cannot build the shim: no {kind.upper()} compiler ({usual} on PATH, or one that {variable} names)"
        )
    return found


def _cuda_headers(version: str) -> str:
    """The folder of CUDA's headers for `version`, the release that torch was built with.
    Their major version has to be that of the CUDA libraries that torch loads."""
    major = version.split(".")[0]
    seen = []
    for folder in _header_folders():
        found = _release(os.path.join(folder, "cuda_runtime_api.h"))
        if found is None or not os.path.exists(os.path.join(folder, "cuda.h")):
            continue
        if found.split(".")[0] == major:
            return folder
        seen.append(f"; those in {folder} are of {found}")
    raise _build.BuildError(
        f"cannot build the shim: no headers of CUDA {major} (cuda_runtime_api.h and cuda.h): they come with "
        f"the CUDA toolkit (CUDA_HOME names its folder) or the Python package nvidia-cuda-runtime{''.join(seen)}"
    )


def _header_folders() -> Iterator[str]:
    """Folders in which CUDA's headers may be: first the Python packages that torch
    installs, then CUDA toolkits."""
    for folder in sys.path:
        packages = os.path.join(folder, "nvidia")
        if os.path.isdir(packages):
            for name in sorted(os.listdir(packages), reverse=True):
                yield os.path.join(packages, name, "include")
    compiler = shutil.which("nvcc")
    roots = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH")]
    roots += [os.path.dirname(os.path.dirname(os.path.realpath(compiler)))] if compiler else []
    for root in [*roots, "/usr/local/cuda"]:
        if root:
            yield os.path.join(root, "include")


def _release(header: str) -> Optional[str]:
    """The CUDA release of a cuda_runtime_api.h, such as "13.0", or None if the
    file cannot be read or has no version."""
    try:
        with open(header, encoding="utf-8", errors="replace") as file:
            found = re.search(r"^#define\s+CUDART_VERSION\s+(\d+)", file.read(), re.MULTILINE)
    except OSError:
        return None
    return f"{int(found[1]) // 1000}.{int(found[1]) % 1000 // 10}" if found else None


def _content(path: str) -> bytes:
    with open(path, "rb") as file:
        return os.path.basename(path).encode() + b"\n" + file.read()


def _path(path: Optional[str]) -> Optional[bytes]:
    return None if path is None else os.fsencode(path)
