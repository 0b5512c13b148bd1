#!/usr/bin/env python3
"""Compare plans of one recording with plans of several; print a Markdown table.

    merge.py STPLAN FOLDER [--compiler STPLAN] [--group A+B[+C...]] ...

For each group it compiles every recording by itself and all of them with --merge, proves
the merged plan with `verify`, and serves every recording of the group from the pool alone
and by each of the plans. A group that is refused has no rows. A cell has reserved / peak allocated, the share of the bytes that
were served on plan, and the bytes moved / reserved. With a --compiler that was built
without cgo the plans carry no advice, so that those that do not pay are served as well.
The exit code is 1 if a plan does not verify or blocks overlap.
Needs only Python 3.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

GROUPS = [
    "llama-7b-lora-varlen+llama-7b-lora-varlen-seed1",
    "moe16-pp2-N+moe16-pp2-N-seed2",
    "qwen3-moe-eager+qwen3-moe-eager-seed1",
]


def run(binary, *args):
    """Run one command and return its standard output; raise with its message."""
    done = subprocess.run([binary, "--quiet", *map(str, args)], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{args[0]}: exit {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def serve(binary, plan, trace):
    """One cell of the table, and the number of overlaps."""
    args = ["--no-plan", trace] if plan is None else [plan, trace]
    r = json.loads(run(binary, "replay", *args, "--json"))
    ratio = r["peak_reserved_bytes"] / r["peak_allocated_bytes"]
    moved = r["moved_bytes"] / r["peak_reserved_bytes"]
    on_plan = "" if plan is None else f", {100 * r['planned_bytes_fraction']:.1f} %"
    return f"{ratio:.4f}{on_plan}, {moved:.2f}", r["overlaps"]


def group(binary, compiler, folder, names, plans):
    """Print the rows of a group; return the number of overlaps."""
    traces = [folder / (n + ".pickle.gz") for n in names]
    made, pays = [], []
    for name, trace in zip(names, traces):
        made.append(plans / (name + ".bin"))
        pays.append(json.loads(run(compiler, "compile", trace, "-o", made[-1], "--json"))["plans"][0])
    merged = plans / "merged.bin"
    pays.append(json.loads(run(compiler, "compile", *traces, "--merge", "-o", merged, "--json"))["plans"][0])
    run(binary, "verify", merged, *[a for t in traces for a in ("--trace", t)])
    for p in pays:
        d = p["devices"][0]
        print(f"{p['trace']}: plan {d['plan_bytes']} B, judged {d.get('judged')}", file=sys.stderr)
    overlaps = 0
    for k, (name, trace) in enumerate(zip(names, traces)):
        others = [m for i, m in enumerate(made) if i != k]
        cells = []
        for plan in [None, made[k], *others, merged]:
            cell, bad = serve(binary, plan, trace)
            cells.append(cell)
            overlaps += bad
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)
    return overlaps


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("stplan")
    p.add_argument("folder", type=pathlib.Path)
    p.add_argument("--compiler", help="the stplan that compiles, if it is another")
    p.add_argument("--group", action="append", help="recordings of one program, joined by +")
    args = p.parse_args()
    print("| recording | no plan | own plan | other recording's plan | merged plan |\n|---|---|---|---|---|")
    overlaps = 0
    for names in args.group or GROUPS:
        with tempfile.TemporaryDirectory() as plans:
            try:
                overlaps += group(args.stplan, args.compiler or args.stplan, args.folder, names.split("+"), pathlib.Path(plans))
            except RuntimeError as refused:
                print(f"{names}: {refused}", file=sys.stderr)
    return 1 if overlaps else 0


if __name__ == "__main__":
    sys.exit(main())
