"""A stand-in for the few parts of torch that stplan uses.

A step of its optimizer allocates and frees as a training step would. stplan's importer
accepts the snapshot that its torch.cuda.memory records.
"""

from torch import _C, compiler, cuda, distributed, optim


class OutOfMemoryError(RuntimeError):
    pass


def empty(size):
    cuda._lazy_init()
    if size > cuda.memory.CAPACITY:
        raise OutOfMemoryError(f"CUDA out of memory: {size} bytes")
    return cuda.memory.allocate(size)
