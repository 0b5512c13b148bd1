"""Lets the jobs of a comparison take turns, step by step.

A step is timed while every other job waits, so that slow changes of the machine
affect all jobs equally. Work that is not timed (imports, building the model,
other steps) is done by all jobs at the same time.

The conductor runs in the process that starts the jobs. It opens a socket, and
passes its path to each job in the environment. Each process of a job is a player:

    player = Player.from_environment(torch.cuda.synchronize)
    player.enter()              # before CUDA is initialised
    ...                         # build the model
    for ...:
        with player.step():
            ...                 # one training step
    player.leave({"any": "figures"})   # then exit

Without a conductor the player never waits and only times the steps. All ranks of
one job step together: the conductor lets them go when the last of them has asked.
"""

from __future__ import annotations

import json
import os
import selectors
import socket
import sys
import time
from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional

ENVIRONMENT = "STPLAN_BENCH_TURNS"
"""The environment variable for players: a JSON object with the path of the socket and the
name of the job."""

GO = b"go\n"


class Player:
    """One process of a job. Each of its methods has a counterpart in Conductor."""

    def __init__(
        self, name: str, rank: int, connection: Optional[socket.socket], synchronize: Callable[[], None]
    ) -> None:
        self.name = name
        self.rank = rank
        self.seconds: List[float] = []
        self._connection = connection
        self._synchronize = synchronize

    @classmethod
    def from_environment(
        cls, synchronize: Callable[[], None], environment: Mapping[str, str] = os.environ
    ) -> Player:
        """The player of this process. If the environment names no conductor, it never
        waits."""
        rank = int(environment.get("RANK", "0"))
        text = environment.get(ENVIRONMENT)
        if text is None:
            return cls("", rank, None, synchronize)
        seat = json.loads(text)
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(seat["socket"])
        return cls(seat["name"], rank, connection, synchronize)

    def enter(self) -> None:
        """Waits until the conductor lets this group of jobs use the device."""
        self._ask("enter")

    @contextmanager
    def step(self) -> Iterator[None]:
        """The context of one step: waits for its turn, then times the body between two
        synchronisations of the device."""
        self._ask("step")
        self._synchronize()
        begin = time.perf_counter()
        yield
        self._synchronize()
        self.seconds.append(time.perf_counter() - begin)
        self._say({"stepped": self.seconds[-1]})

    def leave(self, report: Mapping[str, Any]) -> None:
        """Reports the job's figures, and waits for its turn to exit. Free nothing between
        this call and the exit: the conductor measures how much memory the exit frees."""
        self._ask("leave", report=report)

    def _say(self, message: Mapping[str, Any]) -> None:
        if self._connection is not None:
            self._connection.sendall(json.dumps({"name": self.name, "rank": self.rank, **message}).encode() + b"\n")

    def _ask(self, what: str, **more: Any) -> None:
        self._say({"ask": what, **more})
        if self._connection is not None and self._connection.recv(len(GO)) != GO:
            raise SystemExit(f"{self.name}: the conductor is gone")


class Seat:
    """The conductor's state of one process."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.name = ""
        self.rank = 0
        self.asking: Optional[str] = None
        self.seconds: List[float] = []
        self.report: Dict[str, Any] = {}
        self.gone = False
        self._read = b""

    def receive(self) -> None:
        """Reads what has arrived. If the connection is closed, the process has ended."""
        try:
            data = self.connection.recv(1 << 16)
        except OSError:
            data = b""
        if not data:
            self.gone, self.asking = True, None
            return
        *lines, self._read = (self._read + data).split(b"\n")
        for line in lines:
            message = json.loads(line)
            self.name, self.rank = message["name"], message["rank"]
            self.asking = message.get("ask")
            self.report = message.get("report", self.report)
            if "stepped" in message:
                self.seconds.append(message["stepped"])

    def go(self) -> None:
        self.asking = None
        try:
            self.connection.sendall(GO)
        except OSError:
            self.gone = True


class TurnsError(RuntimeError):
    """No job is left, or the deadline has passed."""


class Conductor:
    """Lets each job go when it is its turn. If a process of a job ends early, that job is
    dropped and the others go on. Methods raise TurnsError if no job is left, or if the
    deadline, in seconds of time.monotonic, has passed.
    """

    def __init__(self, folder: str, ranks: Mapping[str, int], deadline: float = float("inf")) -> None:
        """ranks: the number of processes of each job, by name."""
        self.ranks = dict(ranks)
        self.deadline = deadline
        self._path = os.path.join(folder, "turns")
        self._seats: List[Seat] = []
        self._lost: List[str] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self._path)
        self._listener.listen(64)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)

    def environment(self, name: str) -> Dict[str, str]:
        """The variables that a job's environment needs."""
        return {ENVIRONMENT: json.dumps({"socket": self._path, "name": name})}

    def jobs(self) -> List[str]:
        """The jobs that were not dropped, in their order."""
        return [name for name in self.ranks if name not in self._lost]

    def lose(self, name: str) -> None:
        """Drops a job, for example because its process ended before it could enter."""
        if name not in self._lost:
            self._lost.append(name)

    def reports(self, name: str) -> List[Dict[str, Any]]:
        """The reports of a job's ranks, in order of rank."""
        return [seat.report for seat in self._of(name)]

    def enter(self, watch: Callable[[], None] = lambda: None) -> None:
        """Waits until every job has asked to enter, and lets all go. watch is called
        several times a second while it waits; it may call lose."""
        self._until("enter", watch)
        for name in self.jobs():
            self._go(name)

    def together(self, steps: int = sys.maxsize) -> None:
        """All jobs take `steps` steps at the same time, each as fast as it can.
        A job that has fewer steps left takes those."""
        left = dict.fromkeys(self.jobs(), steps)

        def done(name: str) -> bool:
            return self._all(name, "leave") or not left[name] and self._all(name, "step")

        while not all(map(done, self.jobs())):
            ready = [name for name in self.jobs() if left[name] and self._all(name, "step")]
            for name in ready:
                left[name] -= 1
                self._go(name)
            self._wait(lambda: any(left[name] and self._all(name, "step") for name in self.jobs())
                       or all(map(done, self.jobs())))

    def in_turns(self, rounds: int) -> Dict[str, List[float]]:
        """Every job takes `rounds` steps, or those that it has left. One job steps at a
        time, in an order that rotates from round to round. Returns the seconds of each
        step, by job; the slowest rank counts."""
        begin = {name: [len(seat.seconds) for seat in self._of(name)] for name in self.jobs()}
        for turn in range(rounds):
            self._wait(lambda: all(self._all(name, "step") or self._all(name, "leave") for name in self.jobs()))
            jobs = [name for name in self.jobs() if self._all(name, "step")]
            for name in jobs[turn % len(jobs):] + jobs[: turn % len(jobs)] if jobs else []:
                self._go(name)
                self._wait(lambda: name in self._lost or self._idle(name))
        return {
            name: [max(ranks) for ranks in zip(*(s.seconds[b:] for s, b in zip(self._of(name), begin[name])))]
            for name in self.jobs()
        }

    def leave(self, exited: Callable[[str], None]) -> None:
        """Lets one job after the other exit. exited is called with the job's name when it
        was let go, and must return when its processes have ended."""
        self._until("leave")
        for name in self.jobs():
            self._go(name)
            exited(name)

    def close(self) -> None:
        """Closes all connections: processes that still wait end with an error. A second
        call has no effect."""
        for seat in self._seats:
            seat.connection.close()
        self._selector.close()
        self._listener.close()
        if os.path.exists(self._path):
            os.unlink(self._path)

    def _of(self, name: str) -> List[Seat]:
        return sorted((seat for seat in self._seats if seat.name == name), key=lambda seat: seat.rank)

    def _all(self, name: str, what: str) -> bool:
        seats = self._of(name)
        return len(seats) == self.ranks[name] and all(seat.asking == what for seat in seats)

    def _idle(self, name: str) -> bool:
        """Whether every rank has finished its step and asks again."""
        return all(seat.asking for seat in self._of(name))

    def _go(self, name: str) -> None:
        for seat in self._of(name):
            seat.go()

    def _until(self, what: str, watch: Callable[[], None] = lambda: None) -> None:
        self._wait(lambda: all(self._all(name, what) for name in self.jobs()), watch)

    def _wait(self, done: Callable[[], bool], watch: Callable[[], None] = lambda: None) -> None:
        while not done() or not self.jobs():
            if not self.jobs():
                raise TurnsError("no job is left")
            if time.monotonic() > self.deadline:
                raise TurnsError("out of time: " + "; ".join(map(self._doing, self.jobs())))
            watch()
            for key, _ in self._selector.select(0.2):
                self._take(key.fileobj)

    def _take(self, source: Any) -> None:
        if source is self._listener:
            seat = Seat(self._listener.accept()[0])
            self._seats.append(seat)
            self._selector.register(seat.connection, selectors.EVENT_READ, seat)
            return
        seat = self._selector.get_key(source).data
        seat.receive()
        if seat.gone:
            self._selector.unregister(source)
            if seat.name:
                self.lose(seat.name)

    def _doing(self, name: str) -> str:
        seats = self._of(name)
        asking = sorted({seat.asking or "busy" for seat in seats})
        state = f", state {'/'.join(asking)}" if asking else ""
        return f"{name}: {len(seats)} of {self.ranks[name]} processes connected{state}"
