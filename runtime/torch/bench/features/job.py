"""A small model, its training loop, and a check of patterns that runs on the device. The
other scripts in this folder share them. Run as a script, it only trains.
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
    """A model with the same weights at every call."""
    torch.manual_seed(0)
    return nn.Sequential(*(Block(dropout) for _ in range(LAYERS)), nn.Linear(WIDTH, WIDTH)).cuda()


def adamw(net: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(net.parameters(), lr=1e-4)


def batch(step: int, rows: int = BATCH) -> torch.Tensor:
    """The inputs of a step, which are also its targets."""
    return torch.randn(rows, WIDTH, generator=torch.Generator().manual_seed(step)).cuda()


def loss_of(net: Callable[[torch.Tensor], torch.Tensor], inputs: torch.Tensor) -> torch.Tensor:
    loss: torch.Tensor = nn.functional.mse_loss(net(inputs), inputs)
    return loss


def train(net: Callable[[torch.Tensor], torch.Tensor], optimizer: torch.optim.Optimizer, steps: Sequence[int]) -> List[str]:
    """Trains, and returns the losses of the steps as hexadecimal floats, which
    are exact."""
    losses = []
    for step in steps:
        loss = loss_of(net, batch(step))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return [float(loss.item()).hex() for loss in losses]


def close(losses: Sequence[str], others: Sequence[str]) -> bool:
    """Whether two sequences of losses are equal to 0.1 %."""
    pairs = [(float.fromhex(a), float.fromhex(b)) for a, b in zip(losses, others)]
    return len(losses) == len(others) and all(abs(a - b) <= 1e-3 * abs(a) for a, b in pairs)


class Marks:
    """Fills each tensor with a number of its own, and checks later, on the
    device and in stream order, that every word still has it. If two tensors
    share memory, one of them has wrong words."""

    def __init__(self) -> None:
        self.bad: Dict[int, torch.Tensor] = {}  # a counter for each stream, since streams run in parallel

    def new(self, size: int, mark: int) -> torch.Tensor:
        """A tensor of `size` bytes, rounded down to 8-byte words, with at least
        one word."""
        return torch.full((max(1, size // 8),), mark, dtype=torch.int64, device="cuda")

    def check(self, tensor: torch.Tensor, mark: int) -> None:
        """Counts the tensor's wrong words, on the current stream."""
        stream = torch.cuda.current_stream().cuda_stream
        if stream not in self.bad:
            self.bad[stream] = torch.zeros((), dtype=torch.int64, device="cuda")
        self.bad[stream].add_((tensor != mark).sum())

    def wrong(self) -> int:
        """The number of wrong words found so far, on all streams."""
        torch.cuda.synchronize()
        return sum(int(count.item()) for count in self.bad.values())


def churn(rounds: int = 200) -> None:
    """Allocates and frees tensors of many sizes, filled with -1."""
    held: List[torch.Tensor] = []
    for i in range(rounds):
        held.append(torch.full((1 << (10 + i % 15),), -1, dtype=torch.int8, device="cuda"))
        if len(held) > 20:
            held.pop(i % 20)


if __name__ == "__main__":
    net = model()
    found = train(net, adamw(net), range(8))
    assert float.fromhex(found[-1]) < float.fromhex(found[0]), found
