"""Records small training jobs at several batch sizes and lengths, so that `stplan fit` can
be judged: what it says from two of the recordings, against all others.

    python runtime/torch/bench/fit.py OUT

OUT gets one recording per run and figures.json, with what torch itself counted in each.
The runs named -limit have a limit on their memory between what two of the batches before
them reserved, and figures.json says which of them trained.

    python runtime/torch/bench/fit.py OUT --table bin/stplan > docs/results/fit.md

predicts from two recordings of each job all others, and compares, without a GPU. The exit
code is 1 if a prediction is off by more than it may be, or by more than its error bar. Recording needs torch, transformers, peft,
torchvision and one CUDA device with 60 GiB that nothing else uses. Takes about two
minutes. The recordings take about 8 MiB.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional

# Runs at the same time: most of the time of each is imports. The largest four take 60 GiB.
TOGETHER = 4

# Steps of a run: the first makes the optimizer's state, and two more are alike.
STEPS = 3

# Seconds until a run is given up as hanging.
TIMEOUT = 120

# More events than any of these runs has.
EVENTS = 1_000_000


class Run(NamedTuple):
    """A run of a job. limit: the bytes that the process may reserve, if there is a limit."""

    job: str
    batch: int
    length: int
    limit: int = 0
    expandable: bool = False

    def name(self) -> str:
        end = ("-limit" if self.limit else "") + ("-expandable" if self.expandable else "")
        return f"{self.job}-b{self.batch}-s{self.length}{end}"

    def arguments(self) -> List[str]:
        return [*map(str, self[:4])]


# The length of an image is its width and height.
RUNS = [
    *(Run("resnet", batch, 224) for batch in (256, 192, 128, 96, 64, 48, 32)),
    *(Run("dense", batch, 1024) for batch in (12, 8, 6, 4, 3, 2)),
    *(Run("dense", 4, length) for length in (1536, 768, 512, 256)),
    *(Run("lora", batch, 1024) for batch in (8, 6, 4, 3, 2, 1)),
]

# The limited runs have a limit halfway between what these two batches of the dense job
# reserved.
BELOW, ABOVE = Run("dense", 6, 1024), Run("dense", 8, 1024)


def dense(batch: int, length: int) -> Any:
    import torch
    from transformers import GPT2Config

    import jobs

    config = GPT2Config(n_layer=24, n_embd=1024, n_head=16, n_positions=2048, use_cache=False)
    model = jobs.language_model(config)
    return jobs.text_step(model, torch.optim.AdamW(model.parameters(), lr=1e-4), batch, length, words=config.vocab_size)


def lora(batch: int, length: int) -> Any:
    import torch
    from peft import LoraConfig, get_peft_model

    import jobs

    model = jobs.language_model(jobs.llama(2048, 5632, 16, 16, 4), checkpoint=True)
    model.enable_input_require_grads()
    model = get_peft_model(model, LoraConfig(r=16, target_modules=["q_proj", "k_proj", "v_proj", "o_proj"]))
    trained = [p for p in model.parameters() if p.requires_grad]
    return jobs.text_step(model, torch.optim.AdamW(trained, lr=1e-4), batch, length)


def resnet(batch: int, length: int) -> Any:
    import torch
    from torchvision.models import resnet50

    model = resnet50().to("cuda", memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step() -> None:
        images = torch.randn(batch, 3, length, length, device="cuda").to(memory_format=torch.channels_last)
        labels = torch.randint(0, 1000, (batch,), device="cuda")
        with torch.autocast("cuda", torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def train(run: Run, recording: Path) -> Dict[str, Any]:
    """Trains and records in this process, and returns what torch counted."""
    import torch

    torch.manual_seed(0)
    if run.limit:
        torch.cuda.set_per_process_memory_fraction(run.limit / torch.cuda.get_device_properties(0).total_memory)
    torch.cuda.memory._record_memory_history(context="alloc", stacks="python", max_entries=EVENTS)
    out_of_memory: Optional[str] = None
    try:
        step = {"dense": dense, "lora": lora, "resnet": resnet}[run.job](run.batch, run.length)
        for _ in range(STEPS):
            step()
    except torch.cuda.OutOfMemoryError as error:
        out_of_memory = str(error)
    stats = torch.cuda.memory_stats()
    with gzip.open(recording, "wb", 9) as file:
        pickle.dump(torch.cuda.memory._snapshot(), file)
    return {
        "job": run.job,
        "batch": run.batch,
        "length": run.length,
        "limit_bytes": run.limit or None,
        "expandable": run.expandable,
        "peak_allocated_bytes": stats["allocated_bytes.all.peak"],
        "peak_active_bytes": stats["active_bytes.all.peak"],
        "peak_reserved_bytes": stats["reserved_bytes.all.peak"],
        "alloc_retries": stats["num_alloc_retries"],
        "out_of_memory": out_of_memory,
        "total_memory_bytes": torch.cuda.get_device_properties(0).total_memory,
        "used_beside_torch_bytes": beside_torch(),
    }


def beside_torch() -> int:
    """What the device has given out beside torch's segments: the CUDA context, kernels
    and libraries. It says something only of a process that is alone on the device."""
    import torch

    free, total = torch.cuda.mem_get_info()
    return int(total - free - torch.cuda.memory_reserved())


def launch(run: Run, out: Path) -> Dict[str, Any]:
    """Trains in a process of its own: {} and a message if that fails."""
    recording = out / f"{run.name()}.pickle.gz"
    conf = "expandable_segments:True" if run.expandable else ""
    command = [sys.executable, __file__, str(out), "--run", *run.arguments(), "--recording", str(recording)]
    try:
        done = subprocess.run(
            command, env={**os.environ, "PYTORCH_CUDA_ALLOC_CONF": conf}, capture_output=True, text=True, timeout=TIMEOUT
        )
    except subprocess.TimeoutExpired:
        print(f"{run.name()}: not done after {TIMEOUT} s", file=sys.stderr)
        return {}
    lines = [line for line in done.stdout.splitlines() if line.startswith("figures ")]
    if done.returncode or not lines:
        print(f"{run.name()}: exit code {done.returncode}\n{done.stderr[-2000:]}", file=sys.stderr)
        return {}
    figures = {"file": recording.name, **json.loads(lines[0].split(" ", 1)[1])}
    figures["expandable"] = run.expandable
    kib = recording.stat().st_size >> 10
    print(f"{run.name()}: {figures['peak_allocated_bytes']:,} allocated, {figures['peak_reserved_bytes']:,} reserved, {kib} KiB", flush=True)
    return figures


def limited(figures: List[Dict[str, Any]]) -> List[Run]:
    """Runs with a limit that the smaller batch fits and the larger one does not, by what
    both reserved without one."""
    reserved = {f["file"]: f["peak_reserved_bytes"] for f in figures}
    both = [reserved.get(f"{run.name()}.pickle.gz") for run in (BELOW, ABOVE)]
    if None in both:
        return []
    limit = sum(both) // 2
    runs = [Run("dense", batch, 1024, limit) for batch in (6, 7, 8)]
    return [*runs, *(run._replace(expandable=True) for run in runs[1:])]


# The two recordings that each job is predicted from: what is named by the first size varies.
FROM = {"resnet": (64, 128), "dense": (3, 6), "lora": (2, 4), "dense, by length": (512, 1024)}

# How far off a prediction may be, as a share.
ALLOCATED, RESERVED = 0.01, 0.03


def series(figures: List[Dict[str, Any]]) -> Dict[str, Dict[int, Dict[str, Any]]]:
    """The recordings without a limit, by job and then by batch or length."""
    found: Dict[str, Dict[int, Dict[str, Any]]] = {name: {} for name in FROM}
    for f in figures:
        if f["limit_bytes"]:
            continue
        if (f["job"], f["length"]) in (("dense", 1024), ("lora", 1024), ("resnet", 224)):
            found[f["job"]][f["batch"]] = f
        if (f["job"], f["batch"]) == ("dense", 4):
            found["dense, by length"][f["length"]] = f
    return found


def stplan_fit(stplan: str, *arguments: str) -> Any:
    """What `stplan fit` says, also if it says no."""
    done = subprocess.run([stplan, "-q", "fit", *arguments, "--json"], capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"stplan fit {' '.join(arguments)}: {done.stderr}")
    return json.loads(done.stdout)


class Off(NamedTuple):
    """How many predictions are off by more than they may be, and how many values lie outside
    their error bars."""

    far: int
    outside: int


def predictions(stplan: str, out: Path, name: str, runs: Dict[int, Dict[str, Any]]) -> Off:
    """Prints the rows of a job."""
    known = FROM[name]
    others = sorted(set(runs) - set(known))
    if not others or not set(known) <= set(runs):
        print(f"{name}: recordings are missing", file=sys.stderr)
        return Off(1, 0)
    paths = [str(out / runs[size]["file"]) for size in known]
    at = ",".join(map(str, others))
    said = stplan_fit(stplan, *paths, "--sizes", ",".join(map(str, known)), "--at", at, "--device-memory", "1TiB")
    far = outside = 0
    for row in said["size_laws"][0]["at"]:
        run = runs[int(row["size"])]
        recorded = stplan_fit(stplan, str(out / run["file"]), "--device-memory", "1TiB")["recordings"][0]
        allocated, found = row["peak_allocated_bytes"], recorded["peak_allocated_bytes"]
        native = next(a for a in row["allocators"] if a["key"] == "native")
        reserved = native["peak_reserved_bytes"]
        errors = allocated / found - 1, reserved / run["peak_reserved_bytes"] - 1
        far += abs(errors[0]) > ALLOCATED or abs(errors[1]) > RESERVED
        bars = row["peak_allocated_high_bytes"] / allocated - 1, native["peak_reserved_high_bytes"] / reserved - 1
        outside += not row["peak_allocated_low_bytes"] <= found <= row["peak_allocated_high_bytes"]
        outside += not native["peak_reserved_low_bytes"] <= run["peak_reserved_bytes"] <= native["peak_reserved_high_bytes"]
        cells = [name, f"{known[0]}, {known[1]}", f"{int(row['size'])}"]
        for value, truth, error, bar in zip((allocated, reserved), (found, run["peak_reserved_bytes"]), errors, bars):
            cells += [f"{value / 2**30:.3f}", f"{truth / 2**30:.3f}", f"{100 * error:+.2f} %", f"±{100 * bar:.1f} %"]
        print("| " + " | ".join(cells) + " |")
    return Off(far, outside)


def largest(stplan: str, out: Path, figures: List[Dict[str, Any]]) -> None:
    """Prints what fit says about the limited runs, and which of them trained."""
    limited_runs = [f for f in figures if f["limit_bytes"]]
    if not limited_runs:
        return
    runs = series(figures)["dense"]
    limit = limited_runs[0]["limit_bytes"]
    paths = [str(out / runs[size]["file"]) for size in FROM["dense"]]
    said = stplan_fit(
        stplan, *paths, "--sizes", ",".join(map(str, FROM["dense"])), "--device-memory", str(limit), "--context-memory", "0"
    )
    print(f"\nThe dense job with {limit / 2**30:.2f} GiB to reserve. The largest batch that fits, from batches of 3 and 6:\n")
    print("| | largest | error bar |\n| --- | ---: | --- |")
    for row in said["size_laws"][0]["largest"]:
        print(f"| {row['settings']} | {row['size']} | {row['size_low']} to {row['size_high']} |")
    print("\nand what came of it:\n\n| batch | allocator | trained |\n| ---: | --- | --- |")
    for f in limited_runs:
        trained = "yes" if f["out_of_memory"] is None else "no: " + f["out_of_memory"].split(". ")[1]
        print(f"| {f['batch']} | {'expandable segments' if f['expandable'] else 'native'} | {trained} |")


def table(stplan: str, out: Path) -> int:
    figures = json.loads((out / "figures.json").read_text())
    print("# Jobs predicted from two sizes\n")
    print("Written by `runtime/torch/bench/fit.py OUT --table`. Recorded on one GPU; GiB. Found is the")
    print("recording's peak of allocated memory, and what torch said that it reserved; the bar is the")
    print("prediction's own.\n")
    print("| job | from | size | allocated | found | off | bar | native | found | off | bar |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    off = [predictions(stplan, out, name, runs) for name, runs in series(figures).items()]
    largest(stplan, out, figures)
    far, outside = (sum(counts) for counts in zip(*off))
    print(f"\nOff by more than {100 * ALLOCATED:g} % (allocated) or {100 * RESERVED:g} % (reserved): {far}. Outside the error bar: {outside}.")
    return 1 if far or outside else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--table", metavar="STPLAN", help="predict and compare what was recorded, with this stplan")
    parser.add_argument("--run", nargs=4, help=argparse.SUPPRESS)
    parser.add_argument("--recording", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.run:
        run = Run(chosen.run[0], *map(int, chosen.run[1:]))
        print(f"figures {json.dumps(train(run, chosen.recording))}", flush=True)
        return 0
    if chosen.table:
        return table(os.path.abspath(chosen.table), chosen.out)
    chosen.out.mkdir(parents=True, exist_ok=True)
    alone = launch(Run("resnet", 16, 224), chosen.out)
    with ThreadPoolExecutor(TOGETHER) as pool:
        figures = [alone, *pool.map(lambda run: launch(run, chosen.out), RUNS)]
        figures = [f for f in figures if f]
        more = limited(figures)
        figures += [f for f in pool.map(lambda run: launch(run, chosen.out), more) if f]
    (chosen.out / "figures.json").write_text(json.dumps(figures, indent=1) + "\n")
    return 0 if len(figures) == 1 + len(RUNS) + len(more) and more else 1


if __name__ == "__main__":
    sys.exit(main())
