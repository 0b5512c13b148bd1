#!/usr/bin/env python3
"""Prints the tables of docs/results/waits.md: the waits of every recording in
../shared/traces before and after the search for fewer (measured by a Go
benchmark), the cost of forbidding them (from `stplan compile`), and the
cross-stream reuses that are left if a plan may take more memory (a Go
benchmark). With a second program, of an older revision, it prints only the
plans of the two for the given recordings, side by side.

    go build -o bin/stplan ./cmd/stplan
    python3 docs/results/waits.py bin/stplan ../shared/traces
    python3 docs/results/waits.py bin/stplan ../shared/traces OLD RECORDING...
"""

import json
import pathlib
import resource
import subprocess
import sys
import tempfile

FIGURES = ["waits", "cross", "MiB", "slack"]
FLAGS = [["--no-reuse-pending"], ["--no-cross-stream"], ["--no-reuse-pending", "--no-cross-stream"]]


def benchmark(what):
    """The figures of every recording that has waits, by name."""
    command = ["go", "test", "-run", "^$", "-bench", what, "-benchtime", "1x", "-timeout", "60m", "./internal/compile"]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = {}
    for line in out.splitlines():
        fields = line.split()
        if fields and fields[0].startswith(f"Benchmark{what}/") and len(fields) > 4:
            name = fields[0].removeprefix(f"Benchmark{what}/").rpartition("-")[0]
            found[name] = {unit: float(value) for value, unit in zip(fields[2::2], fields[3::2])}
    return found


def reduction(found):
    print("| recording | waits | cross-stream | MiB | slack | waits after | cross-stream | MiB | slack | forced | s |")
    print("|---|" + "---:|" * 10)
    for name, figures in found.items():
        columns = [f"{c}-{when}" for when in ("before", "after") for c in FIGURES] + ["forced"]
        cells = [f"{figures[c]:,.0f}" if c in figures else "–" for c in columns]
        print(f"| {name} | {' | '.join(cells)} | {figures['ns/op'] / 1e9:.2f} |", flush=True)


def compiled(stplan, trace, folder, flags=()):
    """The first device of `compile --json`."""
    command = [stplan, "compile", trace, "-o", f"{folder}/plan.bin", "--json", "--quiet", *flags]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["plans"][0]["devices"][0]


def cost(stplan, traces, names):
    print("\n| recording | " + " | ".join(f"{' '.join(f)} | waits" for f in FLAGS) + " |")
    print("|---|" + "---:|" * 2 * len(FLAGS))
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            cells = []
            for flags in FLAGS:
                d = compiled(stplan, traces / f"{name}.pickle.gz", folder, flags)
                share = d["cost_bytes"] / (d["plan_bytes"] - d["cost_bytes"])
                cells += [f"{d['cost_bytes'] / 2**20:,.0f} MiB, {share:.2%}".replace("%", " %"), f"{d['waits']:,}"]
            print(f"| {name} | {' | '.join(cells)} |", flush=True)


def memory(found):
    shares = list(dict.fromkeys(key.rpartition("=")[2] for key in found))
    print("\n| recording | " + " | ".join(f"{s.replace('%', ' %')} more" for s in shares) + " | none left |")
    print("|---|" + "---:|" * (len(shares) + 1))
    for name in dict.fromkeys(key.partition("/")[0] for key in found):
        rows = [found[f"{name}/more={s}"] for s in shares]
        print(f"| {name} | {' | '.join(format(r['cross-after'], ',.0f') for r in rows)} | {rows[0]['apart-%']:.2f} % |", flush=True)


def cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def side_by_side(programs, traces, names):
    columns = ["cross-stream", "pending", "MiB", "slack min", "median", "CPU s"]
    print("| recording | mode | plan bytes | " + " | ".join(columns * 2) + " |")
    print("|---|---|" + "---:|" * (2 * len(columns) + 1))
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            for mode in ("periodic", "recorded"):
                plans = []
                for program in programs:
                    before = cpu_seconds()
                    plans.append(compiled(program, traces / f"{name}.pickle.gz", folder, ["--mode", mode]))
                    plans[-1]["cpu"] = cpu_seconds() - before
                sizes = " → ".join(f"{size:,}" for size in dict.fromkeys(d["plan_bytes"] for d in plans))
                cells = []
                for d in plans:
                    cells += [d["waits_cross_stream"], d["waits_pending"], d["wait_bytes"] >> 20]
                    cells += ["–" if d[f"wait_slack_events_{k}"] is None else d[f"wait_slack_events_{k}"] for k in ("min", "median")]
                    cells += [f"{d['cpu']:.1f}"]
                print(f"| {name} | {mode} | {sizes} | {' | '.join(f'{c:,}' if isinstance(c, int) else c for c in cells)} |", flush=True)


def main():
    stplan, traces = sys.argv[1], pathlib.Path(sys.argv[2])
    if len(sys.argv) > 3:
        side_by_side([sys.argv[3], stplan], traces, sys.argv[4:])
        return
    found = benchmark("FewerWaits")
    reduction(found)
    cost(stplan, traces, found)
    memory(benchmark("WaitsForMemory"))


if __name__ == "__main__":
    main()
