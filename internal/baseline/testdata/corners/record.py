#!/usr/bin/env python3
"""Record the snapshots of this folder: record.py FOLDER, on a machine with a GPU.

Each case runs in a process of its own. The sizes are small and random with a
fixed seed; what differs between cases is which corner of the allocator they
reach. The memory fraction of `oom` and `expand_oom` (0.02) and the card's size
are not in the snapshots; the script prints the size.
"""
import gzip
import os
import pathlib
import pickle
import random
import subprocess
import sys

SETTINGS = {
    "maxsplit": "max_split_size_mb:32,roundup_power2_divisions:[256:1,512:2,1024:4,>:8],garbage_collection_threshold:0.6",
    "expand_oom": "expandable_segments:True",
}


def record(**options):
    torch.cuda.memory._record_memory_history(**options)


def dump(name):
    with gzip.open(FOLDER / f"{name}.pickle.gz", "wb") as f:
        pickle.dump(torch.cuda.memory._snapshot(), f)


def model(blocks=6, width=1024):
    layers = []
    for _ in range(blocks):
        layers += [torch.nn.Linear(width, 4 * width), torch.nn.GELU(), torch.nn.Linear(4 * width, width)]
    return torch.nn.Sequential(*layers).cuda()


def train(net, opt, steps, variable=False):
    for _ in range(steps):
        batch = torch.randn(256 + (random.randrange(200) if variable else 0), 1024, device="cuda")
        net(batch).square().mean().backward()
        opt.step()
        opt.zero_grad()
    torch.cuda.synchronize()


def fill_the_card(held):
    """Allocate until the card is full, and survive it."""
    try:
        while True:
            held.append(torch.empty(random.randrange(1 << 20, 200 << 20), dtype=torch.uint8, device="cuda"))
    except torch.OutOfMemoryError:
        pass


def graphs():
    record(context=None)
    net = model()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    batch = torch.randn(256, 1024, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            net(batch).sum().backward()
            opt.step()
            opt.zero_grad()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        net(batch).sum().backward()
    for _ in range(4):
        graph.replay()
        opt.step()
        torch.randn(1000, 1000, device="cuda")
    dump("graphs")


def compile():
    record(context=None)
    net = model(3)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    fast = torch.compile(net, mode="reduce-overhead")
    for _ in range(5):
        fast(torch.randn(128, 1024, device="cuda")).sum().backward()
        opt.step()
        opt.zero_grad()
    torch.cuda.synchronize()
    dump("compile")


def mempool():
    record(context=None)
    pool, kept = torch.cuda.MemPool(), []
    for i in range(40):
        kept.append(torch.empty(random.randrange(1 << 12, 8 << 20), device="cuda"))
        with torch.cuda.use_mem_pool(pool):
            kept.append(torch.empty(random.randrange(1 << 12, 8 << 20), device="cuda"))
        if i % 3 == 0:
            kept.pop(random.randrange(len(kept)))
    dump("mempool")


def oom():
    torch.cuda.set_per_process_memory_fraction(0.02)
    record(context=None)
    net = model()
    opt = torch.optim.AdamW(net.parameters())
    held = []
    for i in range(5):
        train(net, opt, 1)
        fill_the_card(held)
        del held[::2]
        if i % 2:
            held.clear()
    dump("oom")


def expand_oom():
    torch.cuda.set_per_process_memory_fraction(0.02)
    record(context=None)
    net = model()
    opt = torch.optim.AdamW(net.parameters())
    side, held = torch.cuda.Stream(), []
    for i in range(6):
        train(net, opt, 1, variable=True)
        with torch.cuda.stream(side):
            held.append(torch.empty(random.randrange(1 << 20, 30 << 20), device="cuda"))
        torch.randn(1 << 22, device="cuda").record_stream(side)
        if i % 2:
            held.clear()
            torch.cuda.empty_cache()
        fill_the_card(held)
        held.clear()
    dump("expand_oom")


def from_the_middle(name):
    net = model()
    opt = torch.optim.AdamW(net.parameters())
    train(net, opt, 2, variable=True)
    side = torch.cuda.Stream()
    shared = torch.randn(3000, 3000, device="cuda")
    with torch.cuda.stream(side):
        product = shared * 2
    shared.record_stream(side)
    del shared
    record(context=None)
    if name == "base":
        dump("base0")
    train(net, opt, 4, variable=True)
    del product
    train(net, opt, 2)
    dump(name)


def ring():
    record(context=None, max_entries=3000)
    net = model()
    train(net, torch.optim.AdamW(net.parameters()), 30, variable=True)
    dump("ring")


def maxsplit():
    record(context=None)
    net = model()
    opt = torch.optim.AdamW(net.parameters())
    train(net, opt, 6, variable=True)
    torch.cuda.empty_cache()
    train(net, opt, 3, variable=True)
    dump("maxsplit")


CASES = {
    "graphs": graphs, "compile": compile, "mempool": mempool, "oom": oom, "expand_oom": expand_oom, "ring": ring,
    "maxsplit": maxsplit, "mid": lambda: from_the_middle("mid"), "base": lambda: from_the_middle("base"),
}

FOLDER = pathlib.Path(sys.argv[1])
if len(sys.argv) > 2:
    import torch

    random.seed(1)
    torch.manual_seed(1)
    CASES[sys.argv[2]]()
else:
    for case in CASES:
        env = dict(os.environ, PYTORCH_CUDA_ALLOC_CONF=SETTINGS.get(case, ""))
        subprocess.run([sys.executable, __file__, str(FOLDER), case], env=env, check=True)
    import torch

    print("card:", torch.cuda.get_device_properties(0).total_memory, "B")
