"""Imitates the few parts of torch that stplan touches.

A step of the fake optimizer allocates and frees as a training step would; what
torch.cuda.memory records then is a snapshot that stplan's importer accepts.
"""

from torch import _C, compiler, cuda, distributed, optim


class OutOfMemoryError(RuntimeError):
    pass


def empty(size):
    cuda._lazy_init()
    if size > cuda.memory.CAPACITY:
        raise OutOfMemoryError(f"CUDA out of memory: {size} bytes")
    return cuda.memory.allocate(size)
