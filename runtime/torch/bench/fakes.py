"""Data for ranks whose peers are a fake process group. The fake group sends nothing: the
receiver's memory keeps old values, so results would differ from run to run."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed


def pipeline_peers(p2p: Any) -> None:
    """Replaces functions of Megatron-LM's p2p_communication: what other stages would send
    is drawn from a random generator of its own."""
    generator = torch.Generator("cuda").manual_seed(1)

    def filled(operations: Any) -> Any:
        def run(**tensors: Any) -> Any:
            requests = operations(**tensors)
            for name in ("tensor_recv_prev", "tensor_recv_next"):
                if tensors[name] is not None:
                    with torch.no_grad():
                        tensors[name].normal_(0, 0.02, generator=generator)
            return requests

        return run

    for name in ("_batched_p2p_ops", "_p2p_ops"):
        setattr(p2p, name, filled(getattr(p2p, name)))


def sharded_peers() -> None:
    """Replaces reduce_scatter_tensor: the result is this rank's part of its own input, as
    the mean is if all ranks have the same gradients. This rank has to be the first."""
    reduce_scatter = torch.distributed.reduce_scatter_tensor

    def run(output: torch.Tensor, input: torch.Tensor, *positional: Any, **named: Any) -> Any:
        work = reduce_scatter(output, input, *positional, **named)
        output.view(-1).copy_(input.view(-1)[: output.numel()])
        return work

    torch.distributed.reduce_scatter_tensor = run
