#!/usr/bin/env python3
"""Serve every recording of a folder with the runtime; print a Markdown table.

    replay.py STPLAN FOLDER [--only SUBSTRING] [--seeds N] [--pair A:B ...] [--cross] [--compile ARG ...]
    replay.py STPLAN FOLDER [--only SUBSTRING] --repeat N

For each recording it runs `compile`, and then `replay` without a plan, with its own
plan, and with that plan while one request in a thousand is disturbed. With --seeds N, a
second table has the disturbances of the seeds 1 to N. With --pair A:B, B is also served
with the plan of A. With --cross, each plan that pays serves every other recording, and a
table has the pairs that reserve most compared with no plan; that takes half an hour for
37 recordings. With --repeat N there is one table, of recordings extended by N iterations
and served without a plan. The exit code is 1 if any blocks overlap. Needs only Python 3.
"""
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
    return done.stdout


class Bench:
    def __init__(self, args, plans):
        self.args, self.plans, self.overlaps = args, pathlib.Path(plans), 0

    def trace(self, name):
        return pathlib.Path(self.args.folder, name + ".pickle.gz")

    def plan(self, name):
        path = self.plans / (name + ".bin")
        if not path.exists():
            stplan(self.args.stplan, "compile", self.trace(name), "-o", path, *self.args.compile)
        return path

    def replay(self, name, *args):
        got = json.loads(stplan(self.args.stplan, "replay", *args, self.trace(name), "--json"))
        self.overlaps += got["overlaps"]
        return got

    def baselines(self, name):
        """Peak reserved of native and of expandable segments, as `diff`
        simulates them."""
        got = json.loads(stplan(self.args.stplan, "diff", self.plan(name), "--trace", self.trace(name), "--json"))
        return [got["simulated"][k]["peak_reserved_bytes"] for k in ("native", "expandable")]


def ratio(got):
    return f"{got['peak_reserved_bytes'] / got['peak_allocated_bytes']:.4f}"


def share(got):
    return f"{100 * got['planned_fraction']:.2f}"


def moved(got):
    return f"{got['moved_bytes'] / got['peak_reserved_bytes']:.2f}"


def own_row(bench, name):
    none = bench.replay(name, "--no-plan")
    own = bench.replay(name, bench.plan(name))
    disturbed = bench.replay(name, bench.plan(name), "--inject", "0.001", "--seed", "1")
    peak = none["peak_allocated_bytes"]
    native, expandable = bench.baselines(name)
    return [name, f"{own['allocations']:,}", f"{native / peak:.4f}", f"{expandable / peak:.4f}", ratio(none), moved(none), str(none["waits"]),
            ratio(own), share(own), str(own["waits"]), ratio(disturbed), share(disturbed), moved(disturbed)]


def repeated_row(bench, name):
    got = bench.replay(name, "--no-plan", "--repeat", str(bench.args.repeat))
    peak, others = got["peak_allocated_bytes"], got["repeated"]
    return [name, f"{others['native_reserved_bytes'] / peak:.4f}", f"{others['expandable_reserved_bytes'] / peak:.4f}", ratio(got), moved(got)]


def seeds_row(bench, name):
    got = [bench.replay(name, bench.plan(name), "--inject", "0.001", "--seed", str(s + 1)) for s in range(bench.args.seeds)]
    worst = max(got, key=lambda g: g["peak_reserved_bytes"] / g["peak_allocated_bytes"])
    return [name, *map(share, got), ratio(worst)]


def pair_row(bench, pair):
    a, b = pair.split(":")
    none = bench.replay(b, "--no-plan")
    other = bench.replay(b, bench.plan(a))
    native, expandable = bench.baselines(b)
    peak = none["peak_allocated_bytes"]
    return [a, b, f"{native / peak:.4f}", f"{expandable / peak:.4f}", ratio(none), ratio(other), share(other), str(other["drift_events"]), str(other["clashes"]), moved(other)]


def differing(bench, names):
    """(name, peak reserved without a plan, peak allocated) of each recording.
    Of recordings that make the same requests only one is listed."""
    found = {}
    for name in names:
        none = bench.replay(name, "--no-plan")
        key = tuple(none[k] for k in ("allocations", "peak_allocated_bytes", "peak_reserved_bytes", "moved_bytes", "waits"))
        found.setdefault(key, (name, none["peak_reserved_bytes"], none["peak_allocated_bytes"]))
    return list(found.values())


def cross(bench, names, shown=10):
    """Serve every recording with the plan of every other one. Print the `shown`
    pairs that reserve most compared with no plan."""
    recordings = differing(bench, names)
    plans = [name for name, _, _ in recordings if bench.replay(name, bench.plan(name))["planned_allocations"] > 0]
    pairs = []
    for name, pool, allocated in recordings:
        for plan in plans:
            if plan != name:
                got = bench.replay(name, bench.plan(plan))
                pairs.append((got["peak_reserved_bytes"] / pool, plan, name, pool / allocated, got))
    pairs.sort(key=lambda pair: -pair[0])
    table(["plan of", "serves", "no plan", "that plan", "of no plan", "% on plan"],
          ([plan, name, f"{none:.4f}", ratio(got), f"{cost:.4f}", share(got)] for cost, plan, name, none, got in pairs[:shown]))
    above = sum(cost > 1.01 for cost, *_ in pairs)
    print(f"{len(pairs)} pairs, {above} more than 1 % above no plan\n")


def table(head, rows):
    print("| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(row) + " |", flush=True)
    print()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("stplan")
    p.add_argument("folder")
    p.add_argument("--only", default="", help="use only the recordings whose name contains this")
    p.add_argument("--seeds", type=int, default=0, metavar="N", help="add a table of disturbances with the seeds 1 to N")
    p.add_argument("--pair", action="append", default=[], metavar="A:B", help="also serve recording B with the plan of A")
    p.add_argument("--repeat", type=int, default=0, metavar="N", help="extend the recordings by N iterations, without a plan")
    p.add_argument("--cross", action="store_true", help="serve every recording with the plan of every other one")
    p.add_argument("--compile", action="append", default=[], metavar="ARG", help="one more argument of compile")
    args = p.parse_args()
    names = sorted(f.name[: -len(".pickle.gz")] for f in pathlib.Path(args.folder).glob("*.pickle.gz") if args.only in f.name)
    with tempfile.TemporaryDirectory() as plans:
        bench = Bench(args, plans)
        if args.repeat:
            table(["recording", "native", "expandable", "no plan", "moved"], (repeated_row(bench, n) for n in names))
            print(f"{len(names)} recordings, {bench.overlaps} overlaps")
            return 1 if bench.overlaps or not names else 0
        table(["recording", "allocations", "native", "expandable", "no plan", "moved", "waits", "own plan", "% on plan", "waits", "disturbed", "% on plan", "moved"],
              (own_row(bench, n) for n in names))
        if args.seeds:
            seeds = [f"seed {s + 1}" for s in range(args.seeds)]
            table(["disturbed recording, % on plan", *seeds, "largest reserved"], (seeds_row(bench, n) for n in names))
        if args.pair:
            table(["plan of", "serves", "native", "expandable", "no plan", "that plan", "% on plan", "drift", "places taken", "moved"],
                  (pair_row(bench, pair) for pair in args.pair))
        if args.cross:
            cross(bench, names)
        print(f"{len(names)} recordings, {bench.overlaps} overlaps")
    return 1 if bench.overlaps or not names else 0


if __name__ == "__main__":
    sys.exit(main())
