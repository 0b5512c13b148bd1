#!/usr/bin/env python3
"""Serve every recording of some folders without a plan, by two builds; print a Markdown table.

    pool.py OLD NEW FOLDER ... [--repeat N] [--skip SUBSTRING ...]

OLD and NEW are two builds of stplan. With --repeat N the recordings are extended by N
iterations, and expandable segments are simulated on the same program. The exit code is 1 if
any blocks overlap. Needs only Python 3.
"""
import argparse
import json
import pathlib
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor


def replay(binary, path, repeat):
    more = ["--repeat", str(repeat)] if repeat else []
    done = subprocess.run([binary, "--quiet", "replay", "--no-plan", path, "--json", *more], capture_output=True, text=True)
    if done.returncode not in (0, 1) or not done.stdout:
        raise RuntimeError(f"{path}: exit {done.returncode}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def row(args, path):
    """The row of a recording, its figures, and how many blocks overlap."""
    old, new = (replay(binary, path, args.repeat) for binary in (args.old, args.new))
    peak = new["peak_allocated_bytes"]
    figures = [f(got) for f in (lambda g: g["peak_reserved_bytes"] / peak, lambda g: g["moved_bytes"] / 1e9) for got in (old, new)]
    expandable = [f"{new['repeated']['expandable_reserved_bytes'] / peak:.4f}"] if args.repeat else []
    cells = [path.name.removesuffix(".pickle.gz"), *expandable, *(f"{x:.4f}" for x in figures[:2]), *(f"{x:.1f}" for x in figures[2:]),
             f"{old['waits']:,}", f"{new['waits']:,}"]
    return cells, figures, old["overlaps"] + new["overlaps"]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("old")
    p.add_argument("new")
    p.add_argument("folders", nargs="+")
    p.add_argument("--repeat", type=int, default=0, metavar="N", help="extend the recordings by N iterations")
    p.add_argument("--skip", action="append", default=[], metavar="SUBSTRING", help="leave out recordings whose name contains this")
    args = p.parse_args()
    paths = sorted(f for folder in args.folders for f in pathlib.Path(folder).glob("*.pickle.gz") if not any(s in f.name for s in args.skip))
    head = ["recording", *(["expandable"] if args.repeat else []), "reserved before", "now", "GB moved before", "now", "waits before", "now"]
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    sums, overlaps = [0.0] * 4, 0
    with ThreadPoolExecutor(2) as pool:
        for cells, figures, bad in pool.map(lambda path: row(args, path), paths):
            print("| " + " | ".join(cells) + " |", flush=True)
            sums = [a + b for a, b in zip(sums, figures)]
            overlaps += bad
    n = len(paths)
    print(f"\n{n} recordings, {overlaps} overlaps; reserved {sums[0] / n:.4f} before and {sums[1] / n:.4f} now on average, "
          f"{sums[2]:.0f} GB moved before and {sums[3]:.0f} now")
    return 1 if overlaps or not paths else 0


if __name__ == "__main__":
    sys.exit(main())
