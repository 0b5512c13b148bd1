"""Exchanges data between two GPUs in every way in which somebody outside knows addresses of
the allocator's memory, natively and under `stplan run`, with moving as it is and with
`--move off`, and prints which came out right, as Markdown.

    python runtime/torch/bench/registered.py bin/stplan > docs/results/registered.md

Each rank makes gaps in its memory before every exchange, so that idle memory moves, or has to
stay and that is said. Needs torch with NCCL, and two CUDA devices. The exit code is 1 if
anything fails under stplan that passes natively, or if it is not known that memory moved or
that moving was off.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional, Tuple

WORKER = Path(__file__).resolve().parent / "registered_worker.py"

# Seconds until a job is ended as hanging: a registration that has gone stale may hang it.
TIMEOUT = 60

RANKS = 2

OFF = re.compile(r"stplan: from now on memory does not move: (.*)")


class Case(NamedTuple):
    """A way to exchange data: a mode of registered_worker.py, and variables of the
    environment."""

    title: str
    mode: str
    environment: Dict[str, str] = {}


CASES = [
    Case("NCCL: collectives, send and receive", "collectives", {"TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK": "0"}),
    Case("NCCL: register-all hook", "collectives", {"TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK": "1"}),
    Case("NCCL: collectives in CUDA graphs", "graphs"),
    Case("NCCL: the same, graphs not registered", "graphs", {"NCCL_GRAPH_REGISTER": "0"}),
    Case("NCCL: a registered MemPool", "mempool"),
    Case("CUDA IPC, both ways", "ipc"),
    Case("symmetric memory", "symmetric"),
]


class Result(NamedTuple):
    """One job. problem: why it failed, or "". moved: bytes that moved, of all ranks, None if
    unknown. off: why moving was off, or ""."""

    problem: str
    moved: Optional[int] = None
    off: str = ""


def run(command: List[str], environment: Dict[str, str]) -> "subprocess.CompletedProcess[str]":
    """Runs the command in a session of its own, all of which is killed at the time limit."""
    process = subprocess.Popen(
        command,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=TIMEOUT)
        return subprocess.CompletedProcess(command, process.returncode, out, err)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        return subprocess.CompletedProcess(command, 124, out, f"{err}\nstill running after {TIMEOUT} s")


def judged(done: "subprocess.CompletedProcess[str]", asked_off: bool = False, served: bool = True) -> Result:
    """The result of a job. Under stplan it has passed only if memory has moved or moving was
    off, and if nothing has moved where it was."""
    if done.returncode != 0:
        return Result(f"exit code {done.returncode}: {last(done)}")
    ranks = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"rank"')]
    if sorted(found["rank"] for found in ranks) != list(range(RANKS)):
        return Result(f"expected the results of {RANKS} ranks, found {len(ranks)}")
    if not served:
        return Result("")
    if any(found["moved_bytes"] is None for found in ranks):
        return Result("stplan did not serve it")
    moved = sum(found["moved_bytes"] for found in ranks)
    said = OFF.search(done.stderr)
    off = "asked for" if asked_off else said[1].strip() if said else ""
    if moved == 0 and not off:
        return Result("nothing moved, and moving was not off", moved)
    if moved > 0 and asked_off:
        return Result(f"{moved} B moved with --move off", moved, off)
    return Result("", moved, off)


def last(done: "subprocess.CompletedProcess[str]") -> str:
    lines = (done.stdout + done.stderr).strip().splitlines()
    return next((line.strip() for line in reversed(lines) if re.search(r"Error|stplan:|running", line)), lines[-1] if lines else "")


def attempt(case: Case, stplan: Optional[str], move: str, summary: str) -> Result:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS), str(WORKER), case.mode]
    if stplan is not None:
        command = [stplan, "-q", "run", "--no-plan", "--move", move, "--summary", summary, "--", *command]
    return judged(run(command, case.environment), move == "off", stplan is not None)


def cell(result: Optional[Result]) -> str:
    if result is None:
        return ""
    if result.problem:
        return "FAILED"
    moved = "" if result.moved is None else f"; {result.moved / 1e9:.1f} GB moved"
    return "passed" + moved + (f"; off: {result.off}" if result.off else "")


def row(case: Case, native: Result, served: Dict[str, Result]) -> str:
    set_to = " ".join(f"`{name}={value}`" for name, value in case.environment.items())
    return f"| {case.title} | {set_to} | {cell(native)} | {cell(served.get('auto'))} | {cell(served.get('off'))} |"


def failures(case: Case, native: Result, served: Dict[str, Result]) -> List[str]:
    """What fails under stplan. Where the machine cannot do it natively, nothing is shown."""
    if native.problem:
        return []
    return [f"{case.title}, --move {move}: {result.problem}" for move, result in served.items() if result.problem]


def about() -> str:
    import torch

    names = sorted({torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())}) or ["no device"]
    nccl = ".".join(map(str, torch.cuda.nccl.version())) if torch.cuda.is_available() else "none"
    return f"torch {torch.__version__}, NCCL {nccl}, {torch.cuda.device_count()} of {', '.join(names)}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stplan", nargs="?", help="the stplan binary; without it the jobs run only natively")
    parser.add_argument("--only", default="", help="regular expression for the titles of the cases to run")
    options = parser.parse_args()
    cases = [case for case in CASES if re.search(options.only, case.title)]
    if not cases:
        parser.error(f"--only: expected a pattern of {', '.join(case.title for case in CASES)}; found {options.only!r}")
    stplan = str(Path(options.stplan).resolve()) if options.stplan else None

    print("# Registered memory\n")
    print(f"Written by `runtime/torch/bench/registered.py` on {about()}.")
    print("Two ranks exchange data, each on a device of its own, and check every value. Before each")
    print("exchange they leave gaps in their memory and ask for what fits none: so idle memory moves")
    print("elsewhere, or moving is off, and why.\n")
    print("| | variables | native | stplan run | `--move off` |\n| --- | --- | --- | --- | --- |")
    problems: List[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for case in cases:
            native, served = everywhere(case, stplan, folder)
            print(row(case, native, served), flush=True)
            if native.problem:
                print(f"{case.title}, natively: {native.problem}", file=sys.stderr)
            problems += failures(case, native, served)
    print(f"\n{len(cases)} cases, {len(problems)} failures under stplan.")
    for text in problems:
        print(f"\n    {text}")
    return 1 if problems else 0


def everywhere(case: Case, stplan: Optional[str], folder: str) -> Tuple[Result, Dict[str, Result]]:
    native = attempt(case, None, "auto", "")
    if stplan is None:
        return native, {}
    return native, {move: attempt(case, stplan, move, str(Path(folder) / "summary.json")) for move in ("auto", "off")}


if __name__ == "__main__":
    sys.exit(main())
