"""The cache of built files, and the choice of compilers."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import Callable, List

import pytest

from stplan import _build

SOURCE = Path(_build.__file__).resolve().parents[1]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "stplan"


def writer(text: str, calls: List[str]) -> Callable[[str], None]:
    def build(path: str) -> None:
        calls.append(path)
        Path(path).write_text(text)

    return build


def test_a_file_is_built_once_for_each_key(cache: Path) -> None:
    calls: List[str] = []
    first = _build.cached("a.so", [b"1", b"2"], writer("one", calls))
    assert _build.cached("a.so", [b"1", b"2"], writer("two", calls)) == first
    assert Path(first).read_text() == "one"
    assert Path(first).parent == cache and first.endswith(".so")
    # The same bytes split into other parts give another key.
    assert _build.cached("a.so", [b"12"], writer("three", calls)) != first
    assert len(calls) == 2


def test_a_build_that_fails_leaves_nothing(cache: Path) -> None:
    def build(path: str) -> None:
        Path(path).write_text("half")
        raise _build.BuildError("no")

    with pytest.raises(_build.BuildError):
        _build.cached("a.so", [b"1"], build)
    assert [p.suffix for p in cache.iterdir()] == [".lock"]
    assert Path(_build.cached("a.so", [b"1"], writer("whole", []))).read_text() == "whole"


def test_many_processes_build_once(cache: Path, tmp_path: Path) -> None:
    script = textwrap.dedent(
        """
        import os, sys, time
        from stplan import _build
        def build(path):
            open(os.path.join(sys.argv[1], f"built-{os.getpid()}"), "w").close()
            time.sleep(0.3)
            with open(path, "w") as f:
                f.write("whole")
        print(open(_build.cached("a.so", [b"1"], build)).read())
        """
    )
    env = {**os.environ, "PYTHONPATH": str(SOURCE)}
    command = [sys.executable, "-c", script, str(tmp_path)]
    jobs = [subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    assert [job.communicate(timeout=60)[0] for job in jobs] == ["whole\n"] * 4
    assert len(list(tmp_path.glob("built-*"))) == 1


def test_many_processes_fail_once(cache: Path, tmp_path: Path) -> None:
    script = textwrap.dedent(
        """
        import os, pathlib, sys, time
        from stplan import _build
        here = pathlib.Path(sys.argv[1])
        def build(path):
            (here / f"tried-{os.getpid()}").touch()
            while len(list(here.glob("asks-*"))) % 4:
                time.sleep(0.01)
            time.sleep(0.5)
            raise _build.BuildError("the licence — has\\nexpired")
        (here / f"asks-{os.getpid()}").touch()
        try:
            _build.cached("a.so", [b"1"], build)
        except _build.BuildError as error:
            print(ascii(str(error)))
        """
    )
    env = {**os.environ, "PYTHONPATH": str(SOURCE), "LC_ALL": "C"}
    command = [sys.executable, "-c", script, str(tmp_path)]
    for start in (1, 2):  # what failed before is tried again
        jobs = [subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) for _ in range(4)]
        said = [job.communicate(timeout=60)[0] for job in jobs]
        assert said == [ascii("the licence — has\nexpired") + "\n"] * 4
        assert len(list(tmp_path.glob("tried-*"))) == start


def test_if_the_cache_cannot_be_written_a_private_folder_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    calls: List[str] = []
    path = Path(_build.cached("a.so", [b"1"], writer("one", calls)))
    assert path.parent == tmp_path / f"stplan-{os.getuid()}"
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert _build.cached("a.so", [b"1"], writer("two", calls)) == str(path)
    assert len(calls) == 1
    # A folder to which others may write is not used.
    path.parent.chmod(0o777)
    elsewhere = Path(_build.cached("a.so", [b"1"], writer("three", calls)))
    assert elsewhere.parent != path.parent and elsewhere.read_text() == "three"


def test_the_compiler_is_the_named_one_or_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "c++"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.delenv("CC", raising=False)
    assert _build.compiler("c++") == [str(program)]
    assert _build.compiler("c") is None
    monkeypatch.setenv("CC", "c++ -m64")
    assert _build.compiler("c") == [str(program), "-m64"]
    monkeypatch.setenv("CXX", "none")
    assert _build.compiler("c++") is None


@pytest.mark.parametrize(
    "said, line",
    [
        ("In file included from a:\n a.h:1: error: no x\na.h:2: error: no y", "a.h:1: error: no x"),
        ("\na.h:1: undefined reference to x\nld returned 1", "a.h:1: undefined reference to x"),
        ("", "it printed nothing"),
    ],
)
def test_a_build_error_has_the_compilers_first_error(tmp_path: Path, said: str, line: str) -> None:
    program = tmp_path / "cc"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{said}\nEND\nexit 3\n")
    program.chmod(0o755)
    with pytest.raises(_build.BuildError) as caught:
        _build.execute([str(program)], "x.so")
    assert str(caught.value) == f"cannot build x.so: {program} exited with status 3: {line}"
    program.unlink()
    with pytest.raises(_build.BuildError, match="No such file"):
        _build.execute([str(program)], "x.so")
