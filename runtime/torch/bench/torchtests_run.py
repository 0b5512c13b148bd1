"""Runs tests in processes of their own, many at the same time, and decides which outcome
of a test counts. torchtests.py has the options, and says how the results are used.

The tests of a file are divided into chunks. A process runs one chunk, in one mode (native,
or under `stplan run`) and in one run. A chunk has the same tests in the same order in
every mode and run, so that each test finds the same company of tests before it.

What a process leaves unfinished, because it died or was stopped, goes to a second process,
what that one leaves to two processes, and what those leave to one process per test. So does a failure that may be the
fault of an earlier test of the same process. The first run of the first mode is the
*reference*; a chunk's other runs begin when its reference is complete. A failure is doubted

- in the reference, if an earlier test of the process has failed too;
- in the other runs, if an earlier test of the process has failed that had not failed in the
  reference, or if this test's failure was doubted in the reference.

So the first test of a process that fails unlike the reference is believed, and what fails
after it has to fail in a fresh process as well.
"""

from __future__ import annotations

import itertools
import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

WORKER = Path(__file__).resolve().parent / "torchtests_worker.py"

# Outcomes. The first two are good, the next four are bad, and the last two mean that the
# test did not run: it died or hung in the reference, or the time was over.
PASSED, SKIPPED = "passed", "skipped"
FAILED, DIED, HUNG, MISSING = "failed", "died", "hung", "missing"
LEFT_OUT, NOT_RUN = "left out", "not run"
BAD = (FAILED, DIED, HUNG, MISSING)

# The name under which a chunk's processes are listed among its tests: whether they ended
# well between the tests and at exit.
PROCESS = "(process)"

# Imported by a process before it waits for its turn on the device. They do not initialise
# CUDA; other modules of torch.testing do.
PRELOAD = ("torch", "torch.testing._internal.common_utils")

# Seconds until a process is ended that does not get as far as its first test. The import
# of torch and of a test file takes about 10 s, several times that if many start at once.
LOADING = 150.0

# Seconds between the signals that end a process: the first lets Python print where it is,
# the second lets stplan write its summary.
GRACE = 3.0

# A test that takes long in the reference may take this many times as long elsewhere before
# it counts as hanging, even if that is more than the limit.
SLOWER = 3.0

# Names of tests that need a large share of the device's memory, change its limit, or
# measure what all processes use, and decorators that say the same.
SERIAL_NAME = re.compile(r"oom|out_of_memory|memory_fraction|large|mem_get_info")
SERIAL_DECORATOR = re.compile(r"^@([\w.]*\.)?serial(Test)?\b|large\w*TensorTest|LARGE_TENSOR")

# Seconds between two looks at a process.
LOOK = 0.05

# Lines and characters of a test's output that are kept.
LINES, CHARACTERS = 15, 3000

# The number of processes that share a chunk's tests in the first round, in the second and
# so on; after these each test is alone. In most chunks only a few tests die, so what a
# death leaves unfinished can mostly run together.
ROUNDS = (1, 1, 2)
ALONE = len(ROUNDS)


class File(NamedTuple):
    """A test file. path is relative to the checkout. chunk: tests of a process.
    weight: jobs that a process counts for, because its tests start processes themselves.
    many: its tests use all devices, not only the first."""

    path: str
    chunk: int
    weight: int = 1
    many: bool = False


class Chunk(NamedTuple):
    """Tests that run in one process. serial: no other process may use its device
    meanwhile."""

    file: File
    number: int
    tests: Tuple[str, ...]
    serial: bool

    @property
    def process(self) -> str:
        return f"{PROCESS}.{'serial ' if self.serial else ''}chunk {self.number}"


class Outcome(NamedTuple):
    """What became of a test. why: one line; output: the last lines. company: what
    happened to it, in an earlier process, after other tests; then this outcome is of
    a fresh process. tries: number of processes that began it or should have."""

    outcome: str
    seconds: float = 0.0
    why: str = ""
    output: Tuple[str, ...] = ()
    company: str = ""
    tries: int = 1

    @property
    def bad(self) -> bool:
        return self.outcome in BAD


class Ended(NamedTuple):
    """What a process left. results: of the tests that ended, in their order. running: the
    test in the middle of which the process ended. missing: tests that the file does not
    have here. unloadable: why the file could not be imported. fixtures: what unittest
    reported in place of a test, by its description. why: how the process ended, "" if by
    itself with exit code 0; outcome: died or hung in that case. cut: it was ended because
    the time was over. summary: that of `stplan run`. loaded: the file was imported."""

    results: Dict[str, Outcome] = {}
    running: str = ""
    seconds: float = 0.0
    missing: Tuple[str, ...] = ()
    unloadable: Optional[Outcome] = None
    fixtures: Tuple[Tuple[str, Outcome], ...] = ()
    listed: Optional[List[Tuple[str, List[str]]]] = None
    outcome: str = PASSED
    why: str = ""
    output: Tuple[str, ...] = ()
    cut: bool = False
    summary: Optional[Dict[str, Any]] = None
    loaded: bool = False


class Clock:
    """When everything has to end, in seconds of time.monotonic. cut ends it now."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        return self._end - time.monotonic()

    def cut(self) -> None:
        self._end = 0.0


def judge(asked: Sequence[str], ended: Ended, reference: Optional[Mapping[str, Outcome]], round_: int) -> Dict[str, Optional[Outcome]]:
    """The outcome of each test that the process should have run, or None if the test
    has to run again. reference: the outcomes of the reference; None if this is it."""
    alone = round_ >= ALONE
    shown = in_order(asked, ended, round_)
    if ended.unloadable is not None:
        return shown
    judged: Dict[str, Optional[Outcome]] = {}
    upset = False
    for name, found in shown.items():
        known = reference.get(name) if reference is not None else None
        expected = known is not None and known.bad
        doubted = not expected and (upset or bool(known and known.company))
        judged[name] = None if found is not None and found.bad and doubted and not alone else found
        if found is not None and found.bad and (name in ended.results or name == ended.running):
            upset = upset or not expected
    return judged


def in_order(asked: Sequence[str], ended: Ended, round_: int) -> Dict[str, Optional[Outcome]]:
    """What the process shows of each test, in the order in which they ran; None if that
    is nothing. A test that was alone in its process answers for it. If the second process
    does not get through the import of the file either, all of its tests do."""
    final = round_ >= ALONE or (round_ > 0 and not ended.loaded)
    found: Dict[str, Optional[Outcome]] = dict(ended.results)
    if ended.running:
        outcome = NOT_RUN if ended.cut else ended.outcome
        found[ended.running] = Outcome(outcome, ended.seconds, ended.why, ended.output)
    for name in asked:
        if name in found:
            continue
        if ended.cut:
            found[name] = Outcome(NOT_RUN, why=ended.why)
        elif ended.unloadable is not None:
            found[name] = ended.unloadable
        elif name in ended.missing:
            found[name] = Outcome(MISSING, why="the file has no such test here")
        else:
            found[name] = fixture_of(name, ended)
            if found[name] is None and final:
                why = f"before the test began: {ended.why}" if ended.why else "the process ended without running it"
                found[name] = Outcome(ended.outcome if ended.why else DIED, ended.seconds, why, ended.output)
    return found


def fixture_of(name: str, ended: Ended) -> Optional[Outcome]:
    """The outcome of a failed setUpClass or setUpModule, if it kept the test from
    running. A description is "setUpClass (module.Class)" or "setUpModule (module)"."""
    cls = name.rpartition(".")[0]
    for what, outcome in ended.fixtures:
        of = what.partition("(")[2].rstrip(")")
        if what.startswith("setUpModule") or (what.startswith("setUpClass") and f".{of}".endswith(f".{cls}")):
            return outcome._replace(why=f"{what}: {outcome.why}")
    return None


def process_outcome(ended: Ended) -> Optional[Outcome]:
    """How the process ended, apart from its tests: None if it ended in the middle of a
    test, or if it never came to its tests, because then they have this outcome."""
    if ended.running or ended.cut or not ended.loaded:
        return None
    for what, outcome in ended.fixtures:
        if what.startswith("tearDown") and outcome.bad:
            return outcome._replace(why=f"{what}: {outcome.why}")
    if ended.why:
        last = list(ended.results)[-1:]
        after = f"after {last[0]}: " if last else "before the first test: "
        return Outcome(ended.outcome, why=after + ended.why, output=ended.output)
    return Outcome(PASSED)


class Mode(NamedTuple):
    """How a test process is started: prefix stands before its command. {summary} in it is
    the file for the summary of `stplan run`."""

    name: str
    prefix: Tuple[str, ...] = ()


class Limits(NamedTuple):
    """In seconds: one test, and the import of a file."""

    test: float
    loading: float = LOADING


class Process:
    """One process of the worker, from its start to its end."""

    def __init__(
        self, folder: Path, mode: Mode, path: Path, tests: Optional[Sequence[str]], environment: Mapping[str, str], cwd: Path, wait: bool
    ) -> None:
        folder.mkdir()
        self._folder = folder
        self._events, self._log = folder / "events", folder / "log"
        self._events.touch()
        self._summary = folder / "summary.json"
        request = {"file": str(path), "tests": tests, "events": str(self._events), "log": str(self._log), "preload": PRELOAD, "wait": wait}
        (folder / "request.json").write_text(json.dumps(request))
        prefix = [part.format(summary=self._summary) for part in mode.prefix]
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(
                [*prefix, sys.executable, str(WORKER), str(folder / "request.json")],
                env={**os.environ, **environment},
                cwd=cwd,
                stdin=subprocess.PIPE if wait else subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._read = 0
        self._pid = self._process.pid
        self._state = "started"
        self._since = time.monotonic()
        self._results: Dict[str, Outcome] = {}
        self._fixtures: List[Tuple[str, Outcome]] = []
        self._running, self._from = "", 0
        self._missing: Tuple[str, ...] = ()
        self._loaded = False
        self._unloadable: Optional[Outcome] = None
        self._listed: Optional[List[Tuple[str, List[str]]]] = None

    def finish(self, limits: Limits, clock: Clock, turn: "Turn", known: Mapping[str, float]) -> Ended:
        """Waits for the end. The process goes on from the point where it waits when it
        has its turn on the device. known: seconds of tests in the reference."""
        outcome, why, cut = "", "", False
        try:
            while not self._over():
                self._look()
                if self._state == "ready" and turn.take():
                    assert self._process.stdin is not None
                    with suppress(BrokenPipeError):
                        self._process.stdin.write(b"\n")
                        self._process.stdin.close()
                    self._enter("going")
                limit = self._limit(limits, known)
                if clock.left() <= 0:
                    cut, why = True, "the time was over"
                    self._end(signal.SIGTERM)
                elif self._state != "ready" and time.monotonic() - self._since > limit:
                    outcome, why = HUNG, self._hung(limit)
                    self._end(signal.SIGABRT)
                else:
                    time.sleep(LOOK)
            self._sweep()
        finally:
            turn.give()
        self._look()
        code = self._process.wait()
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()
        seconds = time.monotonic() - self._since
        text = self._text(self._from)
        if not why and (code != 0 or self._state != "done"):
            outcome, why = DIED, death(code, text)
        ended = Ended(
            self._results, self._running, round(seconds, 3), self._missing, self._unloadable, tuple(self._fixtures), self._listed,
            outcome or PASSED, why, last_lines(text) if why else (), cut, self._served(), self._loaded,
        )
        shutil.rmtree(self._folder, ignore_errors=True)
        return ended

    def _limit(self, limits: Limits, known: Mapping[str, float]) -> float:
        if self._state == "begin":
            return max(limits.test, SLOWER * known.get(self._running, 0.0))
        return limits.test if self._state in ("end", "loaded", "done") else limits.loading

    def _over(self) -> bool:
        """Whether the process has ended. It is not yet waited for, so that its group's
        number is not given to another process before _sweep."""
        return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def _sweep(self) -> None:
        """Ends what the process has left behind, which may hold memory of the device."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _end(self, first: int) -> None:
        """Ends the process: with the signal, to the worker itself; then as a user would;
        then surely."""
        with suppress(ProcessLookupError):
            os.kill(self._pid, first)
        for send in (signal.SIGTERM, signal.SIGKILL):
            until = time.monotonic() + GRACE
            while not self._over() and time.monotonic() < until:
                time.sleep(LOOK)
            if self._over():
                return
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, send)
        os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)

    def _hung(self, limit: float) -> str:
        where = {"begin": "", "end": "between tests, ", "loaded": "before the first test, ", "done": "at exit, "}
        return f"{where.get(self._state, 'while the file was loaded, ')}still running after {limit:.0f} s"

    def _enter(self, state: str) -> None:
        self._state, self._since = state, time.monotonic()

    def _look(self) -> None:
        """Reads the events that are new."""
        with open(self._events, "rb") as file:
            file.seek(self._read)
            data = file.read()
        complete = data[: data.rfind(b"\n") + 1]
        self._read += len(complete)
        for line in complete.splitlines():
            self._take(json.loads(line))

    def _take(self, event: Dict[str, Any]) -> None:
        kind = event["event"]
        if kind == "started":
            self._pid = event["pid"]
        elif kind == "begin":
            self._running, self._from = event["test"], event["log"]
        elif kind == "end":
            printed = self._text(self._from, event["log"])
            bad = event["outcome"] == FAILED
            output = last_lines(printed + "\n" + event["text"]) if bad else ()
            self._results[event["test"]] = Outcome(event["outcome"], event["seconds"], event["why"], output)
            self._running, self._from = "", event["log"]
        elif kind == "fixture":
            self._fixtures.append((event["what"], Outcome(event["outcome"], 0.0, event["why"], last_lines(event["text"]))))
            return
        elif kind == "unloadable":
            self._unloadable = Outcome(event["outcome"], 0.0, f"the file does not load: {event['why']}", last_lines(event["text"]))
        elif kind == "loaded":
            self._missing, self._loaded = tuple(event["missing"]), True
        elif kind == "listed":
            self._listed = [(name, lines) for name, lines in event["tests"]]
        self._enter(kind)

    def _text(self, begin: int, end: Optional[int] = None) -> str:
        """The end of the output between two positions."""
        with open(self._log, "rb") as file:
            end = os.fstat(file.fileno()).st_size if end is None else end
            file.seek(max(begin, end - 4 * CHARACTERS))
            return file.read(max(0, end - file.tell())).decode(errors="replace")

    def _served(self) -> Optional[Dict[str, Any]]:
        with suppress(OSError, ValueError):
            summary: Dict[str, Any] = json.loads(self._summary.read_text())
            return summary
        return None


def last_lines(text: str) -> Tuple[str, ...]:
    return tuple(text.strip()[-CHARACTERS:].splitlines()[-LINES:])


def death(code: int, text: str) -> str:
    """How a process ended, on one line. code is a shell's, or Popen's."""
    number = -code if code < 0 else code - 128
    try:
        how = f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        how = f"exit code {code}"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # The reason of a C++ exception; the innermost Python line that faulthandler shows; the
    # last line.
    telling = [line for line in lines if line.startswith("what():")]
    for index, line in enumerate(lines[:-1]):
        if line.endswith("(most recent call first):") and line.startswith("Current thread"):
            telling.append(lines[index + 1])
    return ": ".join([how, *(telling[:1] or lines[-1:])])[:300]


class Turn:
    """A place among the serial processes: it has to hold the locks of its devices while
    its tests run."""

    def __init__(self, locks: Sequence[threading.Lock] = ()) -> None:
        self._locks = locks
        self._held: List[threading.Lock] = []

    def take(self) -> bool:
        """Takes all locks, or none. Does not wait."""
        for lock in self._locks:
            if not lock.acquire(blocking=False):
                self.give()
                return False
            self._held.append(lock)
        return True

    def give(self) -> None:
        while self._held:
            self._held.pop().release()


class Task(NamedTuple):
    """One process to be: tests of a chunk in a mode and run."""

    chunk: Chunk
    mode: int
    run: int
    tests: Tuple[str, ...]
    round: int = 0

    @property
    def reference(self) -> bool:
        return self.mode == 0 and self.run == 1


Cell = Tuple[Chunk, int, int]
"""A chunk in a mode and a run."""


class Runner:
    """Runs every chunk in every mode and run. outcomes has the result: the outcome of
    each test by chunk, mode and run."""

    def __init__(
        self,
        checkout: Path,
        folder: Path,
        modes: Sequence[Mode],
        runs: int,
        jobs: int,
        devices: int,
        limits: Limits,
        clock: Clock,
        say: Callable[[str], None] = lambda text: None,
        keep: Callable[[], None] = lambda: None,
    ) -> None:
        """folder: for the files of the processes. keep is called now and then, when
        outcomes has changed."""
        self.outcomes: Dict[Cell, Dict[str, Outcome]] = {}
        self.summaries: Dict[Cell, List[Dict[str, Any]]] = {}
        self._checkout, self._folder = checkout, folder
        self._modes, self._runs = modes, runs
        self._jobs = jobs
        self._limits, self._clock = limits, clock
        self._say, self._keep = say, keep
        self._numbers = itertools.count()
        visible = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(devices)))
        self._visible = visible.split(",")[:devices]
        self._locks = [threading.Lock() for _ in self._visible]
        self._busy = [0] * len(self._visible)
        self._pending: List[Task] = []
        self._open: Dict[Cell, int] = {}
        self._company: Dict[Tuple[Cell, str], Tuple[str, int]] = {}

    def listed(self, files: Sequence[File]) -> Dict[File, Ended]:
        """Imports each file natively to list its tests."""

        def one(file: File) -> Ended:
            return self._process(file, Mode("list"), None, 0, Turn(), False, {})

        with ThreadPoolExecutor(max(1, min(self._jobs, len(files)))) as pool:
            try:
                return dict(zip(files, pool.map(one, files)))
            except KeyboardInterrupt:
                self._clock.cut()
                raise

    def run(self, chunks: Sequence[Chunk]) -> None:
        """Runs everything, or what there is time for. An interrupt counts as the end of
        the time."""
        self._order = {chunk: number for number, chunk in enumerate(chunks)}
        for chunk, run, mode in itertools.product(chunks, range(1, self._runs + 1), range(len(self._modes))):
            cell = (chunk, mode, run)
            self.outcomes[cell], self.summaries[cell], self._open[cell] = {}, [], 1
            self._pending.append(Task(chunk, mode, run, chunk.tests))
        done: "queue.Queue[Tuple[Task, int, Ended]]" = queue.Queue()
        running: List[Task] = []
        with ThreadPoolExecutor(max(self._jobs, 2 * len(self._visible))) as pool:
            while self._pending or running:
                try:
                    if self._clock.left() <= 0:
                        self._give_up()
                    for task, device in self._startable(running):
                        running.append(task)
                        pool.submit(self._run, task, device, done)
                    if running:
                        task, device, ended = done.get()
                        running.remove(task)
                        self._busy[device] -= 1
                        self._settle(task, ended)
                        self._keep()
                except KeyboardInterrupt:
                    self._say("interrupted")
                    self._clock.cut()
        for (chunk, _, _), outcomes in self.outcomes.items():
            for name in chunk.tests:
                outcomes.setdefault(name, Outcome(NOT_RUN, why="interrupted"))

    def _startable(self, running: List[Task]) -> Iterator[Tuple[Task, int]]:
        """Takes the tasks that can start now from those that are pending, with their
        device. Serial ones start when all others have ended, two for each device: one of
        them runs its tests while the next imports torch."""
        self._pending.sort(key=self._rank)
        serial = all(task.chunk.serial for task in self._pending + running)
        room = 2 * len(self._visible) if serial else self._jobs
        room -= sum(1 if serial else task.chunk.file.weight for task in running)
        idle = not running
        for task in list(self._pending):
            weight = 1 if serial else task.chunk.file.weight
            if task.chunk.serial != serial or not self._ready(task) or (weight > room and not idle):
                continue
            room, idle = room - weight, False
            self._pending.remove(task)
            device = self._busy.index(min(self._busy))
            self._busy[device] += 1
            yield task, device

    def _rank(self, task: Task) -> Tuple[bool, int, int, int]:
        """The order of tasks: run by run, so that every mode has the same number of runs
        if the time does not suffice."""
        return (task.chunk.serial, task.run, task.mode, self._order[task.chunk])

    def _ready(self, task: Task) -> bool:
        return task.reference or self._open[(task.chunk, 0, 1)] == 0

    def _run(self, task: Task, device: int, done: "queue.Queue[Tuple[Task, int, Ended]]") -> None:
        try:
            asked = [name for name in task.tests if not self._hopeless(task, name)]
            locks = self._locks if task.chunk.file.many else [self._locks[device]]
            turn = Turn(locks if task.chunk.serial else ())
            ended = Ended()
            if asked:
                known = {} if task.reference else {name: o.seconds for name, o in self.outcomes[(task.chunk, 0, 1)].items()}
                ended = self._process(task.chunk.file, self._modes[task.mode], asked, device, turn, task.chunk.serial, known)
        except BaseException as error:  # the main thread waits for an answer
            ended = Ended(outcome=DIED, why=f"torchtests: {type(error).__name__}: {error}")
        done.put((task, device, ended))

    def _hopeless(self, task: Task, name: str) -> bool:
        """Whether the test died or hung in the reference. Then it is not compared, and it
        would only cost time."""
        if task.reference:
            return False
        known = self.outcomes[(task.chunk, 0, 1)].get(name)
        return known is not None and known.outcome in (DIED, HUNG)

    def _process(
        self, file: File, mode: Mode, tests: Optional[Sequence[str]], device: int, turn: Turn, wait: bool, known: Mapping[str, float]
    ) -> Ended:
        own = self._visible[device:] + self._visible[:device]
        # With several devices each process sees all, in another order, so that the first
        # ones share the work. With one the environment stays as it is.
        environment = {"CUDA_VISIBLE_DEVICES": ",".join(own)} if len(own) > 1 else {}
        folder = self._folder / str(next(self._numbers))
        path = self._checkout / file.path
        cwd = self._checkout / Path(file.path).parts[0] if len(Path(file.path).parts) > 1 else self._checkout
        return Process(folder, mode, path, tests, environment, cwd, wait).finish(self._limits, self._clock, turn, known)

    def _settle(self, task: Task, ended: Ended) -> None:
        """Enters what counts of a process's results, and makes the tasks for the rest."""
        cell = (task.chunk, task.mode, task.run)
        outcomes = self.outcomes[cell]
        reference = None if task.reference else self.outcomes[(task.chunk, 0, 1)]
        if ended.summary is not None:
            self.summaries[cell].append(ended.summary)
        asked = []
        for name in task.tests:
            if self._hopeless(task, name):
                outcomes[name] = Outcome(LEFT_OUT, why="it died or hung in the first run", tries=0)
            else:
                asked.append(name)
        shown = in_order(asked, ended, task.round)
        again = []
        for name, outcome in judge(asked, ended, reference, task.round).items():
            company, tries = self._company.get((cell, name), ("", 0))
            if outcome is not None:
                outcomes[name] = outcome._replace(company=company, tries=tries + 1)
                continue
            again.append(name)
            seen = shown[name]
            self._company[(cell, name)] = (f"{seen.outcome}: {seen.why}" if seen else company, tries + 1)
        if asked:
            self._settle_process(task, ended, outcomes)
        self._open[cell] += self._again(task, again) - 1
        self._tell(task, ended, again)

    def _settle_process(self, task: Task, ended: Ended, outcomes: Dict[str, Outcome]) -> None:
        """Of a chunk's processes the worst end counts. A process that ended before its
        only test began is that test's fault, not listed a second time."""
        if task.round >= ALONE and not ended.results:
            return
        found, name = process_outcome(ended), task.chunk.process
        if found is not None and (name not in outcomes or not outcomes[name].bad):
            outcomes[name] = found

    def _again(self, task: Task, tests: List[str]) -> int:
        """Makes the tasks that run these tests again. Returns their number."""
        following = task.round + 1 if len(tests) > 1 else ALONE
        count = ROUNDS[following] if following < ALONE else len(tests)
        groups = divided(tests, min(count, len(tests)))
        self._pending += [task._replace(tests=group, round=following) for group in groups]
        return len(groups)

    def _give_up(self) -> None:
        """Enters all tests of pending tasks as not run."""
        for task in self._pending:
            cell = (task.chunk, task.mode, task.run)
            for name in task.tests:
                company, tries = self._company.get((cell, name), ("", 0))
                self.outcomes[cell][name] = Outcome(NOT_RUN, why="the time was over", company=company, tries=tries)
            self._open[cell] -= 1
        self._pending.clear()

    def _tell(self, task: Task, ended: Ended, again: List[str]) -> None:
        what = f"{task.chunk.file.path}, {task.chunk.process[len(PROCESS) + 1 :]}, {self._modes[task.mode].name}, run {task.run}"
        bad = sum(outcome.bad for outcome in ended.results.values())
        text = f"{what}: {len(ended.results)} of {len(task.tests)} tests ended, {bad} of them failed"
        if ended.why:
            text += f"; {ended.running or 'the process'}: {NOT_RUN if ended.cut else ended.outcome}: {ended.why}"
        self._say(text + (f"; {len(again)} run again" if again else ""))


def divided(tests: Sequence[str], count: int) -> List[Tuple[str, ...]]:
    """Divides the tests into groups of about equal length, in their order."""
    bounds = [len(tests) * i // count for i in range(count + 1)] if count else []
    return [tuple(tests[begin:end]) for begin, end in zip(bounds, bounds[1:])]


def chunks_of(file: File, tests: Sequence[str], serial: Callable[[str], bool]) -> List[Chunk]:
    """Divides the tests of a file into chunks of about equal length, the serial ones
    apart from the others."""
    result = []
    for alone in (False, True):
        own = [name for name in tests if serial(name) is alone]
        groups = divided(own, -(-len(own) // file.chunk))
        result += [Chunk(file, number, group, alone) for number, group in enumerate(groups, 1)]
    return result


def is_serial(name: str, decorators: Sequence[str], more: str) -> bool:
    """Whether a test needs the device for itself: by its decorators, by its name, or
    because the regular expression `more` matches."""
    marked = any(SERIAL_DECORATOR.search(line) for line in decorators)
    named = SERIAL_NAME.search(name.rpartition(".")[2]) is not None
    return marked or named or bool(more and re.search(more, name))
