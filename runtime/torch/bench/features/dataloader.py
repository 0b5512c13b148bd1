"""DataLoader workers forked from a process that uses CUDA, pinned memory and asynchronous
copies: every batch arrives undamaged."""

import torch
from torch.utils.data import DataLoader, Dataset

from job import WIDTH, adamw, loss_of, model

ROWS, WORKERS, BATCH = 2048, 4, 128


class Rows(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.arange(index, index + WIDTH, dtype=torch.float32)


def main() -> None:
    net = model()
    optimizer = adamw(net)
    offsets = torch.arange(WIDTH, dtype=torch.float32, device="cuda")
    for epoch in range(2):
        loader = DataLoader(Rows(), BATCH, num_workers=WORKERS, pin_memory=True, multiprocessing_context="fork")
        seen = 0
        for number, batch in enumerate(loader):
            assert batch.is_pinned(), f"epoch {epoch}, batch {number} is not pinned"
            rows = batch.cuda(non_blocking=True)
            first = torch.arange(number * BATCH, number * BATCH + len(rows), dtype=torch.float32, device="cuda")
            assert torch.equal(rows, first[:, None] + offsets), f"epoch {epoch}, batch {number} is damaged"
            loss_of(net, rows / ROWS).backward()
            optimizer.step()
            optimizer.zero_grad()
            seen += len(rows)
        assert seen == ROWS, f"epoch {epoch}: {seen} rows of {ROWS}"


if __name__ == "__main__":
    main()
