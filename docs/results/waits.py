#!/usr/bin/env python3
"""Prints the tables of docs/results/waits.md: the waits of every recording in
../shared/traces before and after the search for fewer (measured by a Go
benchmark), and the cost of forbidding them (from `stplan compile`).

    go build -o bin/stplan ./cmd/stplan
    python3 docs/results/waits.py bin/stplan ../shared/traces
"""

import json
import pathlib
import subprocess
import sys
import tempfile

FIGURES = ["waits", "cross", "MiB", "slack"]
FLAGS = [["--no-reuse-pending"], ["--no-cross-stream"], ["--no-reuse-pending", "--no-cross-stream"]]


def benchmark():
    """The figures of every recording that has waits, by name."""
    command = ["go", "test", "-run", "^$", "-bench", "FewerWaits", "-benchtime", "1x", "-timeout", "60m", "./internal/compile"]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = {}
    for line in out.splitlines():
        fields = line.split()
        if fields and fields[0].startswith("BenchmarkFewerWaits/") and len(fields) > 4:
            name = fields[0].removeprefix("BenchmarkFewerWaits/").rpartition("-")[0]
            found[name] = {unit: float(value) for value, unit in zip(fields[2::2], fields[3::2])}
    return found


def reduction(found):
    print("| recording | waits | cross-stream | MiB | slack | waits after | cross-stream | MiB | slack | forced | s |")
    print("|---|" + "---:|" * 10)
    for name, figures in found.items():
        columns = [f"{c}-{when}" for when in ("before", "after") for c in FIGURES] + ["forced"]
        cells = [f"{figures[c]:,.0f}" if c in figures else "–" for c in columns]
        print(f"| {name} | {' | '.join(cells)} | {figures['ns/op'] / 1e9:.2f} |", flush=True)


def cost(stplan, traces, names):
    print("\n| recording | " + " | ".join(f"{' '.join(f)} | waits" for f in FLAGS) + " |")
    print("|---|" + "---:|" * 2 * len(FLAGS))
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            cells = []
            for flags in FLAGS:
                command = [stplan, "compile", traces / f"{name}.pickle.gz", "-o", f"{folder}/plan.bin", "--json", "--quiet", *flags]
                d = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["devices"][0]
                share = d["cost_bytes"] / (d["plan_bytes"] - d["cost_bytes"])
                cells += [f"{d['cost_bytes'] / 2**20:,.0f} MiB, {share:.2%}".replace("%", " %"), f"{d['waits']:,}"]
            print(f"| {name} | {' | '.join(cells)} |", flush=True)


def main():
    stplan, traces = sys.argv[1], pathlib.Path(sys.argv[2])
    found = benchmark()
    reduction(found)
    cost(stplan, traces, found)


if __name__ == "__main__":
    main()
