"""Searches the largest batch with which a job trains beside a process that leaves it little
memory, under PyTorch's allocators and under stplan, and how fast each is, as Markdown.

    python runtime/torch/bench/largest.py bin/stplan --job grpo --out docs/results
    python runtime/torch/bench/largest.py bin/stplan --job sft --reference 4 --grain 1
    python runtime/torch/bench/largest.py bin/stplan --job grpo --reference 4 --filled-by expandable --rounds 3
    python runtime/torch/bench/largest.py bin/stplan --job sft --reference 4 --grain 1 --earlier largest-sft.json

The jobs are those of trainers.py. First the job runs alone with the reference batch, natively or
with --filled-by expandable under expandable segments. Then a ballast process takes the device's
memory, except what that run had used: so the card is one that this allocator fills with the
reference batch. Each allocator then looks for its largest batch: from the best one so far it
goes up in steps that double, or down, and bisects what is between. Settings that are recommended
against fragmentation are tried above what the same allocator reached without them. With
--without-stplan all of the time is for PyTorch's allocators and their settings. Every trial
is a new process, and trains --steps steps.

At the end the best of each kind runs --rounds times more, in turn, when nothing else runs, and is
timed. Then the ballast ends, and the job runs natively with the first batch that trained under no allocator: what
it allocates at its peak says whether any allocator could have trained it. What does not begin
within --time-limit seconds is left out, and said. largest-JOB.json has each trial; with --earlier
its search goes on, beside a ballast that leaves as much.

Needs torch, transformers, trl, datasets, peft and one CUDA device that nothing else uses. The
exit code is 1 if a trial fails other than by running out of memory, or if time was short.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import tempfile
from pathlib import Path
from time import monotonic
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

from ballast import SLACK, Ballast, Waiting
from table import GIB, Output, gib, line, on_plan

HERE = Path(__file__).resolve().parent

NATIVE, EXPANDABLE, POOL, FIRST, SECOND = "native", "expandable", "stplan, no plan", "stplan, first run", "stplan, second run"


class Variant(NamedTuple):
    """A way to run a job. settings: of torch's allocator; {fraction} stands for the share of
    the device's memory that is left for torch. base: the variant without the settings."""

    name: str
    settings: str = ""
    base: str = ""


VARIANTS = (
    Variant(NATIVE),
    Variant("native, max_split_size_mb:128", "max_split_size_mb:128", NATIVE),
    Variant("native, roundup_power2_divisions:8", "roundup_power2_divisions:8", NATIVE),
    # The threshold has an effect only together with a fraction.
    Variant(
        "native, garbage_collection_threshold:0.8",
        "garbage_collection_threshold:0.8,per_process_memory_fraction:{fraction:.4f}",
        NATIVE,
    ),
    Variant(EXPANDABLE, "expandable_segments:True"),
    Variant("expandable, roundup_power2_divisions:8", "expandable_segments:True,roundup_power2_divisions:8", EXPANDABLE),
    Variant("expandable, large_segment_size_mb:12", "expandable_segments:True,large_segment_size_mb:12", EXPANDABLE),
    Variant(
        "expandable, garbage_collection_threshold:0.8",
        "expandable_segments:True,garbage_collection_threshold:0.8,per_process_memory_fraction:{fraction:.4f}",
        EXPANDABLE,
    ),
    Variant(POOL),
    Variant(FIRST),
    Variant(SECOND),
)

# Of a trial: before there is a ballast, in the search, at the end, and when the ballast has ended.
ALONE, SEARCH, TIMED, NEEDED = "alone", "search", "timed", "needed"

OURS = (POOL, FIRST, SECOND)

# The caches of found plans: while it is searched, and for timed runs, of which each round has its own.
SEARCHED, FRESH = "search", "fresh"

# Seconds that are kept for a round of timed runs at the end: eight of about 14 s.
FOR_TIMING = 115

# How long a first run waits for its plan when it has ended. The plans of these jobs take a few
# seconds.
LEARN_LIMIT = "20s"

# Sequences of an optimizer step for each of a micro-batch.
ACCUMULATED = {"grpo": 1, "sft": 2}

COLUMNS = (
    ("allocator", "---"),
    ("largest batch", "---:"),
    ("smallest that failed", "---:"),
    ("sequences/s", "---:"),
    ("of the best without stplan", "---:"),
    ("peak allocated GiB", "---:"),
    ("peak reserved GiB", "---:"),
    ("retries", "---:"),
    ("GiB moved", "---:"),
    ("on plan", "---:"),
)

INTRODUCTION = """# The largest batch in a card that a ballast makes small: {job}

Written by `runtime/torch/bench/largest.py`:

    {command}

The ballast leaves what the {allocator} allocator used alone with batch {reference}: {left} GiB of the
card's {card} GiB, CUDA's context included. A trial trains {steps} steps. *batch* is the sequences of a
micro-batch, in steps of {grain}. *sequences/s* is of {rounds} at the largest batch with nothing
else on the machine, without the first step.
"""


class OutOfTime(Exception):
    """The next trial would begin too late."""


def largest(trains: Callable[[int], bool], start: int, grain: int) -> Tuple[int, int]:
    """The largest batch that trains, and the next one, which does not; both are multiples of
    grain. trains has to be monotonic. start is tried first; the steps from there double, then
    what is between is bisected. The first is 0 if nothing trains."""
    low, high, stride = 0, 0, grain
    batch = start
    while True:
        if trains(batch):
            low = batch
            if high:
                break
            batch, stride = batch + stride, 2 * stride
        else:
            high = batch
            if low or batch == grain:
                break
            batch, stride = max(grain, batch - stride), 2 * stride
    while high - low > grain:
        middle = (low + high) // 2 // grain * grain
        low, high = (middle, high) if trains(middle) else (low, middle)
    return low, high


class Bench:
    """The trials. variants that stplan serves find plans in a cache of the search."""

    def __init__(self, stplan: str, job: List[str], folder: Path, deadline: float, keep: Callable[[Any], None]) -> None:
        """job: arguments of trainers.py. deadline: of time.monotonic. keep: is called with what
        --earlier takes after each trial."""
        self.stplan, self.job, self.folder, self.deadline, self.keep = stplan, job, folder, deadline, keep
        # Of what the ballast leaves: its bytes, and torch's share of the device's memory.
        self.left, self.fraction = 0, 1.0
        self.trials: List[Dict[str, Any]] = []
        self.problems: List[str] = []
        self.waiting: Dict[Tuple[str, str], List[Waiting]] = {}

    def prepare(self, variant: Variant, count: int, cache: str = SEARCHED) -> None:
        """Starts processes until count of them wait."""
        waiting = self.waiting.setdefault((variant.name, cache), [])
        while len(waiting) < count:
            command = [sys.executable, str(HERE / "trainers.py"), *self.job, "--gate"]
            if variant.name in OURS:
                how = ["--no-plan"] if variant.name == POOL else ["--cache", str(self.folder / cache), "--learn-limit", LEARN_LIMIT]
                command = [self.stplan, "-q", "run", *how, "--", *command]
            settings = variant.settings.format(fraction=self.fraction)
            waiting.append(Waiting(variant.name, settings, command, self.folder))

    def drop(self, *names: str) -> None:
        """Ends the processes that wait for a variant, or all if no name is given."""
        for (name, _), waiting in self.waiting.items():
            while waiting and (name in names or not names):
                waiting.pop().drop()

    def settle(self) -> None:
        """Waits until no process imports any more, so that this disturbs no timing."""
        for waiting in self.waiting.values():
            for process in waiting:
                process.ready()

    def go(self, variant: Variant, batch: int, cache: str = SEARCHED, phase: str = SEARCH) -> Optional[Dict[str, Any]]:
        """The figures of a run, or None if it does not train. What was searched is not run again."""
        for trial in self.trials if phase == SEARCH else []:
            if (trial["variant"], trial["batch"], trial["phase"]) == (variant.name, batch, SEARCH) and not trial["wrong"]:
                return trial["figures"]
        if monotonic() > self.deadline:
            raise OutOfTime
        self.prepare(variant, 1, cache)
        process = self.waiting[variant.name, cache].pop(0)
        if phase == SEARCH:
            self.prepare(variant, 2, cache)  # for the next trial, while this one runs
        process.ready()
        begin, figures, wrong = monotonic(), None, ""
        try:
            said = process.go(f"--batch {batch}")
            found = [text[len("figures ") :] for text in (said or "").splitlines() if text.startswith("figures ")]
            figures = json.loads(found[-1]) if found else None
        except RuntimeError as error:
            wrong = str(error)
            self.problems.append(wrong)
        trial = {
            "variant": variant.name, "batch": batch, "phase": phase, "took_s": monotonic() - begin, "wrong": wrong,
            "figures": figures and {name: value for name, value in figures.items() if name != "stplan_steps"},
        }
        self.trials.append(trial)
        self.keep({"job": self.job, "left": self.left, "fraction": self.fraction, "trials": self.trials})
        print(f"{variant.name}: batch {batch} {'trains' if figures else 'does not train'}, {trial['took_s']:.1f} s", file=sys.stderr, flush=True)
        return figures

    def trains(self, variant: Variant) -> Callable[[int], bool]:
        """Whether a variant trains with a batch. A second run is preceded by a first one with
        that batch, which may leave a plan even if it does not train."""

        def asked(batch: int) -> bool:
            if variant.name == SECOND and not any(t["variant"] == FIRST and t["batch"] == batch for t in self.trials):
                self.go(named(FIRST), batch)
            return self.go(variant, batch) is not None

        return asked


def named(name: str) -> Variant:
    return next(variant for variant in VARIANTS if variant.name == name)


def search(bench: Bench, variants: Sequence[Variant], reference: int, grain: int, found: Dict[str, Tuple[int, int]]) -> None:
    """Fills found: the largest batch of each variant and the smallest that failed. Settings
    come last, as they are what may be left out if time is short, and have the largest of
    their base if they do not get beyond it."""
    order = sorted(variants, key=lambda variant: bool(variant.base))
    earlier = tried_in_search(bench.trials)
    for number, variant in enumerate(order):
        for other in order[number + 1 : number + 2]:
            if other.name not in earlier:
                bench.prepare(other, 1)
        best = max((low for low, _ in found.values()), default=reference) or reference
        if not variant.base:
            found[variant.name] = largest(bench.trains(variant), best, grain)
        else:
            best = found[variant.base][0]
            beyond = bench.trains(variant)
            if beyond(best + grain):
                found[variant.name] = largest(lambda batch: batch == best + grain or beyond(batch), best + grain, grain)
        bench.drop(variant.name)


def tried_in_search(trials: List[Dict[str, Any]]) -> Set[str]:
    return {trial["variant"] for trial in trials if trial["phase"] == SEARCH}


def so_far(trials: List[Dict[str, Any]], found: Dict[str, Tuple[int, int]]) -> None:
    """Fills found for variants whose search was cut off, with what its trials have shown. A
    batch that failed is 0 if there is none."""
    for name in tried_in_search(trials) - set(found):
        tried = [(trial["batch"], trial["figures"] is not None) for trial in trials if (trial["variant"], trial["phase"]) == (name, SEARCH)]
        low = max((batch for batch, trained in tried if trained), default=0)
        if low:
            found[name] = low, min((batch for batch, trained in tried if not trained and batch > low), default=0)


def timed(bench: Bench, found: Dict[str, Tuple[int, int]], rounds: int, figures: Dict[str, List[Dict[str, Any]]]) -> None:
    """Fills figures: those of runs of each variant that got beyond its base, at its largest batch,
    with nothing else on the machine. In each round the first run gets an empty cache, and
    leaves its plan there for the second."""
    for number in range(rounds):
        cache = f"{FRESH}{number}"
        bench.drop()
        chosen = [(named(name), batch) for name, (batch, _) in found.items() if batch]
        for variant, _ in chosen:
            bench.prepare(variant, 1, cache)
        bench.settle()
        for variant, batch in chosen:
            if variant.name == SECOND and batch != found.get(FIRST, (0, 0))[0]:
                bench.go(named(FIRST), batch, cache, phase=TIMED)  # leaves the plan, even if it does not train
            run = bench.go(variant, batch, cache, phase=TIMED)
            if run is None:
                bench.problems.append(f"{variant.name}: batch {batch} has trained in the search, and does not when it is timed")
            else:
                figures.setdefault(variant.name, []).append(run)


def needed(bench: Bench, found: Dict[str, Tuple[int, int]]) -> List[str]:
    """What the first batch needs that trained under no allocator, natively without a ballast."""
    batch = min((high for low, high in found.values() if high and low == max(best for best, _ in found.values())), default=0)
    # Memory that torch does not manage is the same in each process. The slack may hold tensors.
    outside = next((t["outside"] for t in bench.trials if t["phase"] == ALONE), 0)
    if not batch or not outside:
        return []
    run = bench.go(named(NATIVE), batch, FRESH, phase=NEEDED)
    if run is None:
        return []
    usable = bench.left - outside
    allocated = run["peak_allocated_bytes"]
    verdict = "no allocator trains it" if allocated > usable else f"{gib(usable - allocated)} GiB would have been left"
    return [f"Batch {batch} allocates {gib(allocated)} GiB at its peak, of {gib(usable)} GiB that are left for tensors: {verdict}."]


def speed(runs: List[Dict[str, Any]], sequences: int) -> float:
    """Sequences per second of runs with this number of them in a step, without their first steps."""
    seconds = [second for run in runs for second in run["seconds"][1:]]
    return sequences * len(seconds) / sum(seconds)


def rows(found: Dict[str, Tuple[int, int]], tried: Set[str], figures: Dict[str, List[Dict[str, Any]]], accumulated: int) -> List[str]:
    """The table's rows, of the variants that were tried. Of several timed runs a row has the speed of
    all, and the rest of the last."""
    speeds = {name: speed(runs, accumulated * found[name][0]) for name, runs in figures.items()}
    best = max((value for name, value in speeds.items() if name not in OURS), default=0.0)
    result = []
    for variant in VARIANTS:
        name = variant.name
        if name not in found:
            if name in tried:
                what = f"not above {found[variant.base][0]}" if variant.base else ""
                result.append(line([name, what, *[""] * 8]))
            continue
        (low, high), runs = found[name], figures.get(name)
        if not runs:
            result.append(line([name, low, high or "", *[""] * 7]))
            continue
        run = runs[-1]
        served = run["stplan"] or {}
        result.append(line([
            name, low, high or "", f"{speeds[name]:.1f}", f"{100 * speeds[name] / best:.1f} %" if best else "",
            gib(run["peak_allocated_bytes"]), gib(run["peak_reserved_bytes"]), run["alloc_retries"],
            f"{served['moved_bytes'] / GIB:.2f}" if served else "", on_plan(served) if name in (FIRST, SECOND) else "",
        ]))
    return result


def gains(found: Dict[str, Tuple[int, int]], figures: Dict[str, List[Dict[str, Any]]], accumulated: int) -> List[str]:
    """What stplan's best has over the best of the others."""
    batches = {name: batch for name, (batch, _) in found.items()}
    speeds = {name: speed(runs, accumulated * batches[name]) for name, runs in figures.items()}
    result = []
    for what, values in (("Largest batch", batches), ("Throughput", speeds)):
        ours = [value for name, value in values.items() if name in OURS]
        others = [value for name, value in values.items() if name not in OURS]
        if ours and others and max(others) > 0:
            result.append(f"{what} under stplan against the best of the others: {100 * (max(ours) / max(others) - 1):+.1f} %.")
    return result


def small_card(bench: Bench, ballast: Ballast, allocator: str, reference: int) -> None:
    """Makes the ballast leave what a run under one of torch's allocators with the reference batch uses."""
    card = ballast.free
    alone = bench.go(named(allocator), reference, phase=ALONE)
    if alone is None:
        raise RuntimeError(f"{allocator}: batch {reference} does not train without a ballast: {bench.problems}")
    used = card - alone["free_bytes"] + SLACK
    left = ballast.ask(card - used)
    outside = used - alone["peak_reserved_bytes"]  # the context and kernels, not torch's memory
    bench.trials[-1]["outside"] = outside - SLACK
    bench.left, bench.fraction = left, (left - outside) / ballast.total


def same_card(bench: Bench, ballast: Ballast, earlier: Dict[str, Any]) -> None:
    """Goes on with the trials of an earlier search: the ballast leaves as much."""
    if earlier["job"] != bench.job:
        raise SystemExit(f"--earlier: is of another job: {shlex.join(earlier['job'])}, expected {shlex.join(bench.job)}")
    bench.left = ballast.ask(ballast.free - earlier["left"])
    bench.fraction = earlier["fraction"]
    bench.trials = [trial for trial in earlier["trials"] if trial["phase"] in (ALONE, SEARCH)]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stplan", help="the stplan binary")
    parser.add_argument("--out", help="folder for largest-JOB.md and largest-JOB.json")
    parser.add_argument("--job", choices=sorted(ACCUMULATED), default="grpo", help="a job of trainers.py")
    parser.add_argument("--reference", type=int, default=8, help="the batch that fills the card")
    parser.add_argument("--filled-by", choices=(NATIVE, EXPANDABLE), default=NATIVE, help="the allocator that fills it")
    parser.add_argument("--grain", type=int, default=4, help="batches are multiples of it; grpo: completions of a prompt as well")
    parser.add_argument("--steps", type=int, default=12, help="optimizer steps of a trial")
    parser.add_argument("--rounds", type=int, default=1, help="timed runs of each")
    parser.add_argument("--layers", type=int, default=0, help="layers of the model, the job's own if not given")
    parser.add_argument("--completion", type=int, default=0, help="grpo: tokens of a completion at most")
    parser.add_argument("--without-stplan", action="store_true", help="search only what PyTorch's allocators train")
    parser.add_argument("--earlier", help="largest-JOB.json of a search that is to go on, with the same options")
    parser.add_argument("--time-limit", type=float, default=280, help="seconds after which no run begins")
    return parser.parse_args()


def main() -> int:
    options = arguments()
    begin, for_timing = monotonic(), FOR_TIMING * options.rounds
    out = Output(options.out, f"largest-{options.job}")
    job = [options.job, "--steps", str(options.steps), "--layers", str(options.layers)]
    if options.job == "grpo":
        job += ["--generations", str(options.grain), "--completion", str(options.completion)]
    found: Dict[str, Tuple[int, int]] = {}
    figures: Dict[str, List[Dict[str, Any]]] = {}
    limit: List[str] = []
    variants = [variant for variant in VARIANTS if not (options.without_stplan and variant.name in OURS)]
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(os.path.abspath(options.stplan), job, Path(folder), begin + options.time_limit - for_timing, out.keep)
        ballast = Ballast()
        try:
            card = ballast.free
            if options.earlier:
                same_card(bench, ballast, json.loads(Path(options.earlier).read_text()))
            else:
                bench.prepare(named(options.filled_by), 1)
                bench.prepare(named(NATIVE), 2)
                small_card(bench, ballast, options.filled_by, options.reference)
            command = shlex.join(["python", "runtime/torch/bench/largest.py", *sys.argv[1:]])
            rounds = "a run" if options.rounds == 1 else f"{options.rounds} runs"
            about = dict(
                job=options.job, command=command, allocator=options.filled_by, reference=options.reference, steps=options.steps,
                grain=options.grain, rounds=rounds,
            )
            out.lines([*INTRODUCTION.format(left=gib(bench.left), card=gib(card), **about).splitlines(), ""])
            try:
                search(bench, variants, options.reference, options.grain, found)
            except OutOfTime:
                missing = ", ".join(variant.name for variant in variants if variant.name not in found and not variant.base)
                bench.problems.append(f"time was short: not searched to the end: {missing}")
                so_far(bench.trials, found)
            bench.deadline += for_timing
            try:
                timed(bench, found, options.rounds, figures)
            except OutOfTime:
                bench.problems.append("time was short: not every largest batch was timed")
            ballast.end()
            try:
                limit = needed(bench, found)
            except OutOfTime:
                bench.problems.append("time was short: not known whether more could have trained")
        finally:
            bench.drop()
            ballast.end()
    accumulated = ACCUMULATED[options.job]
    out.lines([line(name for name, _ in COLUMNS), line(rule for _, rule in COLUMNS), *rows(found, tried_in_search(bench.trials), figures, accumulated)])
    out.lines(["", *gains(found, figures, accumulated), *limit])
    out.lines(["", "Problems:" + ("" if bench.problems else " none."), *(f"- {text}" for text in bench.problems)])
    return 1 if bench.problems else 0


if __name__ == "__main__":
    sys.exit(main())
