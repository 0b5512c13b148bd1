"""Training jobs whose loops are other people's: TRL's GRPO and SFT trainers, and diffusers'
UNet. Their sizes vary from step to step. For first_runs.py:

    python trainers.py grpo|sft|sd [--steps N] [--batch N]

- grpo: reinforcement learning in one process, which generates completions and trains on them.
- sft: fine-tuning with LoRA on texts of 20 to 450 words, with evaluation and checkpoints.
- sd: a UNet that is trained on images of many aspect ratios, with an average of its weights.

Models have random weights and the data are random. Kernels are deterministic. A step is from
the trainer's on_step_begin to its on_step_end, so what is done between steps, for example
evaluation, is not timed. This script does not use stplan. Needs torch, transformers and, for
each job, trl and datasets, those and peft, or diffusers.

With --gate it imports, builds the model and the data on the host, prints a line, and waits for
a line with more arguments on standard input before it uses the device. They become arguments
of the process as if they had been given to it at the start.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
from contextlib import ExitStack
from typing import Any, Callable, Dict, List, NamedTuple

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch

from jobs import deterministic
from steps import Steps

WORDS = "alpha beta gamma delta kernel stride buffer warp grid cache fetch store lane block sync fuse".split()

WORDS_OF_MODEL = 32_000
"""Rows of the embedding if none are given. The tokenizer knows fewer, but generation draws from all."""


def tokenizer(rows: int) -> Any:
    """One token for each word, also for those that only a model with random weights writes."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    special = ["<unk>", "<pad>", "<s>", "</s>"]
    names = special + WORDS
    names += [f"w{i}" for i in range(len(names), rows)]
    words = Tokenizer(models.WordLevel({name: i for i, name in enumerate(names)}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=words, unk_token="<unk>", pad_token="<pad>", bos_token="<s>", eos_token="</s>")


def text(count: int) -> str:
    return " ".join(random.choices(WORDS, k=count))


def causal_model(config: Any) -> Any:
    from transformers import AutoModelForCausalLM

    torch.set_default_dtype(torch.bfloat16)
    model = AutoModelForCausalLM.from_config(config)
    torch.set_default_dtype(torch.float32)
    return model


def timed_by(steps: Steps) -> Any:
    """A callback of transformers' Trainer that times its steps and keeps losses."""
    from transformers import TrainerCallback

    class Timed(TrainerCallback):
        def __init__(self) -> None:
            self.step = ExitStack()

        def on_step_begin(self, *_: Any, **__: Any) -> None:
            self.step.enter_context(steps.step())

        def on_step_end(self, *_: Any, **__: Any) -> None:
            self.step.close()

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            steps.witness(*(logs.get(name) for name in ("loss", "grad_norm", "eval_loss")))

    return Timed()


def common(folder: str, count: int, batch: int) -> Dict[str, Any]:
    """Arguments of both trainers."""
    return dict(
        output_dir=folder,
        max_steps=count,
        per_device_train_batch_size=batch,
        logging_steps=1,
        bf16=torch.cuda.is_available(),
        gradient_checkpointing=True,
        report_to=[],
        seed=1,
    )


class Shape(NamedTuple):
    """What can be chosen of a job. A number of 0 leaves the job's own."""

    layers: int = 0
    generations: int = 0
    completion: int = 0
    words: int = WORDS_OF_MODEL


Train = Callable[[Steps, int, int], None]
"""Trains a number of steps with a batch size."""


def grpo(shape: Shape) -> Train:
    from datasets import Dataset
    from transformers import Qwen2Config
    from trl import GRPOConfig, GRPOTrainer

    config = Qwen2Config(
        hidden_size=1536,
        intermediate_size=8960,
        num_hidden_layers=shape.layers or 16,
        num_attention_heads=12,
        num_key_value_heads=2,
        vocab_size=shape.words,
    )
    prompts = Dataset.from_list([{"prompt": text(random.randint(8, 200))} for _ in range(2000)])
    model = causal_model(config)

    def reward(completions: List[str], **_: Any) -> List[float]:
        return [float(len(completion) % 7) for completion in completions]

    def train(steps: Steps, count: int, batch: int) -> None:
        with tempfile.TemporaryDirectory() as folder:
            options = GRPOConfig(
                **common(folder, count, batch),
                num_generations=shape.generations or 8,
                max_completion_length=shape.completion or 64,
                save_strategy="no",
            )
            GRPOTrainer(
                model=model,
                reward_funcs=reward,
                args=options,
                train_dataset=prompts,
                processing_class=tokenizer(shape.words),
                callbacks=[timed_by(steps)],
            ).train()

    return train


def sft(shape: Shape) -> Train:
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import LlamaConfig
    from trl import SFTConfig, SFTTrainer

    config = LlamaConfig(
        hidden_size=2048,
        intermediate_size=5632,
        num_hidden_layers=shape.layers or 20,
        num_attention_heads=16,
        num_key_value_heads=4,
        vocab_size=shape.words,
        max_position_embeddings=8192,
    )

    def texts(rows: int) -> Dataset:
        return Dataset.from_list([{"text": text(int(20 * 22.5 ** random.random()))} for _ in range(rows)])

    model, trained, evaluated = causal_model(config), texts(2000), texts(32)

    def train(steps: Steps, count: int, batch: int) -> None:
        with tempfile.TemporaryDirectory() as folder:
            options = SFTConfig(
                **common(folder, count, batch),
                gradient_accumulation_steps=2,
                max_length=2048,
                packing=False,
                save_steps=20,
                save_total_limit=1,
                eval_strategy="steps",
                eval_steps=10,
                per_device_eval_batch_size=batch,
                learning_rate=1e-4,
            )
            SFTTrainer(
                model=model,
                args=options,
                train_dataset=trained,
                eval_dataset=evaluated,
                processing_class=tokenizer(shape.words),
                peft_config=LoraConfig(r=16, target_modules=["q_proj", "k_proj", "v_proj", "o_proj"]),
                callbacks=[timed_by(steps)],
            ).train()

    return train


SHAPES = ((64, 64), (80, 48), (48, 80), (72, 56), (56, 72), (96, 40), (40, 96))
"""Height and width of the latent images, in pixels: multiples of 8, of nearly equal area."""


def sd(shape: Shape) -> Train:
    from diffusers import UNet2DConditionModel
    from diffusers.training_utils import EMAModel

    def train(steps: Steps, count: int, batch: int) -> None:
        model = UNet2DConditionModel(sample_size=64, cross_attention_dim=768, block_out_channels=(320, 640, 1280, 1280)).cuda()
        average = EMAModel(model.parameters())
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
        for _ in range(count):
            with steps.step():
                height, width = random.choice(SHAPES)
                images = torch.randn(batch, 4, height, width, device="cuda")
                words = torch.randn(batch, random.choice((77, 154, 231)), 768, device="cuda")
                noise = torch.randint(0, 1000, (batch,), device="cuda")
                with torch.autocast("cuda", torch.bfloat16):
                    loss = model(images, noise, words).sample.float().square().mean()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
                average.step(model.parameters())
            steps.witness(loss)

    return train


JOBS: Dict[str, Callable[[Shape], Train]] = {"grpo": grpo, "sft": sft, "sd": sd}
"""Each imports what it needs and makes the data, and the model on the host, which needs no device."""

BATCHES = {"grpo": 16, "sft": 8, "sd": 6}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=sorted(JOBS))
    parser.add_argument("--steps", type=int, default=20, help="optimizer steps")
    parser.add_argument("--batch", type=int, help=f"sequences or images in a micro-batch, {BATCHES} if not given")
    parser.add_argument("--layers", type=int, default=0, help="of the language model, 16 (grpo) or 20 (sft) if not given")
    parser.add_argument("--generations", type=int, default=0, help="grpo: completions of a prompt, 8 if not given")
    parser.add_argument("--completion", type=int, default=0, help="grpo: tokens of a completion at most, 64 if not given")
    parser.add_argument(
        "--words",
        type=int,
        default=WORDS_OF_MODEL,
        help="that the language model knows (%(default)s). It draws from all alike, and one of them ends a completion, so with 32 "
        "completions end after 32 tokens on average, if --completion does not end them before",
    )
    parser.add_argument("--seed", type=int, default=0, help="of the texts, and of the shapes of images")
    parser.add_argument("--gate", action="store_true", help="wait for more arguments on standard input before the device is used")
    return parser.parse_args()


def main() -> None:
    chosen = arguments()
    # warn_only: some kernels of the loss and of generation have no deterministic form.
    deterministic(warn_only=True)
    random.seed(chosen.seed)
    train = JOBS[chosen.name](Shape(chosen.layers, chosen.generations, chosen.completion, chosen.words))
    if chosen.gate:
        print("ready", flush=True)
        # A plan is looked up by the arguments that the process has when it first uses the device.
        sys.argv += sys.stdin.readline().split()
        chosen = arguments()
    steps = Steps()
    train(steps, chosen.steps, chosen.batch or BATCHES[chosen.name])
    steps.end()


if __name__ == "__main__":
    main()
