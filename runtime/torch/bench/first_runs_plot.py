"""Draws the time of every step of first_runs.py's runs, from the first one on, as SVG.

    python runtime/torch/bench/first_runs_plot.py first_runs.json [first_runs.json...] > first_runs.svg

Each job is a panel: steps to the right, seconds upwards on a logarithmic scale, a line for each run.
A dot is a step in which a plan was put in place. Of a job that is in several files the last one counts.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from html import escape
from typing import Any, Dict, Iterator, List, Mapping, Tuple

from first_runs import AGAIN, CONFIGURATIONS, EXPANDABLE, FIRST, NATIVE, SECOND, installed

# Of a panel, in pixels: its size, and the room for what is written around the lines.
WIDTH, HEIGHT = 440, 250
LEFT, RIGHT, TOP, BOTTOM = 52, 12, 34, 34
PANELS_IN_A_ROW = 2
LEGEND = 34

# Told apart by those who do not see all colours too (Okabe and Ito), native in greys.
COLOURS = {NATIVE: "#444444", AGAIN: "#aaaaaa", EXPANDABLE: "#e69f00", FIRST: "#56b4e9", SECOND: "#009e73"}

# Seconds that lines are drawn for behind the runs, in each power of ten.
MARKS = (1, 2, 5)


class Scale:
    """Where steps and seconds are in a panel, in pixels."""

    def __init__(self, steps: int, least: float, most: float) -> None:
        self._steps, self._least, self._span = max(steps - 1, 1), math.log(least), max(math.log(most / least), 1e-9)

    def x(self, step: int) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * step / self._steps

    def y(self, seconds: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (math.log(seconds) - self._least) / self._span


def text(x: float, y: float, what: str, anchor: str = "middle", size: int = 12) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">{escape(what)}</text>'


def rule(x1: float, y1: float, x2: float, y2: float, colour: str, width: float = 1) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" stroke-width="{width}"/>'


def marks(least: float, most: float) -> Iterator[float]:
    """The round numbers of seconds from the least to the most."""
    for power in range(math.floor(math.log10(least)), math.ceil(math.log10(most)) + 1):
        yield from (mark * 10.0**power for mark in MARKS if least <= mark * 10.0**power <= most)


def panel(job: str, runs: Mapping[str, Any]) -> List[str]:
    times = [seconds for figures in runs.values() for seconds in figures["seconds"]]
    steps = max(len(figures["seconds"]) for figures in runs.values())
    scale = Scale(steps, min(times), max(times))
    drawn = [text(LEFT, 20, job, "start", 14)]
    for mark in marks(min(times), max(times)):
        drawn += [rule(LEFT, scale.y(mark), WIDTH - RIGHT, scale.y(mark), "#dddddd"), text(LEFT - 6, scale.y(mark) + 4, f"{mark:g} s", "end")]
    for step in (0, *range(4, steps, 5)):
        drawn.append(text(scale.x(step), HEIGHT - BOTTOM + 18, str(step + 1)))
    drawn.append(rule(LEFT, HEIGHT - BOTTOM, WIDTH - RIGHT, HEIGHT - BOTTOM, "#444444"))
    for run in (run for run in CONFIGURATIONS if run in runs):
        seconds = runs[run]["seconds"]
        points = " ".join(f"{scale.x(i):.1f},{scale.y(s):.1f}" for i, s in enumerate(seconds))
        drawn.append(f'<polyline fill="none" stroke="{COLOURS[run]}" stroke-width="1.6" points="{points}"/>')
        for i in installed(runs[run]):
            drawn.append(f'<circle cx="{scale.x(i):.1f}" cy="{scale.y(seconds[i]):.1f}" r="4" fill="{COLOURS[run]}"/>')
    return drawn


def legend(width: int) -> List[str]:
    drawn, room = [], width / len(CONFIGURATIONS)
    for i, run in enumerate(CONFIGURATIONS):
        drawn += [rule(room * i + 12, 18, room * i + 36, 18, COLOURS[run], 3), text(room * i + 42, 22, run, "start")]
    return drawn


def draw(jobs: Mapping[str, Mapping[str, Any]]) -> str:
    """The SVG of the figures that first_runs.py keeps: of each job, those of its runs."""
    columns = min(PANELS_IN_A_ROW, len(jobs))
    width, height = WIDTH * columns, LEGEND + HEIGHT * -(-len(jobs) // columns)
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" font-family="sans-serif">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        *legend(width),
    ]
    for i, (job, runs) in enumerate(jobs.items()):
        drawn += [f'<g transform="translate({i % columns * WIDTH},{LEGEND + i // columns * HEIGHT})">', *panel(job, runs), "</g>"]
    return "\n".join([*drawn, "</svg>", ""])


def read(paths: List[str]) -> Tuple[Dict[str, Any], List[str]]:
    """The jobs of some files that have runs, and what is wrong with the files."""
    jobs: Dict[str, Any] = {}
    problems: List[str] = []
    for path in paths:
        try:
            with open(path) as file:
                jobs.update((job, runs) for job, runs in json.load(file).items() if runs)
        except (OSError, ValueError, AttributeError) as error:
            problems.append(f"{path}: expected what first_runs.py keeps: {error}")
    return jobs, problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figures", nargs="+", metavar="first_runs.json", help="what first_runs.py keeps")
    jobs, problems = read(parser.parse_args().figures)
    if problems or not jobs:
        print(*(problems or ["no runs to draw"]), sep="\n", file=sys.stderr)
        return 1
    sys.stdout.write(draw(jobs))
    return 0


if __name__ == "__main__":
    sys.exit(main())
