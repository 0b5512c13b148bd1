"""torch.compile, in its default mode and with mode="reduce-overhead" (CUDA graph trees):
losses are close to those of eager code."""

import sys
from typing import Optional

import torch
from torch._dynamo.utils import counters
from torch._inductor import cudagraph_trees

from job import adamw, batch, churn, close, loss_of, model, train

STEPS = range(8)


def compiled(mode: Optional[str]) -> "list[str]":
    net = model()
    optimizer = adamw(net)
    fast = torch.compile(net, mode=mode)
    losses = []
    for step in STEPS:
        torch.compiler.cudagraph_mark_step_begin()
        loss = loss_of(fast, batch(step))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.item()).hex())
        churn(rounds=30)
        if step % 2:
            with torch.no_grad():
                fast(batch(step))  # another graph between the steps, without a backward pass
    return losses


def main() -> None:
    mode = sys.argv[1] if len(sys.argv) > 1 else None
    net = model()
    eager = train(net, adamw(net), STEPS)
    del net
    found = compiled(mode)
    assert close(eager, found), f"compiled: {found}, eager: {eager}"
    if mode == "reduce-overhead":
        manager = cudagraph_trees.get_manager(torch.cuda.current_device(), create_if_none_exists=False)
        assert manager is not None and manager.new_graph_id().id > 2, "no CUDA graph was captured"
        assert counters["inductor"]["cudagraph_skips"] == 0, "CUDA graphs were skipped"


if __name__ == "__main__":
    main()
