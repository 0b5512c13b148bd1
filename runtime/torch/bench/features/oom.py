"""OutOfMemoryError has torch's class and can be caught, and training after it
has the same losses."""

from typing import List

import torch

from job import WIDTH, adamw, loss_of, model, train

CHUNK = 256 << 20


def fill() -> int:
    """Allocates chunks until memory runs out. Returns the number of chunks."""
    held: List[torch.Tensor] = []
    try:
        while True:
            held.append(torch.empty(CHUNK, dtype=torch.uint8, device="cuda"))
    except torch.cuda.OutOfMemoryError as error:
        assert "out of memory" in str(error) and "Tried to allocate" in str(error), str(error)
    return len(held)


def fitting_batch(net: torch.nn.Module) -> int:
    """Doubles the batch until a step does not fit, as tools that look for a
    batch size do. The error is raised in the forward or in the backward pass."""
    rows = 1 << 12
    while True:
        try:
            loss_of(net, torch.ones(rows, WIDTH, device="cuda")).backward()
            rows *= 2
        except RuntimeError as error:
            assert isinstance(error, torch.OutOfMemoryError), repr(error)
            return rows // 2
        finally:
            net.zero_grad()


def main() -> None:
    net = model()
    alone = train(net, adamw(net), range(8))

    # A limit leaves memory for the other processes on the device.
    total = torch.cuda.get_device_properties(0).total_memory
    limit = 6 << 30
    torch.cuda.set_per_process_memory_fraction(limit / total)
    net = model()
    optimizer = adamw(net)
    found = train(net, optimizer, range(3))
    torch.cuda.synchronize()

    before, ooms = torch.cuda.memory_allocated(), torch.cuda.memory_stats()["num_ooms"]
    try:
        torch.empty(1 << 45, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError as error:
        assert isinstance(error, RuntimeError) and torch.cuda.OutOfMemoryError is torch.OutOfMemoryError
    else:
        raise AssertionError("32 TiB were allocated")
    assert torch.cuda.memory_stats()["num_ooms"] == ooms + 1
    assert torch.cuda.memory_allocated() == before

    chunks = [fill() for _ in range(3)]
    assert limit // 2 // CHUNK <= chunks[0] <= limit // CHUNK, f"{chunks} chunks of 256 MiB fit into 6 GiB"
    assert chunks[0] == chunks[1] == chunks[2], f"memory is lost from one to the next: {chunks}"
    assert torch.cuda.memory_allocated() == before, "memory is not back"
    assert torch.cuda.memory_stats()["num_ooms"] == ooms + 4
    found += train(net, optimizer, [3, 4])

    rows = fitting_batch(net)
    assert 1 << 12 <= rows <= 1 << 20, rows
    assert fitting_batch(net) == rows, "another batch fits after the first error"
    found += train(net, optimizer, range(5, 8))
    assert found == alone, f"with errors: {found}, without: {alone}"


if __name__ == "__main__":
    main()
