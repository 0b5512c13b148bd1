"""Each test runs a script as a job of its own: the recorder changes the
interpreter it lives in."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List

import pytest

HERE = Path(__file__).resolve().parent
BOOTSTRAP = HERE.parent / "src" / "stplan" / "bootstrap"
FAKE_TORCH = HERE / "fake"


class Job:
    """A folder with a script, and what stplan's launcher would set up for it."""

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
        return {
            **{k: v for k, v in os.environ.items() if k not in ("RANK", "LOCAL_RANK")},
            "PYTHONPATH": os.pathsep.join([str(BOOTSTRAP), str(FAKE_TORCH)]),
            "STPLAN_RECORD": json.dumps(asked),
        }

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
        process = self.start(script, self.environment(**settings))
        out, err = process.communicate(timeout=60)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def snapshots(self) -> List[Any]:
        """Every trace, in the order of the names. No other file may lie there."""
        found = sorted(self.traces.iterdir())
        assert all(p.name.endswith(".pickle.gz") for p in found), found
        return [pickle.loads(gzip.decompress(p.read_bytes())) for p in found]

    def said(self) -> List[Dict[str, Any]]:
        """Every report, in the order of the names."""
        return [json.loads(p.read_text()) for p in sorted(self.reports.iterdir())]


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def steps_in(snapshot: Any) -> int:
    return sum(a["stage"] == "END" for a in snapshot["external_annotations"])
