"""Writes the results of real.py as Markdown."""

from __future__ import annotations

import shlex
import statistics
from typing import Any, Dict, List, Mapping

from side_by_side import Measured
from table import equal, gib, line, on_plan, times

PENDING, COMPLETED = "stplan", "no pending"

# Number of first steps that are not counted: kernels are loaded and communicators are set
# up in them.
WARM = 2

COLUMNS = (
    ("job", "---"),
    ("allocator", "---"),
    ("reserved GiB, by rank", "---"),
    ("allocated GiB, by rank", "---"),
    ("efficiency", "---:"),
    ("step ms (quartiles)", "---:"),
    ("of native, step by step", "---:"),
    ("on plan, by rank", "---"),
    ("waits a step", "---:"),
    ("drift", "---:"),
    ("equal losses", "---:"),
)

INTRODUCTION = """# Jobs of several ranks over NCCL

Written by `runtime/torch/bench/real.py` on {ranks} times {about}:

    {command}

Pipeline parallelism and expert parallelism (Megatron-LM, `runtime/torch/bench/megatron.py`)
and FSDP2 (`jobs.py`), {ranks} ranks each, with deterministic kernels and collectives. Each
job was recorded with `stplan record`. Then it ran natively, with expandable segments, with
its ranks' plans (*{pending}*: memory whose free is pending is reused after a wait), and, if
they differ from those, with plans compiled with `--no-reuse-pending` (*{completed}*). The
allocators take turns, one step each.

*reserved* and *allocated* are torch's peaks. *efficiency* takes the smallest peak allocated
of each rank, adds them up, and divides by what all ranks reserve. A step takes as long as
its slowest rank. *of native* divides a step's time by that of the native step in the same
round: the median and the quartiles. *equal losses* counts, over all ranks, the losses and
norms of gradients that equal native's to the last bit, up to the first that differs.
"""


def header(about: str, command: List[str], ranks: int) -> List[str]:
    text = INTRODUCTION.format(about=about, command=shlex.join(command), ranks=ranks, pending=PENDING, completed=COMPLETED)
    return [*text.splitlines(), "", line(name for name, _ in COLUMNS), line(rule for _, rule in COLUMNS)]


def rows(job: str, measured: Mapping[str, Measured]) -> List[str]:
    """The table's rows of a job, one for each allocator."""
    native = measured.get("native")
    peaks = [[report["peak_allocated_bytes"] for report in m.reports] for m in measured.values()]
    needed = sum(min(rank) for rank in zip(*peaks))
    result = []
    for name, m in measured.items():
        served: List[Dict[str, Any]] = [report["stplan"] for report in m.reports if report["stplan"]]
        waits, drift = (sum(counters[key] for counters in served) for key in ("waits", "drift_events"))
        steps = sum(len(report["seconds"]) for report in m.reports)
        alike = [equal(a["losses"], b["losses"]) for a, b in zip(m.reports, native.reports)] if native else []
        result.append(
            line(
                (
                    job,
                    name,
                    by_rank(m, "peak_reserved_bytes"),
                    by_rank(m, "peak_allocated_bytes"),
                    f"{100 * needed / sum(report['peak_reserved_bytes'] for report in m.reports):.2f} %",
                    times(m.seconds[WARM:]),
                    ratio(m, native) if native and name != "native" else "",
                    " ".join(on_plan(counters) for counters in served),
                    f"{waits / steps:.1f}" if served else "",
                    f"{drift:,}" if served else "",
                    f"{sum(alike)} of {sum(len(report['losses']) for report in m.reports)}" if native else "",
                )
            )
        )
    return result


def waiting(job: str, measured: Mapping[str, Measured], compiled: Mapping[str, List[Dict[str, Any]]]) -> List[str]:
    """How much memory the reuse of pending memory saves, in the plans and in what is
    reserved, and how it changes the time of a step. compiled: the figures of compile, by
    kind of plan and rank."""
    saved = sum(plan["plan_bytes"] for plan in compiled[COMPLETED]) - sum(plan["plan_bytes"] for plan in compiled[PENDING])
    text = f"- {job}: the plans of all ranks together are {gib(saved)} GiB smaller"
    if not {PENDING, COMPLETED} <= measured.keys():
        return [text + "."]
    pending, completed = measured[PENDING], measured[COMPLETED]
    declined = [rank for rank, report in enumerate(completed.reports) if (report["stplan"] or {}).get("state") == "declined"]
    if declined:
        text += f" (without the reuse those of ranks {', '.join(map(str, declined))} were declined, and the pool served them)"
    reserved = [sum(report["peak_reserved_bytes"] for report in m.reports) for m in (completed, pending)]
    return [f"{text}; {gib(reserved[0] - reserved[1])} GiB less are reserved, and a step takes {ratio(pending, completed)} of the time."]


def closing(waited: List[str], problems: List[str]) -> List[str]:
    return [
        "",
        "Reusing pending memory, compared with keeping it until its recorded completion:",
        "",
        *waited,
        "",
        "Problems:" + ("" if problems else " none."),
        *(f"- {text}" for text in problems),
    ]


def by_rank(m: Measured, key: str) -> str:
    return " ".join(gib(report[key]) for report in m.reports)


def ratio(m: Measured, other: Measured) -> str:
    """The ratio of the times of steps in the same round: median and quartiles,
    in per cent."""
    ratios: List[Any] = [a / b for a, b in zip(m.seconds[WARM:], other.seconds[WARM:])]
    if len(ratios) < 2:
        return ""
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return f"{100 * middle:.2f} % ({100 * low:.2f}–{100 * high:.2f})"
