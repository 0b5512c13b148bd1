"""A checkpoint is saved between steps and loaded again in the same process.
Training after loading has the same losses, to the last bit."""

import os
import tempfile

import torch

from job import adamw, model, train


def main() -> None:
    net = model()
    optimizer = adamw(net)
    train(net, optimizer, range(4))
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "checkpoint.pt")
        torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict()}, path)
        straight = train(net, optimizer, range(4, 10))

        net = model(dropout=0.0)
        optimizer = adamw(net)
        saved = torch.load(path, map_location="cuda", weights_only=True)
    net.load_state_dict(saved["net"])
    optimizer.load_state_dict(saved["optimizer"])
    del saved
    resumed = train(net, optimizer, range(4, 10))
    assert resumed == straight, f"after the checkpoint: {resumed}, without one: {straight}"


if __name__ == "__main__":
    main()
