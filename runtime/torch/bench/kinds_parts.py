"""What jobs of kinds.py and kinds_more.py have in common."""

from __future__ import annotations

import random
from typing import Any, Tuple, Union

import torch

ROWS = 32_000
"""Words that models know, unless completions are to end by themselves: then a few dozen, one of which ends them."""


def length(least: int = 20, most: int = 450) -> int:
    """A random number between two, small ones as often as large ones on a scale of logarithms."""
    return int(least * (most / least) ** random.random())


def llama(layers: int = 10) -> Any:
    from transformers import AutoModelForCausalLM, LlamaConfig

    config = LlamaConfig(
        hidden_size=1024,
        intermediate_size=3072,
        num_hidden_layers=layers,
        num_attention_heads=8,
        num_key_value_heads=8,
        vocab_size=ROWS,
    )
    return AutoModelForCausalLM.from_config(config).cuda()


def loss_of(model: Any, batch: int, tokens: int) -> Any:
    words = torch.randint(0, 30_000, (batch, tokens), device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        return model(input_ids=words, labels=words).loss


def train_step(model: Any, optimizer: torch.optim.Optimizer, batch: int, tokens: int, micro_batches: int = 1) -> None:
    for _ in range(micro_batches):
        (loss_of(model, batch, tokens) / micro_batches).backward()
    optimizer.step()
    optimizer.zero_grad()


@torch.no_grad()
def evaluate(model: Any, batches: int, batch: int, tokens: Union[int, Tuple[int, int]]) -> None:
    """tokens: of each batch, or the least and the most of a random number."""
    model.eval()
    for _ in range(batches):
        loss_of(model, batch, tokens if isinstance(tokens, int) else length(*tokens)).item()
    model.train()
