"""Writes the fixtures of this folder: one small recording, as torch 2.11 would
save it, in every pickle protocol and container. Run it here with any Python 3.

The recording is made up: a model of two layers with 2 MiB and 20 MiB segments,
three steps of forward, backward and optimizer, shared stacks, a delayed free.
"""
import gzip
import pickle
import struct

SMALL, LARGE = 0x7F0000000000, 0x7F0000400000


def frame(line, name):
    return {"filename": "/src/train.py", "line": line, "name": name}


MAIN = frame(40, "<module>")
STACKS = {
    "init": [frame(7, "__init__"), MAIN],
    "forward": [frame(12, "forward"), frame(30, "step"), MAIN],
    "backward": [{"filename": "??", "line": 0, "name": "torch::autograd"}],
}


class Recorder:
    def __init__(self):
        self.entries, self.annotations, self.clock = [], [], 1_700_000_000_000_000

    def entry(self, action, addr, size, stack=None, meta=""):
        self.clock += len(self.entries) % 3
        e = {"action": action, "addr": addr, "size": size, "stream": 0, "time_us": self.clock,
             "compile_context": "N/A", "user_metadata": meta}
        if stack:
            e["frames"] = STACKS[stack]
        self.entries.append(e)

    def mark(self, stage):
        self.annotations.append({"name": "Optimizer.step#SGD.step", "stage": stage, "device": 0, "time_us": self.clock})


def record():
    r = Recorder()
    r.entry("segment_alloc", SMALL, 2 << 20, "init")
    r.entry("alloc", SMALL, 1000, "init")
    r.entry("segment_alloc", LARGE, 20 << 20, "init")
    r.entry("alloc", LARGE, 8 << 20, "init")
    for step in range(3):
        a, b = LARGE + (8 << 20), LARGE + (11 << 20)
        r.entry("alloc", a, 3 << 20, "forward", f"step {step}")
        r.entry("alloc", b, 5_000_001, "backward", f"step {step}")
        r.entry("free_requested", a, 3 << 20)
        r.mark("START")
        r.entry("alloc", SMALL + 1024, 4)
        r.entry("free_requested", SMALL + 1024, 4)
        r.entry("free_completed", SMALL + 1024, 4)
        r.mark("END")
        r.entry("free_requested", b, 5_000_001)
        r.entry("free_completed", b, 5_000_001)
        r.entry("free_completed", a, 3 << 20)
    return r


def block(addr, size, requested, state, frames=()):
    return {"address": addr, "size": size, "requested_size": requested, "state": state, "frames": frames or []}


def segment(addr, size, kind, blocks):
    active = sum(b["size"] for b in blocks if b["state"] != "inactive")
    return {"device": 0, "address": addr, "total_size": size, "allocated_size": active, "active_size": active,
            "requested_size": 0, "stream": 0, "segment_type": kind, "segment_pool_id": (0, 0),
            "is_expandable": False, "frames": [], "blocks": blocks}


def snapshot():
    r = record()
    return {
        "segments": [
            segment(SMALL, 2 << 20, "small", [
                block(SMALL, 1024, 1000, "active_allocated", STACKS["init"]),
                block(SMALL + 1024, (2 << 20) - 1024, 4, "inactive")]),
            segment(LARGE, 20 << 20, "large", [
                block(LARGE, 8 << 20, 8 << 20, "active_allocated", STACKS["init"]),
                block(LARGE + (8 << 20), 12 << 20, 3 << 20, "inactive")]),
        ],
        "device_traces": [r.entries],
        "allocator_settings": {
            "PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1, "garbage_collection_threshold": 0.0,
            "expandable_segments": False, "roundup_power2_divisions": {str(1 << i): 0 for i in range(16)}},
        "external_annotations": r.annotations,
    }


def zstd(data):
    """A zstd frame of uncompressed blocks: one segment, its size in 4 bytes."""
    out = b"\x28\xb5\x2f\xfd\xa0" + struct.pack("<I", len(data))
    for at in range(0, len(data), 1 << 17):
        piece = data[at:at + (1 << 17)]
        last = at + len(piece) == len(data)
        out += struct.pack("<I", len(piece) << 3 | last)[:3] + piece
    return out


def write(name, data):
    with open(name, "wb") as f:
        f.write(data)


if __name__ == "__main__":
    for protocol in range(2, 6):
        write(f"protocol{protocol}.pickle", pickle.dumps(snapshot(), protocol))
    data = pickle.dumps(snapshot(), 4)
    write("gzip.pickle.gz", gzip.compress(data, mtime=0))
    write("members.pickle.gz", gzip.compress(data[:999], mtime=0) + gzip.compress(data[999:], mtime=0))
    write("zstd.pickle.zst", zstd(data))
