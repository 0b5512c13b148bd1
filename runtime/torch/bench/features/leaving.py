"""Exits with objects alive: tensors in globals, in reference cycles and in threads, a
graph, unfinished work on a side stream, and a pinned copy. The exit code has to be 0."""

import threading

import torch

from job import Marks, adamw, batch, loss_of, model, train

net = model()
optimizer = adamw(net)
assert len(train(net, optimizer, range(4))) == 4
pending_loss = loss_of(net, batch(4))  # a whole autograd graph

cycle = [torch.ones(1 << 20, device="cuda")]
cycle.append(cycle)  # type: ignore[arg-type]

graph = torch.cuda.CUDAGraph()
static = torch.zeros(1 << 16, device="cuda")
with torch.cuda.graph(graph):
    doubled = static * 2
graph.replay()

stream = torch.cuda.Stream()
marks = Marks()
read = marks.new(1 << 24, 5)
stream.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(stream):
    torch.cuda._sleep(100_000_000)
    marks.check(read, 5)
    host = read.to("cpu", non_blocking=True)
read.record_stream(stream)
del read

sleeper = threading.Thread(target=threading.Event().wait, args=(600,), daemon=True)
sleeper.held = torch.ones(1 << 20, device="cuda")  # type: ignore[attr-defined]
sleeper.start()
