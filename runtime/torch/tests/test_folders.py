"""The folder for files that are loaded into processes: who could write them."""

from __future__ import annotations

import os
import pwd
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import List, Optional

import pytest

from conftest import Job
from stplan import _build, _folders
from stplan._settings import RUN_ENVIRONMENT

SOURCE = Path(_build.__file__).resolve().parents[1]


def made(path: Path, *modes: int) -> Path:
    """Folders one in another, each with its mode."""
    for mode in modes:
        path = path / "f"
        path.mkdir()
        path.chmod(mode)
    return path


def refusal(folder: Path) -> Optional[str]:
    try:
        _folders.demand_private(str(folder))
    except _folders.Refused as refused:
        return str(refused)
    return None


@pytest.mark.parametrize(
    "modes, refused",
    [
        ((0o755, 0o700), None),
        ((0o700, 0o777), "f/f"),
        ((0o777, 0o700), "f"),
        ((0o1777, 0o700), None),  # a sticky folder on the way
        ((0o700, 0o1777), "f/f"),  # but not the last one
        ((0o757,), "f"),
    ],
)
def test_a_folder_that_others_can_change_is_refused(tmp_path: Path, modes: "tuple[int, ...]", refused: Optional[str]) -> None:
    folder = made(tmp_path, *modes)
    text = refusal(folder)
    if refused is None:
        assert text is None
    else:
        assert text is not None and f": {tmp_path / refused} can be written by other users (mode 0" in text


def test_every_folder_and_link_on_the_way_counts(tmp_path: Path) -> None:
    for name in ("loose", "private"):
        (tmp_path / name).mkdir(0o700)
    (tmp_path / "loose").chmod(0o777)
    (tmp_path / "private" / "in").mkdir()
    good, bad, relative, endless = (tmp_path / name for name in ("good", "loose/link", "relative", "endless"))
    good.symlink_to(tmp_path / "private" / "in")
    bad.symlink_to(tmp_path / "private")
    relative.symlink_to("private/../loose/link/in")
    endless.symlink_to("endless")
    assert refusal(good) is None
    for link in (bad, relative):
        assert f": {tmp_path}/loose can be written" in str(refusal(link))
    with pytest.raises(OSError, match="too many links"):
        refusal(endless)
    with pytest.raises(FileNotFoundError):
        refusal(tmp_path / "private" / "missing")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder to another user")
def test_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    folder = made(tmp_path, 0o755, 0o700)
    os.chown(folder.parent, 12345, 12345)
    assert refusal(folder) == f"{folder}: {folder.parent} belongs to another user, 12345"
    with pytest.raises(_folders.Refused):
        _folders.make_private(str(folder.parent / "new" / "folder"))
    assert os.listdir(folder.parent) == ["f"]
    # In a user namespace root itself is shown as unmapped.
    os.chown(folder.parent, 65534, 65534)
    assert (refusal(folder) is None) == _folders._in_namespace()


def test_the_group_of_the_user_alone_may_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = made(tmp_path, 0o775)
    monkeypatch.setattr(_folders, "_private_group", lambda found: found.st_uid == os.geteuid())
    assert refusal(folder) is None
    folder.chmod(0o777)
    assert refusal(folder) is not None


@pytest.mark.parametrize("umask", [0o000, 0o002, 0o077])
def test_the_cache_is_private_whatever_the_umask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, umask: int) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    old = os.umask(umask)
    try:
        path = Path(_build.cached("a.so", [b"1"], lambda draft: Path(draft).touch(0o777)))
    finally:
        os.umask(old)
    assert path.parent == tmp_path / "xdg" / "stplan"
    assert [stat.S_IMODE(p.stat().st_mode) for p in (path.parent.parent, path.parent, path)] == [0o700] * 3


def test_a_cache_of_a_former_version_is_mended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cache = tmp_path / "stplan"
    cache.mkdir()
    cache.chmod(0o775)
    built: List[str] = []
    path = Path(_build.cached("a.so", [b"1"], lambda draft: (built.append(draft), Path(draft).touch())[0]))
    assert path.parent == cache and stat.S_IMODE(cache.stat().st_mode) == 0o700
    # A file that others could have written is built again.
    path.chmod(0o775)
    assert _build.cached("a.so", [b"1"], lambda draft: (built.append(draft), Path(draft).touch())[0]) == str(path)
    assert len(built) == 2 and stat.S_IMODE(path.stat().st_mode) == 0o700
    assert capfd.readouterr().err == ""


def test_a_lock_that_is_a_link_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = _build.cached("a.so", [b"1"], lambda draft: Path(draft).touch())
    os.unlink(path)
    os.unlink(path + ".lock")
    (tmp_path / "precious").write_text("precious")
    os.symlink(tmp_path / "precious", path + ".lock")

    def fail(draft: str) -> None:
        raise _build.BuildError("no")

    with pytest.raises(OSError):
        _build.cached("a.so", [b"1"], fail)
    assert (tmp_path / "precious").read_text() == "precious"


@pytest.mark.parametrize("launched", [False, True])
def test_a_cache_that_others_can_write_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], launched: bool
) -> None:
    loose = made(tmp_path, 0o777)
    monkeypatch.setenv("XDG_CACHE_HOME", str(loose))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    if launched:  # then the launcher says it
        monkeypatch.setenv(RUN_ENVIRONMENT, "{}")
    path = Path(_build.cached("a.so", [b"1"], lambda draft: Path(draft).touch()))
    assert path.parent == tmp_path / f"stplan-{os.getuid()}" and not list(loose.iterdir())
    expected = (
        f"stplan: the cache {loose}/stplan: {loose} can be written by other users (mode 0777), a temporary folder "
        f"serves instead; run chmod go-w '{loose}', or set XDG_CACHE_HOME to a folder of your own\n"
    )
    assert capfd.readouterr().err == ("" if launched else expected)


def test_without_a_home_the_user_database_has_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("HOME", raising=False)
    entry = pwd.struct_passwd(("me", "x", os.getuid(), os.getgid(), "", str(tmp_path), "/bin/sh"))
    monkeypatch.setattr(_folders.pwd, "getpwuid", lambda uid: entry)
    assert _folders.user_cache() == str(tmp_path / ".cache" / "stplan")
    monkeypatch.setenv("HOME", "relative")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative too")
    assert _folders.user_cache() == str(tmp_path / ".cache" / "stplan")


def test_a_user_without_any_home_leaves_nothing_behind(tmp_path: Path) -> None:
    """No folder of the name ~ is made in the working folder, and the temporary build goes
    with the process if its folder cannot be shared."""
    script = (
        "import os, pwd\n"
        "from stplan import _build\n"
        "def unknown(uid): raise KeyError(uid)\n"
        "pwd.getpwuid = unknown\n"
        "print(_build.cached('a.so', [b'1'], lambda draft: open(draft, 'w').close()))\n"
    )
    temporary, work = tmp_path / "tmp", tmp_path / "work"
    for folder in (temporary, work):
        folder.mkdir(0o700)
    (temporary / f"stplan-{os.getuid()}").write_text("somebody took the name")
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(SOURCE), "TMPDIR": str(temporary)}
    done = subprocess.run([sys.executable, "-c", script], cwd=work, env=env, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"{temporary}/stplan-") and done.stderr == ""
    assert not list(work.iterdir())
    assert [path.name for path in temporary.iterdir()] == [f"stplan-{os.getuid()}"]


def test_a_process_that_outlives_the_job_is_left_alone(job: Job) -> None:
    """It still has the launcher's settings, and so have the processes that it starts."""
    job.reports.rmdir()
    for env in (job.environment(), job.run_environment()):
        done = job.finish(job.start("import torch\ntorch.empty(1)\nprint('trained')", env))
        assert (done.returncode, done.stdout, done.stderr) == (0, "trained\n", "")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder to another user")
def test_reports_do_not_go_to_another_users_folder(job: Job) -> None:
    os.chown(job.reports, 12345, 12345)
    done = job.run_served("import torch\ntorch.empty(1)\nprint('trained')")
    assert (done.returncode, done.stdout) == (0, "trained\n")
    assert done.stderr.startswith("stplan: cannot serve this process: STPLAN_RUN: reports: expected a folder of this user's, found one of user 12345")
    assert not list(job.reports.iterdir())
