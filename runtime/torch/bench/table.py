"""What serve.py found, as Markdown for a reader and as JSON for a program.

    python table.py serve.json [serve.json...]

writes one document of several calls. A job that was run again under the same
allocators, or more of them, counts as it came out last.
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Tuple

from side_by_side import Measured

GIB = 1 << 30

COLUMNS = (
    ("job", "---"),
    ("allocator", "---"),
    ("reserved GiB", "---:"),
    ("allocated GiB", "---:"),
    ("efficiency", "---:"),
    ("outside GiB", "---:"),
    ("step ms (quartiles)", "---:"),
    ("of native", "---:"),
    ("on plan", "---:"),
    ("waits", "---:"),
    ("drift", "---:"),
    ("equal losses", "---:"),
)

INTRODUCTION = """# Training under stplan on a GPU

Written by `runtime/torch/bench/serve.py` on {about}:

{commands}

Each job (`runtime/torch/bench/jobs.py`, `megatron.py`) was recorded for 4 steps
with `stplan record` and its plan compiled. Then the same job ran on deterministic
kernels under each allocator of its rows: PyTorch's *native* one, twice (what *native
again* differs by, processes differ by), that with *expandable* segments, *stplan*
(`stplan run PLAN`), *no plan* (`stplan run --no-plan`).
*reserved* and *allocated* are torch's own peaks; under stplan they hold the arena,
its growth and what native keeps for itself.
*efficiency* divides the least peak allocated of its rows, the same for all, by
reserved. *outside* is the check by the driver (`cuMemGetInfo`): what the device
got back as the process exited, less what it had reserved: context, kernels and
libraries, which have to come out alike. Step times are medians of steps taken in
turns, each alone on the device, between two synchronisations; *of native* is the
median over the rounds of a step's time by native's in that round. *equal losses*:
how many in a row are native's, to the last bit. Where an allocator did not fit
on the device beside the others, its steps took no turns with theirs: *alone*.
"""


class Output:
    """Standard output, and NAME.md and NAME.json in a folder where there is one."""

    def __init__(self, folder: Optional[str], name: str) -> None:
        self._folder = Path(folder) if folder else None
        self._name = name
        if self._folder:
            (self._folder / f"{name}.md").write_text("")

    def lines(self, lines: List[str]) -> None:
        text = "".join(line + "\n" for line in lines)
        sys.stdout.write(text)
        sys.stdout.flush()
        if self._folder:
            with open(self._folder / f"{self._name}.md", "a") as out:
                out.write(text)

    def keep(self, figures: Any) -> None:
        """Replaces the figures that were kept before."""
        if self._folder:
            (self._folder / f"{self._name}.json").write_text(json.dumps(figures, indent=1))


def header(runs: List[Any]) -> List[str]:
    """Down to the table's rule. A run is what serve.py keeps of one call."""
    about = ", and on ".join(sorted({run["about"] for run in runs}))
    commands = "\n".join(f"    {run['command']}" for run in runs)
    text = INTRODUCTION.format(about=about, commands=commands)
    return [*text.splitlines(), "", line(name for name, _ in COLUMNS), line(rule for _, rule in COLUMNS)]


def line(cells: Any) -> str:
    return "| " + " | ".join(map(str, cells)) + " |"


def measured_of(job: Any) -> Dict[str, Measured]:
    return {name: Measured(**m) for name, m in job["measured"].items()}


def rows(name: str, job: Any) -> List[str]:
    """One for each allocator."""
    measured = measured_of(job)
    need = needed(measured)
    native = measured.get("native")
    result = []
    for allocator, m in measured.items():
        served = m.report["stplan"] or {}
        losses = m.report["losses"]
        cells = (
            name,
            allocator,
            gib(m.report["peak_reserved_bytes"]),
            gib(m.report["peak_allocated_bytes"]),
            f"{100 * need / m.report['peak_reserved_bytes']:.2f} %",
            gib(outside(m)),
            times(m.seconds),
            against(m, native, allocator in job["beside"]) if native and allocator != "native" else "",
            on_plan(served) if allocator == "stplan" else "",
            f"{served['waits']:,}" if served else "",
            f"{served['drift_events']:,}" if served and allocator == "stplan" else "",
            f"{equal(losses, native.report['losses'])} of {len(losses)}" if native else "",
        )
        result.append(line(cells))
    return result


def against(m: Measured, native: Measured, beside: bool) -> str:
    """The median of each step's time by that of native's in the same round, and
    its quartiles: what the machine does meanwhile falls on both."""
    ratios = [100 * own / its for own, its in zip(m.seconds, native.seconds)]
    if len(ratios) < 2:
        return ""
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return f"{middle:.1f} % ({low:.1f}–{high:.1f})" + ("" if beside else ", alone")


def wishes(name: str, job: Any) -> List[str]:
    """Where stplan is not what it wants to be, however wide the spread is."""
    measured = measured_of(job)
    stplan, native, expandable = (measured.get(allocator) for allocator in ("stplan", "native", "expandable"))
    if stplan is None:
        return []
    result = []
    reserved, need = stplan.report["peak_reserved_bytes"], needed(measured)
    if job["steady"] and reserved > 1.005 * need:
        result.append(f"{name}: reserved is {100 * reserved / need - 100:.2f} % above peak allocated")
    if expandable and reserved >= expandable.report["peak_reserved_bytes"]:
        other = expandable.report["peak_reserved_bytes"]
        result.append(f"{name}: reserves {gib(reserved)} GiB, expandable segments {gib(other)} GiB")
    ratios = [own / its for own, its in zip(stplan.seconds, native.seconds)] if native else []
    if native and ratios and statistics.median(ratios) > 1:
        spread = against(stplan, native, "native" in job["beside"])
        again = measured.get("native again")
        control = f"; the second native process {against(again, native, 'native again' in job['beside'])}" if again else ""
        result.append(f"{name}: a step takes longer than natively: {spread}, {len(ratios)} rounds{control}")
    return result


def closing(jobs: List[Tuple[str, Any]], problems: List[str]) -> List[str]:
    wanted = [text for name, job in jobs for text in wishes(name, job)]
    return [
        "",
        "Not as wanted (reserved within 0.5 % of peak allocated where every step is alike, below",
        "expandable segments' on every job, no step longer than native's; in brackets the quartiles):"
        + ("" if wanted else " nothing."),
        *(f"- {text}" for text in wanted),
        "",
        "Not as it should be:" + ("" if problems else " nothing."),
        *(f"- {text}" for text in problems),
    ]


def needed(measured: Mapping[str, Measured]) -> int:
    """Peak allocated bytes: the least that any allocator counted, since native
    counts what it does not split off a block as well."""
    peaks: List[int] = [m.report["peak_allocated_bytes"] for m in measured.values()]
    return min(peaks)


def outside(m: Measured) -> int:
    """Bytes that the process held beside what was reserved."""
    reserved: int = m.report["reserved_bytes"]
    return m.returned_bytes - reserved


def equal(losses: List[str], native: List[str]) -> int:
    """How many from the first on are equal."""
    for index, (a, b) in enumerate(zip(losses, native)):
        if a != b:
            return index
    return min(len(losses), len(native))


def first_difference(losses: List[str], native: List[str]) -> str:
    at = equal(losses, native)
    if at == len(losses) or at == len(native):
        return f"{len(losses)} losses, native has {len(native)}"
    return f"loss {at + 1} of {len(losses)} is {losses[at]}, natively {native[at]}"


def gib(count: int) -> str:
    return f"{count / GIB:.3f}"


def on_plan(served: Mapping[str, Any]) -> str:
    """The share of allocations that got the plan's place, and what became of the
    plan where it does not serve any more."""
    if not served.get("allocations"):
        return ""
    percent = 100 * served["planned_allocations"] / served["allocations"]
    state = served["state"] if served["state"] in ("off", "ended", "declined") else ""
    return " ".join(filter(None, (f"{percent:.2f} %", state)))


def times(seconds: List[float]) -> str:
    if len(seconds) < 2:
        return " ".join(f"{1000 * s:.1f}" for s in seconds)
    low, middle, high = statistics.quantiles(seconds, n=4, method="inclusive")
    return f"{1000 * middle:.1f} ({1000 * low:.1f}–{1000 * high:.1f})"


def document(runs: List[Any]) -> List[str]:
    jobs: List[Tuple[str, Any]] = []
    problems: List[str] = []
    for run in runs:
        for name, job in run["jobs"].items():
            jobs = [old for old in jobs if old[0] != name or not old[1]["measured"].keys() <= job["measured"].keys()]
            problems = [text for text in problems if not text.startswith((f"{name}:", f"{name},"))]
            jobs.append((name, job))
        problems += run["problems"]
    table = [row for name, job in jobs for row in rows(name, job)]
    return [*header(runs), *table, *closing(jobs, problems)]


if __name__ == "__main__":
    print("\n".join(document([json.loads(Path(path).read_text()) for path in sys.argv[1:]])))
