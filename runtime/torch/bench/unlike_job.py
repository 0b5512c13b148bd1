"""The job of unlike.py: a small language model, trained on four kinds of iterations in turn,
every fourth with an evaluation.

    python unlike_job.py [--steps N]

The environment variable STPLAN_BENCH_UNLIKE says in what way a run differs from what the plan
was made of (WAYS of unlike.py). It is no argument, since a plan is looked up by the arguments; so such
a run finds the plan of another, as it would if a file had changed that the script reads. This
script does not use stplan.
"""

from __future__ import annotations

import argparse
import os
import random
from typing import Any, List, NamedTuple

import torch

from jobs import deterministic, language_model, llama
from steps import Steps
from unlike import BATCH, ENVIRONMENT, ITSELF, LENGTH, MODEL, SHUFFLED

LENGTHS = (1024, 640, 768, 512)
"""Tokens of a sequence in the four kinds of iterations."""

BATCH_SIZE = 8


class Iteration(NamedTuple):
    batch: int
    length: int
    evaluated: bool


def iterations(count: int, way: str) -> List[Iteration]:
    """What a run does. Shuffled, the same iterations come in a random order."""
    batch = BATCH_SIZE * 2 if way == BATCH else BATCH_SIZE
    shorter = 2 if way == LENGTH else 1
    made = [Iteration(batch, LENGTHS[i % 4] // shorter, i % 4 == 3) for i in range(count)]
    if way == SHUFFLED:
        random.Random(1).shuffle(made)
    return made


def model_of(way: str) -> Any:
    from transformers import GPT2Config

    if way == MODEL:
        return language_model(GPT2Config(n_layer=16, n_embd=1280, n_head=20, n_positions=1024, vocab_size=32000, use_cache=False))
    return language_model(llama(1024, 2816, 12, 16, 4))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=24, help="optimizer steps")
    chosen = parser.parse_args()
    way = os.environ.get(ENVIRONMENT, ITSELF)
    deterministic()
    steps = Steps()
    model = model_of(way)
    words = model.config.vocab_size
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for batch, length, evaluated in iterations(chosen.steps, way):
        with steps.step():
            ids = torch.randint(0, words, (batch, length), device="cuda")
            loss = model(input_ids=ids, labels=ids).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        steps.witness(loss.detach())
        del loss
        if evaluated:
            with torch.no_grad():
                steps.witness(model(input_ids=ids, labels=ids).loss)
    steps.end()


if __name__ == "__main__":
    main()
