"""torch's memory snapshot and history agree with the tensors that exist and existed."""

import os
import pickle
import tempfile
from typing import Any, Dict, List

import torch

MIB = 1 << 20


def tensor(size: int) -> torch.Tensor:
    return torch.zeros(size, dtype=torch.uint8, device="cuda")


def live(segments: List[Dict[str, Any]]) -> Dict[int, int]:
    """Requested size by address of each allocated block. Checks that the blocks
    of a segment cover it without gaps."""
    found = {}
    for segment in segments:
        address = segment["address"]
        for block in segment["blocks"]:
            assert block["address"] == address, f"a gap in the segment at {segment['address']:x}"
            address += block["size"]
            if block["state"] == "active_allocated":
                found[block["address"]] = block["requested_size"]
        assert address == segment["address"] + segment["total_size"], f"segment at {segment['address']:x}"
        sizes = [b["size"] for b in segment["blocks"] if b["state"] == "active_allocated"]
        assert sum(sizes) == segment["allocated_size"], f"segment at {segment['address']:x}"
    return found


def main() -> None:
    early = tensor(3 * MIB)
    torch.cuda.memory._record_memory_history(max_entries=1000, context="all", stacks="python")
    kept = [tensor(1000), tensor(5 * MIB), tensor(40 * MIB)]
    gone = tensor(7 * MIB)
    address = gone.data_ptr()
    del gone

    snapshot = torch.cuda.memory._snapshot()
    blocks = live(snapshot["segments"])
    for held in (early, *kept):
        assert blocks.get(held.data_ptr()) == held.numel(), f"{held.numel()} bytes are not in the snapshot"
    assert address not in blocks or blocks[address] != 7 * MIB, "a freed block is allocated"
    assert sum(s["total_size"] for s in snapshot["segments"]) == torch.cuda.memory_reserved()
    assert sum(s["allocated_size"] for s in snapshot["segments"]) == torch.cuda.memory_allocated()
    assert live(torch.cuda.memory_snapshot()).keys() == blocks.keys()

    events = snapshot["device_traces"][0]
    history = [e["action"] for e in events if e["addr"] == address and e["size"] == 7 * MIB]
    assert history == ["alloc", "free_requested", "free_completed"], history
    allocs = {(e["addr"], e["size"]): e for e in events if e["action"] == "alloc"}
    for held in kept:
        event = allocs[held.data_ptr(), held.numel()]
        frames = [(frame["filename"], frame["name"]) for frame in event["frames"]]
        assert (os.path.abspath(__file__), "tensor") in [(os.path.abspath(f), n) for f, n in frames], frames
    assert (early.data_ptr(), early.numel()) not in allocs, "an event from before the history began"

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "snapshot.pickle")
        torch.cuda.memory._dump_snapshot(path)
        with open(path, "rb") as dumped:
            assert live(pickle.load(dumped)["segments"]).keys() == blocks.keys()

    for _ in range(2000):
        tensor(512)
    assert len(torch.cuda.memory._snapshot()["device_traces"][0]) == 1000, "max_entries is no bound"
    torch.cuda.memory._record_memory_history(enabled=None)
    tensor(9 * MIB)
    last = torch.cuda.memory._snapshot()["device_traces"][0]
    assert not any(e["size"] == 9 * MIB for e in last), "an event from after the history's end"


if __name__ == "__main__":
    main()
