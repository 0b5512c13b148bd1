#!/usr/bin/env python3
"""Compile, verify and compare every recording of a folder; print a Markdown table.

    plans.py STPLAN FOLDER [--mode recorded|periodic|auto] [--only SUBSTRING] [--expect MANIFEST.json]
             [--recorded NAME=CONF ...]

For each recording it runs `compile`, `verify --trace`, `inspect --csv`, whose
largest offset + size has to be the plan's size, and `diff`. If a command fails,
a self-check is not exact, or figures differ from those of --expect, the problem
is listed below the table and the exit code is 1. Needs only Python 3.
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
    if done.returncode != 0:
        raise RuntimeError(f"{args[0]}: exit {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def unrolled_bytes(binary, plan):
    """The largest offset + size of the plan as CSV."""
    rows = stplan(binary, "inspect", plan, "--csv").split("\n")[1:]
    fields = (r.split(",") for r in rows if r)
    return max(int(f[3]) + int(f[4]) for f in fields)


def measure(binary, trace, plan, mode, recorded):
    """The figures of one recording: the JSON of compile and of diff."""
    compiled = json.loads(stplan(binary, "compile", trace, "-o", plan, "--json", "--mode", mode))["plans"][0]["devices"][0]
    stplan(binary, "verify", plan, "--trace", trace)
    if unrolled_bytes(binary, plan) != compiled["plan_bytes"]:
        raise RuntimeError(f"inspect: {unrolled_bytes(binary, plan)} bytes, compile: {compiled['plan_bytes']}")
    extra = ["--recorded-config", recorded] if recorded else []
    return compiled, json.loads(stplan(binary, "diff", plan, "--trace", trace, "--json", *extra))


def disagreements(compared, expected):
    """The differences between the figures and the manifest's, as a list of texts."""
    pairs = [
        ("peak_reserved_bytes", "peak_reserved_bytes_recorded"),
        ("peak_allocated_bytes", "peak_allocated_bytes"),
        ("peak_active_bytes", "peak_active_bytes"),
    ]
    found = [f"{ours} {compared['recorded'][ours]} != {expected[theirs]}"
             for ours, theirs in pairs if compared["recorded"][ours] != expected[theirs]]
    if abs(compared["recorded"]["efficiency"] - expected["efficiency"]) > 0.00006:
        found.append(f"efficiency {compared['recorded']['efficiency']:.5f} != {expected['efficiency']}")
    return found


def gib(n):
    return f"{n / 2**30:.3f}"


def row(name, compiled, compared):
    check = compared["self_check"]
    plan = compared["plan"]
    sim = compared["simulated"]
    gap = "0" if plan["plan_bytes"] == plan["lower_bound_bytes"] else f"{100 * plan['gap']:.4f} %"
    return " | ".join([
        name, f"{compiled['buffers']:,}", str(compiled["iterations"]), gib(plan["lower_bound_bytes"]), gib(plan["plan_bytes"]), gap,
        f"{compiled['seconds']:.2f}", gib(compared["recorded"]["peak_reserved_bytes"]), gib(sim["native"]["peak_reserved_bytes"]),
        gib(sim["expandable"]["peak_reserved_bytes"]), f"{check['matched']:,} / {check['total']:,}", f"{plan['waits']:,}",
    ] + steady(compiled))


def steady(compiled):
    """The columns that only a periodic plan has; empty for others."""
    state = compiled.get("steady_state")
    if state is None:
        return ["", "", "", "", ""]
    bodies = state["phases"][1:]
    return [
        " + ".join(f"{b['passes']} × {b['slots']:,}" for b in bodies), f"{sum(b['optional_slots'] for b in bodies):,}",
        f"{state['cell_bytes'] / 2**20:.1f}", f"{state['stray_bytes']:,}", f"{100 * state['envelope_cost']:.2f} %",
    ]


HEAD = ["recording", "buffers", "iterations", "lower bound GiB", "plan GiB", "gap", "seconds", "recorded GiB", "native GiB",
        "expandable GiB", "self-check", "waits", "passes × slots", "optional", "cells MiB", "strays B", "envelope"]


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("stplan")
    args.add_argument("folder", type=pathlib.Path)
    args.add_argument("--only", default="")
    args.add_argument("--mode", default="auto")
    args.add_argument("--expect", type=pathlib.Path)
    args.add_argument("--recorded", action="append", default=[], metavar="NAME=CONF")
    args = args.parse_args()
    expected = {r["file"]: r for r in json.loads(args.expect.read_text())} if args.expect else {}
    recorded = dict(r.split("=", 1) for r in args.recorded)
    traces = [p for p in sorted(args.folder.iterdir()) if ".pickle" in p.name or p.suffix == ".parquet"]
    traces = [p for p in traces if args.only in p.name]
    if not traces:
        sys.exit(f"{args.folder}: no recordings")
    bad = []
    print("| " + " | ".join(HEAD) + " |\n|" + "---|" * len(HEAD))
    with tempfile.TemporaryDirectory() as scratch:
        for trace in traces:
            name = trace.name.split(".")[0]
            try:
                compiled, compared = measure(args.stplan, trace, pathlib.Path(scratch) / "plan.bin", args.mode, recorded.get(name, ""))
            except RuntimeError as problem:
                bad.append(f"{name}: {problem}")
                continue
            print("| " + row(name, compiled, compared) + " |", flush=True)
            if compared["self_check"]["matched"] != compared["self_check"]["total"]:
                bad.append(f"{name}: self-check: {compared['self_check'].get('first_mismatch')}")
            if trace.name in expected:
                bad += [f"{name}: {d}" for d in disagreements(compared, expected[trace.name])]
    print(f"\n{len(traces)} recordings, {len(bad)} problems")
    for problem in bad:
        print("- " + problem)
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
