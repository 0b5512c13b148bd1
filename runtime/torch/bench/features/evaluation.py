"""Evaluation between the steps, with other batch sizes, does not change the losses."""

from typing import List

import torch

from job import adamw, batch, loss_of, model, train


def main() -> None:
    net = model()
    alone = train(net, adamw(net), range(10))

    net = model()
    optimizer = adamw(net)
    found: List[str] = []
    evaluated: List[float] = []
    for step in range(10):
        found += train(net, optimizer, [step])
        if step % 2:
            net.eval()
            with torch.no_grad():
                losses = [loss_of(net, batch(1000 + i, rows=100 + 300 * i)) for i in range(4)]
            evaluated.append(torch.stack(losses).mean().item())
            net.train()
    assert found == alone, f"with evaluation: {found}, without: {alone}"
    assert evaluated == sorted(evaluated, reverse=True), f"evaluation does not get better: {evaluated}"


if __name__ == "__main__":
    main()
