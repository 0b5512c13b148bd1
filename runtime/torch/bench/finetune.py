"""Full fine-tuning of a language model of 1.5 billion parameters with Hugging
Face's eager code, with the usual options that reduce memory.

    python finetune.py --micro 2 --recomputed 48

With any options it trains on the same sequences in each optimizer step. Prints
one line of JSON: losses, the median time of the later steps, and torch's memory
statistics. This script does not use stplan.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from typing import Any, List

import torch
import transformers

LENGTH = 1024

MODELS = {
    "gpt2-xl": lambda: transformers.GPT2Config(
        n_layer=48, n_embd=1600, n_head=25, use_cache=False, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0),
    "qwen2-1.5b": lambda: transformers.Qwen2Config(
        hidden_size=1536, intermediate_size=8960, num_hidden_layers=28, num_attention_heads=12, num_key_value_heads=2,
        vocab_size=151936, max_position_embeddings=LENGTH, tie_word_embeddings=True, use_cache=False),
    "llama-1b": lambda: transformers.LlamaConfig(
        hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32, num_key_value_heads=8,
        vocab_size=128256, max_position_embeddings=LENGTH, tie_word_embeddings=True, use_cache=False),
}


def build(name: str, recomputed: int) -> Any:
    """The model in bf16 with random weights. Its first `recomputed` layers are
    recomputed in the backward pass."""
    with torch.device("cuda"):
        torch.set_default_dtype(torch.bfloat16)
        model = transformers.AutoModelForCausalLM.from_config(MODELS[name]())
        torch.set_default_dtype(torch.float32)
    if recomputed:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        layers = [m for m in model.modules() if isinstance(m, transformers.modeling_layers.GradientCheckpointingLayer)]
        for layer in layers[recomputed:]:
            layer.gradient_checkpointing = False
    return model.train()


def step(model: Any, optimizer: torch.optim.Optimizer, words: torch.Tensor, micro: int) -> List[torch.Tensor]:
    losses = []
    for part in words.split(micro):
        ids = part.cuda()
        loss = model(input_ids=ids, labels=ids).loss * (len(part) / len(words))
        loss.backward()
        losses.append(loss.detach())
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    return losses


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=MODELS, default="gpt2-xl")
    parser.add_argument("--sequences", type=int, default=4, help="sequences in an optimizer step")
    parser.add_argument("--micro", type=int, default=2, help="sequences in a micro-batch")
    parser.add_argument("--recomputed", type=int, default=0, help="layers that are recomputed in the backward pass")
    parser.add_argument("--release", action="store_true", help="empty torch's cache before each optimizer step")
    parser.add_argument("--steps", type=int, default=8, help="optimizer steps")
    parser.add_argument("--gate", action="store_true", help="wait for a line with more arguments on standard input before using the GPU")
    chosen = parser.parse_args()
    if chosen.gate:
        print("ready", flush=True)
        chosen = parser.parse_args(sys.stdin.readline().split(), chosen)
    torch.manual_seed(0)
    model = build(chosen.model, chosen.recomputed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    if chosen.release:
        optimizer.register_step_pre_hook(lambda *_: torch.cuda.empty_cache())
    times, losses = [], []
    for number in range(chosen.steps):
        generator = torch.Generator().manual_seed(number)
        words = torch.randint(0, model.config.vocab_size, (chosen.sequences, LENGTH), generator=generator)
        begin = time.perf_counter()
        losses.append(torch.stack(step(model, optimizer, words, chosen.micro)).sum())
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    free, _ = torch.cuda.mem_get_info()
    stats = torch.cuda.memory_stats()
    print(json.dumps({
        "losses": [loss.item() for loss in losses],
        "step_s": statistics.median(times[len(times) // 2:]),
        "steps_s": [round(t, 4) for t in times],
        "free_bytes": free,
        "peak_allocated_bytes": torch.cuda.max_memory_allocated(),
        "peak_reserved_bytes": torch.cuda.max_memory_reserved(),
        "retries": stats["num_alloc_retries"],
    }), flush=True)


if __name__ == "__main__":
    main()
