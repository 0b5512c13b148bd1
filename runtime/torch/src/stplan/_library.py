"""Finds or builds the C runtime as a shared library, for processes without the shim."""

from __future__ import annotations

import ctypes
import hashlib
import os
import sys
from typing import Iterator, List, Sequence

from stplan import _build

PACKAGE_ENVIRONMENT = "STPLAN_PACKAGE"
"""The environment variable in which the launcher names the package that it is part of. The
copy of the package that it brings into a job has nothing compiled."""

SOURCES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "csrc")

# -fexceptions: a request that fails throws one of torch's C++ exceptions, which has to
# pass through the C frames.
_FLAGS = ("-std=c11", "-O2", "-fPIC", "-shared", "-fexceptions")
_LIBRARIES = ("-lpthread", "-ldl")


def find() -> str:
    """The library's path: a compiled one from an installed package, or else one in the
    cache, which the C compiler builds once. Raises BuildError if there is no compiled
    library and it cannot be built."""
    name = file_name()
    for folder in packages():
        path = os.path.join(folder, name)
        if os.path.exists(path) and _loads(path):
            return path
    try:
        return _build.cached(name, [], build)
    except OSError as error:
        raise _build.BuildError(f"cannot build {name}: {error}") from error


def file_name() -> str:
    """The library's file name. It holds a hash of all sources, so that no other version
    of the library has this name."""
    digest = hashlib.sha256()
    for path in sources():
        with open(path, "rb") as file:
            content = file.read()
        digest.update(f"{os.path.basename(path)} {len(content)}\n".encode())
        digest.update(content)
    return f"libstplan-{digest.hexdigest()[:16]}.so"


def sources(suffixes: Sequence[str] = (".c", ".h")) -> List[str]:
    """Paths of the C runtime's files, sorted. Raises BuildError if there are none."""
    names: List[str] = []
    if os.path.isdir(SOURCES):
        names = sorted(name for name in os.listdir(SOURCES) if name.endswith(tuple(suffixes)))
    if not names:
        raise _build.BuildError(f"the C sources of stplan are missing: expected in {SOURCES}")
    return [os.path.join(SOURCES, name) for name in names]


def build(path: str) -> None:
    """Compile the library and write it to path. Raises BuildError."""
    compiler = _build.compiler("c")
    if compiler is None:
        raise _build.BuildError(
            "cannot build the C runtime: no C compiler (cc, gcc or clang on PATH, or one that CC names)"
        )
    command = [*compiler, *_FLAGS, *sources((".c",)), "-o", path, *_LIBRARIES]
    _build.execute(command, "the C runtime")


def packages() -> Iterator[str]:
    """Folders of packages that may have compiled files: this one, the launcher's, and
    those that are installed beside torch."""
    yield os.path.dirname(SOURCES)
    launcher = os.environ.get(PACKAGE_ENVIRONMENT, "")
    if os.path.isabs(launcher):
        yield launcher
    for folder in sys.path:
        yield os.path.abspath(os.path.join(folder, "stplan"))


def _loads(path: str) -> bool:
    """Whether the library loads. One that was built on another machine may need a newer
    C library than this machine has."""
    try:
        ctypes.CDLL(path)
    except OSError:
        return False
    return True
