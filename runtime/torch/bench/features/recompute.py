"""Activation checkpointing with dropout, in both of torch's implementations:
gradients equal those without checkpointing, to the last bit."""

from typing import List, Optional

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from job import adamw, batch, model


def gradients(use_reentrant: Optional[bool]) -> List[torch.Tensor]:
    """The gradients of the fourth step. With None nothing is recomputed."""
    net = model(dropout=0.1)
    optimizer = adamw(net)
    torch.manual_seed(1)
    for step in range(4):
        optimizer.zero_grad()
        inputs = batch(step).requires_grad_()
        x = inputs
        for layer in net:
            x = layer(x) if use_reentrant is None else checkpoint(layer, x, use_reentrant=use_reentrant)
        nn.functional.mse_loss(x, inputs.detach()).backward()
        optimizer.step()
    return [p.grad.clone() for p in net.parameters() if p.grad is not None]


def main() -> None:
    expected = gradients(None)
    assert len(expected) == len(list(model().parameters()))
    for way in (True, False):
        found = gradients(way)
        assert all(torch.equal(a, b) for a, b in zip(expected, found)), f"use_reentrant={way}: other gradients"


if __name__ == "__main__":
    main()
