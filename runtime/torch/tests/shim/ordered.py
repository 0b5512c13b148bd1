"""A program with random sizes, streams and lifetimes on a simulated device, and
a judge that reads the device's log. Before a tensor takes over memory, its
stream has to wait for every stream that record_stream named for the earlier owner.
If that was of another stream, it has to wait for everything that any stream had been
given when the earlier owner was freed: streams read tensors late here and do not say so.

Runs in a process of its own. The fake driver writes its log to FAKE_LOG; the
judge reads it from FAKE_LOG_READ. Prints the number of allocations judged, of
those that were not ordered, and of waits in the log. With IGNORE_WAITS set the
judge ignores waits, and then has to find allocations that are not ordered.
"""

import os
import random
from collections import defaultdict

import torch

import stplan

UNIT, OPERATIONS, LIVE = 512, 2000, 14
SIZES = (1, 100, 4096, 70_000, 300_000, 1 << 20, 3 << 20)


class Judge:
    """Keeps a vector clock of each stream, and of each event when it was last
    recorded."""

    def __init__(self):
        self.clocks = defaultdict(lambda: defaultdict(int))
        self.events = {}
        self.users = defaultdict(dict)  # by unit of memory: time of each stream's last use
        self.given = {}  # by unit of memory: the stream of its last owner, and each stream's time when that was freed
        self.allocations = self.waits = self.unordered = 0
        self.rest = b""

    def follow(self, stream, clock):
        for other, time in clock.items():
            self.clocks[stream][other] = max(self.clocks[stream][other], time)

    def read_log(self):
        while True:
            try:
                *lines, self.rest = (self.rest + os.read(int(os.environ["FAKE_LOG_READ"]), 1 << 16)).split(b"\n")
            except BlockingIOError:
                return
            for line in lines:
                what, stream, event = line.split()
                if what == b"whole":
                    self.events[int(event)] = self.now()
                    continue
                if what == b"record":
                    self.events[int(event)] = dict(self.clocks[int(stream)])
                    continue
                self.waits += 1
                if "IGNORE_WAITS" not in os.environ:
                    self.follow(int(stream), self.events[int(event)])

    def now(self):
        return {stream: clock[stream] for stream, clock in self.clocks.items()}

    def work(self, stream):
        """A stream does something; it may read any tensor."""
        self.clocks[stream][stream] += 1

    def units(self, tensor):
        return range(tensor.data_ptr() // UNIT, -(-(tensor.data_ptr() + tensor.numel()) // UNIT))

    def free(self, tensor, stream):
        now = self.now()
        for unit in self.units(tensor):
            self.given[unit] = (stream, now)

    def ordered(self, unit, stream):
        known = self.clocks[stream]
        owner, given = self.given.get(unit, (stream, {}))
        return all(known[s] >= time for s, time in self.users[unit].items()) and (
            owner == stream or all(known[s] >= time for s, time in given.items())
        )

    def use(self, tensor, stream, new=False):
        self.read_log()
        self.clocks[stream][stream] += 1
        units = self.units(tensor)
        if new:
            self.allocations += 1
            self.unordered += not all(self.ordered(unit, stream) for unit in units)
        for unit in units:
            if new:
                self.users[unit] = {}
            self.users[unit][stream] = self.clocks[stream][stream]


def main():
    os.set_blocking(int(os.environ["FAKE_LOG_READ"]), False)
    stplan.enable(memory=os.environ["MEMORY"])
    random.seed(1)
    # 12 streams: more than the runtime keeps clocks of their own for.
    streams = [torch.cuda.default_stream()] + [torch.cuda.Stream() for _ in range(11)]
    silent = 1  # a stream that neither allocates nor is named by record_stream
    judge, live = Judge(), []
    for _ in range(OPERATIONS):
        choice = random.random()
        if choice < 0.5 or not live:
            stream = random.choice(streams)
            with torch.cuda.stream(stream):
                live.append((torch.empty(random.choice(SIZES), dtype=torch.uint8, device="cuda"), stream))
            judge.use(live[-1][0], stream.cuda_stream, new=True)
        elif choice < 0.75:
            (tensor, own), other = random.choice(live), random.choice(streams)
            judge.read_log()
            judge.follow(other.cuda_stream, judge.clocks[own.cuda_stream])  # like other.wait_stream(own)
            judge.use(tensor, other.cuda_stream)
            tensor.record_stream(other)
            del tensor
        if choice >= 0.75 or len(live) > LIVE:
            judge.work(random.choice(streams).cuda_stream)
            judge.work(silent)
            judge.read_log()
            tensor, own = live.pop(random.randrange(len(live)))
            judge.free(tensor, own.cuda_stream)
            del tensor
    print(judge.allocations, judge.unordered, judge.waits, flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
