#!/usr/bin/env python3
"""Compare `stplan import` with CPython's pickle.load of the same snapshot.

    import.py STPLAN SNAPSHOT... [--runs N]

Both run as whole processes, in turn, N times (default 7). The figures are
medians of wall seconds, of peak resident memory in MiB, of processor seconds
(user and system), and of the ratios of single runs. CPython only runs `pickle.load(gzip.open(path))`.
"""
import argparse
import os
import pathlib
import statistics
import sys
import tempfile
import time

LOAD = "import gzip, pickle, sys; pickle.load(gzip.open(sys.argv[1], 'rb'))"


def run(argv):
    """Wall seconds, peak resident MiB and processor seconds of one process."""
    began = time.perf_counter()
    pid = os.posix_spawn(argv[0], argv, os.environ, file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)])
    _, status, usage = os.wait4(pid, 0)
    if os.waitstatus_to_exitcode(status) != 0:
        sys.exit(f"{argv[0]} failed on {argv[-1]}")
    return time.perf_counter() - began, usage.ru_maxrss / 1024, usage.ru_utime + usage.ru_stime


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("stplan")
    args.add_argument("snapshots", nargs="+", type=pathlib.Path)
    args.add_argument("--runs", type=int, default=7)
    args = args.parse_args()
    print("| snapshot | stplan s | CPython s | ratio | stplan MiB | CPython MiB | ratio | stplan CPU s | CPython CPU s | ratio |\n"
          "|---|---|---|---|---|---|---|---|---|---|")
    for path in args.snapshots:
        ours, theirs = [], []
        with tempfile.TemporaryDirectory() as scratch:
            output = os.path.join(scratch, "trace.parquet")
            for k in range(args.runs + 1):
                a = run([args.stplan, "import", str(path), "--quiet", "-o", output])
                b = run([sys.executable, "-c", LOAD, str(path)])
                if k > 0:  # the first pair warms the page cache
                    ours.append(a)
                    theirs.append(b)
        mid = lambda rows, i: statistics.median(r[i] for r in rows)
        ratio = lambda i: statistics.median(a[i] / b[i] for a, b in zip(ours, theirs))
        print(f"| {path.name.split('.')[0]} | {mid(ours, 0):.2f} | {mid(theirs, 0):.2f} | {ratio(0):.2f} "
              f"| {mid(ours, 1):.0f} | {mid(theirs, 1):.0f} | {ratio(1):.2f} "
              f"| {mid(ours, 2):.2f} | {mid(theirs, 2):.2f} | {ratio(2):.2f} |", flush=True)


if __name__ == "__main__":
    main()
