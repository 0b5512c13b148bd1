"""Fixtures. Most tests run a script as a job in a process of its own, because the
recorder changes the interpreter that it runs in. If the real torch, a compiler
and CUDA's headers are installed, some tests run torch on a simulated device."""

from __future__ import annotations

import gzip
import importlib.util
import json
import os
import pickle
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List

import pytest

import simulated
from stplan import _build, _library, _prebuilt

HERE = Path(__file__).resolve().parent
BOOTSTRAP = HERE.parent / "src" / "stplan" / "bootstrap"
FAKE_TORCH = HERE / "fake"
FAKE_SERVING = HERE / "serving"


needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None or None in (_build.compiler("c"), _build.compiler("c++")),
    reason="torch is not installed, or there is no compiler",
)


def plan_file(*iterations: int) -> bytes:
    """As much of a plan (docs/planfile.md) as says how many iterations it was made of: a producer, and a record for each device."""
    sections = [b"a test", *(96 * b"\0" + struct.pack("<I", count) + 52 * b"\0" for count in iterations)]
    data, table = b"", b""
    for number, section in enumerate(sections):
        offset = 32 * (1 + len(sections)) + len(data)
        table += struct.pack("<IIQQQ", 2 if number else 1, number, offset, len(section), 1)
        data += section + -len(section) % 8 * b"\0"
    return struct.pack("<8sIIQQ", b"\x89STPLAN\n", 1, len(sections), 32 + len(table) + len(data), 0) + table + data


class Job:
    """A folder with a script, and the folders and environment that stplan's
    launcher would set up for it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.traces = folder / "traces"
        self.reports = folder / "reports"
        self.traces.mkdir()
        self.reports.mkdir()

    def environment(self, **settings: Any) -> Dict[str, str]:
        asked = {
            "directory": str(self.traces),
            "reports": str(self.reports),
            "steps": 4,
            "stacks": "none",
        }
        asked.update(settings)
        return self._bare(FAKE_TORCH, STPLAN_RECORD=json.dumps(asked))

    def run_environment(self, **settings: Any) -> Dict[str, str]:
        """The environment of a served job. Its allocator is a stand-in that prints its
        arguments (serving/sitecustomize.py)."""
        asked = {"plan": None, "by_rank": False, "memory": "auto", "move": "auto", "reports": str(self.reports)}
        asked.update(settings)
        return self._bare(FAKE_TORCH, FAKE_SERVING, STPLAN_RUN=json.dumps(asked))

    def _bare(self, *path: Path, **variables: str) -> Dict[str, str]:
        own = {k: v for k, v in os.environ.items() if k not in ("RANK", "LOCAL_RANK")}
        return {**own, "PYTHONPATH": os.pathsep.join(map(str, [BOOTSTRAP, *path])), **variables}

    def start(self, script: str, env: Dict[str, str], *options: str) -> "subprocess.Popen[str]":
        path = self.folder / "train.py"
        path.write_text(script)
        return subprocess.Popen(
            [sys.executable, *options, str(path)],
            cwd=self.folder,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, script: str, **settings: Any) -> "subprocess.CompletedProcess[str]":
        return self.finish(self.start(script, self.environment(**settings)))

    def run_served(self, script: str, **variables: str) -> "subprocess.CompletedProcess[str]":
        return self.finish(self.start(script, {**self.run_environment(), **variables}))

    @staticmethod
    def finish(process: "subprocess.Popen[str]") -> "subprocess.CompletedProcess[str]":
        out, err = process.communicate(timeout=60)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def snapshots(self) -> List[Any]:
        """Every trace, in the order of the names. No other file may be in the folder."""
        found = sorted(self.traces.iterdir())
        assert all(p.name.endswith(".pickle.gz") for p in found), found
        return [pickle.loads(gzip.decompress(p.read_bytes())) for p in found]

    def said(self) -> List[Dict[str, Any]]:
        """Every report, in the order of the names."""
        return [json.loads(p.read_text()) for p in sorted(self.reports.glob("*.json"))]


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def steps_in(snapshot: Any) -> int:
    return sum(a["stage"] == "END" for a in snapshot["external_annotations"])


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def no_prebuilt(monkeypatch: pytest.MonkeyPatch) -> None:
    """No wheel's shim is found: for tests of what happens without one, also if the others run
    with an installed wheel (STPLAN_PACKAGE)."""
    monkeypatch.delenv(_library.PACKAGE_ENVIRONMENT, raising=False)
    for folder in _library.packages():
        if os.path.exists(os.path.join(folder, _prebuilt.FOLDER, _prebuilt.INDEX)):
            pytest.skip(f"{folder} is installed beside torch, and has shims")


@pytest.fixture(scope="session")
def device(tmp_path_factory: pytest.TempPathFactory) -> Dict[str, str]:
    """The environment of a process that has a simulated device."""
    return simulated.compile_into(tmp_path_factory.mktemp("device"))
