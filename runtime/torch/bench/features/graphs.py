"""CUDA graphs are captured, and replayed while eager code allocates and frees:
results are exact. Two graphs share a pool. When the graphs are deleted their
memory is given back."""

import gc

import torch

from job import Marks, churn

WORDS = 1 << 20


def compute(x: torch.Tensor) -> torch.Tensor:
    """Computes with integers, whose results are exact, and with temporaries of several
    sizes."""
    y = (x * 3 + 1).cumsum(0) ^ 0x5555
    z = torch.cat([y[::2], y[1::2] * 7])
    return z.flip(0) + x


def main() -> None:
    marks = Marks()
    churn()
    before = torch.cuda.memory_allocated()
    static = torch.zeros(WORDS, dtype=torch.int64, device="cuda")
    other = torch.zeros(WORDS // 4, dtype=torch.int64, device="cuda")
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        compute(static)
        compute(other)
    torch.cuda.current_stream().wait_stream(stream)

    graph, second = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = compute(static)
    with torch.cuda.graph(second, pool=graph.pool()):
        second_result = compute(other)

    kept = []
    for step in range(30):
        # A replay must not change the tensors of eager code, nor eager code the graph's.
        kept.append(marks.new(4 << 20, step))
        churn(rounds=40)
        inputs = torch.randint(-1000, 1000, (WORDS,), device="cuda")
        static.copy_(inputs)
        graph.replay()
        assert torch.equal(result, compute(inputs)), f"replay {step}"
        other.copy_(inputs[: WORDS // 4])
        second.replay()
        assert torch.equal(second_result, compute(inputs[: WORDS // 4])), f"second graph, replay {step}"
    for mark, tensor in enumerate(kept):
        marks.check(tensor, mark)
    assert marks.wrong() == 0, f"{marks.wrong()} words that a replay has overwritten"

    del graph, second, result, second_result, static, other, kept, inputs, tensor
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    # torch keeps two 8-byte tensors with the state of random numbers for graphs.
    left = torch.cuda.memory_allocated() - before
    assert 0 <= left <= 4096, f"{left} bytes more are allocated than before the graphs"


if __name__ == "__main__":
    main()
