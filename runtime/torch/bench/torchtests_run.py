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
import os
import queue
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from torchtests_outcomes import ALONE, DIED, HUNG, LEFT_OUT, NOT_RUN, PASSED, PROCESS, ROUNDS, Chunk, Ended, File, Outcome
from torchtests_outcomes import divided, in_order, judge, process_outcome
from torchtests_process import Clock, Limits, Mode, Process, Turn


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
        passing: bool = False,
        first_runs: int = 0,
    ) -> None:
        """folder: for the files of the processes. keep is called now and then, when
        outcomes has changed. passing: outside the reference only those tests run that
        passed in it. first_runs: runs of the first mode; 0 is as many as of the others."""
        self.outcomes: Dict[Cell, Dict[str, Outcome]] = {}
        self.summaries: Dict[Cell, List[Dict[str, Any]]] = {}
        self._checkout, self._folder = checkout, folder
        self._modes = modes
        self._runs = [first_runs or runs, *[runs] * (len(modes) - 1)]
        self._jobs = jobs
        self._limits, self._clock = limits, clock
        self._say, self._keep = say, keep
        self._passing = passing
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
        cells = [(mode, run) for mode, runs in enumerate(self._runs) for run in range(1, runs + 1)]
        for chunk, (mode, run) in itertools.product(chunks, cells):
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
            asked = [name for name in task.tests if not self._left_out(task, name)]
            locks = self._locks if task.chunk.file.many else [self._locks[device]]
            turn = Turn(locks if task.chunk.serial else ())
            ended = Ended()
            if asked:
                known = {} if task.reference else {name: o.seconds for name, o in self.outcomes[(task.chunk, 0, 1)].items()}
                ended = self._process(task.chunk.file, self._modes[task.mode], asked, device, turn, task.chunk.serial, known)
        except BaseException as error:  # the main thread waits for an answer
            ended = Ended(outcome=DIED, why=f"torchtests: {type(error).__name__}: {error}")
        done.put((task, device, ended))

    def _left_out(self, task: Task, name: str) -> str:
        """Why the test does not run, or "": it died or hung in the reference, or only tests
        that passed are wanted. Then it is not compared, and it would only cost time."""
        known = None if task.reference else self.outcomes[(task.chunk, 0, 1)].get(name)
        if known is None:
            return ""
        if known.outcome in (DIED, HUNG):
            return "it died or hung in the first run"
        return "it did not pass in the first run" if self._passing and known.outcome != PASSED else ""

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
        return Process(folder, mode, path, tests, environment, cwd, wait, file.forks).finish(self._limits, self._clock, turn, known)

    def _settle(self, task: Task, ended: Ended) -> None:
        """Enters what counts of a process's results, and makes the tasks for the rest."""
        cell = (task.chunk, task.mode, task.run)
        outcomes = self.outcomes[cell]
        reference = None if task.reference else self.outcomes[(task.chunk, 0, 1)]
        if ended.summary is not None:
            self.summaries[cell].append(ended.summary)
        asked = []
        for name in task.tests:
            why = self._left_out(task, name)
            if why:
                outcomes[name] = Outcome(LEFT_OUT, why=why, tries=0)
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
