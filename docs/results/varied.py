#!/usr/bin/env python3
"""Make a recording whose iterations differ more from one that repeats.

    varied.py SNAPSHOT.pickle.gz VARIED.pickle.gz [--seed N] [--share S] [--events W]

Stretches of W/4 to W trace entries, together the share S of the recording, lose every
buffer that lives inside of one. What is left has the same addresses, and a request that is
gone leaves no trace, so the result is as valid as the recording: as if iterations had
generated fewer tokens, or an expert had got none. Only entries of the device with the most
entries are taken out.
"""
import argparse
import gzip
import pickle
import random


def lifetimes(entries):
    """(allocation, free requested, free completed) of every buffer that is freed."""
    live, out = {}, []
    for i, entry in enumerate(entries):
        action, address = entry["action"], entry["addr"]
        if action == "alloc":
            live[address] = [i, None]
        elif action == "free_requested" and address in live:
            live[address][1] = i
        elif action == "free_completed" and address in live:
            begin, asked = live.pop(address)
            if asked is not None:
                out.append((begin, asked, i))
    return out


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("snapshot")
    args.add_argument("varied")
    args.add_argument("--seed", type=int, default=1)
    args.add_argument("--share", type=float, default=0.4)
    args.add_argument("--events", type=int, default=24)
    args = args.parse_args()
    with gzip.open(args.snapshot) as file:
        snapshot = pickle.load(file)
    random.seed(args.seed)
    entries = max(snapshot["device_traces"], key=len)
    n, covered = len(entries), 0
    inside = bytearray(n)
    while covered < args.share * n:
        # The first twentieth stays: a model is built there.
        begin, length = random.randrange(n // 20, n - args.events), random.randrange(args.events // 4, args.events)
        inside[begin:begin + length] = b"\1" * length
        covered += length
    upto = [0]
    for bit in inside:
        upto.append(upto[-1] + bit)
    gone = set()
    for begin, asked, done in lifetimes(entries):
        if upto[done + 1] - upto[begin] == done + 1 - begin:
            gone.update((begin, asked, done))
    entries[:] = [e for i, e in enumerate(entries) if i not in gone]
    with gzip.open(args.varied, "wb", 1) as file:
        pickle.dump(snapshot, file)
    print(f"{n} entries, {len(entries)} left")


if __name__ == "__main__":
    main()
