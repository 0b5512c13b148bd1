"""Runs test files of PyTorch natively and under `stplan run`, several times, and writes
which tests pass natively and not under stplan.

    python runtime/torch/bench/torchtests.py REPOSITORY --pack .tests
    python runtime/torch/bench/torchtests.py .tests --stplan bin/stplan --plan job.bin --out docs/results

The first command copies the files from a git repository of PyTorch, with what they import
from its test folder, to carry them to another machine. The second runs them: natively,
without a plan, and, if there is one, with a plan, which is of some other job. Each process
takes the memory of that plan, so it should be small. FILES, paths in the checkout, choose
other files than those of FILES below. The installed torch may be of another release than
the files, because only the difference between the modes counts. It has to bring
torch.testing._internal, which needs the package expecttest.

Writes torchtests.md and torchtests.json to the folder --out. The exit code is 1 if a test
differs, or if there is another problem, for example that a file cannot be imported.
Needs torch and a CUDA device. torchtests_run.py says how tests are divided into processes,
and which outcome counts if a process dies.

Time, estimated for 12 jobs on 16 cores: a process takes about 8 s until its first test
(import of torch and of the file, the device's context). test_cuda.py has about 160 tests;
144 of them run side by side, in 9 chunks of 16. Three modes with 5 runs each are 135
processes, or 18 minutes of starting, 1.5 with 12 jobs. If the tests take 100 s natively,
15 times that is 25 minutes, 2 with 12 jobs. The 18 serial tests are 15 processes one after
the other, about 8 s each while the next one imports torch: 2 minutes. So all of it takes
about 6 minutes. Smaller chunks lose less when a process dies, but half the size costs 1.5
minutes more; larger ones leave jobs idle in the first run and at the end.
"""

from __future__ import annotations

import argparse
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Dict, List, Sequence, Tuple

import torchtests_pack
import torchtests_table
from table import Output
from torchtests_outcomes import PROCESS, Chunk, Ended, File, chunks_of, is_serial
from torchtests_process import LOADING, Clock, Limits, Mode
from torchtests_run import Runner

HERE = Path(__file__).resolve().parent

# Tests of a process; the docstring has the arithmetic.
CHUNK = 16

# Files whose tests compile models take longer for each test than the start of a process
# does, so their chunks are smaller. Every test of the last two has to be the first user
# of CUDA in its process. A test of test_c10d_nccl.py starts 2 processes or more; spawned,
# each of them would import the file for itself, which takes longer than the test.
FILES = (
    File("test/test_cuda.py", CHUNK),
    File("test/test_cuda_multigpu.py", CHUNK, many=True),
    File("test/test_cuda_expandable_segments.py", CHUNK),
    File("test/inductor/test_cudagraph_trees.py", 12),
    File("test/distributed/test_c10d_nccl.py", 12, weight=3, many=True, forks=True),
    File("test/test_cuda_primary_ctx.py", 1, many=True),
    File("test/test_cuda_trace.py", 1),
)

# Seconds between two writings of the JSON file, so that a call that is killed leaves
# something.
KEEP = 15.0

MODES = ("native", "no plan", "plan")


class Bench:
    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.options = options
        self.clock = Clock(options.time_limit)
        self.begin = time.monotonic()
        self.modes = modes(options)
        self.checkout = Path(options.checkout).resolve()
        self.runner = Runner(
            self.checkout, folder, self.modes, options.runs, options.jobs, options.devices,
            Limits(options.test_limit), self.clock, self.say, self.keep, options.passing, options.native_runs,
        )
        self.out = Output(options.out, "torchtests")
        self.files: List[Dict[str, Any]] = []
        self.problems: List[str] = []
        self.about = ""
        self.kept = time.monotonic()

    def chunks(self) -> List[Chunk]:
        """The chunks of all files, which are imported to list their tests."""
        files = [file_of(path) for path in self.options.files] or list(FILES)
        absent = [file.path for file in files if not (self.checkout / file.path).is_file()]
        if absent:
            sys.exit(f"torchtests.py: {self.checkout} has no {', '.join(absent)}")
        with ThreadPoolExecutor(1) as pool:
            machine = pool.submit(about)
            listed = self.runner.listed(files)
            self.about = f"{machine.result()}, tests of revision {revision(self.checkout)}"
        result: List[Chunk] = []
        for file, ended in listed.items():
            if ended.listed is None:
                self.unlisted(file, ended)
                continue
            tests = [(name, lines) for name, lines in ended.listed if re.search(self.options.only, f"{file.path}::{name}")]
            serial = {name: is_serial(name, lines, self.options.serial) for name, lines in tests}
            self.files.append({"file": file.path, "tests": len(tests), "serial": sum(serial.values())})
            if self.options.chunk:
                file = file._replace(chunk=self.options.chunk)
            result += chunks_of(file, list(serial), serial.__getitem__)
        return result

    def unlisted(self, file: File, ended: Ended) -> None:
        found = ended.unloadable
        why = found.why if found else ended.why
        self.files.append({"file": file.path, "tests": 0, "serial": 0})
        self.problems.append(f"{file.path}: cannot list its tests: {why}")
        self.say("\n".join([self.problems[-1], *(found.output if found else ended.output)]))

    def keep(self, end: bool = False) -> None:
        if end or time.monotonic() - self.kept > KEEP:
            self.out.keep(self.document())
            self.kept = time.monotonic()

    def document(self) -> Dict[str, Any]:
        """What torchtests.json has."""
        outcomes = []
        for (chunk, mode, run), found in self.runner.outcomes.items():
            for name, outcome in sorted(found.items(), key=lambda item: order(chunk, item[0])):
                cls, _, method = name.rpartition(".")
                where = {"file": chunk.file.path, "class": cls, "test": method, "mode": self.modes[mode].name, "run": run}
                outcomes.append({**where, **outcome._asdict(), "chunk": chunk.process[len(PROCESS) + 1 :]})
        return {
            "about": self.about,
            "command": shlex.join(["python", "runtime/torch/bench/torchtests.py", *sys.argv[1:]]),
            "modes": [mode.name for mode in self.modes],
            "runs": self.options.runs,
            "seconds": round(time.monotonic() - self.begin, 1),
            "files": self.files,
            "served": {mode.name: self.served(number) for number, mode in enumerate(self.modes) if mode.prefix},
            "problems": self.problems,
            "outcomes": outcomes,
        }

    def served(self, mode: int) -> Dict[str, Any]:
        """Sums up the summaries of `stplan run` in one mode."""
        summaries = [s for (_, m, _), found in self.runner.summaries.items() if m == mode for s in found]
        processes = [process for summary in summaries for process in summary["processes"]]
        devices = [device for process in processes for device in process["devices"]]
        reasons: Dict[str, int] = {}
        for process in processes:
            if process["backend"] is None:
                reason = str(process["error"])
                reasons[reason] = reasons.get(reason, 0) + 1
        return {
            "processes": len(processes),
            "not_served": reasons,
            "allocations": sum(device["allocations"] for device in devices),
            "planned_allocations": sum(device["planned_allocations"] for device in devices),
            "refused_frees": sum(device["refused_frees"] for device in devices),
        }

    def run(self) -> int:
        chunks = self.chunks()
        if self.options.list:
            for chunk in chunks:
                for name in chunk.tests:
                    print(f"{chunk.file.path}::{name} ({chunk.process[len(PROCESS) + 1 :]})")
            return 1 if self.problems else 0
        self.runner.run(chunks)
        kept = self.document()
        if not torchtests_table.ran(kept["outcomes"]):
            self.problems.append("no test ran")
        for mode, sums in kept["served"].items():
            if not sums["allocations"] and torchtests_table.ran(o for o in kept["outcomes"] if o["mode"] == mode):
                self.problems.append(f"{mode}: stplan counted no allocation, so it served nothing")
        self.keep(end=True)
        self.out.lines(torchtests_table.document([kept]))
        found = torchtests_table.differences(torchtests_table.grouped(kept["outcomes"]), kept["modes"])
        return 1 if found or self.problems else 0

    def say(self, text: str) -> None:
        print(f"[{time.monotonic() - self.begin:4.0f} s] {text}", file=sys.stderr, flush=True)


def order(chunk: Chunk, name: str) -> int:
    return chunk.tests.index(name) if name in chunk.tests else len(chunk.tests)


def file_of(path: str) -> File:
    known = {file.path: file for file in FILES}
    return known.get(path, File(path, CHUNK))


def modes(options: argparse.Namespace) -> List[Mode]:
    """The modes that --modes asks for, by default those that there is a binary and a plan
    for."""
    # In a prefix {summary} is replaced, so other braces are doubled.
    stplan, plan = (str(Path(path).resolve()).replace("{", "{{").replace("}", "}}") if path else "" for path in (options.stplan, options.plan))
    served = (stplan, "run", "-q", "--memory", options.memory, "--summary", "{summary}")
    known: Dict[str, Tuple[str, ...]] = {"native": ()}
    if options.stplan:
        known["no plan"] = (*served, "--no-plan", "--")
        if options.plan:
            known["plan"] = (*served, plan, "--")
    asked = [name.strip().replace("-", " ") for name in options.modes.split(",")] if options.modes else list(known)
    unknown = [name for name in asked if name not in known]
    if unknown or len(set(asked)) < len(asked):
        sys.exit(f"torchtests.py: --modes: expected different ones of {', '.join(known)}, found {options.modes}; the others need --stplan and --plan")
    return [Mode(name, known[name]) for name in asked]


def about() -> str:
    """The machine. Asked in another process, so that this one has no context on the
    device."""
    command = [sys.executable, "-c", "import features; print(features.about())"]
    try:
        done = subprocess.run(command, cwd=HERE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=LOADING, check=True)
    except (subprocess.TimeoutExpired, subprocess.CalledProcessError):
        return f"no torch, Python {sys.version.split()[0]}"
    return done.stdout.strip()


def revision(checkout: Path) -> str:
    """The revision of the test files: `pack` has left a note, or git knows it."""
    note = checkout / "REVISION"
    if note.is_file():
        return note.read_text().strip()[:12]
    done = subprocess.run(["git", "-C", str(checkout), "rev-parse", "HEAD"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return done.stdout.strip()[:12] or "unknown"


def arguments(given: Sequence[str]) -> argparse.Namespace:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", help="folder of PyTorch's checkout, or what --pack has made")
    parser.add_argument("files", nargs="*", help="test files, relative to the checkout")
    parser.add_argument("--stplan", default="", help="the stplan binary; without it the tests only run natively")
    parser.add_argument("--plan", default="", help="plan for the mode with a plan")
    parser.add_argument("--modes", default="", help="modes, separated by commas: " + ", ".join(MODES) + "; the others are compared with the first")
    parser.add_argument("--memory", default="auto", help="the option of stplan run")
    parser.add_argument("--runs", type=int, default=3, help="runs in each mode (3)")
    parser.add_argument("--native-runs", type=int, default=0, help="runs in the first mode, if it needs fewer than the others; 0, the default, is --runs")
    parser.add_argument("--jobs", type=int, default=8, help="processes at the same time, on all devices together (8)")
    parser.add_argument("--chunk", type=int, default=0, help="tests of a process; 0, the default, is what FILES says")
    parser.add_argument("--devices", type=int, default=1, help="number of GPUs (1)")
    parser.add_argument("--only", default="", help="regular expression: run the tests whose FILE::CLASS.TEST it matches")
    parser.add_argument("--passing", action="store_true", help="after the first native run only run the tests that passed in it: the others are not compared")
    parser.add_argument("--serial", default="", help="regular expression for the CLASS.TEST that need a device for themselves, besides those found by decorator or name")
    parser.add_argument("--test-limit", type=float, default=60.0, help="seconds until a test is ended as hanging (60)")
    parser.add_argument("--time-limit", type=float, default=3600.0, help="seconds for everything; what has not run by then is listed (3600)")
    parser.add_argument("--list", action="store_true", help="print the tests and their chunks only")
    parser.add_argument("--out", help="folder for torchtests.md and torchtests.json")
    parser.add_argument("--pack", help="copy the files from the git repository CHECKOUT to this folder, print their sizes, and end")
    parser.add_argument("--revision", default="HEAD", help="revision that --pack copies (HEAD)")
    return parser.parse_intermixed_args(given)


def main() -> int:
    options = arguments(sys.argv[1:])
    if options.pack:
        repository = torchtests_pack.Repository(Path(options.checkout), options.revision)
        copied = torchtests_pack.pack(repository, Path(options.pack), options.files or [file.path for file in FILES])
        print("\n".join(torchtests_pack.report(copied)))
        return 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # both end the call in good order
    with tempfile.TemporaryDirectory() as folder:
        return Bench(options, Path(folder)).run()


if __name__ == "__main__":
    sys.exit(main())
