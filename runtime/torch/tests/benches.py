"""What the tests of the benches share. Importing this module puts the folder of
the benches on the module path."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import List, Tuple

import pytest

BENCH = Path(__file__).resolve().parents[1] / "bench"
sys.path.insert(0, str(BENCH))

import real  # noqa: E402
import serve  # noqa: E402

GIB = 1 << 30


# Starts the ranks like torchrun, and ends with the largest of their exit codes.
LAUNCHER = """
import os, subprocess, sys
ranks = [subprocess.Popen([sys.executable, *sys.argv[2:]], env={**os.environ, "RANK": str(rank)}) for rank in range(int(sys.argv[1]))]
sys.exit(max(rank.wait() for rank in ranks))
"""


class FakeDevice:
    """A device of 139 GiB that nobody uses."""

    total = 139 * GIB

    def memory(self) -> Tuple[int, int]:
        return 0, self.total

    def about(self) -> str:
        return "a fake"


class World:
    """A folder with a fake stplan, a fake job, and the files that a bench writes."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, stplan: str, job: str) -> None:
        """stplan: an executable script; job: the text of job.py."""
        self.folder, self.monkeypatch = folder, monkeypatch
        (folder / "out").mkdir()
        (folder / "job.py").write_text(job)
        self.stplan = executable(folder / "stplan", stplan)
        monkeypatch.setattr(serve, "HERE", folder)

    def call(self, bench: ModuleType, *options: str) -> Tuple[int, List[str]]:
        """Calls main of serve.py or real.py. Returns its exit code, and the lines of its
        document below the rule of the table's head."""
        name, out = bench.__name__, self.folder / "out"
        self.monkeypatch.setattr(sys, "argv", [f"{name}.py", str(self.stplan), "--out", str(out), *options])
        code = bench.main()
        lines = (out / f"{name}.md").read_text().splitlines()
        return code, lines[[line.startswith("| ---") for line in lines].index(True) + 1 :]


class WorldOfRanks(World):
    """A World with a fake launcher of ranks, a fake device, and the jobs dense and moe of
    real.py."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, stplan: str, job: str) -> None:
        super().__init__(folder, monkeypatch, stplan, job)
        (folder / "launcher.py").write_text(LAUNCHER)
        monkeypatch.setattr(real, "LAUNCHER", [sys.executable, str(folder / "launcher.py")])
        monkeypatch.setattr(serve, "Device", FakeDevice)
        monkeypatch.setattr(real, "jobs", lambda ranks: [real.Job(name, "job.py") for name in ("dense", "moe")])


def executable(path: Path, text: str) -> Path:
    """Writes a script that can be called, and returns its path."""
    path.write_text(text)
    path.chmod(0o755)
    return path


def cells(line: str) -> List[str]:
    """The cells of a row."""
    return [cell.strip() for cell in line.strip("|").split("|")]
