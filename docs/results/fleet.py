#!/usr/bin/env python3
"""Compiles a fleet of ranks in one call, and in shards under Slurm of which one is killed.

    make build
    examples/fleet/slurm_cluster.sh 8 docs/results/fleet.py bin/stplan ../shared/traces --work /var/tmp/fleet

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
import re
import signal
import subprocess
import sys
import time

MIB = 1 << 20
COMPILE = pathlib.Path(__file__).resolve().parents[2] / "examples" / "fleet" / "compile.sbatch"


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


def slurm(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def kept(plans):
    return {p.name: (p.stat().st_ino, p.stat().st_mtime_ns) for p in plans.glob("*.bin")}


def shards(stplan, traces, plans, count, kill, many):
    """Compiles in a Slurm array of `count` tasks of one core each. One is killed once there are
    `many` plans; Slurm starts it again. Returns wall seconds and the number of compilations."""
    logs = plans.parent / "logs"
    subprocess.run(["rm", "-rf", logs], check=True)
    (logs / "bin").mkdir(parents=True)
    wrapper = logs / "bin" / "stplan"
    wrapper.write_text(f'#!/bin/bash\necho $$ >"{logs}/task$SLURM_ARRAY_TASK_ID"\nexec "{stplan}" "$@"\n')
    wrapper.chmod(0o755)
    env = dict(os.environ, PATH=f"{wrapper.parent}:{os.environ['PATH']}", GOMAXPROCS="1", TRACES=str(traces), PLANS=str(plans))
    began = time.time()
    job = subprocess.run(["sbatch", "--parsable", f"--array=0-{count - 1}", "--cpus-per-task=1", "--mem-per-cpu=0", "--export=ALL", COMPILE],
                         capture_output=True, text=True, check=True, env=env, cwd=logs).stdout.strip()
    while len(kept(plans)) < many:
        time.sleep(0.1)
    os.kill(int((logs / f"task{kill}").read_text()), signal.SIGKILL)
    before = kept(plans)
    table = subprocess.run([stplan, "table", plans], capture_output=True, text=True)
    print(f"- killed task {kill} with SIGKILL when {len(before)} plans were done; `stplan table` then ends with {table.returncode}: "
          f"\"{table.stderr.strip()}\"")
    while (states := re.findall(r"JobState=(\w+)", slurm("scontrol", "-o", "show", "job", job))).count("COMPLETED") < count:
        if set(states) - {"COMPLETED", "RUNNING", "PENDING", "COMPLETING", "REQUEUED"}:
            sys.exit(f"states of the tasks: {states}")
        time.sleep(1)
    wall = time.time() - began
    again = f"stplan-{job}-{kill}.log"
    print(f"- Slurm started it {re.findall('Restarts=([0-9]+)', slurm('scontrol', '-o', 'show', 'job', f'{job}_{kill}'))[0]} time again, "
          f"and its table then said: \"{re.findall('.*compiled.*now.*', (logs / again).read_text())[-1]}\"")
    print(f"- the {len(before)} plans done before were left as they were: {all(kept(plans)[name] == stamp for name, stamp in before.items())}")
    compiled = sum(int(n.replace(",", "")) for log in logs.glob("*.log") for n in re.findall(r"compiled ([0-9,]+) program", log.read_text()))
    return wall, compiled


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

    wall, compiled = shards(stplan, traces.resolve(), parts.resolve(), args.shards, args.shards // 2, args.ranks // 3)
    whole = json.loads(out)["fleet"]
    same = bytes_of(plans) == bytes_of(parts)
    table = [subprocess.run([stplan, "table", f], capture_output=True, text=True).stdout for f in (plans, parts)]
    print(f"- {args.shards} tasks with one core each, one of them twice: {wall:.1f} s, {compiled} compilations of {whole['programs']} programs "
          "in tables that were printed")
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
