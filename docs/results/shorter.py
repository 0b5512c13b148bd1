#!/usr/bin/env python3
"""Serve runs by plans of their shorter iterations, made for longer ones; print a Markdown table.

    shorter.py STPLAN RECORDING.pickle.gz ... [--share S]

An iteration is what lies between the ends of two optimizer steps. Of each recording those whose
largest request is more than S of the largest of all are left out, but for the first, in which the
job is set up. What lives on from an iteration that is left out is taken to be what lived on from
the one before it; as many buffers have to. Of the rest one plan is compiled without --max-scale,
and one for as much as the largest request of the whole is larger than that of the iterations that
were kept. Each serves the whole recording. The exit code is 1 if any blocks overlap. Needs only
Python 3.
"""
import argparse
import bisect
import gzip
import json
import math
import pathlib
import pickle
import sys
import tempfile

from unseen import Plain, name, run, serve


class Refused(Exception):
    """The iterations cannot be left out."""


class Recording:
    """One device's requests. Every buffer has a number, and each entry is an action on one."""

    def __init__(self, path):
        with gzip.open(path) as f:
            snapshot = Plain(f).load()
        notes = snapshot["external_annotations"]
        self.notes = [a for a in notes if a["name"].startswith("Optimizer.step#")]
        self.ends = sorted(a["time_us"] for a in self.notes if a["stage"] == "END")
        self.sizes, self.entries, live = [], [], {}
        for entry in max(snapshot["device_traces"], key=len):
            if entry["action"].startswith("segment"):
                continue
            if entry["action"] == "alloc":
                live[entry["addr"]] = len(self.sizes)
                self.sizes.append(entry["size"])
            if entry["addr"] in live:
                self.entries.append((entry["action"], live[entry["addr"]], entry))

    def iterations(self):
        """The entries of each iteration, without those behind the last."""
        out = [[] for _ in self.ends]
        for action, buffer, entry in self.entries:
            at = bisect.bisect_left(self.ends, entry["time_us"])
            if at < len(out):
                out[at].append((action, buffer, entry))
        return out

    def largest(self, iteration):
        return max(self.sizes[buffer] for action, buffer, _ in iteration if action == "alloc")

    def without(self, left_out):
        """A snapshot without these iterations. Buffers have addresses of their own."""
        entries, same, live = [], {}, {}
        for number, iteration in enumerate(self.iterations()):
            into = list(live)
            made = []
            for action, buffer, entry in iteration:
                buffer = same.get(buffer, buffer)
                if action == "alloc":
                    live[buffer] = False
                    made.append(buffer)
                elif action == "free_requested":
                    live[buffer] = True
                else:
                    del live[buffer]
                if number not in left_out:
                    entries.append((action, buffer, entry))
            if number in left_out:
                gone = [b for b in into if b not in live]
                new = [b for b in made if b in live]
                if len(gone) != len(new):
                    raise Refused(f"iteration {number + 1} frees {len(gone)} buffers of before and leaves {len(new)}")
                if any(live[b] for b in live):
                    raise Refused(f"iteration {number + 1} ends while frees are pending")
                same.update(zip(new, gone))
                live = dict.fromkeys([*(b for b in live if b not in new), *gone], False)
        return self.snapshot(entries, left_out)

    def snapshot(self, entries, left_out):
        starts = [0, *self.ends]
        gaps = [(starts[n], self.ends[n]) for n in left_out]
        notes = [a for a in self.notes if a["time_us"] <= self.ends[-1] and not any(low < a["time_us"] <= high for low, high in gaps)]
        addresses, following, written = {}, 1 << 40, []
        for action, buffer, entry in entries:
            if buffer not in addresses:
                addresses[buffer] = following
                following += (self.sizes[buffer] + 511) // 512 * 512
            written.append({**entry, "action": action, "addr": addresses[buffer], "size": self.sizes[buffer]})
        return {"device_traces": [written], "external_annotations": notes, "segments": []}


def row(binary, path, share, folder):
    """One row of the table, and the number of overlaps."""
    recording = Recording(path)
    largest = [recording.largest(i) for i in recording.iterations()]
    left_out = {n for n, size in enumerate(largest) if n and size > share * max(largest)}
    kept = [size for n, size in enumerate(largest) if n and n not in left_out]
    head = f"| {name(path)} | {len(kept)} of {len(largest) - 1} "
    if len(kept) < 2:
        return head + "| | too few are shorter | | | |", 0
    factor = math.ceil(10 * max(largest) / max(kept)) / 10
    cut = pathlib.Path(folder, "cut.pickle.gz")
    try:
        snapshot = recording.without(left_out)
    except Refused as why:
        return head + f"| {factor} | {why} | | | |", 0
    with gzip.open(cut, "wb", compresslevel=1) as f:
        pickle.dump(snapshot, f, protocol=4)
    none, overlaps = serve(binary, "--no-plan", path)
    cells = [none]
    for scale in (1, factor):
        plan = pathlib.Path(folder, "plan.bin")
        said = json.loads(run(binary, "compile", cut, "-o", plan, "--max-scale", scale, "--json"))
        cell, bad = serve(binary, plan, path)
        overlaps += bad
        cells.append(f"{said['fleet']['total_plan_bytes'] / 2**30:.2f} GiB: {cell}")
    return head + f"| {factor} | " + " | ".join(cells) + " |", overlaps


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("stplan")
    p.add_argument("recordings", type=pathlib.Path, nargs="+")
    p.add_argument("--share", type=float, default=0.75)
    args = p.parse_args()
    overlaps = 0
    print("| recording | iterations kept | F | no plan | plan of them | plan of them, `--max-scale` F |\n|---|---|---|---|---|---|", flush=True)
    for path in args.recordings:
        with tempfile.TemporaryDirectory() as folder:
            text, bad = row(args.stplan, path, args.share, folder)
            print(text, flush=True)
            overlaps += bad
    return 1 if overlaps else 0


if __name__ == "__main__":
    sys.exit(main())
