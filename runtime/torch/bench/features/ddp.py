"""Two ranks of DistributedDataParallel over gloo on one GPU: both end with the
same weights, which are close to those of one process with the whole batch."""

import torch
import torch.distributed as distributed
from torch.nn.parallel import DistributedDataParallel

from job import BATCH, adamw, batch, loss_of, model

STEPS = 8


def main() -> None:
    distributed.init_process_group("gloo")
    rank, ranks = distributed.get_rank(), distributed.get_world_size()
    net = model()
    parallel = DistributedDataParallel(net)
    optimizer = adamw(net)
    alone = model()
    other = adamw(alone)
    for step in range(STEPS):
        whole = batch(step)
        loss_of(parallel, whole[rank * BATCH // ranks : (rank + 1) * BATCH // ranks]).backward()
        loss_of(alone, whole).backward()
        for each in (optimizer, other):
            each.step()
            each.zero_grad()
    weights = torch.cat([p.detach().flatten() for p in net.parameters()]).cpu()
    gathered = [torch.empty_like(weights) for _ in range(ranks)]
    distributed.all_gather(gathered, weights)
    assert all(torch.equal(weights, each) for each in gathered), "the ranks' weights differ"
    expected = torch.cat([p.detach().flatten() for p in alone.parameters()]).cpu()
    assert torch.allclose(weights, expected, atol=2e-5), (weights - expected).abs().max()
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
