"""set_per_process_memory_fraction limits memory, and empty_cache gives memory back."""

import torch

GIB = 1 << 30


def take(size: int) -> torch.Tensor:
    return torch.ones(size, dtype=torch.uint8, device="cuda")


def intact(tensor: torch.Tensor) -> bool:
    """Whether all elements are 1. It uses reductions, since a comparison would allocate a
    tensor of the same size."""
    return tensor.min().item() == 1 == tensor.max().item()


def main() -> None:
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(3 * GIB / total)
    assert abs(torch.cuda.get_per_process_memory_fraction() - 3 * GIB / total) < 1e-9
    first = take(GIB)
    try:
        take(2 * GIB + GIB // 2)
    except torch.cuda.OutOfMemoryError:
        pass
    else:
        raise AssertionError("3.5 GiB were allocated under a limit of 3 GiB")
    second = take(GIB)
    assert torch.cuda.memory_reserved() <= 3 * GIB
    assert intact(first) and intact(second)

    torch.cuda.set_per_process_memory_fraction(1.0)
    third = take(4 * GIB)
    assert intact(third)
    before = torch.cuda.memory_reserved()
    assert before >= 6 * GIB
    del second, third
    torch.cuda.empty_cache()
    after = torch.cuda.memory_reserved()
    assert GIB <= after <= before - 4 * GIB, f"{before - after} of 5 GiB given back"
    assert intact(first)

    # Memory that was given back can be allocated again.
    again = take(5 * GIB)
    assert intact(again) and intact(first)
    del first, again
    torch.cuda.empty_cache()
    assert torch.cuda.memory_allocated() == 0
    assert torch.cuda.memory_reserved() < 2 * GIB, f"{torch.cuda.memory_reserved()} bytes stay reserved"


if __name__ == "__main__":
    main()
