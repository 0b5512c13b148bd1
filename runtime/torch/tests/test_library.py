"""How the library of the C runtime is found and built."""

from __future__ import annotations

import ctypes
import importlib.metadata
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from stplan import _build, _library

PROJECT = Path(__file__).resolve().parents[3]
PYTHON = PROJECT / "runtime" / "torch"
RUNTIME = PROJECT / "runtime" / "cuda"

needs_compiler = pytest.mark.skipif(_build.compiler("c") is None, reason="no C compiler")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "stplan"


def runtime_files() -> "set[str]":
    return {p.name for p in RUNTIME.iterdir() if p.suffix in (".c", ".h")}


@needs_compiler
def test_it_is_built_once_and_loads(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _library.find()
    assert Path(path).parent == cache
    assert ctypes.CDLL(path).stplan_pluggable_malloc is not None
    # The library is in the cache now, so no compiler is needed.
    monkeypatch.setenv("CC", "none")
    assert _library.find() == path


def test_a_missing_compiler_is_reported(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "none")
    with pytest.raises(_build.BuildError, match="no C compiler"):
        _library.find()


def test_missing_sources_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_library, "SOURCES", str(tmp_path / "csrc"))
    with pytest.raises(_build.BuildError, match=f"expected in {tmp_path / 'csrc'}"):
        _library.find()


def test_the_name_changes_with_the_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = _library.file_name()
    for name in runtime_files():
        (tmp_path / name).write_bytes((RUNTIME / name).read_bytes())
    monkeypatch.setattr(_library, "SOURCES", str(tmp_path))
    assert _library.file_name() == before
    with (tmp_path / "tree.c").open("a") as source:
        source.write("\n")
    assert _library.file_name() != before


@needs_compiler
def test_the_library_of_an_installed_package_is_used(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "site" / "stplan" / _library.file_name()
    installed.parent.mkdir(parents=True)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "site")])
    installed.write_bytes(b"a library of another kind of machine")
    assert _library.find() != str(installed)
    _library.build(str(installed))
    assert _library.find() == str(installed)


def can_build_wheels() -> bool:
    try:
        found = importlib.metadata.version("setuptools").split(".")
        importlib.metadata.version("pip")
    except importlib.metadata.PackageNotFoundError:
        return False
    return (int(found[0]), int(found[1])) >= (77, 0)


@pytest.mark.skipif(not can_build_wheels(), reason="needs pip and setuptools 77 or newer")
@pytest.mark.parametrize("compiler", ["cc", "none"])
def test_a_wheel_contains_all_files(compiler: str, tmp_path: Path) -> None:
    if compiler != "none" and _build.compiler("c") is None:
        pytest.skip("no C compiler")
    # A build writes files beside its sources, so a copy is built.
    project = tmp_path / "project"
    source = project / "runtime" / "torch" / "src"
    package = source / "stplan"
    shutil.copytree(PYTHON / "src", source, ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
    shutil.copy(PYTHON / "README.md", source.parent)
    for name in ("pyproject.toml", "setup.py", "LICENSE", "NOTICE"):
        shutil.copy(PROJECT / name, project)
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(tmp_path)]
    done = subprocess.run(
        [*command, str(project)],
        env={**os.environ, "CC": compiler, "GO": "none", "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = {n[len("stplan/") :] for n in archive.namelist() if n.startswith("stplan/")}
    expected = {str(p.relative_to(package)) for p in package.rglob("*.py")} | {"py.typed"}
    expected |= {str(p.relative_to(package)) for p in package.glob("shim/**/*") if p.is_file()}
    expected |= {f"csrc/{name}" for name in runtime_files()}
    compiled = {_library.file_name()} if compiler != "none" else set()
    assert names == expected | compiled
    assert wheel.name.endswith("-py3-none-any.whl") == (compiler == "none")
