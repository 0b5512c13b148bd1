"""The logic of registered.py: the jobs that it runs, which results count as passed, and its
table. The jobs themselves need two GPUs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, List, Optional

import pytest

from benches import BENCH, cells

import registered
import registered_worker

SAID = "stplan: from now on memory does not move: NCCL registers it\n"


def done(moved: Any = 0, code: int = 0, said: str = "", ranks: int = 2) -> "subprocess.CompletedProcess[str]":
    out = "".join(json.dumps({"rank": i, "rounds": 12, "moved_bytes": moved}) + "\n" for i in range(ranks))
    return subprocess.CompletedProcess([], code, out, said)


@pytest.mark.parametrize(
    "found, asked_off, served, problem, cell",
    [
        (done(1 << 30), False, True, "", "passed; 2.1 GB moved"),
        (done(0, said=SAID), False, True, "", "passed; 0.0 GB moved; off: NCCL registers it"),
        (done(1 << 30, said=SAID), False, True, "", "passed; 2.1 GB moved; off: NCCL registers it"),
        (done(0), True, True, "", "passed; 0.0 GB moved; off: asked for"),
        (done(None), False, False, "", "passed"),
        (done(0), False, True, "nothing moved, and moving was not off", "FAILED"),
        (done(5), True, True, "10 B moved with --move off", "FAILED"),
        (done(None), False, True, "stplan did not serve it", "FAILED"),
        (done(7, ranks=1), False, True, "expected the results of 2 ranks, found 1", "FAILED"),
        (done(7, code=1, said="x\nAssertionError: wrong\ny\n"), False, True, "exit code 1: AssertionError: wrong", "FAILED"),
        (done(7, code=124, said="\nstill running after 180 s"), False, True, "exit code 124: still running after 180 s", "FAILED"),
    ],
)
def test_what_passes(
    found: "subprocess.CompletedProcess[str]", asked_off: bool, served: bool, problem: str, cell: str
) -> None:
    result = registered.judged(found, asked_off, served)
    assert (result.problem, registered.cell(result)) == (problem, cell)


def test_a_failure_counts_only_where_the_machine_can_do_it_natively() -> None:
    case, wrong, right = registered.CASES[0], registered.Result("wrong"), registered.Result("")
    assert registered.failures(case, right, {"auto": wrong, "off": right}) == [f"{case.title}, --move auto: wrong"]
    assert registered.failures(case, wrong, {"auto": wrong}) == []


def test_every_mode_is_run() -> None:
    assert {case.mode for case in registered.CASES} == set(registered_worker.MODES)
    assert len({case.title for case in registered.CASES}) == len(registered.CASES)


STPLAN = """#!{python}
import json, os, subprocess, sys
move = sys.argv[sys.argv.index("--move") + 1]
hook = os.environ.get("TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK")
assert sys.argv[1:4] == ["-q", "run", "--no-plan"] and sys.argv[sys.argv.index("--") + 1] == sys.executable
assert sys.argv[-2].endswith("registered_worker.py")
if hook == "1" and move == "auto":
    sys.stderr.write({said!r})
moved = 0 if move == "off" or hook == "1" or sys.argv[-1] == "symmetric" else 10**9
for rank in range(2):
    print(json.dumps(dict(rank=rank, rounds=12, moved_bytes=moved)))
"""


def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str) -> "tuple[int, List[str]]":
    def natively(case: registered.Case, stplan: Optional[str], move: str, summary: str) -> registered.Result:
        return registered.Result("no peer access" if case.mode == "ipc" else "") if stplan is None else attempt(case, stplan, move, summary)

    attempt = registered.attempt
    monkeypatch.setattr(registered, "attempt", natively)
    monkeypatch.setattr(registered, "about", lambda: "a machine")
    monkeypatch.setattr(sys, "argv", ["registered.py", *arguments])
    code = registered.main()
    lines = capsys.readouterr().out.splitlines()
    return code, lines[[line.startswith("| ---") for line in lines].index(True) + 1 :]


def test_the_table(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    stplan = tmp_path / "stplan"
    stplan.write_text(STPLAN.format(python=sys.executable, said=SAID))
    stplan.chmod(0o755)
    code, lines = call(monkeypatch, capsys, str(stplan))
    rows = {cells(line)[0]: cells(line)[1:] for line in lines if line.startswith("|")}
    assert list(rows) == [case.title for case in registered.CASES]
    assert rows["NCCL: register-all hook"] == [
        "`TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK=1`",
        "passed",
        "passed; 0.0 GB moved; off: NCCL registers it",
        "passed; 0.0 GB moved; off: asked for",
    ]
    assert rows["CUDA IPC, both ways"] == ["", "FAILED", "passed; 2.0 GB moved", "passed; 0.0 GB moved; off: asked for"]
    assert rows["symmetric memory"][2] == "FAILED"
    assert code == 1 and lines[-1] == "    symmetric memory, --move auto: nothing moved, and moving was not off"
    assert f"{len(registered.CASES)} cases, 1 failures under stplan." in lines


def test_it_runs_natively_alone(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    code, lines = call(monkeypatch, capsys, "--only", "symmetric|MemPool")
    assert code == 0 and [cells(line)[2:] for line in lines if line.startswith("|")] == [["passed", "", ""]] * 2
    with pytest.raises(SystemExit):
        call(monkeypatch, capsys, "--only", "nothing like it")
    assert "--only: expected a pattern of NCCL" in capsys.readouterr().err


def test_a_job_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registered, "TIMEOUT", 1)
    result = registered.judged(registered.run([sys.executable, "-c", "import time; time.sleep(60)"], {}))
    assert result.problem == "exit code 124: still running after 1 s"


def test_the_line_that_is_looked_for_is_the_runtimes() -> None:
    source = (BENCH.parents[1] / "cuda" / "process.c").read_text()
    found = re.search(r'stplan_say\("(from now on memory does not move: )%s"', source)
    assert found is not None and registered.OFF.pattern == f"stplan: {found[1]}(.*)"
