"""Training jobs of many kinds, for recordings: what people do besides training one model on batches
of one size. Each does something that the others do not.

    stplan record --steps 0 --stacks none -- python runtime/torch/bench/kinds.py NAME [--steps N]
    python runtime/torch/bench/first_runs.py bin/stplan --jobs "NAME=python runtime/torch/bench/kinds.py NAME --figures"

Models have random weights and are small, 2 to 13 GB allocated, and the data are random. This
script does not use stplan. Needs torch and one CUDA device, most jobs transformers, and those
of trl or diffusers these, with datasets and peft.
"""

from __future__ import annotations

import argparse
import functools
import os
import random
import tempfile
from contextlib import ExitStack
from typing import Any, Callable, Dict

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import torch.nn as nn
import torch.nn.functional as F

from jobs import deterministic
from kinds_more import MORE
from kinds_parts import ROWS, evaluate, length, llama, train_step
from steps import Steps
from trainers import causal_model, text, tokenizer


def common(folder: str, steps: int) -> Dict[str, Any]:
    """Arguments of all of transformers' and trl's trainers."""
    return dict(output_dir=folder, max_steps=steps, logging_steps=1, bf16=True, report_to=[], seed=1, save_strategy="no")


def language_model(layers: int, words: int = ROWS, hidden: int = 1024) -> Any:
    """A model that lies in a folder too, from which a trainer makes its reference model."""
    from transformers import Qwen2Config

    model = causal_model(
        Qwen2Config(
            hidden_size=hidden,
            intermediate_size=4 * hidden,
            num_hidden_layers=layers,
            num_attention_heads=8,
            num_key_value_heads=2,
            vocab_size=words,
        )
    )
    folder = tempfile.mkdtemp()
    model.save_pretrained(folder)
    tokenizer(words).save_pretrained(folder)
    model.config._name_or_path = model.name_or_path = folder
    return model


def rows(count: int, make: Callable[[], Dict[str, Any]]) -> Any:
    from datasets import Dataset

    return Dataset.from_list([make() for _ in range(count)])


def preferences() -> Any:
    return rows(800, lambda: {"prompt": text(length(8, 120)), "chosen": text(length()), "rejected": text(length())})


def evaluated(folder: str, steps: int, batch: int, every: int) -> Dict[str, Any]:
    """Arguments of trl's trainers of preferences: two micro-batches, and an evaluation after every so many steps."""
    return dict(
        **common(folder, steps),
        per_device_train_batch_size=batch,
        gradient_accumulation_steps=2,
        gradient_checkpointing=True,
        eval_strategy="steps",
        eval_steps=every,
        per_device_eval_batch_size=batch,
    )


def dpo(folder: str, steps: int) -> None:
    """Preferences, a reference model, two micro-batches, and an evaluation after every sixth step."""
    from trl import DPOConfig, DPOTrainer

    pairs = preferences()
    DPOTrainer(
        model=language_model(12),
        ref_model=language_model(12),
        args=DPOConfig(**evaluated(folder, steps, batch=4, every=6)),
        train_dataset=pairs,
        eval_dataset=pairs.select(range(16)),
        processing_class=tokenizer(ROWS),
    ).train()


def dpo_lora(folder: str, steps: int) -> None:
    """Preferences with LoRA, without recomputation."""
    from peft import LoraConfig
    from trl import DPOConfig, DPOTrainer

    options = DPOConfig(**common(folder, steps), per_device_train_batch_size=4, gradient_accumulation_steps=2, gradient_checkpointing=False)
    DPOTrainer(
        model=language_model(20, hidden=1536),
        args=options,
        train_dataset=preferences(),
        processing_class=tokenizer(ROWS),
        peft_config=LoraConfig(r=16, target_modules=["q_proj", "v_proj"]),
    ).train()


def kto(folder: str, steps: int) -> None:
    """Completions that are good or bad, each with its prompt."""
    from trl import KTOConfig, KTOTrainer

    judged = rows(800, lambda: {"prompt": text(length(8, 120)), "completion": text(length()), "label": random.random() < 0.5})
    options = KTOConfig(**common(folder, steps), per_device_train_batch_size=8, gradient_checkpointing=True)
    KTOTrainer(model=language_model(12), args=options, train_dataset=judged, processing_class=tokenizer(ROWS)).train()


def orpo(folder: str, steps: int) -> None:
    """Preferences without a reference model: each batch is padded to the longer of its two sides, which differs."""
    from trl.experimental.orpo import ORPOConfig, ORPOTrainer

    pairs = preferences()
    ORPOTrainer(
        model=language_model(12),
        args=ORPOConfig(**evaluated(folder, steps, batch=8, every=8)),
        train_dataset=pairs,
        eval_dataset=pairs.select(range(40)),
        processing_class=tokenizer(ROWS),
    ).train()


def reward(folder: str, steps: int) -> None:
    """A reward model: a classifier of pairs."""
    from transformers import AutoModelForSequenceClassification, Qwen2Config
    from trl import RewardConfig, RewardTrainer

    config = Qwen2Config(
        hidden_size=1024,
        intermediate_size=4096,
        num_hidden_layers=12,
        num_attention_heads=8,
        num_key_value_heads=2,
        vocab_size=ROWS,
        num_labels=1,
        pad_token_id=1,
    )
    pairs = rows(800, lambda: {"chosen": text(length()), "rejected": text(length())})
    options = RewardConfig(**common(folder, steps), per_device_train_batch_size=8, gradient_checkpointing=False, max_length=512)
    RewardTrainer(
        model=AutoModelForSequenceClassification.from_config(config), args=options, train_dataset=pairs, processing_class=tokenizer(ROWS)
    ).train()


def rated(completions: Any, **_: Any) -> Any:
    return [float(len(completion) % 7) for completion in completions]


def prompts() -> Any:
    return rows(2000, lambda: {"prompt": text(random.randint(8, 200))})


def rloo(folder: str, steps: int) -> None:
    """Reinforcement learning with a reference model, and completions that end by themselves."""
    from trl import RLOOConfig, RLOOTrainer

    options = RLOOConfig(
        **common(folder, steps),
        per_device_train_batch_size=8,
        gradient_accumulation_steps=2,
        num_generations=4,
        max_completion_length=96,
        beta=0.05,
        gradient_checkpointing=True,
    )
    RLOOTrainer(
        model=language_model(12, 64), reward_funcs=rated, args=options, train_dataset=prompts(), processing_class=tokenizer(64)
    ).train()


def grpo_twice(folder: str, steps: int) -> None:
    """GRPO that trains twice on what it generates, so that only every other step generates."""
    from trl import GRPOConfig, GRPOTrainer

    options = GRPOConfig(
        **common(folder, steps),
        per_device_train_batch_size=8,
        gradient_accumulation_steps=2,
        num_iterations=2,
        num_generations=8,
        max_completion_length=64,
        beta=0.04,
        gradient_checkpointing=True,
    )
    GRPOTrainer(
        model=language_model(12, 48), reward_funcs=rated, args=options, train_dataset=prompts(), processing_class=tokenizer(48)
    ).train()


def offload(folder: str, steps: int) -> None:
    """Fine-tuning whose activations are copied to the host and back by another stream."""
    from trl import SFTConfig, SFTTrainer

    options = SFTConfig(
        **common(folder, steps), per_device_train_batch_size=8, activation_offloading=True, gradient_checkpointing=True, max_length=1024
    )
    SFTTrainer(
        model=language_model(14), args=options, train_dataset=rows(800, lambda: {"text": text(length())}), processing_class=tokenizer(ROWS)
    ).train()


def packed(folder: str, steps: int) -> None:
    """Fine-tuning on texts that are packed to one length, with Adafactor and four micro-batches."""
    from trl import SFTConfig, SFTTrainer

    options = SFTConfig(
        **common(folder, steps),
        per_device_train_batch_size=2,
        packing=True,
        packing_strategy="wrapped",
        gradient_accumulation_steps=4,
        gradient_checkpointing=True,
        max_length=1024,
        optim="adafactor",
    )
    SFTTrainer(
        model=language_model(14), args=options, train_dataset=rows(3000, lambda: {"text": text(length())}), processing_class=tokenizer(ROWS)
    ).train()


def seq2seq(folder: str, steps: int) -> None:
    """Translation: two lengths that are not each other's, and an evaluation that generates."""
    from transformers import DataCollatorForSeq2Seq, Seq2SeqTrainer, Seq2SeqTrainingArguments, T5Config, T5ForConditionalGeneration

    config = T5Config(d_model=768, d_ff=3072, num_layers=12, num_heads=12, d_kv=64, vocab_size=ROWS, decoder_start_token_id=1, pad_token_id=1)
    model, tokens = T5ForConditionalGeneration(config), tokenizer(ROWS)

    def words(count: int) -> Any:
        return [random.randint(4, ROWS - 1) for _ in range(count)]

    def pair() -> Dict[str, Any]:
        source = words(length(10, 400))
        return {
            "input_ids": source,
            "labels": words(max(4, int(len(source) * random.uniform(0.5, 1.2)))),
            "attention_mask": [1] * len(source),
        }

    pairs = rows(1000, pair)
    options = Seq2SeqTrainingArguments(
        **common(folder, steps),
        per_device_train_batch_size=16,
        per_device_eval_batch_size=8,
        eval_strategy="steps",
        eval_steps=8,
        predict_with_generate=True,
        generation_max_length=40,
    )
    Seq2SeqTrainer(
        model=model,
        args=options,
        train_dataset=pairs,
        eval_dataset=pairs.select(range(16)),
        processing_class=tokens,
        data_collator=DataCollatorForSeq2Seq(tokens, model=model),
    ).train()


def diffusion(_: str, steps: int) -> None:
    """Images of five shapes, encoded first, two micro-batches, and images drawn after every sixth step."""
    from diffusers import AutoencoderKL, DDIMScheduler, UNet2DConditionModel

    encoder = AutoencoderKL(
        block_out_channels=(64, 128, 256, 256),
        down_block_types=("DownEncoderBlock2D",) * 4,
        up_block_types=("UpDecoderBlock2D",) * 4,
        layers_per_block=2,
        latent_channels=4,
    )
    encoder = encoder.cuda().eval().requires_grad_(False)
    model = UNet2DConditionModel(sample_size=64, cross_attention_dim=512, block_out_channels=(192, 384, 768, 768)).cuda()
    optimizer, noises = torch.optim.AdamW(model.parameters(), lr=1e-5), DDIMScheduler()
    shapes = ((512, 512), (640, 384), (384, 640), (576, 448), (448, 576))

    def micro_batch() -> None:
        height, width = random.choice(shapes)
        with torch.autocast("cuda", torch.bfloat16):
            with torch.no_grad():
                latents = encoder.encode(torch.randn(3, 3, height, width, device="cuda")).latent_dist.sample() * 0.18
            noise, at = torch.randn_like(latents), torch.randint(0, 1000, (3,), device="cuda")
            drawn = model(noises.add_noise(latents, noise, at), at, torch.randn(3, 77, 512, device="cuda")).sample
            loss = (drawn.float() - noise.float()).square().mean()
        (loss / 2).backward()

    @torch.no_grad()
    def draw() -> None:
        with torch.autocast("cuda", torch.bfloat16):
            noises.set_timesteps(10)
            images, words = torch.randn(2, 4, 64, 64, device="cuda"), torch.randn(4, 77, 512, device="cuda")
            for at in noises.timesteps:
                guided, free = model(torch.cat([images, images]), at, words).sample.chunk(2)
                images = noises.step(guided + 7.5 * (free - guided), at, images).prev_sample
            for one in images.split(1):
                encoder.decode(one / 0.18).sample.cpu()

    for step in range(steps):
        micro_batch()
        micro_batch()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if step % 6 == 5:
            draw()


def speech(_: str, steps: int) -> None:
    """Recognition of speech of any length, which leaves out layers at random, with an evaluation after every tenth step."""
    from transformers import Wav2Vec2Config, Wav2Vec2ForCTC

    model = Wav2Vec2ForCTC(Wav2Vec2Config(hidden_size=768, num_hidden_layers=12, vocab_size=40, mask_time_prob=0.0)).cuda().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def samples() -> int:
        return 1600 * length(20, 150)

    for step in range(steps):
        count = samples()
        sounds, labels = torch.randn(6, count, device="cuda"), torch.randint(1, 40, (6, max(4, count // 2000)), device="cuda")
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(sounds, labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 10 == 9:
            model.eval()
            with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
                for _ in range(3):
                    model(torch.randn(6, samples(), device="cuda")).logits.argmax(-1).cpu()
            model.train()


def vision(_: str, steps: int) -> None:
    """Images of six sizes, and an evaluation after every eighth step that needs more memory than most steps."""
    from transformers import ResNetConfig, ResNetForImageClassification

    model = ResNetForImageClassification(ResNetConfig(num_labels=1000)).cuda().train()
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), torch.amp.GradScaler("cuda")
    for step in range(steps):
        side = random.choice((128, 160, 192, 224, 256, 288))
        images, labels = torch.randn(48, 3, side, side, device="cuda"), torch.randint(0, 1000, (48,), device="cuda")
        with torch.autocast("cuda", torch.float16):
            loss = F.cross_entropy(model(images).logits, labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        if step % 8 == 7:
            model.eval()
            with torch.no_grad():
                for _ in range(4):
                    model(torch.randn(64, 3, 256, 256, device="cuda")).logits.argmax(1).sum().item()
            model.train()


def compiled(_: str, steps: int) -> None:
    """A compiled model with texts of any length."""
    model = language_model(8).cuda()
    optimizer, forward = torch.optim.AdamW(model.parameters(), lr=1e-5), torch.compile(model, dynamic=True)
    for _ in range(steps):
        words = torch.randint(0, ROWS, (8, length(40, 600)), device="cuda")
        forward(input_ids=words, labels=words).loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def gan(_: str, steps: int) -> None:
    """Two networks with an optimizer each, which take turns, and a second derivative in every eighth step."""

    def block(into: int, out: int) -> nn.Module:
        return nn.Sequential(nn.Conv2d(into, out, 3, padding=1), nn.GroupNorm(8, out), nn.SiLU())

    up, down = nn.Upsample(scale_factor=2), nn.AvgPool2d(2)
    draws = nn.Sequential(block(64, 256), up, block(256, 256), up, block(256, 128), up, block(128, 64), nn.Conv2d(64, 8, 3, padding=1)).cuda()
    judges = nn.Sequential(block(8, 64), down, block(64, 128), down, block(128, 256), nn.Conv2d(256, 1, 3)).cuda()
    of_drawer, of_judge = torch.optim.Adam(draws.parameters()), torch.optim.Adam(judges.parameters())

    def drawn() -> torch.Tensor:
        image: torch.Tensor = draws(torch.randn(24, 64, 32, 32, device="cuda"))
        return image

    def train(optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> None:
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    for step in range(steps):
        for _ in range(random.choice((1, 2)) if step % 4 == 0 else 1):
            real = torch.randn(24, 8, 256, 256, device="cuda", requires_grad=step % 8 == 0)
            with torch.no_grad():
                fake = drawn()
            loss = F.softplus(-judges(real)).mean() + F.softplus(judges(fake)).mean()
            if step % 8 == 0:
                (slope,) = torch.autograd.grad(judges(real).sum(), real, create_graph=True)
                loss = loss + slope.square().sum(dim=(1, 2, 3)).mean()
            train(of_judge, loss)
        train(of_drawer, F.softplus(-judges(drawn())).mean())


def lstm(_: str, steps: int) -> None:
    """A recurrent network over packed sequences: the tokens that count are another number than the longest has."""
    embedding, network, head = nn.Embedding(20_000, 512).cuda(), nn.LSTM(512, 1024, 3, batch_first=True).cuda(), nn.Linear(1024, 20_000).cuda()
    parameters = [*embedding.parameters(), *network.parameters(), *head.parameters()]
    optimizer = torch.optim.Adam(parameters)
    for _ in range(steps):
        lengths = torch.tensor(sorted((length(10, 200) for _ in range(32)), reverse=True))
        words = torch.randint(0, 20_000, (32, int(lengths[0])), device="cuda")
        states, _ = network(nn.utils.rnn.pack_padded_sequence(embedding(words), lengths, batch_first=True))
        states, _ = nn.utils.rnn.pad_packed_sequence(states, batch_first=True)
        counts = (torch.arange(states.shape[1])[None] < lengths[:, None]).cuda()
        loss = F.cross_entropy(head(states[counts]), words[counts])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()


def curriculum(_: str, steps: int) -> None:
    """Texts that become twice as long, and twice as long again."""
    model = llama()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    for step in range(steps):
        train_step(model, optimizer, 8, 128 if step < 6 else 256 if step < 12 else 512)


def unfreeze(_: str, steps: int) -> None:
    """A head that is trained alone, and after eight steps with half of the layers, by a new optimizer."""
    model = llama()
    model.model.requires_grad_(False)
    optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=1e-5)
    for step in range(steps):
        if step == 8:
            model.model.layers[5:].requires_grad_(True)
            optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=1e-5)
        train_step(model, optimizer, 8, 384)


def sanity(_: str, steps: int) -> None:
    """An evaluation before the first step and after every fifth, with a copy of the weights on the host, and texts of any length."""
    model = llama()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    evaluate(model, 2, 8, 512)
    for step in range(steps):
        train_step(model, optimizer, 4, length(100, 500), micro_batches=2)
        if step % 5 == 4:
            evaluate(model, 4, 8, (100, 500))
            {name: weight.detach().cpu() for name, weight in model.state_dict().items()}


def bert(_: str, steps: int) -> None:
    """Batches of about as many tokens each: the longer the texts, the fewer. An evaluation after every seventh step."""
    from transformers import BertConfig, BertForMaskedLM

    model = BertForMaskedLM(BertConfig(num_hidden_layers=12)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    for step in range(steps):
        tokens = length(16, 500)
        train_step(model, optimizer, max(4, 8192 // tokens), tokens)
        if step % 7 == 6:
            evaluate(model, 5, 32, (16, 500))


def tasks(_: str, steps: int) -> None:
    """Three tasks in any order, each with a head and a length of its own."""
    model, heads = llama(8), nn.ModuleList(nn.Linear(1024, count) for count in (2, 50, 1000)).cuda()
    optimizer = torch.optim.AdamW([*model.parameters(), *heads.parameters()], lr=1e-5)
    for _ in range(steps):
        task = random.randrange(3)
        words = torch.randint(0, 30_000, (8, (512, 256, 128)[task]), device="cuda")
        with torch.autocast("cuda", torch.bfloat16):
            states = model.model(words).last_hidden_state
            loss = heads[task](states if task == 2 else states[:, -1]).float().logsumexp(-1).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def experts(_: str, steps: int) -> None:
    """A mixture of experts with texts of any length, two micro-batches, and an evaluation after every sixth step."""
    from transformers import AutoModelForCausalLM, Qwen3MoeConfig

    config = Qwen3MoeConfig(
        hidden_size=768,
        intermediate_size=2048,
        moe_intermediate_size=512,
        num_hidden_layers=8,
        num_attention_heads=8,
        num_key_value_heads=4,
        num_experts=16,
        num_experts_per_tok=2,
        vocab_size=ROWS,
    )
    model = AutoModelForCausalLM.from_config(config).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    for step in range(steps):
        train_step(model, optimizer, 4, length(150, 500), micro_batches=2)
        if step % 6 == 5:
            evaluate(model, 2, 4, 400)


JOBS: Dict[str, Callable[[str, int], None]] = {
    job.__name__: job
    for job in (
        *(dpo, dpo_lora, kto, orpo, reward, rloo, grpo_twice, offload, packed, seq2seq, diffusion, speech, vision, compiled),
        *(gan, lstm, curriculum, unfreeze, sanity, bert, tasks, experts),
        *MORE.values(),
    )
}
"""By name. A job is told a folder that it may write to, and how many steps to train."""


def print_figures(train: Callable[[], None]) -> None:
    """Trains, and prints what steps.py measures. A step ends with one of any optimizer, so evaluations
    and generations count as part of the step behind them. Runs are compared by some weights that it changed."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    steps = Steps()
    with ExitStack() as step:

        def next_step(optimizer: torch.optim.Optimizer, *_: Any) -> None:
            weights = optimizer.param_groups[0]["params"][-1].detach().flatten()[:4096]
            steps.witness(weights.double().sum())
            step.close()
            step.enter_context(steps.step())

        register_optimizer_step_post_hook(next_step)
        step.enter_context(steps.step())
        train()
    steps.end()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=sorted(JOBS))
    parser.add_argument("--figures", action="store_true", help="print the time of each step and what steps.py measures besides")
    parser.add_argument("--deterministic", action="store_true", help="kernels that add in one order; attention takes more memory then")
    parser.add_argument("--steps", type=int, default=20, help="optimizer steps (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the data and the weights (default: %(default)s)")
    chosen = parser.parse_args()
    if chosen.deterministic:
        deterministic(warn_only=True)
        torch.backends.cuda.enable_flash_sdp(False)  # with warn_only its backward adds in any order
    random.seed(chosen.seed)
    torch.manual_seed(chosen.seed)
    with tempfile.TemporaryDirectory() as folder:
        train = functools.partial(JOBS[chosen.name], folder, chosen.steps)
        if chosen.figures:
            print_figures(train)
        else:
            train()


if __name__ == "__main__":
    main()
