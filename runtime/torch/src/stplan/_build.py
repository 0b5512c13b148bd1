"""Builds native code on the machine that runs it, once for each source and compiler."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from typing import Callable, Iterable, Iterator, List, Optional, Sequence, TextIO

from stplan import _folders

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
    that cannot be written, or others could write it. If several processes ask at the same
    time, one builds; if its build fails, the waiting ones raise the same error. Raises
    BuildError, any other error of build, and OSError if no folder can be written.
    """
    stem, suffix = os.path.splitext(name)
    file = f"{stem}-{_key(key_parts)}{suffix}"
    for folder in _folders.folders():
        path = os.path.join(folder, file)
        if _folders.is_private_file(path):
            return path
        if _writable(folder):
            return _built(path, build)
    raise OSError("no folder can be written")


def _built(path: str, build: Callable[[str], None]) -> str:
    with _locked(path + ".lock") as failure:
        if not _folders.is_private_file(path):
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


def _writable(folder: str) -> bool:
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


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
    # A link of this name, which somebody could have made while the folder was open to
    # others, is not followed.
    lock_file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    with open(lock_file, "a+", encoding="utf-8") as lock:
        failure = _Failure(lock)
        failure.wait()
        yield failure


def _write(path: str, build: Callable[[str], None]) -> None:
    stem, suffix = os.path.splitext(path)
    temporary = f"{stem}.{os.getpid()}{suffix}"
    try:
        build(temporary)
        os.chmod(temporary, 0o700)
        os.replace(temporary, path)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
