"""More jobs for kinds.py, written after stplan was finished with those there: loops by hand around
models of torchvision, transformers and plain torch. Each takes a folder that it may write to, and
how many steps to train. Needs torch, torchvision and transformers.
"""

from __future__ import annotations

import copy
import random
from typing import Any, Callable, Dict, List

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from kinds_parts import ROWS, length, llama, loss_of, train_step


def step_of(optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> None:
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def half() -> torch.autocast:
    return torch.autocast("cuda", torch.bfloat16)


def detection(_: str, steps: int) -> None:
    """Boxes in images, each of a size of its own; how many are proposed follows the image."""
    from torchvision.models.detection import fasterrcnn_resnet50_fpn

    model = fasterrcnn_resnet50_fpn(weights=None, weights_backbone=None, num_classes=20, min_size=400, max_size=640).cuda().train()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
    for step in range(steps):
        images, targets = [], []
        for _ in range(6):
            height, width, boxes = random.randint(300, 600), random.randint(300, 600), random.randint(1, 30)
            corners = torch.rand(boxes, 2, device="cuda") * 200
            images.append(torch.rand(3, height, width, device="cuda"))
            targets.append({"boxes": torch.cat([corners, corners + 20 + 60 * torch.rand(boxes, 2, device="cuda")], 1)})
            targets[-1]["labels"] = torch.randint(1, 20, (boxes,), device="cuda")
        step_of(optimizer, sum(model(images, targets).values()))
        if step % 8 == 7:
            model.eval()
            with torch.no_grad():
                [one["boxes"].cpu() for one in model(images)]
            model.train()


def video(_: str, steps: int) -> None:
    """A diffusion transformer of videos: frames and shapes vary, half of the layers are recomputed, and weights have an average."""
    model = nn.ModuleList(nn.TransformerEncoderLayer(1024, 16, 4096, 0.0, batch_first=True, norm_first=True) for _ in range(16)).cuda()
    average = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)

    def through(layers: nn.ModuleList, patches: torch.Tensor) -> torch.Tensor:
        for i, layer in enumerate(layers):
            patches = checkpoint(layer, patches, use_reentrant=False) if i % 2 and torch.is_grad_enabled() else layer(patches)
        return patches

    for step in range(steps):
        frames, (height, width) = random.choice((1, 5, 9, 13)), random.choice(((16, 16), (12, 20), (20, 12), (24, 10)))
        patches = torch.randn(2, frames * height * width, 1024, device="cuda")
        with half():
            loss = (through(model, patches + torch.randn_like(patches)) - patches).float().square().mean()
        step_of(optimizer, loss)
        torch._foreach_lerp_(list(average.parameters()), [p.detach() for p in model.parameters()], 0.01)
        if step % 10 == 9:
            with torch.no_grad(), half():
                drawn = torch.randn(1, 13 * 256, 1024, device="cuda")
                for _ in range(4):
                    drawn = drawn - 0.1 * through(average, drawn).float()
                drawn.cpu()


def distill(_: str, steps: int) -> None:
    """A student that follows a teacher's logits, every third time on texts that it has generated."""
    teacher, student = llama(16).eval().requires_grad_(False), llama(6)
    optimizer = torch.optim.AdamW(student.parameters(), lr=1e-5)
    for step in range(steps):
        words = torch.randint(5, 30_000, (8, length(30, 300)), device="cuda")
        if step % 3 == 2:
            with torch.no_grad(), half():
                words = student.generate(words[:, :64], max_new_tokens=random.randint(20, 60), do_sample=True, pad_token_id=0)
        with half():
            with torch.no_grad():
                aim = teacher(input_ids=words).logits.float().log_softmax(-1)
            loss = F.kl_div(student(input_ids=words).logits.float().log_softmax(-1), aim, log_target=True, reduction="batchmean")
        step_of(optimizer, loss)


def vlm(_: str, steps: int) -> None:
    """Images of any number of patches before texts of any length: two lengths that are not each other's."""
    eye = nn.TransformerEncoder(nn.TransformerEncoderLayer(768, 12, 3072, 0.0, batch_first=True), 8).cuda()
    into, model = nn.Linear(3072, 1024).cuda(), llama(12)
    optimizer = torch.optim.AdamW([*eye.parameters(), *into.parameters(), *model.parameters()], lr=1e-5)
    for _ in range(steps):
        for _ in range(2):
            patches, words = 4 * random.randint(40, 400), torch.randint(0, 30_000, (4, length(30, 400)), device="cuda")
            with half():
                seen = into(eye(torch.randn(4, patches, 768, device="cuda")).reshape(4, patches // 4, 3072))
                both = torch.cat([seen, model.model.embed_tokens(words)], 1)
                logits = model(inputs_embeds=both).logits[:, seen.shape[1] :]
                loss = F.cross_entropy(logits[:, :-1].float().flatten(0, 1), words[:, 1:].flatten())
            (loss / 2).backward()
        optimizer.step()
        optimizer.zero_grad()


def gradcache(_: str, steps: int) -> None:
    """Contrast over more pairs than fit: all are embedded in chunks without gradients, then each chunk once more with them."""
    from transformers import BertConfig, BertModel

    model = BertModel(BertConfig(num_hidden_layers=10)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)

    def embed(words: torch.Tensor) -> torch.Tensor:
        with half():
            embedded: torch.Tensor = model(input_ids=words).last_hidden_state.mean(1)
        return F.normalize(embedded.float(), dim=-1)

    for _ in range(steps):
        chunks = [[torch.randint(0, 30_000, (32, length(16, 256)), device="cuda") for _ in range(4)] for _ in range(2)]
        with torch.no_grad():
            first = [torch.cat([embed(words) for words in side]) for side in chunks]
        sides = [side.requires_grad_() for side in first]
        F.cross_entropy(20 * sides[0] @ sides[1].T, torch.arange(128, device="cuda")).backward()
        for side, grad in zip(chunks, [side.grad for side in sides]):
            for words, part in zip(side, grad.split(32)):
                embed(words).backward(part)
        optimizer.step()
        optimizer.zero_grad()


def ppo(_: str, steps: int) -> None:
    """Generates, then trains policy and value in four mini-batches of it, each as long as its own longest text; a reference looks on."""
    policy, reference, value = llama(8), llama(8).eval().requires_grad_(False), nn.Linear(1024, 1).cuda()
    optimizer = torch.optim.AdamW([*policy.parameters(), *value.parameters()], lr=1e-5)
    done = 0

    def chosen(model: Any, words: torch.Tensor) -> torch.Tensor:
        picked: torch.Tensor = model(input_ids=words).logits[:, :-1].float().log_softmax(-1).gather(-1, words[:, 1:, None])
        return picked[..., 0]

    while done < steps:
        prompts = torch.randint(5, 30_000, (16, random.randint(16, 120)), device="cuda")
        with torch.no_grad(), half():
            words = policy.generate(prompts, max_new_tokens=random.randint(16, 80), do_sample=True, pad_token_id=0)
            before = [torch.cat([chosen(model, part) for part in words.split(8)]) for model in (policy, reference)]
        for rows in torch.randperm(16, device="cuda").split(4):
            end = random.randint(prompts.shape[1] + 8, words.shape[1])
            batch, old, other = words[rows, :end], *(kept[rows, : end - 1] for kept in before)
            with half():
                outputs = policy(input_ids=batch, output_hidden_states=True)
                now = outputs.logits[:, :-1].float().log_softmax(-1).gather(-1, batch[:, 1:, None])[..., 0]
                worth = value(outputs.hidden_states[-1][:, :-1])[..., 0].float()
            ratio = (now - old).exp()
            step_of(optimizer, -(ratio.clamp(0.8, 1.2) * torch.randn_like(ratio)).mean() + worth.square().mean() + 0.1 * (now - other).mean())
            done += 1


def nerf(_: str, steps: int) -> None:
    """Points along rays, of which another number counts in each step, and images drawn in chunks after every sixth step."""
    sizes = [63, *([256] * 8), 4]
    layers: List[nn.Module] = []
    for into, out in zip(sizes, sizes[1:]):
        layers += [nn.Linear(into, out), nn.ReLU()]
    model = nn.Sequential(*layers[:-1]).cuda()
    optimizer = torch.optim.Adam(model.parameters())

    def color(points: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        waves = [points] + [wave(points * 2**i) for i in range(10) for wave in (torch.sin, torch.cos)]
        seen = model(torch.cat(waves, -1)[counts])
        whole = seen.new_zeros(*points.shape[:2], 4)
        whole[counts] = seen
        return whole.sigmoid().mean(1)

    for step in range(steps):
        points = torch.randn(4096, 128, 3, device="cuda")
        counts = torch.rand(4096, 128, device="cuda") < random.uniform(0.3, 0.8)
        step_of(optimizer, color(points, counts).square().mean())
        if step % 6 == 5:
            with torch.no_grad():
                for _ in range(5):
                    color(torch.randn(6400, 128, 3, device="cuda"), torch.rand(6400, 128, device="cuda") < 0.5).cpu()


def mixture_of(experts: int, per_token: int, width: int) -> Any:
    """A language model of 8 layers, with so many experts in each, of which a token visits some."""
    from transformers import OlmoeConfig, OlmoeForCausalLM

    config = OlmoeConfig(
        hidden_size=1024,
        intermediate_size=width,
        num_hidden_layers=8,
        num_attention_heads=8,
        num_key_value_heads=8,
        num_experts=experts,
        num_experts_per_tok=per_token,
        vocab_size=ROWS,
        experts_implementation="eager",
    )
    return OlmoeForCausalLM(config).cuda().train()


def olmoe(_: str, steps: int) -> None:
    """A mixture of 32 experts of which a token visits 4, with recomputation, on texts of one length."""
    model = mixture_of(32, 4, 512)
    model.gradient_checkpointing_enable()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    for _ in range(steps):
        train_step(model, optimizer, 4, 512, micro_batches=2)


def mixture(_: str, steps: int) -> None:
    """A mixture of 8 experts of which a token visits 2. What they compute is kept for the backward pass."""
    model = mixture_of(8, 2, 2048)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    for _ in range(steps):
        train_step(model, optimizer, 16, 512)


def dino(_: str, steps: int) -> None:
    """A student that sees two large and some small parts of images, and a teacher that is its average."""
    from transformers import ViTConfig, ViTModel

    student = ViTModel(ViTConfig(image_size=224, num_hidden_layers=12)).cuda().train()
    teacher = copy.deepcopy(student).requires_grad_(False)
    optimizer = torch.optim.AdamW(student.parameters(), lr=1e-4)

    def seen(model: Any, images: torch.Tensor) -> torch.Tensor:
        with half():
            return model(images, interpolate_pos_encoding=True).last_hidden_state[:, 0].float().log_softmax(-1)  # type: ignore[no-any-return]

    for _ in range(steps):
        large = [torch.randn(24, 3, 224, 224, device="cuda") for _ in range(2)]
        small = [torch.randn(24, 3, 96, 96, device="cuda") for _ in range(random.randint(4, 8))]
        with torch.no_grad():
            aims = [seen(teacher, images).exp() for images in large]
        loss = torch.stack([-(aim * seen(student, images)).sum(-1).mean() for images in [*large, *small] for aim in aims[:1]]).mean()
        step_of(optimizer, loss)
        torch._foreach_lerp_(list(teacher.parameters()), [p.detach() for p in student.parameters()], 0.01)


class Unet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        widths = (3, 48, 96, 192, 384)
        self.down = nn.ModuleList(self.block(a, b) for a, b in zip(widths, widths[1:]))
        self.up = nn.ModuleList(self.block(a + b, b) for a, b in zip(widths[:1:-1], widths[-2:0:-1]))
        self.head = nn.Conv2d(widths[1], 20, 1)

    @staticmethod
    def block(into: int, out: int) -> nn.Module:
        return nn.Sequential(*(m for i in (into, out) for m in (nn.Conv2d(i, out, 3, padding=1), nn.BatchNorm2d(out), nn.ReLU())))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        kept = []
        for i, down in enumerate(self.down):
            image = down(F.max_pool2d(image, 2) if i else image)
            kept.append(image)
        for up, other in zip(self.up, kept[-2::-1]):
            image = up(torch.cat([F.interpolate(image, size=other.shape[2:]), other], 1))
        return self.head(image)  # type: ignore[no-any-return]


def segmentation(_: str, steps: int) -> None:
    """A U-Net on images of any size, in single precision, and whole large images in windows after every seventh step."""
    model = Unet().cuda()
    optimizer = torch.optim.Adam(model.parameters())
    for step in range(steps):
        height, width = 16 * random.randint(14, 32), 16 * random.randint(14, 32)
        images, labels = torch.randn(6, 3, height, width, device="cuda"), torch.randint(0, 20, (6, height, width), device="cuda")
        step_of(optimizer, F.cross_entropy(model(images), labels))
        if step % 7 == 6:
            model.eval()
            with torch.no_grad():
                for _ in range(3):
                    height, width = random.randint(2, 4), random.randint(2, 4)
                    image, whole = torch.randn(1, 3, 512 * height, 512 * width, device="cuda"), torch.zeros(20, 512 * height, 512 * width, device="cuda")
                    for i in range(height):
                        for j in range(width):
                            rows, columns = slice(512 * i, 512 * i + 512), slice(512 * j, 512 * j + 512)
                            whole[:, rows, columns] = model(image[:, :, rows, columns])[0]
                    whole.argmax(0).cpu()
            model.train()


def budget(_: str, steps: int) -> None:
    """Two to six micro-batches in a step, each of about as many tokens, so of another shape."""
    model = llama(12)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, foreach=False)
    for _ in range(steps):
        for _ in range(random.randint(2, 6)):
            tokens = length(40, 1000)
            loss_of(model, max(1, 4096 // tokens), tokens).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


def whisper(_: str, steps: int) -> None:
    """Speech of one length into texts of any, and an evaluation that writes after every eighth step."""
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    config = WhisperConfig(
        d_model=512,
        encoder_layers=8,
        decoder_layers=8,
        encoder_attention_heads=8,
        decoder_attention_heads=8,
        encoder_ffn_dim=2048,
        decoder_ffn_dim=2048,
        vocab_size=ROWS,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )
    model = WhisperForConditionalGeneration(config).cuda().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    for step in range(steps):
        sounds, words = torch.randn(8, 80, 3000, device="cuda"), torch.randint(5, ROWS, (8, length(10, 300)), device="cuda")
        with half():
            loss = model(input_features=sounds, labels=words).loss
        step_of(optimizer, loss)
        if step % 8 == 7:
            model.eval()
            with torch.no_grad(), half():
                states = model.model.encoder(sounds)
                written, cache = torch.ones(8, 1, dtype=torch.long, device="cuda"), None
                for _ in range(random.randint(10, 40)):
                    outputs = model(encoder_outputs=states, decoder_input_ids=written[:, -1:], past_key_values=cache, use_cache=True)
                    cache, written = outputs.past_key_values, torch.cat([written, outputs.logits[:, -1:].argmax(-1)], 1)
            model.train()


def maml(_: str, steps: int) -> None:
    """Learns to learn: gradients through one to three steps of gradient descent, for four tasks in each step."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(3072, 2048), *(m for _ in range(6) for m in (nn.ReLU(), nn.Linear(2048, 2048))), nn.Linear(2048, 10)).cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)

    def loss(weights: Dict[str, torch.Tensor], shots: int) -> torch.Tensor:
        images, labels = torch.randn(shots, 3, 32, 32, device="cuda"), torch.randint(0, 10, (shots,), device="cuda")
        return F.cross_entropy(torch.func.functional_call(model, weights, (images,)), labels)

    for _ in range(steps):
        for _ in range(4):
            weights = dict(model.named_parameters())
            for _ in range(random.randint(1, 3)):
                slopes = torch.autograd.grad(loss(weights, random.choice((5, 25, 50))), list(weights.values()), create_graph=True)
                weights = {name: weight - 0.01 * slope for (name, weight), slope in zip(weights.items(), slopes)}
            loss(weights, 600).backward()
        optimizer.step()
        optimizer.zero_grad()


def recommend(_: str, steps: int) -> None:
    """Bags of any number of items in large tables with sparse gradients, and a small network."""
    tables = nn.ModuleList(nn.EmbeddingBag(rows, 128, sparse=True) for rows in (2_000_000, 500_000, 100_000, 50_000)).cuda()
    network = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 1)).cuda()
    sparse, dense = torch.optim.SparseAdam(list(tables.parameters())), torch.optim.AdamW(network.parameters())
    for _ in range(steps):
        bags = []
        for table in tables:
            items, starts = random.randint(100_000, 900_000), torch.arange(16384, device="cuda")
            bags.append(table(torch.randint(0, table.num_embeddings, (items,), device="cuda"), starts * (items // 16384)))
        F.binary_cross_entropy_with_logits(network(torch.cat(bags, -1))[:, 0], torch.rand(16384, device="cuda")).backward()
        for optimizer in (sparse, dense):
            optimizer.step()
            optimizer.zero_grad()


MORE: Dict[str, Callable[[str, int], None]] = {
    job.__name__: job
    for job in (
        *(detection, video, distill, vlm, gradcache, ppo, nerf, olmoe, mixture),
        *(dino, segmentation, budget, whisper, maml, recommend),
    )
}
"""By name."""
