"""Compares two builds of stplan on jobs of several ranks over NCCL: the time of a step, its
waits and the memory that moves. Writes the results as Markdown.

    python runtime/torch/bench/forgiving.py bin/stplan --before old/stplan --ranks 2 --out docs/results

The jobs are real.py's: a pipeline, experts and FSDP2. Each is recorded once, and each build
compiles its ranks' plans. Then the job runs natively and with the plans of both builds, side
by side in turns of one step, and after that under both builds without a plan. A step of
one build is compared with the other's in the same round, so that slow changes of the
machine affect both. forgiving.json has every figure.

Needs torch, transformers, one GPU for each rank with room for three copies of a job and,
for the Megatron jobs, a checkout (--megatron). With --ranks 2 a job takes about 3 minutes:
choose jobs by --jobs if the time of a command is bounded. The exit code is 1 if there is a
problem: losses that differ from native's in any bit, a job that fails, or a rank that
stplan does not serve.
"""

from __future__ import annotations

import argparse
import os
import shlex
import statistics
import sys
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional

import ranks
import real
import serve
import table
from ranks import WARM, by_rank
from side_by_side import Measured, Start

BEFORE, AFTER = "before", "after"
NO_PLAN = " (no plan)"

# What runs side by side: three copies fit on the devices together, five may not.
GROUPS = (("native", BEFORE, AFTER), (BEFORE + NO_PLAN, AFTER + NO_PLAN))
CONFIGURATIONS = tuple(name for group in GROUPS for name in group)

# How much longer a step may take in the median, as a share.
TOLERATED = 0.01

COLUMNS = (
    ("job", "---"),
    ("build", "---"),
    ("step ms (quartiles)", "---:"),
    ("of native", "---:"),
    ("waits a step", "---:"),
    ("GiB moved in all", "---:"),
    ("GiB moved a timed step", "---:"),
    ("reserved GiB, by rank", "---"),
    ("equal losses", "---:"),
)

INTRODUCTION = """# Two builds of stplan over NCCL

Written by `runtime/torch/bench/forgiving.py` on {ranks} times {about}:

    {command}

*before* and *after* are the builds {before} and {after}. Jobs, recording and turns are those
of `real.py`, {ranks} ranks each. Each build served plans that it compiled of the same
traces; *no plan* is `stplan run --no-plan`. Waits, moved memory and losses are of all ranks
together; the first {warm} steps are not timed. *of native* divides a step's time by native's
in the same round; the steps without a plan took no turns with native's.
"""


class Forgiving(real.Real):
    """real.py's bench, with two builds in place of two kinds of plans."""

    served = tuple(name for name in CONFIGURATIONS if name != "native")

    def builds(self) -> Dict[str, str]:
        return {BEFORE: os.path.abspath(self.options.before), AFTER: self.stplan}

    def binaries(self) -> List[str]:
        return list(self.builds().values())

    def kinds(self) -> Dict[str, real.Kind]:
        return {name: real.Kind(name, stplan) for name, stplan in self.builds().items()}

    def start(self, prepared: Any, configuration: str) -> Start:
        command = self.command(prepared.job, self.options.rounds + WARM)
        if configuration == "native":
            return Start(command)
        build = configuration.removesuffix(NO_PLAN)
        plan = "--no-plan" if configuration.endswith(NO_PLAN) else str(prepared.plans / build)
        return Start([self.builds()[build], "run", plan, "--", *command])

    def groups(self, prepared: Any) -> List[List[str]]:
        chosen = [[name for name in group if name in self.options.only] for group in GROUPS]
        return [group for group in chosen if group]

    def run(self, jobs: List[Any], out: table.Output) -> int:
        """Measures the jobs and writes the document. Returns the exit code."""
        prepared: List[Any] = list(self.prepare_all(jobs))
        out.lines(header(self.device.about(), self.options))
        compared: List[str] = []
        figures: Dict[str, Any] = {}
        for p, measured, beside in self.measure(prepared):
            self.check(p, measured)
            out.lines(rows(p.job.name, measured, beside))
            compared += comparisons(p.job.name, measured)
            kept = {name: m._asdict() for name, m in measured.items()}
            figures[p.job.name] = {"compiled": p.compiled, "recorded": p.recorded, "measured": kept}
            out.keep(figures)
        out.lines(closing(compared, self.problems))
        return 1 if self.problems else 0


def header(about: str, options: argparse.Namespace) -> List[str]:
    command = shlex.join(["python", "runtime/torch/bench/forgiving.py", *sys.argv[1:]])
    named = {"before": options.before, "after": options.stplan, "ranks": options.ranks, "warm": WARM}
    text = INTRODUCTION.format(about=about, command=command, **named)
    return [*text.splitlines(), "", table.line(name for name, _ in COLUMNS), table.line(rule for _, rule in COLUMNS)]


def rows(job: str, measured: Mapping[str, Measured], beside: List[str]) -> List[str]:
    """The table's rows of a job. beside: the configurations that took turns with native."""
    native = measured.get("native")
    return [table.line([job, name, *cells(name, m, native, beside)]) for name, m in measured.items()]


def cells(name: str, m: Measured, native: Optional[Measured], beside: List[str]) -> List[str]:
    served = [report for report in m.reports if report["stplan"]]
    alike = [table.equal(a["losses"], b["losses"]) for a, b in zip(m.reports, native.reports)] if native else []
    return [
        table.times(m.seconds[WARM:]),
        ranks.ratio(m, native) if native and name != "native" and name in beside else "",
        f"{sum(timed(report, 'waits') for report in served):,.1f}" if served else "",
        table.gib(sum(report["stplan"]["moved_bytes"] for report in served)) if served else "",
        f"{sum(timed(report, 'moved_bytes') for report in served) / table.GIB:.3f}" if served else "",
        by_rank(m, "peak_reserved_bytes"),
        f"{sum(alike)} of {sum(len(report['losses']) for report in m.reports)}" if native else "",
    ]


def timed(report: Mapping[str, Any], counter: str) -> float:
    """What a rank counted in each timed step, on average."""
    counts = [step[counter] for step in report["stplan_steps"]]
    steps = len(counts) - WARM
    return (counts[-1] - counts[WARM - 1]) / steps if steps > 0 else 0.0


def comparisons(job: str, measured: Mapping[str, Measured]) -> List[str]:
    """How long a step takes with the later build, by the earlier one's in the same
    round."""
    result = []
    for kind, text in (("", "with a plan"), (NO_PLAN, "without a plan")):
        before, after = measured.get(BEFORE + kind), measured.get(AFTER + kind)
        if before is None or after is None:
            continue
        ratios = [a / b for a, b in zip(after.seconds[WARM:], before.seconds[WARM:])]
        if not ratios:
            continue
        longer = f"; longer by more than {100 * TOLERATED:g} %" if statistics.median(ratios) > 1 + TOLERATED else ""
        result.append(f"- {job}, {text}: {ranks.ratio(after, before)} of the time before, {len(ratios)} rounds{longer}")
    return result


def closing(compared: List[str], problems: List[str]) -> List[str]:
    return [
        "",
        "A step with the later build, by the earlier one's in the same round (quartiles):",
        "",
        *compared,
        "",
        "Problems:" + ("" if problems else " none."),
        *(f"- {text}" for text in problems),
    ]


def arguments() -> argparse.Namespace:
    parser = serve.shared_options("forgiving", CONFIGURATIONS, rounds=20, seconds=40.0)
    parser.set_defaults(budget=560.0)
    parser.add_argument("--before", required=True, help="the stplan binary that this one is compared with")
    parser.add_argument("--ranks", type=int, default=2, help="ranks of each job, one GPU for each")
    parser.add_argument("--recorded", type=int, default=4, help="steps that are recorded")
    parser.add_argument("--keep", help="folder to which the traces are copied")
    return parser.parse_args()


def main() -> int:
    options = arguments()
    for binary in (options.stplan, options.before):
        if not Path(binary).is_file():
            sys.exit(f"forgiving.py: {binary}: expected an stplan binary, found no file")
    every = {job.name: job for job in real.jobs(options.ranks)}
    chosen = serve.choose(options, list(every), CONFIGURATIONS)
    return serve.measure(Forgiving, options, [every[name] for name in chosen], "forgiving")


if __name__ == "__main__":
    sys.exit(main())
