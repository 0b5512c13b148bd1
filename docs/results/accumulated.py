#!/usr/bin/env python3
"""Write the recording of a made-up full finetuning with gradient accumulation.

    accumulated.py RECORDING.pickle.gz [--seed N] [--steps N] [--batches N] [--layers N] [--same]

Every micro-batch has a length of its own. The gradients come in the backward pass of the first
micro-batch and live until the optimizer has stepped, so they cross the micro-batches between. The
optimizer makes its state in its first step. Activations follow the length, those of the attention
its square; the logits are the largest. With --same, the first step's lengths are those of seed 1.
"""
import argparse
import gzip
import pickle
import random

HIDDEN, VOCABULARY, MIB = 2048, 32000, 1 << 20


class Recorder:
    """Allocations and frees in the form of a memory snapshot of PyTorch."""

    def __init__(self):
        self.entries, self.annotations, self.next = [], [], 1 << 40

    def note(self, action, addr, size):
        self.entries.append({"action": action, "addr": addr, "size": size, "stream": 0, "time_us": len(self.entries), "frames": []})

    def alloc(self, size):
        addr, self.next = self.next, self.next + (size + 511) // 512 * 512
        self.note("alloc", addr, size)
        return addr, size

    def free(self, blocks):
        for addr, size in blocks:
            self.note("free_requested", addr, size)
            self.note("free_completed", addr, size)

    def annotate(self, stage):
        self.note("alloc", self.next, 512)  # so that it has a time of its own
        self.free([(self.next, 512)])
        self.annotations.append({"name": "Optimizer.step#AdamW.step", "stage": stage, "device": 0, "time_us": len(self.entries) - 1})


def micro_batch(r, length, layers, weights, gradients):
    inputs = [r.alloc(8 * length), r.alloc(2 * HIDDEN * length)]
    saved = []
    for _ in range(layers):
        kept = [r.alloc(2 * HIDDEN * length) for _ in range(5)]
        attention = r.alloc(2 * 16 * length * length // 8)
        kept += [r.alloc(2 * 4 * HIDDEN * length) for _ in range(2)]
        r.free([attention])
        saved.append(kept)
    logits = r.alloc(4 * VOCABULARY * length)
    losses = r.alloc(4 * VOCABULARY * length)
    r.free([logits])
    flow = r.alloc(2 * HIDDEN * length)
    r.free([losses])
    for layer in reversed(range(layers)):
        for w, (_, size) in enumerate(weights[layer]):
            made = r.alloc(size)
            below = r.alloc(2 * HIDDEN * length)
            r.free([flow, saved[layer][w]])
            flow = below
            if (layer, w) in gradients:
                r.free([made])  # it is added to the one that is there
            else:
                gradients[layer, w] = made
        r.free(saved[layer][len(weights[layer]):])
    r.free([flow, *inputs])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recording")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--batches", type=int, default=4)
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--same", action="store_true")
    args = parser.parse_args()
    rng, first = random.Random(args.seed), random.Random(1)
    r = Recorder()
    weights = [[r.alloc(s * MIB) for s in (8, 8, 8, 8, 32, 32)] for _ in range(args.layers)]
    for step in range(args.steps):
        gradients = {}
        for _ in range(args.batches):
            source = first if args.same and step == 0 else rng
            micro_batch(r, source.randrange(256, 2048), args.layers, weights, gradients)
        r.annotate("START")
        for layer in weights:
            for _, size in layer:
                if step == 0:
                    r.alloc(2 * size), r.alloc(2 * size)
                r.free([r.alloc(2 * size)])
        r.annotate("END")
        r.free(gradients.values())
    snapshot = {"device_traces": [r.entries], "external_annotations": r.annotations, "segments": []}
    with gzip.open(args.recording, "wb", compresslevel=1) as file:
        pickle.dump(snapshot, file, protocol=4)


if __name__ == "__main__":
    main()
