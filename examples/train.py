"""A training loop that does not use stplan itself: a small transformer in
bfloat16 whose layers recompute their activations.

    python train.py [STEPS]
"""
import sys

import torch
from torch.utils.checkpoint import checkpoint

WIDTH, LAYERS, WORDS, LENGTH, BATCH = 1024, 12, 32000, 512, 16


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.words = torch.nn.Embedding(WORDS, WIDTH)
        self.layers = torch.nn.ModuleList(
            torch.nn.TransformerEncoderLayer(WIDTH, 16, 4 * WIDTH, dropout=0, batch_first=True) for _ in range(LAYERS)
        )
        self.head = torch.nn.Linear(WIDTH, WORDS)

    def forward(self, tokens):
        x = self.words(tokens)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False)
        return self.head(x)


torch.manual_seed(0)
model = Model().cuda().bfloat16()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for step in range(int(sys.argv[1]) if len(sys.argv) > 1 else 20):
    tokens = torch.randint(0, WORDS, (BATCH, LENGTH), device="cuda")
    loss = torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"step {step}: loss {loss.item():.4f}", flush=True)

allocated, reserved = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
print(f"peak allocated {allocated / 2**30:.2f} GiB, peak reserved {reserved / 2**30:.2f} GiB")
