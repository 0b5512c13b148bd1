"""What the runtime is told of point-to-point calls, and that the job does not notice."""

from __future__ import annotations

import contextlib
import functools
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Iterator, List, Tuple

import pytest

import stplan
from conftest import needs_torch
from stplan import _exchanges
from stplan._exchange_marks import ExchangeMarks

SOURCE = str(Path(stplan.__file__).parents[1])


class Tensor:
    def __init__(self, device: int) -> None:
        self.device, self.is_cuda = device, device >= 0

    def get_device(self) -> int:
        return self.device


class Work:
    def wait(self, timeout: int = 0) -> str:
        """Waits."""
        if timeout < 0:
            raise RuntimeError("too late")
        return "waited"

    def synchronize(self) -> None:
        pass


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A process group, whose class stands for both of torch's. Its calls return works."""

    class Waits(Work):
        pass

    for name in ("wait", "synchronize"):
        setattr(Waits, name, getattr(Work, name))

    class Group:
        def send(self, tensors: List[Tensor], dst: int, tag: int) -> Work:
            """Sends."""
            if dst < 0:
                raise ValueError("no such rank")
            return Waits()

        def recv(self, tensors: List[Tensor], src: int, tag: int) -> Work:
            return Waits()

        def recv_anysource(self, tensors: List[Tensor], tag: int) -> Work:
            return Waits()

        def _start_coalescing(self, device: Any = None) -> None:
            pass

        fails = False

        def end(self) -> None:
            if self.fails:
                raise RuntimeError("not together")

        def _end_coalescing(self, device: Any = None) -> Work:
            self.end()
            return Waits()

    bindings = SimpleNamespace(ProcessGroup=Group, Backend=type("Backend", (), {}), Work=Waits)
    monkeypatch.setitem(sys.modules, "torch._C._distributed_c10d", bindings)
    return Group()


class Told:
    """What the runtime is told. The current stream of a device is 100 and its ordinal."""

    def __init__(self) -> None:
        self.devices: List[int] = []
        self.open: List[Tuple[int, int]] = []  # begun and not yet told to be enqueued: device and number
        self.awaited: List[Tuple[int, int, int]] = []
        _exchanges.watch(self, lambda device: 100 + device)

    def exchange_begins(self, device: int) -> int:
        self.devices.append(device)
        self.open.append((device, len(self.devices)))
        return len(self.devices)

    def exchange_enqueued(self, device: int, exchange: int) -> None:
        self.open.remove((device, exchange))

    def exchange_awaited(self, device: int, exchange: int, stream: int) -> None:
        self.awaited.append((device, exchange, stream))


def test_calls_with_cuda_tensors_are_told_before_and_after_them(group: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: List[Any] = []  # the exchanges that have begun, at each call
    for name in ("send", "recv", "recv_anysource"):
        method = getattr(type(group), name)

        def call(*positional: Any, _method: Any = method, **named: Any) -> Any:
            seen.append(list(told.open))
            return _method(*positional, **named)

        monkeypatch.setattr(type(group), name, functools.wraps(method)(call))
    told = Told()
    assert isinstance(group.send([Tensor(1)], 2, 0), Work)
    assert isinstance(group.recv(tensors=[Tensor(3)], src=4, tag=0), Work)
    assert isinstance(group.recv_anysource((Tensor(0),), 0), Work)
    with pytest.raises(ValueError, match="no such rank"):
        group.send([Tensor(5)], -1, 0)
    assert seen == [[(1, 1)], [(3, 2)], [(0, 3)], [(5, 4)]]
    assert isinstance(group.send([Tensor(-1)], 2, 0), Work)
    assert seen[-1] == [], "it is for the host"
    assert told.open == [], "a call that failed enqueues nothing any more"
    assert (type(group).send.__name__, type(group).send.__doc__) == ("send", "Sends.")


def test_calls_together_are_told_once_when_they_are_enqueued(group: Any) -> None:
    told = Told()
    group._start_coalescing("cuda")
    group.send([Tensor(1)], 2, 0)
    group.recv([Tensor(1)], 2, 0)
    assert told.devices == [], "nothing is enqueued yet"
    seen: List[Any] = []
    end = type(group).end
    type(group).end = lambda self: seen.append(list(told.open)) or end(self)
    work = group._end_coalescing("cuda")
    assert (told.devices, seen, told.open) == ([1], [[(1, 1)]], [])
    work.wait()
    assert told.awaited == [(1, 1, 101)]
    group._start_coalescing("cuda")
    group._end_coalescing("cuda")
    assert told.devices == [1], "there was no point-to-point call"
    group.send([Tensor(2)], 2, 0)
    assert told.devices == [1, 2]


def test_calls_together_that_fail_are_over(group: Any) -> None:
    told = Told()
    group._start_coalescing("cuda")
    with pytest.raises(ValueError, match="no such rank"):
        group.send([Tensor(3)], -1, 0)
    group.send([Tensor(1)], 2, 0)
    group.recv([Tensor(2)], 2, 0)
    type(group).fails = True
    with pytest.raises(RuntimeError, match="not together"):
        group._end_coalescing("cuda")
    assert (told.devices, told.open) == ([1, 2], [])
    group.send([Tensor(4)], 2, 0)
    assert told.devices == [1, 2, 4], "the next call is by itself"


def test_the_stream_that_is_made_to_wait_is_told(group: Any) -> None:
    told = Told()
    first, second = group.send([Tensor(1)], 2, 0), group.recv([Tensor(2)], 2, 0)
    with pytest.raises(RuntimeError, match="too late"):
        first.wait(-1)
    assert told.awaited == [], "it did not wait"
    assert second.wait(timeout=5) == "waited"
    first.synchronize()
    type(first)().wait()  # of something else, such as a collective
    assert told.awaited == [(2, 2, 102), (1, 1, 101)]


def test_an_exchange_without_a_number_is_not_followed(group: Any) -> None:
    told = Told()
    told.exchange_begins = lambda device: 0  # type: ignore[method-assign]
    group.send([Tensor(1)], 2, 0).wait()
    assert (told.open, told.awaited) == ([], [])


def test_what_can_be_gone_through_once_is_left_to_the_call(group: Any) -> None:
    told, tensors = Told(), [Tensor(1)]
    once = iter(tensors)
    group.send(once, 2, 0)
    assert list(once) == tensors and told.devices == []


@pytest.mark.parametrize("tensors", [[Tensor(1)], [], None, [object()]])
def test_nothing_that_goes_wrong_reaches_the_job(group: Any, tensors: Any) -> None:
    def fails(*_: int) -> Any:
        raise RuntimeError("the runtime")

    for failing in (["exchange_begins"], ["exchange_enqueued"], ["exchange_awaited"], []):
        told = Told()
        for name in failing:
            setattr(told, name, fails)
        assert group.send(tensors, 2, 0).wait() == "waited"
        assert isinstance(group._end_coalescing(), Work)
    _exchanges.watch(told, fails)
    assert group.send(tensors, 2, 0).wait() == "waited"


def test_a_recording_is_told_by_annotations(group: Any) -> None:
    noted: List[Tuple[int, str]] = []
    current = [0]

    @contextlib.contextmanager
    def device(ordinal: int) -> Iterator[None]:
        before, current[0] = current[0], ordinal
        yield
        current[0] = before

    @contextlib.contextmanager
    def record_function(name: str) -> Iterator[None]:
        noted.append((current[0], name))
        yield

    profiler = SimpleNamespace(record_function=record_function)
    marks = ExchangeMarks(SimpleNamespace(cuda=SimpleNamespace(device=device), autograd=SimpleNamespace(profiler=profiler)))
    _exchanges.watch(marks, lambda device: 100 + device)
    first, second = group.send([Tensor(1)], 2, 0), group.recv([Tensor(0)], 2, 0)
    second.wait()
    first.wait()
    marks.stop()
    group.send([Tensor(1)], 2, 0).wait()
    second.wait()
    begun = [(1, "stplan.exchange#1"), (0, "stplan.exchange#2")]
    assert noted == [*begun, (0, "stplan.awaited#2@100"), (1, "stplan.awaited#1@101")]


def test_a_torch_without_distributed_or_with_other_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch._C._distributed_c10d", raising=False)
    Told()
    monkeypatch.setitem(sys.modules, "torch._C._distributed_c10d", SimpleNamespace(ProcessGroup=int, Backend=None))
    Told()


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
class Follows:
    def __getattr__(self, name):
        return lambda *arguments: told.append((name, *arguments))
_exchanges.watch(Follows(), lambda device: 0)
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
class Follows:
    def exchange_begins(self, device):
        told.append(device)
        return 7
    def exchange_enqueued(self, device, number):
        told.append(f"{number} enqueued")
    def exchange_awaited(self, device, number, stream):
        told.append(f"{number} awaited")
_exchanges.watch(Follows(), lambda device: 0)
_exchanges._device = lambda tensors: 2
dist.init_process_group("fake", rank=0, world_size=4, store=FakeStore())
tensor = torch.empty(4)
for call in (dist.isend, dist.irecv, dist.send, dist.recv):
    work = call(tensor, 1)
    if call in (dist.isend, dist.irecv):
        work.wait()
    print(call.__name__, told)
    told.clear()
dist.batch_isend_irecv([dist.P2POp(dist.isend, tensor, 1), dist.P2POp(dist.irecv, tensor, 3)])
print("batch", told)
told.clear()
try:
    with dist.distributed_c10d._coalescing_manager(device=tensor.device, async_ops=True) as manager:
        dist.isend(tensor, 1)
        print("not yet", told)
    print("together", told)
    manager.wait()
    print(told)
except RuntimeError:
    pass
"""


@needs_torch
def test_exchanges_of_the_real_torch_are_told() -> None:
    """By a process group that sends nothing, with tensors that are taken for CUDA's."""
    (said,) = run(FAKE)
    awaited = [f"{call} [2, '7 enqueued', '7 awaited']" for call in ("isend", "irecv", "send", "recv")]
    together = ["not yet []", "together [2, '7 enqueued']", "[2, '7 enqueued', '7 awaited']"]
    lines = said.splitlines()
    assert lines[:5] == [*awaited, "batch [2, '7 enqueued', 2, '7 enqueued']"]
    # The process group of torch 2.6 that sends nothing cannot do so together either.
    assert lines[5:] in ([], together[:1], together)
