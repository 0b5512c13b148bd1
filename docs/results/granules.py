#!/usr/bin/env python3
"""Count the handles that the memory of a plan is mapped in; print a Markdown table.

    granules.py STPLAN FOLDER NAME...

For each recording FOLDER/NAME.pickle.gz it runs `compile`, and `replay` with that plan, whose
memory may move, the same with --proven, and with --move off. Handles are the peak reserved
divided by the size of the plan's granules, both as `replay --json` has them: each is a file if
it is exported, and a segment if it is registered. So a recording counts only if its plan serves all
of it. The times are computed from granules.md. The exit code is 1 if a recording does not
count. Needs only Python 3.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

MIB, GIB = 1 << 20, 1 << 30

# The ms that the driver takes to make a handle, map it and allow access to it, by the number of
# MiB of the handle: the first two columns of granules.md, divided by the handles of a GiB. A
# handle of a size in between counts as one of the next larger size.
HANDLE = {2: 0.0368, 8: 0.0281, 32: 0.0297, 128: 0.0363, 512: 0.055}

WAYS = ([], ["--proven"], ["--move", "off"])


def stplan(binary, *args):
    """Run one command and return its standard output; raise with its message."""
    done = subprocess.run([binary, "--quiet", *map(str, args)], capture_output=True, text=True)
    if done.returncode not in (0, 1) or not done.stdout:
        raise RuntimeError(f"{args[0]}: exit {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def cells(got):
    """Handles, their size, what they reserve, and how long the driver takes for them."""
    reserved, unit = got["peak_reserved_bytes"], got["plan_granule_bytes"]
    handles = -(-reserved // unit)
    sizes = [size for size in HANDLE if size * MIB >= unit]
    if not sizes:
        raise ValueError(f"handles of {unit} B: granules.md has no time for them")
    ms = handles * HANDLE[min(sizes)]
    return [f"{handles:,}", f"{unit / MIB:g} MiB", f"{handles * unit / GIB:.3f}", f"{ms:.0f}"]


def row(binary, trace, name, plan):
    stplan(binary, "compile", trace, "-o", plan)
    found = []
    for way in WAYS:
        got = json.loads(stplan(binary, "replay", plan, *way, trace, "--json"))
        if got["planned_allocations"] != got["allocations"] or got["overlaps"]:
            sys.stderr.write(f"{name}{' '.join(['', *way])}: {got['planned_allocations']} of {got['allocations']} allocations are on plan, {got['overlaps']} overlap\n")
            return None
        found += cells(got)
    return [name, f"{got['peak_allocated_bytes'] / GIB:.3f}", *found]


def main():
    binary, folder, *names = sys.argv[1:]
    ways = ("auto", "proven", "off")
    header = ["recording", "allocated, GiB", *(f"{way}: {what}" for way in ways for what in ("handles", "of", "reserved, GiB", "mapped in ms"))]
    print("| " + " | ".join(header) + " |")
    print("| --- |" + " ---: |" * (len(header) - 1))
    left_out = 0
    with tempfile.TemporaryDirectory() as plans:
        for name in names:
            found = row(binary, pathlib.Path(folder, name + ".pickle.gz"), name, pathlib.Path(plans, name + ".bin"))
            left_out += found is None
            if found:
                print("| " + " | ".join(found) + " |", flush=True)
    return 1 if left_out else 0


if __name__ == "__main__":
    sys.exit(main())
