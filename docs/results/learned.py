#!/usr/bin/env python3
"""Serve recordings as first runs that learn their plan; print a Markdown table.

    learned.py STPLAN [--repeat N] TRACE...

For each recording, made longer by N iterations, it runs `replay` without a plan, with the plan
that is learned in the run (--learn), and with the recording's own plan from the beginning. A
recording that cannot be made longer is left out, with the reason on standard error. The exit
code is 1 if any blocks overlap. Needs only Python 3."""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile


def stplan(binary, *args):
    """Run one command and return its standard output; raise with its message."""
    done = subprocess.run([binary, "--quiet", *map(str, args)], capture_output=True, text=True)
    if done.returncode not in (0, 1) or not done.stdout:
        raise RuntimeError(f"{args[0]}: exit {done.returncode}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def cell(got):
    """Peak reserved / peak allocated, and bytes moved / peak reserved."""
    return f"{got['peak_reserved_bytes'] / got['peak_allocated_bytes']:.4f}, {got['moved_bytes'] / got['peak_reserved_bytes']:.2f}"


def since(learned):
    """The same since the last plan was put in place, with the share on plan."""
    if learned["installs"] == 0:
        return "-"
    reserved = learned["peak_reserved_bytes"]
    return f"{reserved / learned['peak_allocated_bytes']:.4f}, {learned['moved_bytes'] / reserved:.2f}, {100 * learned['planned_bytes_fraction']:.1f} %"


def plans(learned):
    """What the plans were made of, and when the last one was put in place."""
    made = ", ".join(f"{p['iterations']}" + (" (refused)" if p["refused"] else "") for p in learned["plans"])
    at = f"; {learned['installs']} in place, the last after {learned['in_place_after']}" if learned["installs"] else "; none in place"
    return (made or "none") + f" of {learned['iterations']}{at}"


def row(binary, trace, repeat, folder):
    plan = pathlib.Path(folder, "own.bin")
    subprocess.run([binary, "--quiet", "compile", trace, "-o", plan], check=True, stdout=subprocess.DEVNULL)
    longer = ["--repeat", repeat, "--json"]
    pool = stplan(binary, "replay", "--no-plan", trace, *longer)
    learned = stplan(binary, "replay", "--no-plan", "--learn", trace, *longer)
    own = stplan(binary, "replay", plan, trace, *longer)
    expandable = pool["repeated"]["expandable_reserved_bytes"] / pool["peak_allocated_bytes"]
    overlaps = sum(got["overlaps"] for got in (pool, learned, own))
    of = learned["learned"]
    name = pathlib.Path(trace).name.removesuffix(".pickle.gz")
    return overlaps, [name, f"{expandable:.4f}", cell(pool), cell(learned), plans(of), since(of), cell(own), f"{100 * own['planned_bytes_fraction']:.1f} %"]


HEADING = ["recording", "expandable", "no plan", "learned in the run", "plans of iterations", "since the last one", "own plan", "on it"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stplan")
    parser.add_argument("--repeat", type=int, default=20)
    parser.add_argument("trace", nargs="+")
    args = parser.parse_args()
    overlaps = 0
    print("| " + " | ".join(HEADING) + " |\n|" + "---|" * len(HEADING), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for trace in args.trace:
            try:
                found, cells = row(args.stplan, trace, args.repeat, folder)
            except (RuntimeError, subprocess.CalledProcessError) as error:
                print(f"{trace}: {error}", file=sys.stderr)
                continue
            overlaps += found
            print("| " + " | ".join(cells) + " |", flush=True)
    return 1 if overlaps else 0


if __name__ == "__main__":
    sys.exit(main())
