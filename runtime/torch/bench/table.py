"""Writes the results of serve.py as Markdown and as JSON.

    python table.py serve.json [serve.json...]

prints one Markdown document for several calls of serve.py. If a job was run
again under at least the same allocators, its last results count.
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

Each job (`runtime/torch/bench/jobs.py`, `megatron.py`) was recorded for 4 steps with
`stplan record`, and its plan was compiled. Then the same job ran with deterministic kernels
under each allocator of its rows: PyTorch's *native* one; the same again (*native again*, to
show by how much two equal processes differ); with *expandable* segments; *stplan*
(`stplan run PLAN`); *no plan* (`stplan run --no-plan`).

- *reserved* and *allocated* are torch's peaks. Under stplan they count the arena, its growth,
  and what the native allocator still reserves.
- *efficiency* divides the smallest peak allocated of the job's rows by reserved.
- *outside* is checked with the driver (`cuMemGetInfo`): the memory that became free when the
  process exited, minus what it had reserved. That is its context, kernels and libraries,
  which have to be equal in all rows.
- *step ms* are medians of steps taken in turns, each alone on the device, between two
  synchronisations.
- *of native* divides a step's time by that of native's step in the same round; it is the
  median over the rounds. *alone*: the allocator did not fit on the device beside the others,
  so its steps took no turns with theirs.
- *equal losses* counts the losses that equal native's to the last bit, up to the first that
  differs.
"""


class Output:
    """Writes to standard output and, if there is a folder, to NAME.md and
    NAME.json in it."""

    def __init__(self, folder: Optional[str], name: str) -> None:
        self._folder = Path(folder) if folder else None
        self._name = name
        if self._folder:
            self._folder.mkdir(parents=True, exist_ok=True)
            (self._folder / f"{name}.md").write_text("")

    def lines(self, lines: List[str]) -> None:
        text = "".join(line + "\n" for line in lines)
        sys.stdout.write(text)
        sys.stdout.flush()
        if self._folder:
            with open(self._folder / f"{self._name}.md", "a") as out:
                out.write(text)

    def keep(self, figures: Any) -> None:
        """Replaces the contents of NAME.json."""
        if self._folder:
            (self._folder / f"{self._name}.json").write_text(json.dumps(figures, indent=1))


def header(runs: List[Any]) -> List[str]:
    """The document down to the rule below the table's head. A run is the contents of
    serve.json of one call."""
    about = ", and on ".join(sorted({run["about"] for run in runs}))
    commands = "\n".join(f"    {run['command']}" for run in runs)
    text = INTRODUCTION.format(about=about, commands=commands)
    return [*text.splitlines(), "", line(name for name, _ in COLUMNS), line(rule for _, rule in COLUMNS)]


def line(cells: Any) -> str:
    return "| " + " | ".join(map(str, cells)) + " |"


def measured_of(job: Any) -> Dict[str, Measured]:
    return {name: Measured(**m) for name, m in job["measured"].items()}


def rows(name: str, job: Any) -> List[str]:
    """The table's rows of a job, one for each allocator."""
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
    """A step's time divided by that of native's step in the same round, so that changes
    of the machine affect both: the median and the quartiles over the rounds."""
    ratios = [100 * own / its for own, its in zip(m.seconds, native.seconds)]
    if len(ratios) < 2:
        return ""
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return f"{middle:.1f} % ({low:.1f}–{high:.1f})" + ("" if beside else ", alone")


def wishes(name: str, job: Any) -> List[str]:
    """The targets that stplan misses in a job, without regard to the spread of times."""
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
        result.append(f"{name}: a step takes longer than native's: {spread}, {len(ratios)} rounds{control}")
    return result


def closing(jobs: List[Tuple[str, Any]], problems: List[str]) -> List[str]:
    wanted = [text for name, job in jobs for text in wishes(name, job)]
    return [
        "",
        "Targets missed (reserved at most 0.5 % above peak allocated if all steps are alike; less",
        "reserved than with expandable segments in every job; no step longer than native's; quartiles",
        "in brackets):" + ("" if wanted else " none."),
        *(f"- {text}" for text in wanted),
        "",
        "Problems:" + ("" if problems else " none."),
        *(f"- {text}" for text in problems),
    ]


def needed(measured: Mapping[str, Measured]) -> int:
    """Peak allocated bytes: the smallest of any allocator, since native also
    counts the rest of a block that it did not split."""
    peaks: List[int] = [m.report["peak_allocated_bytes"] for m in measured.values()]
    return min(peaks)


def outside(m: Measured) -> int:
    """Bytes that the process held in addition to those reserved."""
    reserved: int = m.report["reserved_bytes"]
    return m.returned_bytes - reserved


def equal(losses: List[str], native: List[str]) -> int:
    """The number of equal losses before the first that differs."""
    for index, (a, b) in enumerate(zip(losses, native)):
        if a != b:
            return index
    return min(len(losses), len(native))


def first_difference(losses: List[str], native: List[str]) -> str:
    """Describes the first loss that differs, or the difference in their number."""
    at = equal(losses, native)
    if at == len(losses) or at == len(native):
        return f"{len(losses)} losses, native has {len(native)}"
    return f"loss {at + 1} of {len(losses)} is {losses[at]}, natively {native[at]}"


def gib(count: int) -> str:
    return f"{count / GIB:.3f}"


def on_plan(served: Mapping[str, Any]) -> str:
    """The share of allocations that the plan served, and the state of the plan if it does
    not serve any more."""
    if not served.get("allocations"):
        return ""
    percent = 100 * served["planned_allocations"] / served["allocations"]
    state = served["state"] if served["state"] in ("off", "ended", "declined") else ""
    return " ".join(filter(None, (f"{percent:.2f} %", state)))


def times(seconds: List[float]) -> str:
    """The median and the quartiles in ms."""
    if len(seconds) < 2:
        return " ".join(f"{1000 * s:.1f}" for s in seconds)
    low, middle, high = statistics.quantiles(seconds, n=4, method="inclusive")
    return f"{1000 * middle:.1f} ({1000 * low:.1f}–{1000 * high:.1f})"


def document(runs: List[Any]) -> List[str]:
    """The lines of one document for several calls of serve.py."""
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
