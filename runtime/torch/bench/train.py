"""A small training job, in several modes that differ for a recorder.

    python train.py MODE [--steps N]

Prints each step's loss to the last bit, and the median time of a step. This
script does not use stplan.
"""

from __future__ import annotations

import argparse
import itertools
import os
import pickle
import statistics
import time
from typing import Any, Callable, Iterator, List

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch
from torch import nn

WIDTH, LAYERS, LENGTH, BATCH, WORDS = 512, 6, 256, 16, 8192


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 8, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        logits = self.head(self.layers(self.embed(ids)))
        return nn.functional.cross_entropy(logits.flatten(0, 1), ids.flatten())


class Words(torch.utils.data.Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 64 * BATCH

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.randint(0, WORDS, (LENGTH,), generator=torch.Generator().manual_seed(index))


def batches(workers: int) -> Iterator[torch.Tensor]:
    loader = torch.utils.data.DataLoader(Words(), BATCH, num_workers=workers, pin_memory=workers > 0)
    for batch in itertools.chain.from_iterable(itertools.repeat(loader)):
        yield batch.cuda(non_blocking=True)


def train(model: nn.Module, optimizers: List[torch.optim.Optimizer], steps: int, workers: int = 0) -> None:
    losses, times = [], []
    for batch in itertools.islice(batches(workers), steps):
        begin = time.perf_counter()
        loss = model(batch)
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss.detach())
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    print("losses", *(loss.item().hex() for loss in losses))
    print("median_ms", f"{1000 * statistics.median(times[len(times) // 2:]):.3f}", flush=True)


def adamw(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-4)


def plain(steps: int) -> None:
    model = Model().cuda()
    train(model, [adamw(model)], steps)


def byhand(steps: int) -> None:
    """Records itself with torch's functions, up to the fourth step."""
    torch.cuda.init()
    torch.cuda.memory._record_memory_history(context=None, stacks="python")
    model = Model().cuda()
    train(model, [Dumping(adamw(model), 4)], steps)


class Dumping:
    def __init__(self, optimizer: torch.optim.Optimizer, at: int) -> None:
        self.optimizer, self.left = optimizer, at
        self.zero_grad = optimizer.zero_grad

    def step(self) -> None:
        self.optimizer.step()
        self.left -= 1
        if self.left == 0:
            with open(os.environ["BY_HAND"], "wb") as out:
                pickle.dump(torch.cuda.memory._snapshot(), out)
            torch.cuda.memory._record_memory_history(enabled=None)


def two_optimizers(steps: int) -> None:
    model = Model().cuda()
    halves = [list(model.layers.parameters()), [*model.embed.parameters(), *model.head.parameters()]]
    train(model, [torch.optim.AdamW(half, lr=1e-4) for half in halves], steps)


def workers(steps: int) -> None:
    model = Model().cuda()
    train(model, [adamw(model)], steps, workers=4)


def compiled(steps: int) -> None:
    model = Model().cuda()
    train(torch.compile(model), [adamw(model)], steps)


def compiled_step(steps: int) -> None:
    """The optimizer's step is compiled, so it cannot be counted."""
    model = Model().cuda()
    optimizer = adamw(model)
    optimizer.step = torch.compile(optimizer.step)  # type: ignore[method-assign]
    train(model, [optimizer], steps)


def graphs(steps: int) -> None:
    """The forward and backward passes replay CUDA graphs."""
    model = Model().cuda()
    sample = torch.zeros(BATCH, LENGTH, dtype=torch.long, device="cuda")
    train(torch.cuda.make_graphed_callables(model, (sample,)), [adamw(model)], steps)


def ddp(steps: int) -> None:
    """All ranks use the same GPU."""
    torch.distributed.init_process_group("gloo")
    model = Model().cuda()
    train(nn.parallel.DistributedDataParallel(model), [adamw(model)], steps)
    torch.distributed.destroy_process_group()


def oom(steps: int) -> None:
    """Dies of torch.OutOfMemoryError after two steps."""
    model = Model().cuda()
    train(model, [adamw(model)], 2)
    torch.empty(1 << 45, dtype=torch.uint8, device="cuda")


def oom_survived(steps: int) -> None:
    model = Model().cuda()
    optimizer = adamw(model)
    train(model, [optimizer], 2)
    try:
        torch.empty(1 << 45, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError:
        print("survived")
    train(model, [optimizer], steps - 2)


def terminated(steps: int) -> None:
    """Gets SIGTERM after two steps, as from a scheduler."""
    model = Model().cuda()
    train(model, [adamw(model)], 2)
    os.kill(os.getpid(), 15)
    time.sleep(60)


def quick_exit(steps: int) -> None:
    model = Model().cuda()
    train(model, [adamw(model)], 2)
    os._exit(5)


def cpu_only(steps: int) -> None:
    model = nn.Linear(4, 4)
    optimizer = adamw(model)
    for _ in range(steps):
        model(torch.ones(4)).sum().backward()
        optimizer.step()


def trainer(steps: int) -> None:
    """Hugging Face's Trainer, with a checkpoint saved between steps."""
    import tempfile

    import transformers

    config = transformers.GPT2Config(n_layer=4, n_embd=256, n_head=4, vocab_size=WORDS)
    with tempfile.TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(
            folder, max_steps=steps, per_device_train_batch_size=BATCH, save_steps=2, report_to=[], disable_tqdm=True
        )
        rows: List[Any] = [{"input_ids": ids, "labels": ids} for ids in (Words()[i] for i in range(64))]
        transformers.Trainer(transformers.GPT2LMHeadModel(config), arguments, train_dataset=rows).train()


MODES: List[Callable[[int], None]] = [
    plain, byhand, two_optimizers, workers, compiled, compiled_step, graphs, ddp, oom, oom_survived, terminated, quick_exit, cpu_only, trainer,
]

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", choices=[mode.__name__ for mode in MODES])
    parser.add_argument("--steps", type=int, default=12, help="optimizer steps")
    chosen = parser.parse_args()
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cuda.enable_mem_efficient_sdp(False)  # its backward adds in any order
    next(mode for mode in MODES if mode.__name__ == chosen.mode)(chosen.steps)
