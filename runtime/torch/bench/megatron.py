"""One process of a Megatron-LM job, as `pretrain_gpt.py` runs it.

    MEGATRON=/path/to/Megatron-LM python megatron.py NAME [--steps N] [-- ARGUMENT...]
    MEGATRON=/path/to/Megatron-LM torchrun --nproc-per-node 4 megatron.py NAME-real ...

If NAME does not end in `-real`, the process is one rank of a larger job, and the other
ranks are a fake process group: the rank makes all its allocations, and needs one device
only. ARGUMENTs are passed to Megatron after those of the job, so they override them.

Kernels are deterministic, and collectives add in a fixed order. If turns.py's
conductor has started the job, its steps take turns with those of others. It prints its
figures as one line of JSON that begins with `figures `. Needs torch, numpy and a C++
compiler, and neither Transformer Engine nor apex. This script does not use stplan.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import runpy
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any, Dict, NamedTuple, Optional, Tuple

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "1")
os.environ.setdefault("NCCL_ALGO", "Ring")
# The job's few small kernels are compiled in its own process: a pool of compile
# workers for each rank of several jobs would take longer to start.
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")

import torch
import torch.distributed

import fakes
from steps import Steps

LLAMA_7B = """--num-layers 32 --hidden-size 4096 --ffn-hidden-size 11008 --num-attention-heads 32
    --seq-length 4096 --max-position-embeddings 4096 --vocab-size 32000
    --position-embedding-type rope --normalization RMSNorm --swiglu --disable-bias-linear
    --untie-embeddings-and-output-weights"""
GPT_345M = """--num-layers 24 --hidden-size 1024 --num-attention-heads 16
    --seq-length 1024 --max-position-embeddings 1024 --vocab-size 50257"""
MOE_16 = """--num-layers 12 --hidden-size 2048 --ffn-hidden-size 5632 --num-attention-heads 16
    --seq-length 2048 --max-position-embeddings 4096 --vocab-size 151936
    --position-embedding-type rope --normalization RMSNorm --swiglu --disable-bias-linear
    --untie-embeddings-and-output-weights --num-experts 16 --moe-ffn-hidden-size 1408
    --moe-router-topk 4 --moe-token-dispatcher-type alltoall
    --moe-router-load-balancing-type aux_loss --moe-aux-loss-coeff 1e-2"""
RECOMPUTE = "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"

# Arguments of every job. Options that need apex or Transformer Engine are off.
COMMON = """--mock-data --tokenizer-type NullTokenizer --transformer-impl local --bf16
    --no-persist-layer-norm --no-gradient-accumulation-fusion --no-masked-softmax-fusion --no-rope-fusion
    --lr 1e-4 --min-lr 1e-5 --lr-decay-style constant --eval-iters 0 --eval-interval 1000 --split 100,0,0
    --log-interval 1 --no-load-optim --no-load-rng --attention-dropout 0 --hidden-dropout 0
    --deterministic-mode"""


class Job(NamedTuple):
    """Megatron's arguments. If the other ranks are fake, rank and world are
    this process's rank and the number of ranks."""

    arguments: str
    rank: Optional[int] = None
    world: int = 0


GPT_PP2 = f"""{GPT_345M} {RECOMPUTE} --pipeline-model-parallel-size 2
    --num-layers-per-virtual-pipeline-stage 3 --micro-batch-size 32 --global-batch-size 256"""
LLAMA_PP4 = f"""{LLAMA_7B} {RECOMPUTE} --pipeline-model-parallel-size 4
    --num-layers-per-virtual-pipeline-stage 4 --micro-batch-size 4 --global-batch-size 32"""
MOE_PP2 = f"{MOE_16} --pipeline-model-parallel-size 2 --micro-batch-size 2 --global-batch-size 8"
MOE_EP4 = f"{MOE_16} --expert-model-parallel-size 4 --micro-batch-size 2 --global-batch-size 16"

JOBS: Dict[str, Job] = {
    "gpt345-pp2-VR": Job(GPT_PP2, 0, 2),
    "llama7b-pp4-VR": Job(LLAMA_PP4, 0, 4),
    "llama7b-pp4last-VR": Job(LLAMA_PP4, 3, 4),
    "llama7b-pp4-VR-real": Job(LLAMA_PP4),
    "moe16-pp2-N": Job(MOE_PP2, 0, 2),
    "moe16-ep4-real": Job(MOE_EP4),
}


def attend(
    self: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_: Any, **__: Any
) -> torch.Tensor:
    """Causal attention by torch. It replaces Megatron's own, which keeps the
    whole matrices of scores in memory. query, key, value: [sequence, batch,
    heads, width]; the result: [sequence, batch, heads * width]."""
    q, k, v = (t.permute(1, 2, 0, 3) for t in (query, key, value))
    grouped = q.shape[1] != k.shape[1]
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=grouped)
    return out.permute(2, 0, 1, 3).flatten(2)


def build_helpers(megatron: Path) -> None:
    """Builds Megatron's C++ helpers. If several processes start together, one builds them
    and the others wait."""
    folder = megatron / "megatron/core/datasets"
    built = folder / ("helpers_cpp" + sysconfig.get_config_var("EXT_SUFFIX"))
    with open(folder / "helpers.cpp") as source:
        fcntl.flock(source, fcntl.LOCK_EX)
        if not built.exists():
            # pybind11's headers come with torch.
            includes = [f"-I{Path(torch.__file__).parent / 'include'}", f"-I{sysconfig.get_path('include')}"]
            options = ["-O2", "-shared", "-std=c++17", "-fPIC", *includes]
            compiler = os.environ.get("CXX", "g++")
            subprocess.run([compiler, *options, source.name, "-o", str(built)], check=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=sorted(JOBS))
    parser.add_argument("--steps", type=int, default=12, help="optimizer steps")
    given, more = sys.argv[1:], []
    if "--" in given:
        given, more = given[: given.index("--")], given[given.index("--") + 1 :]
    chosen = parser.parse_args(given)
    job = JOBS[chosen.name]
    arguments = [*job.arguments.split(), *COMMON.split(), "--train-iters", str(chosen.steps), *more]
    if job.rank is not None:
        peers = dict(RANK=job.rank, WORLD_SIZE=job.world, LOCAL_RANK=0, MASTER_ADDR="127.0.0.1", MASTER_PORT=29511)
        os.environ.update({name: str(value) for name, value in peers.items()})
        arguments.append("--fake-process-group")
    megatron = Path(os.environ["MEGATRON"]).resolve()
    build_helpers(megatron)

    # The checkout takes this folder's place on the path, as if its own script were run.
    # Otherwise `import megatron` would find this file.
    sys.path[0] = str(megatron)
    import megatron.core.datasets.utils as datasets
    import megatron.core.pipeline_parallel.p2p_communication as p2p
    import megatron.core.transformer.dot_product_attention as attention
    import megatron.training.training as training

    steps = Steps()
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    # Deterministic mode would make torch fill every new tensor, which real
    # steps do not do.
    torch.utils.deterministic.fill_uninitialized_memory = False
    # The backward of these two adds in any order.
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    torch.backends.cuda.enable_cudnn_sdp(False)
    attention.DotProductAttention.forward = attend
    datasets.compile_helpers = lambda: None
    if job.rank is not None:
        fakes.pipeline_peers(p2p)
    train_step = training.train_step

    def stepping(*positional: Any, **named: Any) -> Tuple[Any, ...]:
        with steps.step():
            result: Tuple[Any, ...] = train_step(*positional, **named)
        # Only the last stage of a pipeline has a loss. The other ranks are
        # compared by the norm of the gradients.
        losses, norm = result[0], result[5]
        steps.witness(*losses.values(), norm)
        return result

    training.train_step = stepping
    sys.argv = ["pretrain_gpt.py", *arguments]
    runpy.run_path(str(megatron / "pretrain_gpt.py"), run_name="__main__")
    steps.end()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
