#!/usr/bin/env python3
"""What a run costs that is served by the plan of a similar run, and learns: by replay, without a GPU.

    similar.py STPLAN RECORDING.pickle.gz RECORDING.pickle.gz ...

Each recording is made longer by 12 iterations and served by the plan of each other one, as `stplan run` does it that has
found that plan, and once without any, as a first run. Prints a table with reserved / peak allocated, bytes
moved / reserved and the share of bytes on plan."""

import argparse
import itertools
import json
import pathlib
import subprocess
import tempfile


def replay(binary, plan, recording):
    """Figures of one run; those of the judge's overlaps come with them."""
    command = [binary, "-q", "replay", plan, str(recording), "--learn", "--repeat", "12", "--json"]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


def cell(figures):
    reserved, allocated = figures["peak_reserved_bytes"], figures["peak_allocated_bytes"]
    return f"{reserved / allocated:.4f}, {figures['moved_bytes'] / reserved:.2f}, {100 * figures['planned_bytes_fraction']:.0f} %"


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("stplan")
    p.add_argument("recordings", nargs="+", type=pathlib.Path)
    args = p.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        plans = {}
        for n, recording in enumerate(args.recordings):
            plans[recording] = f"{folder}/{n}.bin"
            subprocess.run([args.stplan, "-q", "compile", recording, "-o", plans[recording]], check=True, stdout=subprocess.DEVNULL)
        print("| recording | first run | by the plan of | |\n|---|---|---|---|", flush=True)
        first = {}
        for plan, recording in itertools.permutations(args.recordings, 2):
            if recording not in first:
                first[recording] = cell(replay(args.stplan, "--no-plan", recording))
            names = [r.name.removesuffix(".pickle.gz") for r in (recording, plan)]
            print(f"| {names[0]} | {first[recording]} | {names[1]} | {cell(replay(args.stplan, plans[plan], recording))} |", flush=True)


if __name__ == "__main__":
    main()
