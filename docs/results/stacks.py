#!/usr/bin/env python3
"""What Python stacks cost a recording.

    stacks.py WITHOUT.pickle.gz WITH.pickle.gz
    stacks.py --gather                            # needs torch, no GPU

The first compares the steps of two recordings of one job, from optimizer step to optimizer
step. The second times what torch's allocator does for each event, in processor seconds: it
gathers the frames of the running thread; and what a snapshot does once, names for the frames
of 100,000 events.
"""
import gzip
import os
import pickle
import resource
import sys
import time

EVENTS = 170_000  # as many as four steps of the job that was recorded both ways
NAMED = 100_000
DEPTHS = (12, 30, 60)  # frames; the recorded job has 12 on average and 30 at most


def steps(path):
    """Seconds from step to step, and the number of events."""
    with gzip.open(path) as file:
        snapshot = pickle.load(file)
    begins = [a["time_us"] for a in snapshot["external_annotations"]
              if a["stage"] == "START" and a["name"].startswith("Optimizer.step#")]
    return [(b - a) / 1e6 for a, b in zip(begins, begins[1:])], sum(map(len, snapshot["device_traces"]))


def compare(without, with_stacks):
    (plain, events), (stacks, same) = steps(without), steps(with_stacks)
    print("| step | without s | with s | more |\n|---|---:|---:|---:|")
    for i, (a, b) in enumerate(zip(plain, stacks)):
        print(f"| {i + 2} | {a:.3f} | {b:.3f} | {100 * (b / a - 1):+.1f} % |")
    print(f"| all | {sum(plain):.3f} | {sum(stacks):.3f} | {100 * (sum(stacks) / sum(plain) - 1):+.1f} % |")
    sizes = [os.path.getsize(p) / 1024 for p in (without, with_stacks)]
    print(f"\nEvents: {events:,} and {same:,}. Files: {sizes[0]:,.0f} KiB and {sizes[1]:,.0f} KiB.")


def deep(depth, work):
    return work() if depth == 0 else deep(depth - 1, work)


def gather():
    from torch._C._profiler import gather_traceback, symbolize_tracebacks

    symbolize_tracebacks([gather_traceback(True, False, False)])  # it loads what it needs
    print("| frames | us an event | KiB an event | s for the names of 100,000 |\n|---:|---:|---:|---:|")
    for depth in DEPTHS:
        def work(make):
            memory, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
            found = [make() for _ in range(EVENTS)]
            return found, time.process_time() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory

        _, idle, _ = deep(depth, lambda: work(object))
        found, busy, memory = deep(depth, lambda: work(lambda: gather_traceback(True, False, False)))
        began = time.process_time()
        symbolize_tracebacks(found[:NAMED])
        named = time.process_time() - began
        print(f"| {depth} | {(busy - idle) / EVENTS * 1e6:.1f} | {memory / EVENTS:.2f} | {named:.2f} |")


if __name__ == "__main__":
    if sys.argv[1:] == ["--gather"]:
        gather()
    elif len(sys.argv) == 3:
        compare(*sys.argv[1:])
    else:
        sys.exit(__doc__)
