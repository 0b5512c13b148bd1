#!/usr/bin/env python3
"""Cut a recording where a smaller GPU would have run out of memory:

    cut.py IN OUT USABLE [FROM=TO ...]

IN and OUT are memory snapshots (pickle, gzip). USABLE is what the GPU leaves the
process, in bytes. The recording is PyTorch's native allocator's, without settings. Up to
the first request that does not fit, the allocator does the same on the smaller GPU. Then
it gives its empty segments back and asks again. If that is not enough the request fails,
and the recording ends. Otherwise the allocator would go on differently, and this script
refuses. Files of stacks that begin with FROM begin with TO instead.
"""
import bisect
import gzip
import pickle
import sys

source, target, usable = sys.argv[1], sys.argv[2], int(sys.argv[3])
with gzip.open(source) as f:
    snapshot = pickle.load(f)
entries = snapshot["device_traces"][0]
renames = [r.split("=", 1) for r in sys.argv[4:]]
frames = {id(f): f for e in entries for f in e.get("frames", [])}  # stacks share them
for frame in frames.values():
    for old, new in renames:
        if frame["filename"].startswith(old):
            frame["filename"] = new + frame["filename"][len(old):]


class Memory:
    def __init__(self):
        self.segments, self.starts, self.live, self.reserved = {}, [], {}, 0

    def segment_of(self, address):
        return self.starts[bisect.bisect_right(self.starts, address) - 1]

    def see(self, e):
        if e["action"] == "segment_alloc":
            self.segments[e["addr"]] = e
            bisect.insort(self.starts, e["addr"])
            self.reserved += e["size"]
        elif e["action"] == "segment_free":
            del self.segments[e["addr"]]
            self.starts.remove(e["addr"])
            self.reserved -= e["size"]
        elif e["action"] == "alloc":
            self.live[e["addr"]] = e
        elif e["action"] == "free_completed":
            del self.live[e["addr"]]
        elif e["action"] != "free_requested":
            sys.exit(f"{source}: found {e['action']}, expected a native recording without an out-of-memory")


memory, kept = Memory(), []
for at, e in enumerate(entries):
    if e["action"] == "segment_alloc" and memory.reserved + e["size"] > usable:
        break
    memory.see(e)
    kept.append(e)
else:
    sys.exit(f"{source}: everything fits in {usable} B")

request = entries[at + 1]
used = {memory.segment_of(a) for a in memory.live}
empty = [s for s in memory.starts if s not in used]
# The allocator goes through its large pool first, and each pool by size.
for address in sorted(empty, key=lambda s: (memory.segments[s]["size"] == 2 << 20, memory.segments[s]["size"], s)):
    empty = memory.segments[address]
    entry = dict(empty, action="segment_free", time_us=request["time_us"])
    entry.pop("frames", None)
    memory.see(entry)
    kept.append(entry)
if memory.reserved + e["size"] <= usable:
    sys.exit(f"{source}: at {usable} B the request of entry {at} fits once empty segments are given back")
oom = dict(request, action="oom", size=-(-request["size"] // 512) * 512, device_free=usable - memory.reserved)
del oom["addr"]
kept.append(oom)

small = 2 << 20
segments = []
for start in memory.starts:
    s = memory.segments[start]
    mine = sorted((e for e in memory.live.values() if start <= e["addr"] < start + s["size"]), key=lambda e: e["addr"])
    blocks, place = [], start
    for i, e in enumerate(mine + [None]):
        end = e["addr"] if e else start + s["size"]
        # The native allocator leaves the rest of a large block to it if it is 1 MiB or less.
        if blocks and s["size"] > small and end - place <= 1 << 20:
            blocks[-1]["size"] += end - place
        elif end > place:
            blocks.append({"address": place, "size": end - place, "requested_size": 0, "state": "inactive", "frames": []})
        if e:
            size = max(512, -(-e["size"] // 512) * 512)
            blocks.append({"address": e["addr"], "size": size, "requested_size": e["size"], "state": "active_allocated",
                           "frames": e.get("frames", [])})
            place = end + size
    held = [b for b in blocks if b["state"] != "inactive"]
    segments.append({
        "device": 0, "address": start, "total_size": s["size"], "stream": s["stream"],
        "allocated_size": sum(b["size"] for b in held), "active_size": sum(b["size"] for b in held),
        "requested_size": sum(b["requested_size"] for b in held),
        "segment_type": "small" if s["size"] == small else "large", "segment_pool_id": (0, 0), "is_expandable": False,
        "frames": s.get("frames", []), "blocks": blocks,
    })
snapshot["segments"] = segments
snapshot["device_traces"] = [kept]
snapshot["external_annotations"] = [a for a in snapshot["external_annotations"] if a["time_us"] <= request["time_us"]]
with open(target, "wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as f:
    pickle.dump(snapshot, f)
print(f"{target}: {len(kept)} entries, ends at {request['size']} B asked for, {oom['device_free']} B free")
