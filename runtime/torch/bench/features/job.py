"""A small model, its training loop, and a pattern check that runs on the device:
what the scripts beside this one share. Run by itself it only trains.
"""

from __future__ import annotations

import os
from typing import Callable, Dict, List, Sequence

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch
from torch import nn

WIDTH, LAYERS, BATCH = 1024, 4, 512

torch.use_deterministic_algorithms(True)


class Block(nn.Module):
    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = x + self.dropout(self.down(nn.functional.gelu(self.up(self.norm(x)))))
        return y


def model(dropout: float = 0.0) -> nn.Sequential:
    """The same weights at every call."""
    torch.manual_seed(0)
    return nn.Sequential(*(Block(dropout) for _ in range(LAYERS)), nn.Linear(WIDTH, WIDTH)).cuda()


def adamw(net: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(net.parameters(), lr=1e-4)


def batch(step: int, rows: int = BATCH) -> torch.Tensor:
    """The inputs of a step, which are its targets too."""
    return torch.randn(rows, WIDTH, generator=torch.Generator().manual_seed(step)).cuda()


def loss_of(net: Callable[[torch.Tensor], torch.Tensor], inputs: torch.Tensor) -> torch.Tensor:
    loss: torch.Tensor = nn.functional.mse_loss(net(inputs), inputs)
    return loss


def train(net: Callable[[torch.Tensor], torch.Tensor], optimizer: torch.optim.Optimizer, steps: Sequence[int]) -> List[str]:
    """The losses of the steps, to the last bit."""
    losses = []
    for step in steps:
        loss = loss_of(net, batch(step))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return [float(loss.item()).hex() for loss in losses]


def close(losses: Sequence[str], others: Sequence[str]) -> bool:
    """Whether the losses of two ways to compute the same are equal to 0.1 %."""
    pairs = [(float.fromhex(a), float.fromhex(b)) for a, b in zip(losses, others)]
    return len(losses) == len(others) and all(abs(a - b) <= 1e-3 * abs(a) for a, b in pairs)


class Marks:
    """Fills tensors with a number of their own and looks, on the device and in
    stream order, whether it is still there. Memory that two tensors share is seen
    as values that are not the tensor's."""

    def __init__(self) -> None:
        self.bad: Dict[int, torch.Tensor] = {}  # by stream: two streams must not add to one

    def new(self, size: int, mark: int) -> torch.Tensor:
        """A tensor of so many bytes, in whole 8-byte words, at least one."""
        return torch.full((max(1, size // 8),), mark, dtype=torch.int64, device="cuda")

    def check(self, tensor: torch.Tensor, mark: int) -> None:
        """Counts wrong words, on the current stream."""
        stream = torch.cuda.current_stream().cuda_stream
        if stream not in self.bad:
            self.bad[stream] = torch.zeros((), dtype=torch.int64, device="cuda")
        self.bad[stream].add_((tensor != mark).sum())

    def wrong(self) -> int:
        """Wrong words seen so far, on any stream."""
        torch.cuda.synchronize()
        return sum(int(count.item()) for count in self.bad.values())


def churn(rounds: int = 200) -> None:
    """Allocates and frees many sizes, all of them filled with what is not zero."""
    held: List[torch.Tensor] = []
    for i in range(rounds):
        held.append(torch.full((1 << (10 + i % 15),), -1, dtype=torch.int8, device="cuda"))
        if len(held) > 20:
            held.pop(i % 20)


if __name__ == "__main__":
    net = model()
    found = train(net, adamw(net), range(8))
    assert float.fromhex(found[-1]) < float.fromhex(found[0]), found
