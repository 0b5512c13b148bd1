"""Convolutions with cudnn.benchmark, which asks the allocator how large a
workspace may be: losses are close to those without it."""

import torch
from torch import nn

from job import close

STEPS = 8


def losses(benchmark: bool) -> "list[str]":
    torch.backends.cudnn.benchmark = benchmark
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 64, 7, 2, 3), nn.BatchNorm2d(64), nn.ReLU(), nn.Conv2d(64, 128, 3, 2, 1), nn.BatchNorm2d(128), nn.ReLU(),
        nn.Conv2d(128, 128, 3, 1, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10),
    ).cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    found = []
    for step in range(STEPS):
        # Three image sizes: cudnn benchmarks each of them.
        size = 96 + 32 * (step % 3)
        images = torch.randn(32, 3, size, size, generator=torch.Generator().manual_seed(step)).cuda()
        loss = nn.functional.cross_entropy(net(images), torch.arange(32, device="cuda") % 10)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        found.append(float(loss.item()).hex())
    return found


def main() -> None:
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.use_deterministic_algorithms(False)
    torch.backends.cudnn.deterministic = False
    plain, benchmarked = losses(False), losses(True)
    assert close(plain, benchmarked), f"benchmark: {benchmarked}, without: {plain}"


if __name__ == "__main__":
    main()
