"""torch.cuda.MemPool: tensors allocated in it use its memory, no others do, and
its memory is given back when it is deleted."""

import gc
from typing import List, Tuple

import torch

from job import Marks, churn

MIB = 1 << 20


def ranges(pool: torch.cuda.MemPool) -> List[Tuple[int, int]]:
    return [(s["address"], s["address"] + s["total_size"]) for s in pool.snapshot()]


def inside(tensor: torch.Tensor, pool: torch.cuda.MemPool) -> bool:
    begin = tensor.data_ptr()
    return any(low <= begin and begin + tensor.nbytes <= high for low, high in ranges(pool))


def main() -> None:
    marks = Marks()
    outside = [marks.new(4 * MIB, 1)]
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        pooled = [marks.new(size, 2) for size in (4096, 3 * MIB, 30 * MIB)]
        del pooled[1]
        pooled.append(marks.new(2 * MIB, 2))
    churn()
    outside += [marks.new(4 * MIB, 1) for _ in range(20)]
    with torch.cuda.use_mem_pool(pool):
        pooled.append(marks.new(50 * MIB, 2))
    assert all(inside(tensor, pool) for tensor in pooled), "a tensor is outside of its pool"
    assert not any(inside(tensor, pool) for tensor in outside), "a tensor is in a pool that is not its own"
    for mark, tensors in ((1, outside), (2, pooled)):
        for tensor in tensors:
            marks.check(tensor, mark)
    assert marks.wrong() == 0, f"{marks.wrong()} wrong words"

    held = sum(high - low for low, high in ranges(pool))
    assert held >= 82 * MIB, held
    full = torch.cuda.memory_reserved()
    assert full >= before + held
    del pooled, tensors, tensor, pool
    gc.collect()
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() <= full - held, "the pool's memory is not given back"


if __name__ == "__main__":
    main()
