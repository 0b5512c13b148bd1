"""A whole training step as one CUDA graph, and make_graphed_callables: losses
are close to those of eager code."""

import torch

from job import BATCH, WIDTH, Marks, adamw, batch, churn, close, loss_of, model, train

STEPS = range(10)


def one_graph() -> "list[str]":
    """Replays one captured step: forward pass, backward pass and update."""
    net = model()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, capturable=True)
    inputs = torch.zeros(BATCH, WIDTH, device="cuda")
    state = {name: value.clone() for name, value in net.state_dict().items()}
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            optimizer.zero_grad()
            loss_of(net, inputs).backward()
            optimizer.step()
    torch.cuda.current_stream().wait_stream(stream)
    net.load_state_dict(state)
    for values in optimizer.state.values():
        for value in values.values():
            value.zero_()
    graph = torch.cuda.CUDAGraph()
    optimizer.zero_grad()
    with torch.cuda.graph(graph):
        loss = loss_of(net, inputs)
        loss.backward()
        optimizer.step()
    losses = []
    for step in STEPS:
        inputs.copy_(batch(step))
        graph.replay()
        losses.append(float(loss.item()).hex())
        churn(rounds=50)
    return losses


def graphed_callables() -> "list[str]":
    """The forward and backward passes are graphs; the update is eager."""
    net = model()
    optimizer = adamw(net)
    torch.cuda.make_graphed_callables(net, (torch.zeros(BATCH, WIDTH, device="cuda"),))  # changes the module itself
    return train(net, optimizer, STEPS)


def main() -> None:
    net = model()
    eager = train(net, adamw(net), STEPS)
    del net
    marks = Marks()
    kept = [marks.new(1 << 20, mark) for mark in range(50)]
    for way in (one_graph, graphed_callables):
        found = way()
        assert close(eager, found), f"{way.__name__}: {found}, eager: {eager}"
    for mark, tensor in enumerate(kept):
        marks.check(tensor, mark)
    assert marks.wrong() == 0, "a replay has overwritten eager tensors"


if __name__ == "__main__":
    main()
