"""Measures how long it takes to give idle memory to another process and to take it back, in
a loop of reinforcement learning on one GPU, and writes Markdown.

    python runtime/torch/bench/pause.py bin/stplan > docs/results/pause.md

Each iteration of a loop gives idle memory away, generates completions, and trains on them.
While it generates, a second process has all memory of the device but 3 GiB, as an engine for
inference would. One loop is the script's own, the other is TRL's GRPO trainer. They run natively and
with expandable segments, where empty_cache gives memory away, and under stplan. Needs torch,
transformers, trl, datasets, and one GPU with 40 GiB free that nothing else uses; takes four to
five minutes. The exit code is 1 if the second process does not get the memory, a loss is not
native's to the last bit, the plan does not survive, or a process fails.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple, TypeVar

# Before torch is imported: without it the products of matrices add in any order.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import table
from driver import Device
from registered import run

GIB = 1 << 30

T = TypeVar("T")

ITERATIONS = 9
"""Of the loop. The first three are not timed: a plan, and the libraries, take memory there. In
the last one memory is asked for while the other process still has it."""

WARM = 3

LEFT = 3 * GIB
"""Bytes that the other process leaves: what generating takes."""

# The rows: prompts, completions, both in tokens; the model is of half a billion parameters.
ROWS, PROMPT, COMPLETION, WORDS = 16, 384, 40, 32_000

INTRODUCTION = """# Memory that is given to others and taken back

Written by `runtime/torch/bench/pause.py` on {about}:

    python runtime/torch/bench/pause.py bin/stplan

A loop of {count} iterations gives idle memory away, generates {completion} tokens for {rows} prompts,
and trains on them: once in a loop of its own, and once in TRL's GRPO trainer, which is told nothing but to give memory away before
it generates. While it generates, another process takes all memory of the device but 3 GiB with
cudaMalloc, and frees it. Medians of iterations {first} to {last}:

- *given* is what the loop gave; *given in* and *taken back in* is the time of `stplan.pause` and
  `stplan.resume`, or of `torch.cuda.empty_cache`, which waits for the device too: it was idle.
- *iteration* is the time of an iteration without that of the other process.
- *held on* is what stays reserved meanwhile; *on plan* is of the whole run.
"""

TITLES = {"own": "A loop of its own", "trl": "TRL's GRPO trainer"}

COLUMNS = ("allocator", "given GiB", "given in ms", "ms/GiB", "taken back in ms", "ms/GiB", "held on GiB", "iteration ms", "reserved GiB", "on plan", "equal losses")


class Variant(NamedTuple):
    """How the loop runs. by: "pause", "empty_cache", "host" (pause, and the optimizer's state
    is kept on the host meanwhile) or "nothing". options: of `stplan run`, None without it."""

    name: str
    by: str
    options: Optional[List[str]] = None
    environment: Dict[str, str] = {}


def variants(plan: str) -> List[Variant]:
    return [
        Variant("native", "empty_cache"),
        Variant("expandable", "empty_cache", environment={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}),
        Variant("no plan", "pause", ["--no-plan"]),
        Variant("plan", "pause", [plan]),
        Variant("plan, empty_cache", "empty_cache", [plan]),
        Variant("plan, optimizer on the host", "host", [plan]),
    ]


# The loop.


class Neighbour:
    """Another process on the same device, which takes memory when it is told to."""

    def __init__(self) -> None:
        command = [sys.executable, os.path.abspath(__file__), "--neighbour"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.ask("ready")

    def ask(self, what: str) -> int:
        """Sends a command and returns the answer: bytes."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(what + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the other process has ended at {what!r}")
        return int(answer)


def neighbour() -> None:
    """The other process: "take" takes all but LEFT, "give" frees it."""
    device, held = Device(), 0
    for line in sys.stdin:
        size = 0
        if line.strip() == "take":
            used, total = device.memory()
            size = max(0, total - used - LEFT) >> 21 << 21
            held = device.take(size) if size else 0
        elif line.strip() == "give" and held:
            device.give(held)
            held = 0
        print(size, flush=True)


def deterministic() -> None:
    """What jobs.py does, and no flash attention: its backward adds in any order, and a loop that generates can only be
    warned of that. Prompts of one length have no mask, which would rule it out."""
    import torch

    import jobs

    jobs.deterministic(warn_only=True)
    torch.backends.cuda.enable_flash_sdp(False)


def model() -> Any:
    """Of half a billion parameters, on the GPU."""
    import torch
    from transformers import Qwen2Config

    import trainers

    config = Qwen2Config(
        hidden_size=1536, intermediate_size=8960, num_hidden_layers=12, num_attention_heads=12,
        num_key_value_heads=2, vocab_size=WORDS,
    )
    with torch.device("cuda"):
        return trainers.causal_model(config)


def timed(call: Callable[[], T]) -> Tuple[float, T]:
    """The seconds that a call takes, with the device idle before and behind it, and what it returns."""
    import torch

    torch.cuda.synchronize()
    begin = time.perf_counter()
    result = call()
    torch.cuda.synchronize()
    return time.perf_counter() - begin, result


class Exchange:
    """Gives idle memory away while a loop generates. by: as of Variant. figures and losses are
    those of the iterations so far."""

    def __init__(self, by: str, iterations: int) -> None:
        self.by, self.iterations = by, iterations
        self.stplan: Any = sys.modules.get("stplan")  # loaded by `stplan run`
        self.other = Neighbour() if by != "nothing" else None
        self.figures: List[Dict[str, float]] = []
        self.losses: List[str] = []
        self.gone = ""
        self.ended = 0.0  # when the last generation ended, in seconds of time.perf_counter

    def give(self) -> int:
        import torch

        if self.by == "empty_cache":
            before = torch.cuda.memory_reserved()
            torch.cuda.empty_cache()
            return before - torch.cuda.memory_reserved()
        return int(self.stplan.pause())

    def take(self) -> int:
        return int(self.stplan.resume()) if self.by != "empty_cache" else 0

    def around(self, generate: Callable[[], T]) -> T:
        """Generates while the other process has the memory, and begins the figures of an iteration."""
        import torch

        # In the last iteration memory is asked for while the other process still has it.
        late = len(self.figures) == self.iterations - 1 and self.by == "pause"
        now: Dict[str, float] = {}
        self.figures.append(now)
        if self.other is not None:
            now["give_s"], now["given"] = timed(self.give)
            now["held"] = torch.cuda.memory_reserved()
            now["neighbour"] = self.other.ask("take")
        now["generate_s"], result = timed(generate)
        if self.other is not None:
            if not late:
                self.other.ask("give")
            try:
                now["take_s"], now["taken"] = timed(self.take)
            except RuntimeError as error:
                self.gone = str(error)
            if late:
                self.other.ask("give")
        self.ended = time.perf_counter()
        return result

    def end(self) -> None:
        """Prints one line of JSON."""
        import torch

        for now in self.figures:
            now["iteration_s"] = sum(now.get(key, 0.0) for key in ("offload_s", "give_s", "generate_s", "take_s", "train_s"))
        counters = None if self.stplan is None else self.stplan.stats(0)
        print(json.dumps({
            "figures": self.figures, "losses": self.losses, "reserved": torch.cuda.max_memory_reserved(),
            "gone": self.gone, "stplan": counters if counters and counters["backend"] else None,
        }), flush=True)


def own_loop(by: str, iterations: int) -> None:
    """Generates and trains as an example would. With "host" the optimizer's state is on the host meanwhile."""
    import torch

    deterministic()
    trained = model()
    trained.generation_config.eos_token_id = None  # so that all completions have the same length
    trained.generation_config.pad_token_id = 0
    optimizer = torch.optim.AdamW(trained.parameters(), lr=1e-5, fused=True)
    exchange = Exchange(by, iterations)

    def states() -> List[Any]:
        return [value for state in optimizer.state.values() for value in state.values() if value.is_cuda and value.dim()]

    def generate(number: int) -> Any:
        generator = torch.Generator().manual_seed(number)
        prompts = torch.randint(1, WORDS, (ROWS, PROMPT), generator=generator).cuda()
        trained.eval()
        with torch.no_grad():
            return trained.generate(
                prompts, attention_mask=torch.ones_like(prompts), do_sample=True, min_new_tokens=COMPLETION, max_new_tokens=COMPLETION
            )

    def train(words: Any) -> None:
        trained.train()
        advantages = torch.linspace(-1, 1, ROWS, device="cuda")
        logits = trained(words, use_cache=False).logits[:, PROMPT - 1 : -1].float()
        chosen = logits.log_softmax(-1).gather(-1, words[:, PROMPT:, None]).squeeze(-1)
        loss = -(chosen.mean(-1) * advantages).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        exchange.losses.append(loss.item().hex())

    kept: List[Any] = []

    def away() -> None:
        # What torch_memory_saver does for a region whose contents it keeps.
        for value in states():
            kept.append((value, value.to("cpu", copy=True), value.untyped_storage().nbytes()))
            value.untyped_storage().resize_(0)

    def back() -> None:
        while kept:
            value, copy, size = kept.pop()
            value.untyped_storage().resize_(size)
            value.copy_(copy)

    for number in range(iterations):
        offload = timed(away)[0] if by == "host" else 0.0
        words = exchange.around(lambda: generate(number))
        offload += timed(back)[0] if by == "host" else 0.0
        exchange.figures[-1].update(offload_s=offload, train_s=timed(lambda: train(words))[0])
        del words
    exchange.end()


def trl_loop(by: str, iterations: int) -> None:
    """TRL's GRPO trainer, which is told nothing but to give memory away before it generates."""
    import torch
    from datasets import Dataset
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    import trainers

    deterministic()
    exchange = Exchange(by, iterations)

    class Pausing(GRPOTrainer):  # type: ignore[misc]
        def _generate_and_score_completions(self, inputs: Any) -> Any:
            return exchange.around(lambda: super(Pausing, self)._generate_and_score_completions(inputs))

    class Kept(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, *_: Any, **__: Any) -> None:
            torch.cuda.synchronize()
            exchange.figures[-1]["train_s"] = time.perf_counter() - exchange.ended

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            exchange.losses.extend(float(logs[name]).hex() for name in ("loss", "grad_norm") if name in logs)

    with tempfile.TemporaryDirectory() as folder:
        Pausing(
            model=model(),
            reward_funcs=lambda completions, **_: [float(len(completion) % 7) for completion in completions],
            args=GRPOConfig(
                **trainers.common(folder, iterations, ROWS),
                num_generations=ROWS,
                max_completion_length=COMPLETION,
                generation_kwargs={"min_new_tokens": COMPLETION},
                save_strategy="no",
            ),
            train_dataset=Dataset.from_list([{"prompt": trainers.text(PROMPT)} for _ in range(200)]),
            processing_class=trainers.tokenizer(WORDS),
            callbacks=[Kept()],
        ).train()
    exchange.end()


# The measurement.


LOOPS: Dict[str, Callable[[str, int], None]] = {"own": own_loop, "trl": trl_loop}


def measure(stplan: str, name: str, folder: Path) -> "tuple[List[str], List[str]]":
    """Returns the lines of the table of a loop, and the problems."""
    loop = [sys.executable, os.path.abspath(__file__), "--loop", name, "--job"]
    plan = folder / "plan.bin"
    problems: List[str] = []
    done = run([stplan, "record", "-o", str(folder), "--", *loop, "nothing", "--iterations", "4"], {})
    if done.returncode == 0:
        done = run([stplan, "-q", "compile", *map(str, folder.glob("*.pickle.gz")), "-o", str(plan)], {})
    if done.returncode != 0:
        return [], [f"{done.args[1]}: exit code {done.returncode}: {end_of(done)}"]
    found: Dict[str, Dict[str, Any]] = {}
    for variant in variants(str(plan)):
        if variant.by == "host" and name != "own":
            continue  # only the loop of our own moves tensors
        command = [*loop, variant.by, "--iterations", str(ITERATIONS)]
        if variant.options is not None:
            command = [stplan, "-q", "run", *variant.options, "--", *command]
        done = run(command, variant.environment)
        lines = [line for line in done.stdout.splitlines() if line.startswith('{"figures"')]
        if done.returncode != 0 or len(lines) != 1:
            problems.append(f"{variant.name}: exit code {done.returncode}: {end_of(done)}")
            continue
        found[variant.name] = json.loads(lines[0])
        problems += wrong(variant, found[variant.name], found.get("native"))
    native = found.get("native")
    head = [table.line(COLUMNS), table.line(["---", *["---:"] * (len(COLUMNS) - 1)])]
    return [*head, *(row(name, result, native) for name, result in found.items())], problems


def end_of(done: "subprocess.CompletedProcess[str]") -> str:
    return " / ".join((done.stdout + done.stderr).strip().splitlines()[-4:])


def timed_ones(result: Dict[str, Any]) -> List[Dict[str, float]]:
    """The figures of the iterations that count."""
    figures: List[Dict[str, float]] = result["figures"][WARM:-1]
    return figures


def median(result: Dict[str, Any], key: str) -> float:
    return statistics.median(figure.get(key, 0.0) for figure in timed_ones(result))


def wrong(variant: Variant, result: Dict[str, Any], native: Optional[Dict[str, Any]]) -> List[str]:
    """What is wrong with the result of a variant; natively only what the loop itself needs."""
    problems = []
    if median(result, "given") < GIB:
        problems.append(f"{variant.name}: gave {table.gib(int(median(result, 'given')))} GiB, expected at least 1")
    if median(result, "neighbour") < median(result, "given") - LEFT:
        problems.append(f"{variant.name}: the other process got {table.gib(int(median(result, 'neighbour')))} GiB, less than was given")
    if native is not None and result["losses"] != native["losses"]:
        problems.append(f"{variant.name}: {table.first_difference(result['losses'], native['losses'])}")
    if variant.options is None:
        return problems
    if result["stplan"] is None:
        return [*problems, f"{variant.name}: stplan did not serve it"]
    asks_for_more = result["figures"][-1].get("given", 0.0) > LEFT  # than the other process has left
    if variant.by == "pause" and asks_for_more and "not enough memory left" not in result["gone"]:
        problems.append(f"{variant.name}: the memory was gone in the last iteration, and resume did not say so: {result['gone']!r}")
    if variant.by == "pause" and any(not 0 <= figure["given"] - figure["taken"] <= LEFT for figure in timed_ones(result)):
        problems.append(f"{variant.name}: what was given was not taken back, apart from what generating took")
    if variant.options != ["--no-plan"] and result["stplan"]["state"] not in ("prologue", "body"):
        problems.append(f"{variant.name}: the plan is {result['stplan']['state']}")
    return problems


def row(name: str, result: Dict[str, Any], native: Optional[Dict[str, Any]]) -> str:
    given, taken = median(result, "given"), median(result, "taken")
    give, take = 1e3 * median(result, "give_s"), 1e3 * median(result, "take_s")
    planned = table.on_plan(result["stplan"]) if result["stplan"] and name.startswith("plan") else ""
    losses = result["losses"]
    return table.line((
        name, f"{given / GIB:.2f}", f"{give:.1f}", f"{give / (given / GIB):.1f}" if given else "",
        f"{take:.1f}" if taken else "", f"{take / (taken / GIB):.1f}" if taken else "",
        f"{median(result, 'held') / GIB:.2f}", f"{1e3 * median(result, 'iteration_s'):.0f}", f"{result['reserved'] / GIB:.2f}",
        planned, f"{table.equal(losses, native['losses'])} of {len(losses)}" if native else "",
    ))


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("stplan", nargs="?", help="the stplan binary")
    parser.add_argument("--iterations", type=int, default=ITERATIONS, help=argparse.SUPPRESS)
    parser.add_argument("--job", metavar="BY", help=argparse.SUPPRESS)
    parser.add_argument("--loop", choices=sorted(LOOPS), help="measure only this loop")
    parser.add_argument("--neighbour", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.neighbour:
        neighbour()
        return 0
    if chosen.job:
        LOOPS[chosen.loop](chosen.job, chosen.iterations)
        return 0
    if not chosen.stplan:
        parser.error("expected the stplan binary")
    print(INTRODUCTION.format(
        about=Device().about(), count=ITERATIONS, completion=COMPLETION, rows=ROWS, first=WARM + 1, last=ITERATIONS - 1,
    ))
    problems: List[str] = []
    for name in [chosen.loop] if chosen.loop else sorted(LOOPS):
        with tempfile.TemporaryDirectory() as folder:
            lines, found = measure(os.path.abspath(chosen.stplan), name, Path(folder))
        print("\n".join([f"## {TITLES[name]}", "", *lines, ""]), flush=True)
        problems += [f"{TITLES[name]}: {text}" for text in found]
    print("\n".join(["Problems:" + ("" if problems else " none."), *(f"- {text}" for text in problems)]))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
