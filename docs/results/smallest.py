#!/usr/bin/env python3
"""Look for the least memory in which each recording of some folders runs; print a Markdown table.

    smallest.py STPLAN FOLDER ... [--skip SUBSTRING ...]

STPLAN is the stplan binary: the figures are those of `stplan fit` without --device-memory, as
multiples of what the recording allocates at its peak. Needs only Python 3.
"""
import argparse
import json
import pathlib
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

ROWS = ("native", "expandable", "pool", "plan")


def fit(binary, path):
    done = subprocess.run([binary, "--quiet", "fit", path, "--json"], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{path}: exit {done.returncode}: {done.stderr.strip()}")
    return [one for one in json.loads(done.stdout)["recordings"] if one["peak_allocated_bytes"]]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("stplan")
    p.add_argument("folders", nargs="+")
    p.add_argument("--skip", action="append", default=[], metavar="SUBSTRING", help="leave out recordings whose name contains this")
    args = p.parse_args()
    paths = sorted(f for folder in args.folders for f in pathlib.Path(folder).glob("*.pickle.gz") if not any(s in f.name for s in args.skip))
    if not paths:
        p.error(f"found no *.pickle.gz in {', '.join(args.folders)}")
    print("| recording | GiB allocated | native | gives back | expandable | gives back | pool | plan |\n|---|---:|---:|---:|---:|---:|---:|---:|")
    sums, count, best = dict.fromkeys(ROWS, 0.0), 0, 0
    with ThreadPoolExecutor(2) as pool:
        for path, jobs in zip(paths, pool.map(lambda path: fit(args.stplan, path), paths)):
            for job in jobs:
                peak, rows = job["peak_allocated_bytes"], {row["key"]: row for row in job["least"]}
                share = {key: rows[key]["least_bytes"] / peak for key in ROWS}
                text = {key: f"{share[key]:.4f}" for key in ROWS}
                if rows["plan"].get("served_by"):
                    text["plan"] = "the pool"
                cells = [path.name.removesuffix(".pickle.gz"), f"{peak / 2**30:.1f}", text["native"], str(rows["native"]["retries"]),
                         text["expandable"], str(rows["expandable"]["retries"]), text["pool"], text["plan"]]
                print("| " + " | ".join(cells) + " |", flush=True)
                sums = {key: sums[key] + share[key] for key in ROWS}
                count += 1
                best += share["plan"] < min(share["native"], share["expandable"])
    print(f"\n{count} on average: " + ", ".join(f"{key} {sums[key] / count:.4f}" for key in ROWS)
          + f". By its plan, or by the pool if there is none, {best} of {count} need less than under either of PyTorch's allocators.")


if __name__ == "__main__":
    sys.exit(main())
