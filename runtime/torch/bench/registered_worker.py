"""One rank of registered.py: exchanges data with the other rank in one mode, round after
round, while memory moves elsewhere, and checks every value. It runs natively too.

    python -m torch.distributed.run --standalone --nproc-per-node 2 registered_worker.py MODE

The last line of standard output of each rank is JSON: the rank, the rounds, and how many
bytes have moved, null if stplan does not serve the process.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
from multiprocessing.reduction import ForkingPickler
from typing import Any, Callable, Dict, List, Optional

# Times that data is exchanged, with churn in between.
ROUNDS = 12

# Elements of the tensors that are exchanged, of 4 bytes: 16 MiB, which is above what NCCL
# sends in small pieces.
WORDS = 4 << 20

# Bytes and number of the blocks between which gaps are left: of these pieces best fit can
# serve no large request, so idle memory has to move, or more be taken.
PIECE, PIECES = 12 << 20, 24


class Rank:
    """This process, its device, and the other rank."""

    def __init__(self, torch: Any, distributed: Any) -> None:
        self.torch, self.distributed = torch, distributed
        self.rank = int(os.environ["RANK"])
        self.size = int(os.environ["WORLD_SIZE"])
        self.device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(self.device)
        distributed.init_process_group("nccl", device_id=self.device)

    def full(self, value: float, words: int = WORDS) -> Any:
        return self.torch.full((words,), value, device=self.device)

    def demand(self, tensor: Any, value: float, what: str) -> None:
        wrong = int((tensor != value).sum())
        assert wrong == 0, f"rank {self.rank}: {what}: {wrong} of {tensor.numel()} values are not {value}"

    def backend(self) -> Any:
        return self.distributed.group.WORLD._get_backend(self.device)

    def churn(self, number: int) -> None:
        """Leaves gaps and asks for what fits none of them."""
        torch = self.torch
        size = PIECE + (number % 5 << 21)
        blocks: List[Any] = [torch.empty(size, dtype=torch.uint8, device=self.device) for _ in range(PIECES)]
        for i in range(0, PIECES, 2):
            blocks[i] = None
        large = torch.full((size * PIECES // 2,), number, dtype=torch.uint8, device=self.device)
        assert bool((large == number).all())

    def moved(self) -> Optional[int]:
        try:
            import stplan
        except ImportError:
            return None
        read: Dict[str, Any] = stplan.stats(self.device.index)
        return None if read["backend"] is None else int(read["moved_bytes"])


def collectives(rank: Rank, number: int) -> None:
    """Every rank's tensors are new in each round."""
    total = sum(range(1, rank.size + 1)) + rank.size * number
    data = rank.full(rank.rank + 1 + number)
    rank.distributed.all_reduce(data)
    rank.demand(data, total, "all_reduce")
    gathered = rank.full(0, WORDS * rank.size)
    rank.distributed.all_gather_into_tensor(gathered, rank.full(rank.rank + number))
    for other in range(rank.size):
        rank.demand(gathered[other * WORDS : (other + 1) * WORDS], other + number, "all_gather")
    received = rank.full(-1)
    right, left = (rank.rank + 1) % rank.size, (rank.rank - 1) % rank.size
    sends = [
        rank.distributed.P2POp(rank.distributed.isend, rank.full(rank.rank + 7 + number), right),
        rank.distributed.P2POp(rank.distributed.irecv, received, left),
    ]
    for work in rank.distributed.batch_isend_irecv(sends):
        work.wait()
    rank.demand(received, left + 7 + number, "send and receive")


class Graphs:
    """A graph of a collective on buffers of the program, not of the graph's pool. It is
    captured anew now and then, after its buffers have been freed."""

    def __init__(self) -> None:
        self.graph: Any = None
        self.buffer: Any = None

    def __call__(self, rank: Rank, number: int) -> None:
        torch = rank.torch
        if number % 4 == 0:
            self.graph = self.buffer = None
            self.buffer = rank.full(0)
            rank.distributed.all_reduce(self.buffer)
            torch.cuda.synchronize()
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                rank.distributed.all_reduce(self.buffer)
        self.buffer.fill_(rank.rank + 1 + number)
        self.graph.replay()
        rank.demand(self.buffer, sum(range(1, rank.size + 1)) + rank.size * number, "all_reduce in a graph")


def ipc(rank: Rank, number: int) -> None:
    """Each rank opens a tensor of its left neighbour by CUDA IPC, reads it and writes into
    it, while both go on to allocate."""
    store = rank.distributed.distributed_c10d._get_default_store()
    left = (rank.rank - 1) % rank.size
    own = rank.full(rank.rank + number)
    rank.torch.cuda.synchronize()
    store.set(f"{number}-{rank.rank}", bytes(ForkingPickler.dumps(own)))
    theirs = pickle.loads(store.get(f"{number}-{left}"))
    rank.churn(number + 1)
    rank.demand(theirs.to(rank.device), left + number, "a tensor of the other process")
    theirs.add_(100)
    rank.torch.cuda.synchronize(theirs.device)
    del theirs
    rank.distributed.barrier()
    rank.demand(own, rank.rank + number + 100, "what the other process wrote")
    del own
    rank.torch.cuda.ipc_collect()


class Pool:
    """A MemPool of NCCL's own allocator, registered with NCCL."""

    def __init__(self) -> None:
        self.pool: Any = None

    def __call__(self, rank: Rank, number: int) -> None:
        backend = rank.backend()
        if self.pool is None:
            self.pool = rank.torch.cuda.MemPool(backend.mem_allocator)
            with rank.torch.cuda.use_mem_pool(self.pool):
                self.data = rank.full(0)
            backend.register_mem_pool(self.pool)
        self.data.fill_(rank.rank + 1 + number)
        rank.distributed.all_reduce(self.data)
        rank.demand(self.data, sum(range(1, rank.size + 1)) + rank.size * number, "all_reduce of registered memory")
        if number == ROUNDS - 1:
            backend.deregister_mem_pool(self.pool)


class Symmetric:
    """torch's symmetric memory: each rank reads the buffer of the other."""

    def __init__(self) -> None:
        self.data: Any = None

    def __call__(self, rank: Rank, number: int) -> None:
        import torch.distributed._symmetric_memory as symmetric

        if self.data is None:
            self.data = symmetric.empty(WORDS, dtype=rank.torch.float32, device=rank.device)
            self.handle = symmetric.rendezvous(self.data, rank.distributed.group.WORLD.group_name)
        self.data.fill_(rank.rank + number)
        self.handle.barrier()
        left = (rank.rank - 1) % rank.size
        theirs = self.handle.get_buffer(left, (WORDS,), rank.torch.float32)
        rank.demand(theirs.to(rank.device), left + number, "symmetric memory of the other rank")
        self.handle.barrier()


Exchange = Callable[[Rank, int], None]

MODES: Dict[str, Callable[[], Exchange]] = {
    "collectives": lambda: collectives,
    "graphs": Graphs,
    "ipc": lambda: ipc,
    "mempool": Pool,
    "symmetric": Symmetric,
}


def main() -> None:
    import torch
    import torch.distributed as distributed

    exchange = MODES[sys.argv[1]]()
    rank = Rank(torch, distributed)
    for number in range(ROUNDS):
        rank.churn(number)
        exchange(rank, number)
    # NCCL's destruction of a communicator waits for the graphs that have its collectives.
    del exchange
    torch.cuda.synchronize()
    distributed.barrier()
    found = {"rank": rank.rank, "rounds": ROUNDS, "moved_bytes": rank.moved()}
    # Printed by one write, since the ranks share their standard output.
    print(f"{json.dumps(found)}\n", end="", flush=True)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
