"""The training jobs that serve.py and real.py measure.

    python jobs.py NAME [--steps N]
    torchrun --nproc-per-node 4 jobs.py NAME-real [--steps N]

Models have random weights and the data are random, so nothing is downloaded. Kernels are
deterministic: two runs have equal losses, to the last bit. If turns.py's conductor has
started the job, its steps take turns with those of others. This script does not use
stplan.

Each job is a function that imports what it needs, which requires no device, and returns a
function that builds the model. That one returns the training step.
"""

from __future__ import annotations

import argparse
import os
import random
from typing import Any, Callable, Dict, List, Optional

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
os.environ.setdefault("NCCL_ALGO", "Ring")

import torch
from torch import nn

import fakes
from steps import Steps

Step = Callable[[], List[torch.Tensor]]
"""One optimizer step; returns the losses of its micro-batches."""

Build = Callable[[], Step]

WORDS = 32000


def text_step(
    model: Any,
    optimizer: torch.optim.Optimizer,
    batch: int,
    length: int,
    micro_batches: int = 1,
    words: int = WORDS,
    shortest: Optional[int] = None,
    clip: bool = True,
    full: Optional[int] = None,
) -> Step:
    """A step that trains on random tokens: `batch` sequences of `length` tokens
    at a time. If `shortest` is given, each micro-batch has a random length from
    that to `length`, but those of step number `full`, from 1, have `length`."""
    number = 0

    def step() -> List[torch.Tensor]:
        nonlocal number
        number += 1
        losses = []
        for _ in range(micro_batches):
            tokens = length if shortest is None or number == full else random.randint(shortest, length)
            ids = torch.randint(0, words, (batch, tokens), device="cuda")
            loss = model(input_ids=ids, labels=ids).loss / micro_batches
            loss.backward()
            losses.append(loss.detach())
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return losses

    return step


def language_model(config: Any, checkpoint: bool = False, **options: Any) -> Any:
    """A model of Hugging Face's transformers in bfloat16, made on the device."""
    from transformers import AutoModelForCausalLM

    with torch.device("cuda"):
        torch.set_default_dtype(torch.bfloat16)
        model = AutoModelForCausalLM.from_config(config, **options)
        torch.set_default_dtype(torch.float32)
    if checkpoint:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return model.train()


def gpt2_xl(batch: int, checkpoint: bool) -> Build:
    from transformers import GPT2Config, GPT2LMHeadModel  # noqa: F401

    config = GPT2Config(n_layer=48, n_embd=1600, n_head=25, n_positions=2048, use_cache=False)

    def build() -> Step:
        model = language_model(config, checkpoint)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=False)
        return text_step(model, optimizer, batch, 1024, words=config.vocab_size)

    return build


def llama(width: int, inner: int, layers: int, heads: int, key_heads: int) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM  # noqa: F401

    return LlamaConfig(
        hidden_size=width,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=key_heads,
        vocab_size=WORDS,
        max_position_embeddings=8192,
        use_cache=False,
    )


def llama_1b() -> Build:
    config = llama(2048, 5632, 16, 16, 4)

    def build() -> Step:
        model = language_model(config, checkpoint=True)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
        return text_step(model, optimizer, 8, 2048, micro_batches=4)

    return build


def lora_7b() -> Build:
    from peft import LoraConfig, get_peft_model

    config = llama(4096, 11008, 32, 32, 32)
    adapters = LoraConfig(r=16, target_modules=["q_proj", "k_proj", "v_proj", "o_proj"])

    def build() -> Step:
        model = language_model(config, checkpoint=True)
        model.enable_input_require_grads()
        model = get_peft_model(model, adapters)
        trained = [p for p in model.parameters() if p.requires_grad]
        optimizer = torch.optim.AdamW(trained, lr=1e-4)
        return text_step(model, optimizer, 4, 2048, shortest=256)

    return build


def lora_1b() -> Build:
    """For runs of many steps. The longest text comes in the ninth step, so that what is
    allocated at most does not grow after it."""
    from peft import LoraConfig, get_peft_model

    config = llama(2048, 5632, 16, 16, 4)
    adapters = LoraConfig(r=16, target_modules=["q_proj", "k_proj", "v_proj", "o_proj"])

    def build() -> Step:
        model = get_peft_model(language_model(config), adapters)
        trained = [p for p in model.parameters() if p.requires_grad]
        optimizer = torch.optim.AdamW(trained, lr=1e-4)
        return text_step(model, optimizer, 2, 2048, shortest=128, full=9)

    return build


def fsdp2_3b(batch: int, fake: bool) -> Build:
    """With fake, one of 8 ranks; the others are a fake process group. Otherwise
    one of the ranks that a launcher started. If these are fewer than four, the
    model has fewer layers, so that a rank needs about the same memory."""
    import torch.distributed
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    from torch.testing._internal.distributed.fake_pg import FakeStore

    config = llama(3072, 8192, 28, 24, 8)

    def build() -> Step:
        if fake:
            torch.distributed.init_process_group("fake", rank=0, world_size=8, store=FakeStore())
            fakes.sharded_peers()
        else:
            torch.distributed.init_process_group("nccl")
            config.num_hidden_layers = min(28, 7 * torch.distributed.get_world_size())
        model = language_model(config).float()
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        for layer in model.model.layers:
            fully_shard(layer, mp_policy=policy)
        fully_shard(model, mp_policy=policy)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=True)
        return text_step(model, optimizer, batch, 2048, micro_batches=2, clip=False)

    return build


def qwen3_moe() -> Build:
    """Experts compute one after the other. Each expert's number of tokens
    changes from step to step, and with it the sizes of the allocations."""
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM  # noqa: F401

    config = Qwen3MoeConfig(
        hidden_size=2048,
        intermediate_size=4096,
        moe_intermediate_size=768,
        num_hidden_layers=16,
        num_attention_heads=16,
        num_key_value_heads=4,
        head_dim=128,
        num_experts=32,
        num_experts_per_tok=4,
        vocab_size=WORDS,
        use_cache=False,
    )

    def build() -> Step:
        model = language_model(config, experts_implementation="eager")
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
        return text_step(model, optimizer, 4, 2048)

    return build


def resnet50() -> Build:
    from torchvision.models import resnet50

    def build() -> Step:
        model = resnet50().to("cuda", memory_format=torch.channels_last)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

        def step() -> List[torch.Tensor]:
            images = torch.randn(256, 3, 224, 224, device="cuda").to(memory_format=torch.channels_last)
            labels = torch.randint(0, 1000, (256,), device="cuda")
            with torch.autocast("cuda", torch.bfloat16):
                loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return [loss.detach()]

        return step

    return build


JOBS: Dict[str, Callable[[], Build]] = {
    "gpt2-xl-naive": lambda: gpt2_xl(batch=6, checkpoint=False),
    "gpt2-xl-ckpt": lambda: gpt2_xl(batch=16, checkpoint=True),
    "llama-1b-ckpt-accum4": llama_1b,
    "llama-7b-lora-varlen": lora_7b,
    "llama-1b-lora-varlen": lora_1b,
    "llama-3b-fsdp2-world8": lambda: fsdp2_3b(batch=4, fake=True),
    "llama-3b-fsdp2-real": lambda: fsdp2_3b(batch=2, fake=False),
    "qwen3-moe-eager": qwen3_moe,
    "resnet50": resnet50,
}


def deterministic(warn_only: bool = False) -> None:
    """Seeds everything and chooses kernels that always add in one order."""
    torch.manual_seed(0)
    random.seed(0)
    torch.use_deterministic_algorithms(True, warn_only=warn_only)
    # Uninitialised memory is not filled, so that a kernel that reads it changes
    # the losses.
    torch.utils.deterministic.fill_uninitialized_memory = False
    # The backward of these two adds in any order.
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    torch.backends.cuda.enable_cudnn_sdp(False)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=sorted(JOBS))
    parser.add_argument("--steps", type=int, default=20, help="optimizer steps")
    chosen = parser.parse_args()
    # warn_only would let flash attention's backward add in any order. resnet50 needs
    # warn_only, since the backward of pooling has no deterministic kernel.
    deterministic(warn_only=chosen.name == "resnet50")
    build = JOBS[chosen.name]()
    steps = Steps()
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    step = build()
    for _ in range(chosen.steps):
        with steps.step():
            losses = step()
        steps.witness(*losses)
        del losses
    steps.end()
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
