"""The C runtime as a shared library, for processes without the shim."""

from __future__ import annotations

import ctypes
import hashlib
import os
import sys
from typing import Iterator, List, Sequence

from stplan import _build

SOURCES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "csrc")

# Requests that fail throw torch's C++ exceptions through the C frames.
_FLAGS = ("-std=c11", "-O2", "-fPIC", "-shared", "-fexceptions")
_LIBRARIES = ("-lpthread", "-ldl")


def find() -> str:
    """The library's path: prebuilt in an installed package, or else built, once,
    by the C compiler. Raises BuildError where there is neither."""
    name = file_name()
    for folder in _packages():
        path = os.path.join(folder, name)
        if os.path.exists(path) and _loads(path):
            return path
    try:
        return _build.cached(name, [], build)
    except OSError as error:
        raise _build.BuildError(f"cannot build {name}: {error}") from error


def file_name() -> str:
    """Changes with every source: no other version's library has this name."""
    digest = hashlib.sha256()
    for path in sources():
        with open(path, "rb") as file:
            content = file.read()
        digest.update(f"{os.path.basename(path)} {len(content)}\n".encode())
        digest.update(content)
    return f"libstplan-{digest.hexdigest()[:16]}.so"


def sources(suffixes: Sequence[str] = (".c", ".h")) -> List[str]:
    """Paths of the C runtime's files, in order. Raises BuildError without any."""
    names: List[str] = []
    if os.path.isdir(SOURCES):
        names = sorted(name for name in os.listdir(SOURCES) if name.endswith(tuple(suffixes)))
    if not names:
        raise _build.BuildError(f"the C sources of stplan are missing: expected in {SOURCES}")
    return [os.path.join(SOURCES, name) for name in names]


def build(path: str) -> None:
    """Compile the library into path. Raises BuildError."""
    compiler = _build.compiler("c")
    if compiler is None:
        raise _build.BuildError(
            "cannot build the C runtime: no C compiler (cc, gcc or clang on PATH, or one that CC names)"
        )
    command = [*compiler, *_FLAGS, *sources((".c",)), "-o", path, *_LIBRARIES]
    _build.execute(command, "the C runtime")


def _packages() -> Iterator[str]:
    """This package's folder, and those of installed ones: a launcher brings the
    package along, but no compiled library."""
    yield os.path.dirname(SOURCES)
    for folder in sys.path:
        yield os.path.abspath(os.path.join(folder, "stplan"))


def _loads(path: str) -> bool:
    """A library that was built on another machine may ask too much of this one."""
    try:
        ctypes.CDLL(path)
    except OSError:
        return False
    return True
