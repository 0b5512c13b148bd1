#!/usr/bin/env python3
"""Compiles a fleet of ranks in one call, and in shards of which one is killed.

    make build && docs/results/fleet.py bin/stplan ../shared/traces --work /var/tmp/fleet

Makes recordings of --ranks ranks from the Megatron-LM recordings of a folder: each recording
is one stage of one job, --seeds seeds of it differ in what data decides (the sizes of some
temporary buffers), and every rank has addresses, stream handles and a device of its own.
Annotations stay on the device that was recorded, so a rank on another one has none, which
makes another program of it. Then it compiles them, and prints what docs/results/fleet.md shows. Ends with 1 if the shards' plans
are not byte for byte those of the one call, or if a plan does not verify.
"""
import argparse
import gzip
import json
import multiprocessing
import os
import pathlib
import pickle
import random
import signal
import subprocess
import sys
import time

MIB = 1 << 20


def shifted(snapshot, rank, seed):
    """The snapshot as another rank would have recorded it; changes it in place."""
    device = max(range(len(snapshot["device_traces"])), key=lambda i: len(snapshot["device_traces"][i]))
    events = snapshot["device_traces"][device]
    shift = (rank + 1) << 32
    handles = {0: 0}
    smaller = chosen(events, seed)
    live = {}
    for i, event in enumerate(events):
        if "addr" in event and event["action"] != "oom":
            event["addr"] += shift
        stream = event.get("stream", 0)
        event["stream"] = handles.setdefault(stream, stream + 4096 * (rank + 1))
        if event["action"] == "alloc":
            live[event["addr"]] = smaller.get(i, 0)
        if event["action"] in ("alloc", "free_requested", "free_completed"):
            event["size"] -= live.get(event["addr"], 0)
    for segment in snapshot["segments"]:
        segment["address"] += shift
        segment["stream"] = handles.get(segment["stream"], segment["stream"])
        segment["device"] = rank % 8
        for block in segment["blocks"]:
            if "address" in block:
                block["address"] += shift
    snapshot["device_traces"] = [[] for _ in range(8)]
    snapshot["device_traces"][rank % 8] = events
    return snapshot


def chosen(events, seed):
    """Of 16 buffers that are freed soon: by how many bytes this seed makes them smaller."""
    if seed == 0:
        return {}
    temporary, at = [], {}
    for i, event in enumerate(events):
        if event["action"] == "alloc":
            at[event["addr"]] = i
        elif event["action"] == "free_completed" and event["addr"] in at:
            start = at.pop(event["addr"])
            if i - start < 50 and event["size"] >= MIB:
                temporary.append(start)
    rng = random.Random(seed)
    return {i: 512 * rng.randrange(1, 1000) for i in rng.sample(temporary, min(16, len(temporary)))}


def make(sources, folder, ranks, seeds):
    """Writes the recordings; rank r is of source r mod len(sources)."""
    folder.mkdir(parents=True, exist_ok=True)
    with multiprocessing.Pool() as pool:
        pool.starmap(make_one, [(sources[r % len(sources)], folder / f"job-rank{r}.pickle.gz", r, r // len(sources) % seeds) for r in range(ranks)], 1)


def make_one(source, path, rank, seed):
    if path.exists():
        return
    with gzip.open(source) as f:
        snapshot = pickle.load(f)
    part = path.with_suffix(".part")
    part.write_bytes(gzip.compress(pickle.dumps(shifted(snapshot, rank, seed), protocol=4), 1))
    part.rename(path)


def timed(command, **more):
    """Runs a command: its output, wall and CPU seconds, and largest resident MiB."""
    began = time.time()
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)
    out = child.stdout.read()
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        sys.exit(f"{' '.join(map(str, command))}: exit code {child.returncode}: {child.stderr.read().decode()}")
    return out, time.time() - began, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def bytes_of(folder):
    return {p.name: p.read_bytes() for p in sorted(folder.glob("*.bin"))}


def shards(stplan, traces, plans, count, kill):
    """Compiles in shards, all at once on one core each; one is killed and started again."""
    env = dict(os.environ, GOMAXPROCS="1")
    start = lambda i: subprocess.Popen([stplan, "-q", "compile", traces, "-o", plans, "--json", "--shard", f"{i}/{count}"],
                                       stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env)
    began = time.time()
    running = {i: start(i) for i in range(count)}
    while not list(plans.glob("*.bin")):
        time.sleep(0.1)
    running[kill].send_signal(signal.SIGKILL)
    running[kill].wait()
    before = len(list(plans.glob("*.bin")))
    table = subprocess.run([stplan, "table", plans], capture_output=True, text=True)
    print(f"- killed shard {kill} with SIGKILL when {before} plans were done; `stplan table` then ends with {table.returncode}: "
          f"\"{table.stderr.strip()}\"")
    compiled = 0
    for i, child in running.items():
        if i != kill:
            out = child.communicate()[0]
            compiled += json.loads(out)["fleet"]["compiled"]
    gone = subprocess.run([stplan, "table", plans, "--json"], capture_output=True)
    print(f"- the other shards are done: {len(json.loads(gone.stdout)['missing'])} recordings are missing in the table, which are the killed shard's")
    out = start(kill).communicate()[0]
    again = json.loads(out)["fleet"]
    compiled += again["compiled"]
    print(f"- shard {kill} again: {again['recordings']} plans, {again['done_before']} of them done before it was killed")
    return time.time() - began, compiled


def main():
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("stplan")
    args.add_argument("traces", type=pathlib.Path)
    args.add_argument("--work", type=pathlib.Path, required=True, help="folder for recordings and plans")
    args.add_argument("--ranks", type=int, default=1000)
    args.add_argument("--seeds", type=int, default=3)
    args.add_argument("--shards", type=int, default=8)
    args.add_argument("--verify", type=int, default=20, help="ranks whose plan is verified against their recording")
    args = args.parse_args()
    sources = sorted(p for p in args.traces.glob("*-pp*.pickle.gz")) + sorted(args.traces.glob("moe16-ep4-real*.pickle.gz"))
    traces, plans, parts = args.work / "traces", args.work / "plans", args.work / "plans-of-shards"
    for folder in (plans, parts):
        subprocess.run(["rm", "-rf", folder], check=True)
    make(sources, traces, args.ranks, args.seeds)
    stplan = os.path.abspath(args.stplan)

    print("| call | wall | CPU | cores used | peak memory | programs compiled | done before |")
    print("|---|---|---|---|---|---|---|")
    row = lambda name, wall, cpu, rss, f: print(f"| {name} | {wall:.1f} s | {cpu:.1f} s | {cpu / wall:.2f} | {rss:.0f} MiB | {f['compiled']} of {f['programs']} | {f['done_before']} |")
    for name in ("one call", "the same call again"):
        out, wall, cpu, rss = timed([stplan, "-q", "compile", traces, "-o", plans, "--json"])
        row(f"{name}, {args.ranks} ranks", wall, cpu, rss, json.loads(out)["fleet"])
    disk = {os.stat(p).st_ino: os.stat(p).st_size for p in plans.glob("*.bin")}
    print(f"\nPlans: {args.ranks} names, {len(disk)} files, {sum(disk.values()) / MIB:.0f} MiB.\n")

    wall, compiled = shards(stplan, traces, parts, args.shards, kill=args.shards // 2)
    whole = json.loads(out)["fleet"]
    same = bytes_of(plans) == bytes_of(parts)
    table = [subprocess.run([stplan, "table", f], capture_output=True, text=True).stdout for f in (plans, parts)]
    print(f"- {args.shards} shards with one core each, one after its death again: {wall:.1f} s, {compiled} compilations of {whole['programs']} programs")
    print(f"- plans byte for byte those of the one call: {same}; tables equal: {table[0] == table[1]}")

    bad = 0
    for rank in random.Random(0).sample(range(args.ranks), min(args.verify, args.ranks)):
        done = subprocess.run([stplan, "-q", "verify", plans / f"job-rank{rank}.bin", "--trace", traces / f"job-rank{rank}.pickle.gz"], capture_output=True)
        bad += done.returncode != 0
    print(f"- `verify --trace` of {args.verify} ranks drawn at random: {args.verify - bad} verified\n")
    print("```\n" + table[0].strip() + "\n```")
    sys.exit(not same or table[0] != table[1] or bad > 0)


if __name__ == "__main__":
    main()
