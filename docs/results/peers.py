#!/usr/bin/env python3
"""Compare the allocators of `diff --allocators all` on every recording; print Markdown.

    peers.py STPLAN FOLDER... [--only SUBSTRING] [--time-limit DURATION] [--keep FILE]

For each recording it runs `compile` and then `diff --allocators all`. The first table has
peak reserved / peak allocated under each allocator. The second has averages over all
recordings and over jobs, of which each counts once although several of its ranks, seeds or
settings were recorded (names but for -seedN, -rN and -expandable): how much of the
fragmentation ratio, 1 - allocated / reserved, each allocator cuts against native, and how
much what stplan serves cuts against each. A recording without such a ratio to cut (under
0.0001) does not count, nor one that an allocator cannot serve. The third has fragmentation
ratios by kind of job, with the cut against native. A fourth, if there is any, has what an
allocator cannot serve and how often one gave back what it had cached. With
--keep, figures are kept in a file as they come, and a run that was stopped goes on from
there. Needs only Python 3.
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time

KEYS = ["native", "expandable", "gmlake", "gmlake_paper", "stalloc", "stalloc_by_position", "cuda_malloc_async", "pool", "served"]
NAMES = ["native", "expandable", "GMLake", "GMLake's paper", "STAlloc", "STAlloc, no hooks", "async (±12 %)", "pool", "plan, as served"]
KINDS = [("Megatron, dense", "gpt345|llama7b"), ("Megatron, experts", "moe16"), ("others", "")]
LEAST = 0.0001  # of a fragmentation ratio that can be cut


def stplan(binary, *args):
    """Run one command and return its standard output; raise with its message."""
    done = subprocess.run([binary, "--quiet", *map(str, args)], capture_output=True, text=True)
    if done.returncode not in (0, 1) or not done.stdout:
        raise RuntimeError(f"{args[0]}: exit {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def measure(args, trace, plan):
    """The figures of one recording: peak allocated, self-check and rows, by key."""
    compiled = json.loads(stplan(args.stplan, "compile", trace, "-o", plan, "--json", "--time-limit", args.time_limit))["plans"][0]["devices"][0]
    began = time.monotonic()
    got = json.loads(stplan(args.stplan, "diff", plan, "--trace", trace, "--json", "--allocators", "all"))
    rows = {k: {f: got["simulated"][k].get(f) for f in ("peak_reserved_bytes", "fragmentation_ratio", "retries", "peak_event", "moved_bytes", "cannot_serve")}
            for k in KEYS}
    return {"allocated": got["recorded"]["peak_allocated_bytes"], "check": got["self_check"], "buffers": compiled["buffers"],
            "seconds": time.monotonic() - began, "rows": rows, "instead": "served_instead" in got["plan"]}


def job(name):
    """The name of the job that a recording is of."""
    return re.sub(r"(-seed\d+|-expandable|-r\d+)+$", "", name).replace("lora-stacks", "llama-7b-lora-varlen")


def ratios_row(name, got):
    figures = [f"{got['rows'][k]['peak_reserved_bytes'] / got['allocated']:.4f}" if not got["rows"][k]["cannot_serve"] else "-" for k in KEYS]
    if got["instead"]:
        figures[-1] += " (pool)"
    return [name, *figures]


def cut(got, key, base):
    """The share of base's fragmentation ratio that an allocator cuts, None if none can be."""
    of, ours = (got["rows"][k]["fragmentation_ratio"] for k in (base, key))
    return 1 - ours / of if ours is not None and of is not None and of >= LEAST else None


def mean(values):
    known = [v for v in values if v is not None]
    return sum(known) / len(known) if known else None


def by_job(results, value):
    """The mean over jobs of the mean over a job's recordings."""
    jobs = {}
    for name, got in results.items():
        jobs.setdefault(job(name), []).append(value(got))
    return mean([mean(v) for v in jobs.values()])


def percent(v):
    return "-" if v is None else f"{100 * v:.1f} %"


def averages(results):
    for key, name in zip(KEYS, NAMES):
        against_native = lambda got: cut(got, key, "native")
        ours = lambda got: cut(got, "served", key)
        ratio = lambda got: got["rows"][key]["fragmentation_ratio"]
        reserved = lambda got: got["rows"][key]["peak_reserved_bytes"] / got["allocated"] if ratio(got) is not None else None
        served = sum(ratio(got) is not None for got in results.values())
        yield [name, str(served), f"{mean([reserved(g) for g in results.values()]):.4f}", percent(mean([ratio(g) for g in results.values()])),
               "" if key == "native" else percent(mean([against_native(g) for g in results.values()])),
               "" if key == "native" else percent(by_job(results, against_native)),
               "" if key == "served" else percent(mean([ours(g) for g in results.values()])),
               "" if key == "served" else percent(by_job(results, ours))]


def by_kind(results):
    rest = dict(results)
    for kind, pattern in KINDS:
        of = {n: rest.pop(n) for n in list(rest) if re.match(pattern, n)}
        if of:
            ratio = lambda key: by_job(of, lambda got: got["rows"][key]["fragmentation_ratio"])
            yield [f"{kind} ({len({job(n) for n in of})})",
                   *(percent(ratio(k)) + ("" if k == "native" else f", {percent(by_job(of, lambda got: cut(got, k, 'native')))}") for k in KEYS)]


def remarks(results):
    for name, got in results.items():
        for key, title in zip(KEYS, NAMES):
            r = got["rows"][key]
            if r["cannot_serve"]:
                yield [name, title, r["cannot_serve"]]
            elif r["retries"]:
                yield [name, title, f"{r['retries']} retries"]


def table(head, rows):
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(row) + " |", flush=True)
    print()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("stplan")
    p.add_argument("folders", nargs="+", type=pathlib.Path)
    p.add_argument("--only", default="")
    p.add_argument("--time-limit", default="60s")
    p.add_argument("--keep", type=pathlib.Path)
    args = p.parse_args()
    traces = [t for f in args.folders for t in sorted(f.glob("*.pickle.gz")) if args.only in t.name]
    if not traces:
        sys.exit(f"{args.folders}: no recordings")
    results = json.loads(args.keep.read_text()) if args.keep and args.keep.exists() else {}
    with tempfile.TemporaryDirectory() as scratch:
        for t in traces:
            name = t.name[: -len(".pickle.gz")]
            if name not in results:
                results[name] = measure(args, t, pathlib.Path(scratch) / "plan.bin")
                if args.keep:
                    args.keep.write_text(json.dumps(results))
                print(f"{name}: {results[name]['seconds']:.0f} s", file=sys.stderr, flush=True)
    table(["recording", *NAMES], (ratios_row(n, got) for n, got in results.items()))
    table(["allocator", "recordings", "reserved / allocated", "fragmentation", "cut against native", "by job", "stplan cuts against it", "by job"], averages(results))
    table(["jobs", *NAMES], by_kind(results))
    found = list(remarks(results))
    if found:
        table(["recording", "allocator", "remark"], found)
    inexact = [n for n, got in results.items() if got["check"]["matched"] != got["check"]["total"]]
    print(f"{len(results)} recordings of {len({job(n) for n in results})} jobs, {len(inexact)} with a self-check that is not exact")
    return bool(inexact)


if __name__ == "__main__":
    sys.exit(main())
