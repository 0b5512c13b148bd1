"""A small training loop that does what real ones do: it evaluates after every third step,
holds its outputs until the next ones exist, fetches the next batch in advance on another
stream, and keeps all losses.

    python train.py evaluation.pickle.gz
"""
import gzip
import pickle
import sys

import torch

WIDTH, LAYERS, WORDS, STEPS = 1024, 8, 32000, 13

torch.cuda.memory._record_memory_history(max_entries=2_000_000, context=None, stacks="python")
torch.manual_seed(0)
blocks = [torch.nn.Sequential(torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.GELU(), torch.nn.Linear(4 * WIDTH, WIDTH)) for _ in range(LAYERS)]
model = torch.nn.Sequential(*blocks, torch.nn.Linear(WIDTH, WORDS)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
side = torch.cuda.Stream()
losses = []


def batch():
    with torch.cuda.stream(side):
        return torch.randn(2048, WIDTH).cuda(non_blocking=True), torch.randint(0, WORDS, (2048,)).cuda(non_blocking=True)


ahead = batch()
for step in range(STEPS):
    torch.cuda.current_stream().wait_stream(side)
    x, y = ahead
    x.record_stream(torch.cuda.current_stream())
    ahead = batch()
    out = model(x)
    loss = torch.nn.functional.cross_entropy(out, y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.detach())
    if step % 3 == 2:
        with torch.no_grad():
            for _ in range(4):
                best = model(torch.randn(1024, WIDTH, device="cuda")).argmax(-1)

with gzip.open(sys.argv[1], "wb") as file:
    pickle.dump(torch.cuda.memory._snapshot(), file)
