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

import serve  # noqa: E402

GIB = 1 << 30


class World:
    """A folder with a fake stplan, a fake job, and the files that a bench writes."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, stplan: str, job: str) -> None:
        """stplan: an executable script; job: the text of job.py."""
        self.folder, self.monkeypatch = folder, monkeypatch
        (folder / "out").mkdir()
        (folder / "job.py").write_text(job)
        self.stplan = folder / "stplan"
        self.stplan.write_text(stplan)
        self.stplan.chmod(0o755)
        monkeypatch.setattr(serve, "HERE", folder)

    def call(self, bench: ModuleType, *options: str) -> Tuple[int, List[str]]:
        """Calls main of serve.py or real.py. Returns its exit code, and the lines of its
        document below the rule of the table's head."""
        name, out = bench.__name__, self.folder / "out"
        self.monkeypatch.setattr(sys, "argv", [f"{name}.py", str(self.stplan), "--out", str(out), *options])
        code = bench.main()
        lines = (out / f"{name}.md").read_text().splitlines()
        return code, lines[[line.startswith("| ---") for line in lines].index(True) + 1 :]


def cells(line: str) -> List[str]:
    """The cells of a row."""
    return [cell.strip() for cell in line.strip("|").split("|")]
