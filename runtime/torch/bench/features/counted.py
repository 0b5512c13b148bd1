"""torch.cuda's statistics compared with known values: current bytes, peaks,
totals, pools."""

import torch

MIB = 1 << 20
BASE = [
    "active", "active_bytes", "allocated_bytes", "allocation", "inactive_split", "inactive_split_bytes",
    "requested_bytes", "reserved_bytes", "segment",
]
KEYS = {f"{base}.{pool}.{figure}" for base in BASE for pool in ("all", "small_pool", "large_pool")
        for figure in ("current", "peak", "allocated", "freed")}
KEYS |= {f"oversize_{base}.{figure}" for base in ("allocations", "segments") for figure in ("current", "peak")}
KEYS |= {"num_alloc_retries", "num_ooms", "num_sync_all_streams", "num_device_alloc", "num_device_free", "max_split_size"}


def tensor(size: int) -> torch.Tensor:
    return torch.empty(size, dtype=torch.uint8, device="cuda")


def expect(what: str, found: int, expected: int) -> None:
    assert found == expected, f"{what}: expected {expected:,}, found {found:,}"


def expect_as_in_segments() -> None:
    """A pool's statistics are the sums over its segments."""
    segments, stats = torch.cuda.memory_snapshot(), torch.cuda.memory_stats()
    for pool in ("small", "large"):
        for base, key in (("allocated_bytes", "allocated_size"), ("requested_bytes", "requested_size"), ("reserved_bytes", "total_size")):
            total = sum(segment[key] for segment in segments if segment["segment_type"] == pool)
            expect(f"{base} of the {pool} pool", stats[f"{base}.{pool}_pool.current"], total)


def main() -> None:
    torch.cuda.init()
    assert torch.cuda.memory_allocated() == 0
    assert KEYS <= set(torch.cuda.memory_stats()), KEYS - set(torch.cuda.memory_stats())

    # The native allocator takes exactly 32 and 64 MiB for these, so it counts no more.
    a = tensor(32 * MIB)
    expect("one tensor", torch.cuda.memory_allocated(), 32 * MIB)
    b = tensor(64 * MIB)
    del b
    expect("after a free", torch.cuda.memory_allocated(), 32 * MIB)
    expect("peak", torch.cuda.max_memory_allocated(), 96 * MIB)
    assert torch.cuda.max_memory_reserved() >= torch.cuda.memory_reserved() >= 32 * MIB
    torch.cuda.reset_peak_memory_stats()
    expect("peak after its reset", torch.cuda.max_memory_allocated(), 32 * MIB)
    expect("peak reserved after its reset", torch.cuda.max_memory_reserved(), torch.cuda.memory_reserved())
    c = tensor(64 * MIB)
    expect("peak again", torch.cuda.max_memory_allocated(), 96 * MIB)

    stats = torch.cuda.memory_stats()
    expect("allocations", stats["allocation.all.allocated"], 3)
    expect("frees", stats["allocation.all.freed"], 1)
    expect("live", stats["allocation.all.current"], 2)
    expect("bytes ever allocated", stats["allocated_bytes.all.allocated"], 160 * MIB)
    expect("bytes ever freed", stats["allocated_bytes.all.freed"], 64 * MIB)
    expect("large pool", stats["allocated_bytes.large_pool.current"], 96 * MIB)
    expect("small pool", stats["allocated_bytes.small_pool.current"], 0)
    expect_as_in_segments()

    # Small sizes are rounded up to multiples of 512 bytes; requested bytes are
    # counted too. Which pool they are in depends on the allocator.
    small = [tensor(1000) for _ in range(100)]
    stats = torch.cuda.memory_stats()
    expect("small tensors", stats["allocated_bytes.all.current"], 96 * MIB + 100 * 1024)
    expect_as_in_segments()
    expect("all as requested", stats["requested_bytes.all.current"], 96 * MIB + 100_000)
    nested = torch.cuda.memory_stats_as_nested_dict()
    expect("nested", nested["requested_bytes"]["all"]["current"], 96 * MIB + 100_000)
    del small, a, c
    expect("nothing", torch.cuda.memory_allocated(), 0)
    expect("nothing, as requested", torch.cuda.memory_stats()["requested_bytes.all.current"], 0)

    torch.cuda.reset_accumulated_memory_stats()
    d = tensor(32 * MIB)
    stats = torch.cuda.memory_stats()
    expect("allocations since the reset", stats["allocation.all.allocated"], 1)
    expect("frees since the reset", stats["allocation.all.freed"], 0)
    expect("bytes since the reset", stats["allocated_bytes.all.allocated"], 32 * MIB)
    del d

    # A freed block that another stream may still use is active, but not allocated.
    stream = torch.cuda.Stream()
    e = tensor(32 * MIB)
    e.fill_(1)
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(200_000_000)
        e.add_(1)
    e.record_stream(stream)
    del e
    expect("freed, but in use", torch.cuda.memory_allocated(), 0)
    torch.cuda.synchronize()

    summary = torch.cuda.memory_summary()
    assert "PyTorch CUDA memory summary" in summary and "Allocated memory" in summary and "GPU reserved memory" in summary
    assert "%d B" % 0 in summary or "0 B" in summary
    free, total = torch.cuda.mem_get_info()
    assert total - free >= torch.cuda.memory_reserved() > 0
    assert torch.cuda.memory.get_allocator_backend() == "native", torch.cuda.memory.get_allocator_backend()


if __name__ == "__main__":
    main()
