#!/usr/bin/env python3
"""Serve runs by plans that have not seen them; print Markdown tables.

    unseen.py STPLAN RECORDING.pickle.gz ... [--steps N] [--pair PLANNED.pickle.gz SERVED.pickle.gz] ...

Each recording is cut after half of its optimizer steps, or after N. A plan is compiled of what comes
before, and serves the whole recording: the steps after the cut are ones that the plan has
not seen. Beside it stand the recording served without a plan, and by its own plan. With
--pair the plan of one recording serves another one of the same program. The exit code is 1
if any blocks overlap. Needs only Python 3.
"""
import argparse
import gzip
import json
import pathlib
import pickle
import subprocess
import sys
import tempfile


class Plain(pickle.Unpickler):
    """Reads snapshots, which hold lists, dictionaries, numbers and text only."""

    def find_class(self, module, name):
        raise pickle.UnpicklingError(f"found {module}.{name}, expected plain data")


def cut(source, target, keep):
    """Write the first steps of a recording, half of them if keep is 0; return the number of
    steps kept and in all."""
    with gzip.open(source) as f:
        snapshot = Plain(f).load()
    steps = [a for a in snapshot["external_annotations"] if a["name"].startswith("Optimizer.step#")]
    ends = sorted(a["time_us"] for a in steps if a["stage"] == "END")
    count = sum(a["stage"] == "START" for a in steps)  # the end of the last may be missing
    keep = keep or count // 2
    limit = ends[keep - 1]
    snapshot["device_traces"] = [[e for e in t if e["time_us"] <= limit] for t in snapshot["device_traces"]]
    snapshot["external_annotations"] = [a for a in snapshot["external_annotations"] if a["time_us"] <= limit]
    snapshot["segments"] = []  # they are those of the end of the whole recording
    with gzip.open(target, "wb", compresslevel=1) as f:
        pickle.dump(snapshot, f, protocol=4)
    return keep, count


def run(binary, *args):
    """Run one command and return its standard output; raise with its message."""
    done = subprocess.run([binary, "--quiet", *map(str, args)], capture_output=True, text=True)
    if done.returncode not in (0, 1) or not done.stdout:
        raise RuntimeError(f"{args[0]}: exit {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def serve(binary, *args):
    """One cell of the table, and the number of overlaps."""
    r = json.loads(run(binary, "replay", *args, "--json"))
    ratio = r["peak_reserved_bytes"] / r["peak_allocated_bytes"]
    moved = r["moved_bytes"] / r["peak_reserved_bytes"]
    return f"{ratio:.4f}, {moved:.2f}, {100 * r['planned_bytes_fraction']:.1f} %", r["overlaps"]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("stplan")
    p.add_argument("recordings", type=pathlib.Path, nargs="*")
    p.add_argument("--steps", type=int, default=0, metavar="N", help="cut after N steps instead of half")
    p.add_argument("--pair", type=pathlib.Path, nargs=2, action="append", default=[])
    args = p.parse_args()
    overlaps = firsts(args.stplan, args.recordings, args.steps) + pairs(args.stplan, args.pair)
    return 1 if overlaps else 0


def pairs(binary, found):
    """Print the table of the pairs; return the number of overlaps."""
    overlaps = 0
    if found:
        print("\n| plan of | serves | no plan | that plan |\n|---|---|---|---|", flush=True)
    for planned, served in found:
        with tempfile.TemporaryDirectory() as folder:
            plan = pathlib.Path(folder, "plan.bin")
            run(binary, "compile", planned, "-o", plan, "--json")
            cells = [serve(binary, "--no-plan", served), serve(binary, plan, served)]
        overlaps += sum(bad for _, bad in cells)
        print(f"| {name(planned)} | {name(served)} | " + " | ".join(c for c, _ in cells) + " |", flush=True)
    return overlaps


def name(recording):
    return recording.name.removesuffix(".pickle.gz")


def firsts(binary, recordings, steps):
    """Print the table of plans of the first steps; return the number of overlaps."""
    if not recordings:
        return 0
    print("| recording | steps planned | no plan | plan of the first steps | own plan |\n|---|---|---|---|---|", flush=True)
    overlaps = 0
    for whole in recordings:
        with tempfile.TemporaryDirectory() as folder:
            half = pathlib.Path(folder, "half.pickle.gz")
            kept, count = cut(whole, half, steps)
            cells = [serve(binary, "--no-plan", whole)]
            for trace in [half, whole]:
                plan = pathlib.Path(folder, "plan.bin")
                run(binary, "compile", trace, "-o", plan, "--json")
                cells.append(serve(binary, plan, whole))
            overlaps += sum(bad for _, bad in cells)
            print(f"| {name(whole)} | {kept} of {count} | " + " | ".join(c for c, _ in cells) + " |", flush=True)
    return overlaps


if __name__ == "__main__":
    sys.exit(main())
