"""Builds native code on the machine that runs it, once for each source and compiler."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import platform
import shlex
import shutil
import stat
import subprocess
import tempfile
from typing import Callable, Iterable, Iterator, List, Optional, Sequence, TextIO

_COMPILERS = {
    "c": ("CC", ("cc", "gcc", "clang")),
    "c++": ("CXX", ("c++", "g++", "clang++")),
}


class BuildError(RuntimeError):
    """A build failed; the text names the file and gives the compiler's message."""


def compiler(kind: str) -> Optional[List[str]]:
    """The command, with its own arguments, of the C ("c") or C++ ("c++") compiler,
    or None if there is no compiler. If CC or CXX is set, only its program counts: a
    value such as CXX=none, which names no program, means that there is no compiler."""
    variable, usual = _COMPILERS[kind]
    named = shlex.split(os.environ.get(variable, ""))
    for command in [named] if named else [[name] for name in usual]:
        program = shutil.which(command[0])
        if program is not None:
            return [program, *command[1:]]
    return None


def identity(command: Sequence[str]) -> bytes:
    """The part of a cache key that stands for a compiler: it changes if the program
    or its arguments change. Raises OSError if the program does not exist."""
    found = os.stat(command[0])
    return repr((list(command), found.st_size, found.st_mtime_ns)).encode()


def execute(command: Sequence[str], what: str) -> None:
    """Run a compiler command that builds `what`. Raises BuildError."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
        )
    except OSError as error:
        raise BuildError(f"cannot build {what}: {command[0]}: {error.strerror}") from error
    if done.returncode != 0:
        raise BuildError(f"cannot build {what}: {command[0]} exited with status {done.returncode}: {_cause(done.stdout)}")


def _cause(output: str) -> str:
    """The line of a compiler's output that names the cause: the first error, or the
    first line if no line says "error:". Later errors often follow from the first."""
    said = [line.strip() for line in output.splitlines() if line.strip()]
    return next((line for line in said if "error:" in line), said[0] if said else "it printed nothing")


def cached(name: str, key_parts: Iterable[bytes], build: Callable[[str], None]) -> str:
    """The path of a file in the cache. build(path) writes the file; it is called only
    if no process of this user has built the file before. The file's name contains a
    key made from key_parts, the processor type and the C library. A file that has its
    final name is never changed.

    The cache is $XDG_CACHE_HOME/stplan or ~/.cache/stplan, or a temporary folder if
    that cannot be written. If several processes ask at the same time, one builds; if
    its build fails, the waiting ones raise the same error. Raises BuildError, any other
    error of build, and OSError if no folder can be written.
    """
    stem, suffix = os.path.splitext(name)
    file = f"{stem}-{_key(key_parts)}{suffix}"
    path = os.path.join(_cache(), file)
    if os.path.exists(path):
        return path
    path = os.path.join(_writable(os.path.dirname(path)), file)
    with _locked(path + ".lock") as failure:
        if not os.path.exists(path):
            if failure.text is not None:
                raise BuildError(failure.text)
            try:
                _write(path, build)
            except BuildError as error:
                failure.leave(str(error))
                raise
    return path


def _key(parts: Iterable[bytes]) -> str:
    # Machines of different kinds may share one home folder.
    machine = f"{platform.machine()} {platform.libc_ver()}".encode()
    digest = hashlib.sha256()
    for part in (machine, *parts):
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()[:20]


def _cache() -> str:
    # The XDG specification says that a relative path is to be ignored.
    root = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(root):
        root = os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(root, "stplan")


def _writable(folder: str) -> str:
    """The folder, created if it is missing. If it cannot be written: a folder below the
    temporary folder that all processes of the user share."""
    with contextlib.suppress(OSError):
        os.makedirs(folder, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    shared = os.path.join(tempfile.gettempdir(), f"stplan-{os.getuid()}")
    with contextlib.suppress(OSError):
        os.mkdir(shared, 0o700)
    # Files in this folder are loaded into the process, and any user can create a folder
    # of this name. So it counts only if it is ours and nobody else can write to it.
    with contextlib.suppress(OSError):
        found = os.lstat(shared)
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022:
            with tempfile.TemporaryFile(dir=shared):
                return shared
    return tempfile.mkdtemp(prefix="stplan-")


class _Failure:
    """Why the build failed in the process that held the lock while this one waited.
    That process writes its error into the lock file. text is None if no process failed
    during the wait: an older failure does not count, since the build may succeed now."""

    def __init__(self, lock: TextIO) -> None:
        self._lock = lock
        self.text: Optional[str] = None

    def wait(self) -> None:
        before = os.fstat(self._lock.fileno()).st_mtime_ns
        # Some network file systems have no locks. Then two processes may both build,
        # and the later one replaces the file by an equal one.
        with contextlib.suppress(OSError):
            fcntl.flock(self._lock, fcntl.LOCK_EX)
        if os.fstat(self._lock.fileno()).st_mtime_ns != before:
            self._lock.seek(0)
            self.text = self._lock.read() or None

    def leave(self, text: str) -> None:
        with contextlib.suppress(OSError):
            self._lock.truncate(0)
            self._lock.write(text)
            self._lock.flush()


@contextlib.contextmanager
def _locked(path: str) -> Iterator[_Failure]:
    with open(path, "a+", encoding="utf-8") as lock:
        failure = _Failure(lock)
        failure.wait()
        yield failure


def _write(path: str, build: Callable[[str], None]) -> None:
    stem, suffix = os.path.splitext(path)
    temporary = f"{stem}.{os.getpid()}{suffix}"
    try:
        build(temporary)
        os.replace(temporary, path)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
