#!/usr/bin/env python3
"""Run stplan and minimalloc on the same instances, one after the other; print a
Markdown table.

    minimalloc.py STPLAN MINIMALLOC FOLDER [--capacity BYTES] [--repeat N]

Both get every *.csv of FOLDER whose name begins with a capital letter, and the
same capacity. Both run N times, in turn; the table has the smallest wall time
and the smallest processor time (of all threads) of each. This script checks
both layouts: no two buffers that are live at the same time share a byte, and
none ends above the capacity. The exit code is 1 if a layout is wrong, a run
fails, or stplan takes more wall time. Needs only Python 3.
"""
import argparse
import csv
import os
import pathlib
import subprocess
import sys
import tempfile
import time


def timed(*command):
    """Wall and processor seconds of one command, and whether it succeeded."""
    before, began = os.times(), time.monotonic()
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    wall, after = time.monotonic() - began, os.times()
    cpu = after.children_user - before.children_user + after.children_system - before.children_system
    if done.returncode != 0:
        print(f"{command[0]}: exit {done.returncode}: {done.stderr.strip()}", file=sys.stderr)
    return wall, cpu, done.returncode == 0


def makespan(path, capacity):
    """The makespan of a layout, or a message if the layout is wrong."""
    with open(path, newline="") as f:
        rows = [{k.strip(): int(v) for k, v in row.items() if k.strip() != "id"} for row in csv.DictReader(f)]
    for i, a in enumerate(rows):
        if a["offset"] < 0 or a["offset"] + a["size"] > capacity:
            return f"row {i} ends outside the capacity"
        for b in rows[:i]:
            if (a["lower"] < b["upper"] and b["lower"] < a["upper"]
                    and a["offset"] < b["offset"] + b["size"] and b["offset"] < a["offset"] + a["size"]):
                return f"row {i} overlaps an earlier one"
    return max(r["offset"] + r["size"] for r in rows)


def measure(stplan, peer, instance, capacity, repeat, folder):
    """The smallest (wall, cpu) of both programs, and their makespans or messages."""
    ours, theirs = folder / "ours.csv", folder / "theirs.csv"
    commands = {
        ours: (stplan, "--quiet", "pack", instance, "-o", ours, "--capacity", capacity),
        theirs: (peer, f"--capacity={capacity}", f"--input={instance}", f"--output={theirs}"),
    }
    best, found = {}, {}
    for _ in range(repeat):
        for out, command in commands.items():
            out.unlink(missing_ok=True)
            wall, cpu, ok = timed(*command)
            found[out] = makespan(out, capacity) if ok and out.exists() else "no layout"
            known = best.get(out, (wall, cpu))
            best[out] = (min(wall, known[0]), min(cpu, known[1]))
    return best[ours], best[theirs], found[ours], found[theirs]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stplan")
    parser.add_argument("minimalloc")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--capacity", type=int, default=1048576)
    parser.add_argument("--repeat", type=int, default=3)
    args = parser.parse_args()
    instances = sorted(args.folder.glob("[A-Z]*.csv"))
    if not instances:
        sys.exit(f"{args.folder}: no instances")
    print("| instance | stplan s | cpu s | minimalloc s | cpu s | times as fast | makespan | minimalloc's |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for path in instances:
            ours, theirs, our_span, their_span = measure(
                args.stplan, args.minimalloc, path, args.capacity, args.repeat, pathlib.Path(folder))
            bad = not isinstance(our_span, int) or not isinstance(their_span, int) or ours[0] > theirs[0]
            failed += bad
            spans = [f"{s:,}" if isinstance(s, int) else s for s in (our_span, their_span)]
            print(f"| {path.stem} | {ours[0]:.2f} | {ours[1]:.2f} | {theirs[0]:.2f} | {theirs[1]:.2f} |"
                  f" {theirs[0] / ours[0]:.0f} | {spans[0]} | {spans[1]} |{' FAILED' if bad else ''}", flush=True)
    print(f"\n{failed} of {len(instances)} failed", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
