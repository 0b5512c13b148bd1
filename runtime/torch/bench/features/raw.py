"""Raw memory for other libraries: caching_allocator_alloc and _delete on
several streams."""

import torch

from job import churn

MIB = 1 << 20


class Raw:
    """Bytes at an address, for torch.as_tensor."""

    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__ = {"shape": (size,), "typestr": "|u1", "data": (address, False), "version": 2}


def main() -> None:
    torch.cuda.init()
    stream = torch.cuda.Stream()
    before = torch.cuda.memory_allocated()
    addresses = []
    for number in range(16):
        size = (32 + 2 * number) * MIB
        with torch.cuda.stream(stream if number % 2 else torch.cuda.current_stream()):
            address = torch.cuda.caching_allocator_alloc(size, stream=torch.cuda.current_stream())
            torch.as_tensor(Raw(address, size), device="cuda").fill_(number)
        addresses.append((address, size))
    expected = sum(size for _, size in addresses)
    assert torch.cuda.memory_allocated() - before == expected, torch.cuda.memory_allocated()
    churn()
    torch.cuda.synchronize()
    for number, (address, size) in enumerate(addresses):
        assert bool((torch.as_tensor(Raw(address, size), device="cuda") == number).all()), f"block {number} is damaged"
    for address, _ in addresses:
        torch.cuda.caching_allocator_delete(address)
    assert torch.cuda.memory_allocated() == before, torch.cuda.memory_allocated()


if __name__ == "__main__":
    main()
