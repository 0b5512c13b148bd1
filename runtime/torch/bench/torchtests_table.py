"""Compares the outcomes of torchtests.py and writes them as Markdown.

    python torchtests_table.py torchtests.json [torchtests.json...]

prints one document for several calls of torchtests.py. If a file was run again, the runs
of all calls count. One of the calls has to have all modes, and all the same first one.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections import Counter
from pathlib import Path
from typing import Any, Dict, Iterable, List, NamedTuple, Tuple

from table import line
from torchtests_outcomes import BAD, DIED, HUNG, LEFT_OUT, NOT_RUN, PASSED, PROCESS, SKIPPED

INTRODUCTION = """# PyTorch's own tests

Written by `runtime/torch/bench/torchtests.py` on {about}:

{commands}

The files may be of another release of PyTorch than the installed one, so some tests fail
natively. Only the difference counts: a test that passed in every *{first}* run, and not in
every run of another mode. In the mode *no plan* `stplan run --no-plan` served the tests, in
the mode *plan* `stplan run` with the plan of another job, which they do not follow. In
every mode and run a test has the same other tests before it in its process; with --passing
the first {first} run has those too that do not pass. What a dead process left was run again in
fresh ones.

- *tests*: different ones that were to run, also those that the time did not suffice for.
- *passed*: in every {first} run. *failed*: in at least one; that includes tests that died
  or hung. *skipped*: in at least one, and never failed. Of several calls, one whose {first}
  runs all skip a test says nothing of it if another has run it: its machine may have too
  few devices.
- *differ*: the number of tests that passed in every {first} run and not in every run of
  this mode, of those that ran in both.
"""


# Characters of an --only that a document shows whole, and what it shows of a longer one.
ONLY, SHOWN = 300, 60


class Difference(NamedTuple):
    """A test that is good natively and not in a mode. bad: number of its bad runs in that
    mode. runs: number of all its runs there. why: the most frequent bad outcome."""

    file: str
    test: str
    mode: str
    bad: int
    runs: int
    why: str


Outcomes = Dict[Tuple[str, str], Dict[str, List[Dict[str, Any]]]]
"""The outcomes of each test of a file, by mode, in the order of the runs."""


def grouped(outcomes: Iterable[Dict[str, Any]]) -> Outcomes:
    result: Outcomes = {}
    for outcome in outcomes:
        result.setdefault(test_of(outcome), {}).setdefault(outcome["mode"], []).append(outcome)
    return result


def test_of(outcome: Dict[str, Any]) -> Tuple[str, str]:
    return outcome["file"], f"{outcome['class']}.{outcome['test']}"


def ran(outcomes: Iterable[Dict[str, Any]]) -> List[Dict[str, Any]]:
    return [outcome for outcome in outcomes if outcome["outcome"] not in (NOT_RUN, LEFT_OUT)]


def verdict(outcomes: Iterable[Dict[str, Any]]) -> str:
    """Of all runs in one mode: "failed" if one of them was bad, "passed" if all passed,
    "skipped" if at least one was skipped, and "" if none took place."""
    seen = {outcome["outcome"] for outcome in ran(outcomes)}
    if seen & set(BAD):
        return "failed"
    return SKIPPED if SKIPPED in seen else PASSED if seen else ""


def differences(tests: Outcomes, modes: List[str]) -> List[Difference]:
    """What is good in the first mode and not in another. A test that is skipped in the
    first mode has to be skipped or to pass in the others."""
    result = []
    for (file, test), by_mode in tests.items():
        native = verdict(by_mode.get(modes[0], []))
        good = {PASSED: (PASSED,), SKIPPED: (PASSED, SKIPPED)}.get(native, ())
        for mode in modes[1:] if good else []:
            runs = ran(by_mode.get(mode, []))
            bad = [f"{run['outcome']}: {run['why']}" for run in runs if run["outcome"] not in good]
            if bad:
                result.append(Difference(file, test, mode, len(bad), len(runs), Counter(bad).most_common(1)[0][0]))
    return result


def rows(run: Dict[str, Any]) -> List[str]:
    """One row for each file of a call, or of calls that are united."""
    modes = run["modes"]
    all_tests = grouped(run["outcomes"])
    result = []
    for file in dict.fromkeys(file["file"] for file in run["files"]):
        tests = {key: value for key, value in all_tests.items() if key[0] == file and not is_process(key[1])}
        native = Counter(verdict(by_mode.get(modes[0], [])) for by_mode in tests.values())
        found = differences(tests, modes)
        cells = [file, len(tests), native[PASSED], native["failed"], native[SKIPPED]]
        for mode in modes[1:]:
            compared = {test for (_, test), b in tests.items() if verdict(b.get(modes[0], [])) == PASSED and ran(b.get(mode, []))}
            cells.append(f"{len(compared & {d.test for d in found if d.mode == mode})} of {len(compared)}")
        result.append(line(cells))
    return result


def is_process(test: str) -> bool:
    return test.startswith(PROCESS)


def header(runs: List[Dict[str, Any]]) -> List[str]:
    modes = modes_of(runs)
    about = ", and on ".join(sorted({run["about"] for run in runs}))
    commands = "\n".join(f"    {shortened(run['command'])}" for run in runs)
    names = ["file", "tests", *(f"{modes[0]}: {what}" for what in ("passed", "failed", "skipped")), *(f"{m}: differ" for m in modes[1:])]
    text = INTRODUCTION.format(about=about, commands=commands, first=modes[0])
    return [*text.splitlines(), "", line(names), line(["---", *["---:"] * (len(names) - 1)])]


def shortened(command: str) -> str:
    """The command, with the beginning of an --only that is long, as of one that names each test."""
    words = shlex.split(command)
    for option, (name, word) in enumerate(zip(words, words[1:]), 1):
        if name == "--only" and len(word) > ONLY:
            words[option] = f"{word[:SHOWN]}... ({len(word) - SHOWN:,} more characters)"
    return shlex.join(words)


def modes_of(runs: List[Dict[str, Any]]) -> List[str]:
    """The modes of the calls: those of the call that has most. The others have the same
    first one, and no other modes."""
    found = {tuple(run["modes"]) for run in runs}
    most = max(found, key=len)
    if any(modes[0] != most[0] or not set(modes) <= set(most) for modes in found):
        raise SystemExit(f"torchtests_table.py: expected calls with the same first mode, one of them with all modes, found {sorted(found)}")
    return list(most)


def closing(call: Dict[str, Any], counted: List[str]) -> List[str]:
    """counted: what the processes under `stplan run` have counted."""
    modes, tests = call["modes"], grouped(call["outcomes"])
    found = differences(tests, modes)
    result = ["", f"What is good in every {modes[0]} run and not in another mode:" + ("" if found else " nothing.")]
    if found:
        result += ["", line(["file", "test", "mode", "runs", "last line"]), line(["---"] * 5)]
        result += [line([d.file, d.test, d.mode, f"{d.bad} of {d.runs}", cell(d.why)]) for d in found]
    result += section("Passed only in a fresh process, after it had failed in the process of a test that differs", company(tests))
    result += section("Died or hung in the first run, and was left out of the others", left_out(tests))
    result += section(f"How many of the tests that passed in every {modes[0]} run have how many runs", with_runs(tests, modes))
    result += section("How many tests passed, run by run", by_run(tests, modes, PASSED))
    result += section("How many tests were not run, because the time was over", by_run(tests, modes, NOT_RUN))
    result += section("Served", counted)
    return result + section("Problems", call["problems"], always=True)


def section(title: str, texts: List[str], always: bool = False) -> List[str]:
    if not texts:
        return ["", f"{title}: none."] if always else []
    return ["", f"{title}:", "", *(f"- {text}" for text in texts)]


def company(tests: Outcomes) -> List[str]:
    result = []
    for (file, test), by_mode in tests.items():
        for mode, outcomes in by_mode.items():
            found = [o["company"] for o in outcomes if o["outcome"] == PASSED and o["company"]]
            if found:
                result.append(f"{file}, {test}, {mode}, {len(found)} of {len(ran(outcomes))} runs: {found[0]}")
    return result


def left_out(tests: Outcomes) -> List[str]:
    result = []
    for (file, test), by_mode in tests.items():
        if any(o["outcome"] == LEFT_OUT for outcomes in by_mode.values() for o in outcomes):
            first = next((o for outcomes in by_mode.values() for o in outcomes if o["outcome"] in (DIED, HUNG)), None)
            if first is not None:  # otherwise the table has counted it as failed or skipped
                result.append(f"{file}, {test}: {first['outcome']}: {first['why']}")
    return result


def with_runs(tests: Outcomes, modes: List[str]) -> List[str]:
    """By file and mode: how many of the tests that passed in every run of the first mode
    ran how often."""
    counts: Dict[str, List["Counter[int]"]] = {}
    for (file, test), by_mode in tests.items():
        if not is_process(test) and verdict(by_mode.get(modes[0], [])) == PASSED:
            of_file = counts.setdefault(file, [Counter() for _ in modes])
            for mode, found in zip(modes, of_file):
                found[len(ran(by_mode.get(mode, [])))] += 1
    return [
        f"{file}, {mode}: " + ", ".join(f"{number} with {runs}" for runs, number in sorted(found.items()))
        for file, of_file in counts.items()
        for mode, found in zip(modes, of_file)
    ]


def by_run(tests: Outcomes, modes: List[str], outcome: str) -> List[str]:
    """How many tests had an outcome in each run that there is of a file in a mode, if any had."""
    counts: Dict[Tuple[str, str], "Counter[int]"] = {}
    for (file, test), by_mode in tests.items():
        for mode, outcomes in by_mode.items():
            found = counts.setdefault((file, mode), Counter())
            for o in outcomes:
                found[o["run"]] += o["outcome"] == outcome and not is_process(test)
    result = []
    for file in dict.fromkeys(file for file, _ in tests):
        for mode in modes:
            numbers = [count for _, count in sorted(counts.get((file, mode), {}).items())]
            if any(numbers):
                result.append(f"{file}, {mode}: {', '.join(map(str, numbers))}")
    return result


def served(run: Dict[str, Any]) -> List[str]:
    """What the processes under `stplan run` have counted, by mode."""
    result = []
    for mode, sums in run["served"].items():
        text = f"{mode}: {sums['processes']:,} processes used CUDA, {sums['allocations']:,} allocations, {sums['refused_frees']:,} refused frees"
        reasons = [f"{count} were not served: {cell(reason)}" for reason, count in sums["not_served"].items()]
        result.append("; ".join([text, *reasons]))
    return result


def cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def document(calls: List[Dict[str, Any]]) -> List[str]:
    """The lines of one document for several calls of torchtests.py."""
    together = united(calls)
    return [*header(calls), *rows(together), *closing(together, [text for call in calls for text in served(call)])]


def united(calls: List[Dict[str, Any]]) -> Dict[str, Any]:
    """One call with the runs of all: those of a file are numbered on from call to call."""
    modes = modes_of(calls)
    before: Counter[str] = Counter()
    outcomes = []
    for call, kept in zip(calls, without_skips(calls, modes[0])):
        outcomes += [{**o, "run": o["run"] + before[o["file"]]} for o in kept]
        before.update({file["file"]: call["runs"] for file in call["files"]})
    files = [file for call in calls for file in call["files"]]
    problems = [problem for call in calls for problem in call["problems"]]
    return {"modes": modes, "files": files, "outcomes": outcomes, "problems": problems}


def without_skips(calls: List[Dict[str, Any]], first: str) -> List[List[Dict[str, Any]]]:
    """The outcomes of each call. If all runs of the first mode of a call skip a test, and a run
    of that mode of another call does not, the call's skips of it are dropped, in all modes:
    that a machine cannot run a test says nothing of what other machines have shown of it."""
    found = [{test: {o["outcome"] for o in ran(by_mode.get(first, []))} for test, by_mode in grouped(call["outcomes"]).items()} for call in calls]
    run_by_one = {test for seen in found for test, natively in seen.items() if natively - {SKIPPED}}
    result = []
    for call, seen in zip(calls, found):
        skipped = {test for test in run_by_one if seen.get(test) == {SKIPPED}}
        result.append([o for o in call["outcomes"] if o["outcome"] != SKIPPED or test_of(o) not in skipped])
    return result


if __name__ == "__main__":
    print("\n".join(document([json.loads(Path(path).read_text()) for path in sys.argv[1:]])))
