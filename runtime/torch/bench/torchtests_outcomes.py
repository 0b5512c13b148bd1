"""The tests of a file, the chunks that they are divided into, and which outcome of a test
counts: torchtests_run.py has the rules."""

from __future__ import annotations

import re
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

# Outcomes. The first two are good, the next four are bad, and the last two mean that the
# test did not run: because of what it did in the reference, or the time was over.
PASSED, SKIPPED = "passed", "skipped"
FAILED, DIED, HUNG, MISSING = "failed", "died", "hung", "missing"
LEFT_OUT, NOT_RUN = "left out", "not run"
BAD = (FAILED, DIED, HUNG, MISSING)

# The name under which a chunk's processes are listed among its tests: whether they ended
# well between the tests and at exit.
PROCESS = "(process)"

# Names of tests that need a large share of the device's memory, change its limit, or
# measure what all processes use, and decorators that say the same.
SERIAL_NAME = re.compile(r"oom|out_of_memory|memory_fraction|large|mem_get_info|memory_leak")
SERIAL_DECORATOR = re.compile(r"^@([\w.]*\.)?serial(Test)?\b|large\w*TensorTest|LARGE_TENSOR")

# The number of processes that share a chunk's tests in the first round, in the second and
# so on; after these each test is alone. In most chunks only a few tests die, so what a
# death leaves unfinished can mostly run together.
ROUNDS = (1, 1, 2)
ALONE = len(ROUNDS)


class File(NamedTuple):
    """A test file. path is relative to the checkout. chunk: tests of a process.
    weight: jobs that a process counts for, because its tests start processes themselves.
    many: its tests use all devices, not only the first. forks: the processes that its tests
    start are forked from one that has imported the file."""

    path: str
    chunk: int
    weight: int = 1
    many: bool = False
    forks: bool = False


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
