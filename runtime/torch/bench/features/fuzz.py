"""Random sizes, streams and lifetimes. Every tensor is filled with a number of
its own, which is checked before the tensor is freed. That finds memory that two
tensors share, and memory that is reused before a stream has finished with it.

Each round is the same program with a few random changes, so that a plan of one
round is mostly right for the next."""

import math
import os
import random
from typing import Dict, List, NamedTuple

import torch

from job import Marks

ROUNDS, OPERATIONS, DEVIATIONS = 8, 2500, 0.02
STREAMS, CAPACITY, LARGEST = 5, 2 << 30, 64 << 20


class Held(NamedTuple):
    tensor: torch.Tensor
    mark: int
    stream: torch.cuda.Stream


class Fuzz:
    def __init__(self) -> None:
        self.marks = Marks()
        self.streams = [torch.cuda.current_stream(), *(torch.cuda.Stream() for _ in range(STREAMS - 1))]
        self.held: Dict[int, Held] = {}  # by operation of the program
        self.mark = 0
        self.bytes = 0

    def make(self, key: int, picks: random.Random) -> None:
        size = 8 * int(math.exp(picks.uniform(0, math.log(LARGEST // 8))))
        stream = self.streams[min(int(picks.expovariate(1.0)), STREAMS - 1)]  # most on the first
        if self.bytes + size > CAPACITY:
            return
        self.mark += 1
        with torch.cuda.stream(stream):
            self.held[key] = Held(self.marks.new(size, self.mark), self.mark, stream)
        self.bytes += size

    def look(self, key: int, picks: random.Random) -> None:
        """Checks a tensor on its own stream, or on another one that waits for
        that first."""
        tensor, mark, home = self.held[key]
        reader = picks.choice(self.streams) if picks.random() < 0.3 else home
        with torch.cuda.stream(reader):
            if reader != home:
                reader.wait_stream(home)
                tensor.record_stream(reader)
                if picks.random() < 0.2:
                    torch.cuda._sleep(200_000)
            self.marks.check(tensor, mark)

    def free(self, key: int, picks: random.Random) -> None:
        self.look(key, picks)
        self.bytes -= self.held.pop(key).tensor.nbytes

    def step(self, key: int, picks: random.Random) -> None:
        if picks.random() < 0.55 or not self.held:
            self.make(key, picks)
        else:
            # As in training, young tensors are freed more often than old ones.
            keys: List[int] = list(self.held)
            self.free(keys[-1 - min(int(picks.expovariate(0.1)), len(keys) - 1)], picks)

    def round(self, number: int) -> None:
        program, deviation = random.Random("the program"), random.Random(number)
        for operation in range(OPERATIONS):
            picks = random.Random(program.random())
            if deviation.random() < DEVIATIONS:
                continue  # this operation is left out
            if deviation.random() < DEVIATIONS:
                self.step(-1 - operation, deviation)  # an operation is added
            self.step(operation, picks)
        requested = sum(held.tensor.nbytes for held in self.held.values())
        assert requested == self.bytes
        stats = torch.cuda.memory_stats()
        assert stats["requested_bytes.all.current"] >= requested, "fewer bytes are allocated than tensors hold"
        assert stats["reserved_bytes.all.current"] >= stats["allocated_bytes.all.current"] >= requested
        # A few tensors outlive their round. They get new keys, since the next round uses
        # the same keys.
        keep = deviation.sample(sorted(self.held), 3)
        for key in sorted(self.held.keys() - set(keep)):
            self.free(key, deviation)
        for age, key in enumerate(keep):
            self.held[-(1 + number) * 1_000_000 - age] = self.held.pop(key)
        if number == ROUNDS // 2:
            torch.cuda.empty_cache()


def main() -> None:
    fuzz = Fuzz()
    for number in range(int(os.environ.get("ROUNDS", ROUNDS))):
        fuzz.round(number)
    for key in list(fuzz.held):
        fuzz.free(key, random.Random(0))
    wrong = fuzz.marks.wrong()
    assert wrong == 0, f"{wrong} wrong words in {fuzz.mark} tensors"
    print(f"{fuzz.mark} tensors")


if __name__ == "__main__":
    main()
