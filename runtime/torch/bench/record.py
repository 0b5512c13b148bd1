"""Records jobs of many kinds on a GPU, compiles and verifies every trace, and prints the
results as Markdown.

    python runtime/torch/bench/record.py bin/stplan > docs/results/record.md

Needs torch and one CUDA device. The exit code is 1 if a result is not the expected one.
"""

from __future__ import annotations

import gzip
import importlib.util
import json
import os
import pickle
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

TRAIN = Path(__file__).resolve().parent / "train.py"
STEPS = 4

# Jobs that run at the same time: most of the time of each is the import of
# torch. Jobs that are timed run alone.
TOGETHER = 5


class Case(NamedTuple):
    """A job, its expected exit code, and the expected number of steps of each
    of its traces. needs: a Python package without which the case is skipped."""

    name: str
    command: List[str]
    code: int = 0
    steps: Tuple[int, ...] = (STEPS,)
    options: Tuple[str, ...] = ()
    needs: Optional[str] = None


def train(mode: str, *launcher: str) -> List[str]:
    return [*(launcher or (sys.executable,)), str(TRAIN), mode]


TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "29577")
ACCELERATE = (sys.executable, "-m", "accelerate.commands.launch", "--num_processes", "1", "--num_machines", "1",
              "--mixed_precision", "no", "--dynamo_backend", "no")

CASES = [
    Case("plain loop", train("plain")),
    Case("plain loop, `--stacks none`", train("plain"), options=("--stacks", "none")),
    Case("plain loop, `--stacks all`", train("plain"), options=("--stacks", "all")),
    Case("plain loop, `--steps 0`", train("plain"), steps=(12,), options=("--steps", "0")),
    Case("two optimizers", train("two_optimizers")),
    Case("DataLoader, 4 forked workers, pinned memory", train("workers")),
    Case("torch.compile of the model", train("compiled")),
    Case("torch.compile of the optimizer's step", train("compiled_step"), steps=(0,)),
    Case("CUDA graph", train("graphs")),
    Case("torchrun, 2 ranks, DDP over gloo", train("ddp", *TORCHRUN), steps=(STEPS, STEPS)),
    Case("accelerate launch", train("plain", *ACCELERATE), needs="accelerate"),
    Case("Hugging Face Trainer", train("trainer"), needs="transformers"),
    Case("dies of OutOfMemoryError after 2 steps", train("oom"), code=1, steps=(2,)),
    Case("catches OutOfMemoryError and goes on", train("oom_survived")),
    Case("gets SIGTERM after 2 steps", train("terminated"), code=143, steps=(2,)),
    Case("calls os._exit after 2 steps", train("quick_exit"), code=5, steps=(2,)),
    Case("never touches CUDA", train("cpu_only"), code=1, steps=()),
]


class Bench:
    def __init__(self, stplan: str, folder: Path) -> None:
        self.stplan = stplan
        self.folder = folder
        self.problems: List[str] = []

    def expect(self, name: str, what: str, found: Any, expected: Any) -> None:
        if found != expected:
            self.problems.append(f"{name}: {what}: expected {expected}, found {found}")

    def record(self, name: str, command: List[str], *options: str) -> Tuple[Path, "subprocess.CompletedProcess[str]"]:
        traces = self.folder / re.sub(r"\W+", "-", name)
        return traces, run([self.stplan, "record", "-o", str(traces), *options, "--", *command])

    def rows(self, case: Case) -> List[str]:
        """The table's rows of a case, one for each trace."""
        try:
            return self.case(case)
        except (subprocess.TimeoutExpired, OSError, KeyError, ValueError) as error:
            self.problems.append(f"{case.name}: {type(error).__name__}: {error}")
            return []

    def case(self, case: Case) -> List[str]:
        if case.needs and importlib.util.find_spec(case.needs) is None:
            return [f"| {case.name} | | {case.needs} is not installed | | | |"]
        traces, done = self.record(case.name, case.command, "--steps", str(STEPS), *case.options)
        before = len(self.problems)
        found = sorted(traces.iterdir())
        steps = tuple(int(n) for n in re.findall(r"^/?\S+\.pickle\.gz: (\d+) steps?,", done.stderr, re.M))
        self.expect(case.name, "exit code", done.returncode, case.code)
        self.expect(case.name, "steps", steps, case.steps)
        self.expect(case.name, "traces", len(found), len(case.steps))
        rows = [self.row(case, trace, done.returncode) for trace in found]
        if len(self.problems) > before:
            print(f"{case.name}:\n{done.stderr[-3000:]}", file=sys.stderr)
        return rows or [f"| {case.name} | {done.returncode} | none | | | |"]

    def row(self, case: Case, trace: Path, code: int) -> str:
        """Import, compile and verify one trace."""
        plan = trace.with_suffix(".bin")
        imported = run([self.stplan, "-q", "import", str(trace), "-o", str(trace) + ".parquet", "--json"])
        compiled = run([self.stplan, "-q", "compile", str(trace), "-o", str(plan), "--json"])
        verified = run([self.stplan, "-q", "verify", str(plan), "--trace", str(trace)])
        for step in (imported, compiled, verified):
            self.expect(trace.name, " ".join(map(str, step.args[1:4])), (step.returncode, step.stderr), (0, ""))
        device = json.loads(imported.stdout)["devices"][0]
        self.expect(trace.name, "blocks live before recording began", device["initial_blocks"], 0)
        stem = re.sub(r"pid\d+", "pidP", trace.name)
        size = f"{trace.stat().st_size / 1024:,.0f} KiB"
        proven = "yes" if verified.returncode == 0 else "NO"
        return f"| {case.name} | {code} | {stem} | {device['allocations']:,} | {size} | {proven} |"

    def same_as_by_hand(self) -> None:
        """Compares the recording of the plain loop with that of the same loop
        with torch's own calls in the script, which stops at the same step."""
        snapshot = self.folder / "by-hand.pickle"
        env = {**os.environ, "BY_HAND": str(snapshot)}
        run([*train("byhand")], env)
        by_hand = events(pickle.loads(snapshot.read_bytes()))
        (trace,) = (self.folder / "plain-loop").glob("*.pickle.gz")
        recorded = events(pickle.loads(gzip.decompress(trace.read_bytes())))
        # The script takes its snapshot after the step's own tensors were freed; torch's
        # hook runs just before that.
        same = min(len(by_hand), len(recorded))
        equal = sum(a == b for a, b in zip(recorded, by_hand))
        self.expect("by hand", "equal events", equal, same)
        self.expect("by hand", "lengths less than 1 % apart", abs(len(by_hand) - len(recorded)) * 100 < same, True)
        print(f"\nWith `_record_memory_history` in the script: {len(by_hand):,} events. With `stplan record`:")
        print(f"{len(recorded):,} events. Of the first {same:,} pairs, {equal:,} have equal actions and sizes.")

    def undisturbed(self) -> None:
        """Compares losses and step times after a recording, and during one,
        with those of a run without it."""
        command = [*train("plain"), "--steps", "60"]
        runs: Dict[str, List[Tuple[List[str], float]]] = {"native": [], "recorded": []}
        for _ in range(2):
            runs["native"].append(figures(run(command).stdout))
            runs["recorded"].append(figures(self.record("undisturbed", command)[1].stdout))
            runs.setdefault("recording", []).append(figures(self.record("recording", command, "--steps", "0")[1].stdout))
        losses = {tuple(r[0]) for rs in runs.values() for r in rs}
        self.expect("undisturbed", "distinct sequences of 60 losses", len(losses), 1)
        print("\nThe plain loop with 60 steps, 2 runs of each kind in turn: the median time of the last 30 steps, in ms.\n")
        print("| native | recording ended after step 4 | recording still |\n| --- | --- | --- |")
        cell = {k: ", ".join(f"{r[1]:.2f}" for r in rs) for k, rs in runs.items()}
        print(f"| {cell['native']} | {cell['recorded']} | {cell['recording']} |")
        print(f"\nDistinct sequences of losses among the 6 runs, compared to the last bit: {len(losses)}.")


def run(command: List[str], env: Optional[Dict[str, str]] = None) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)


def events(snapshot: Any) -> List[Tuple[str, int]]:
    kinds = ("alloc", "free_requested")
    return [(e["action"], e["size"]) for e in snapshot["device_traces"][0] if e["action"] in kinds]


def figures(stdout: str) -> Tuple[List[str], float]:
    lines = dict(line.split(" ", 1) for line in stdout.splitlines() if " " in line)
    return lines["losses"].split(), float(lines["median_ms"])


def about() -> str:
    import torch

    return f"torch {torch.__version__}, {torch.cuda.get_device_name()}, Python {sys.version.split()[0]}"


def main() -> int:
    print("# Recording jobs on a GPU\n")
    print(f"Written by `runtime/torch/bench/record.py` on {about()}.")
    print(f"`stplan record --steps {STEPS}` of jobs of several kinds, all with one small transformer")
    print("(`runtime/torch/bench/train.py`). Every trace was imported and compiled, and its plan was")
    print("verified against it. Every trace begins before the process's first allocation.\n")
    print("| job | exit code | trace | allocations | trace size | plan verified |")
    print("| --- | ---: | --- | ---: | ---: | --- |")
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(os.path.abspath(sys.argv[1]), Path(folder))
        with ThreadPoolExecutor(TOGETHER) as pool:
            for rows in pool.map(bench.rows, CASES):
                print("\n".join(rows), flush=True)
        for check in (bench.same_as_by_hand, bench.undisturbed):
            try:
                check()
            except (subprocess.TimeoutExpired, OSError, KeyError, ValueError) as error:
                bench.problems.append(f"{check.__name__}: {type(error).__name__}: {error}")
    print("\nNot as expected:" + ("" if bench.problems else " nothing."))
    for problem in bench.problems:
        print(f"- {problem}")
    return 1 if bench.problems else 0


if __name__ == "__main__":
    sys.exit(main())
