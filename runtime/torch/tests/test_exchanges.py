"""What the runtime is told of point-to-point calls, and that the job does not notice."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, List

import pytest

import stplan
from conftest import needs_torch
from stplan import _exchanges

SOURCE = str(Path(stplan.__file__).parents[1])


class Tensor:
    def __init__(self, device: int) -> None:
        self.device, self.is_cuda = device, device >= 0

    def get_device(self) -> int:
        return self.device


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A process group, whose class stands for both of torch's."""

    class Group:
        def send(self, tensors: List[Tensor], dst: int, tag: int) -> str:
            """Sends."""
            if dst < 0:
                raise ValueError("no such rank")
            return f"sent to {dst}"

        def recv(self, tensors: List[Tensor], src: int, tag: int) -> str:
            return f"received from {src}"

        def recv_anysource(self, tensors: List[Tensor], tag: int) -> str:
            return "received"

        def _end_coalescing(self, device: Any = None) -> str:
            return "both"

    bindings = SimpleNamespace(ProcessGroup=Group, Backend=type("Backend", (), {}))
    monkeypatch.setitem(sys.modules, "torch._C._distributed_c10d", bindings)
    return Group()


def test_calls_with_cuda_tensors_are_told_after_them(group: Any) -> None:
    told: List[int] = []
    _exchanges.watch(told.append)
    assert group.send([Tensor(1)], 2, 0) == "sent to 2"
    assert group.recv(tensors=[Tensor(3)], src=4, tag=0) == "received from 4"
    assert group.recv_anysource([Tensor(0)], 0) == "received"
    assert told == [1, 3, 0]
    with pytest.raises(ValueError, match="no such rank"):
        group.send([Tensor(5)], -1, 0)
    assert group.send([Tensor(-1)], 2, 0) == "sent to 2"
    assert told == [1, 3, 0], "a call that fails, or that is for the host, is not told"
    assert (type(group).send.__name__, type(group).send.__doc__) == ("send", "Sends.")


def test_calls_together_are_told_again_when_they_are_enqueued(group: Any) -> None:
    told: List[int] = []
    _exchanges.watch(told.append)
    group.send([Tensor(1)], 2, 0)
    group.recv([Tensor(1)], 2, 0)
    assert group._end_coalescing("cuda") == "both"
    assert told == [1, 1, 1]
    group._end_coalescing("cuda")
    assert told == [1, 1, 1], "there was no point-to-point call"


@pytest.mark.parametrize("tensors", [[Tensor(1)], [], None, [object()]])
def test_nothing_that_goes_wrong_reaches_the_job(group: Any, tensors: Any) -> None:
    def tell(device: int) -> None:
        raise RuntimeError("the runtime")

    _exchanges.watch(tell)
    assert group.send(tensors, 2, 0) == "sent to 2"
    assert group._end_coalescing() == "both"


def test_a_torch_without_distributed_or_with_other_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch._C._distributed_c10d", raising=False)
    _exchanges.watch(lambda device: None)
    monkeypatch.setitem(sys.modules, "torch._C._distributed_c10d", SimpleNamespace(ProcessGroup=int, Backend=None))
    _exchanges.watch(lambda device: None)


def run(*scripts: str, **environment: str) -> List[str]:
    """The outputs of Python scripts that run at the same time."""
    jobs = [
        subprocess.Popen([sys.executable, "-c", s], env={"PYTHONPATH": SOURCE, **environment}, stdout=subprocess.PIPE, text=True)
        for s in scripts
    ]
    said = [job.communicate(timeout=120)[0] for job in jobs]
    assert [job.returncode for job in jobs] == [0] * len(jobs)
    return said


GLOO = """
import sys, torch, torch.distributed as dist
from stplan import _exchanges
before = [dist.isend, dist.irecv, dist.send, dist.recv, dist.batch_isend_irecv]
told = []
_exchanges.watch(told.append)
assert before == [dist.isend, dist.irecv, dist.send, dist.recv, dist.batch_isend_irecv]
rank = {rank}
dist.init_process_group("gloo", init_method="file://{store}", rank=rank, world_size=2)
mine, theirs = torch.full((4,), float(rank)), torch.zeros(4)
for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, mine, 1 - rank), dist.P2POp(before[1], theirs, 1 - rank)]):
    work.wait()
assert theirs.tolist() == [1.0 - rank] * 4
try:
    dist.P2POp(dist.broadcast, mine, 1 - rank)
    raise SystemExit("taken")
except ValueError:
    pass
theirs.zero_()
dist.send(mine, 1 - rank) if rank else dist.recv(theirs)
dist.recv(theirs, 1 - rank) if rank else dist.send(mine, 1 - rank)
assert theirs.tolist() == [1.0 - rank] * 4
works = [dist.isend(mine, 1 - rank), dist.irecv(theirs, 1 - rank)]
[work.wait() for work in works]
objects = [rank]
dist.send_object_list(objects, 1) if rank == 0 else dist.recv_object_list(objects, 0)
assert objects == [0]
dist.destroy_process_group()
print(told)
"""


@needs_torch
def test_exchanges_of_the_real_torch_are_as_before(tmp_path: Path) -> None:
    """Over gloo, whose tensors are the host's: nothing is told, and nothing changes."""
    scripts = [GLOO.format(rank=rank, store=tmp_path / "store") for rank in (0, 1)]
    assert run(*scripts) == ["[]\n"] * 2


FAKE = """
import torch, torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore
from stplan import _exchanges
told = []
_exchanges.watch(told.append)
_exchanges._device = lambda tensors: 2
dist.init_process_group("fake", rank=0, world_size=4, store=FakeStore())
tensor = torch.empty(4)
for call in (dist.isend, dist.irecv, dist.send, dist.recv):
    call(tensor, 1)
    print(call.__name__, told)
    told.clear()
dist.batch_isend_irecv([dist.P2POp(dist.isend, tensor, 1), dist.P2POp(dist.irecv, tensor, 3)])
print("batch", told)
try:
    with dist.distributed_c10d._coalescing_manager(device=tensor.device, async_ops=True):
        dist.isend(tensor, 1)
        told.clear()
    print("together", told)
except RuntimeError:
    pass
"""


@needs_torch
def test_exchanges_of_the_real_torch_are_told() -> None:
    """By a process group that sends nothing, with tensors that are taken for CUDA's."""
    (said,) = run(FAKE)
    alone = ["isend [2]", "irecv [2]", "send [2]", "recv [2]", "batch [2, 2]"]
    # The process group of torch 2.6 that sends nothing cannot do so together either.
    assert said.splitlines() in (alone, [*alone, "together [2]"])
