"""Jobs that are to be compared take turns, step by step.

A step is timed while every other job waits, so that what drifts in the machine
falls on all of them alike; what is not timed (imports, building the model, the
other steps) they do side by side.

The conductor, in the process that starts the jobs, opens a socket and hands its
path to each job in the environment. Each process of a job is a player:

    player = Player.from_environment(torch.cuda.synchronize)
    player.enter()              # before CUDA is initialised
    ...                         # build the model
    for ...:
        with player.step():
            ...                 # one training step
    player.leave({"any": "figures"})   # then exit

Without a conductor nothing waits, and the player only times. All ranks of one
job step together: the conductor lets them go when the last of them asks.
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
"""The environment variable of a player: a JSON object with the socket's path and
the job's name."""

GO = b"go\n"


class Player:
    """One process of a job. The conductor's side of every call is in Conductor."""

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
        """Where the environment names no conductor, a player that never waits."""
        rank = int(environment.get("RANK", "0"))
        text = environment.get(ENVIRONMENT)
        if text is None:
            return cls("", rank, None, synchronize)
        seat = json.loads(text)
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(seat["socket"])
        return cls(seat["name"], rank, connection, synchronize)

    def enter(self) -> None:
        """Waits until the device is this job's and its companions'."""
        self._ask("enter")

    @contextmanager
    def step(self) -> Iterator[None]:
        """One step: waits for its turn, then times the body between two
        synchronisations of the device."""
        self._ask("step")
        self._synchronize()
        begin = time.perf_counter()
        yield
        self._synchronize()
        self.seconds.append(time.perf_counter() - begin)
        self._say({"stepped": self.seconds[-1]})

    def leave(self, report: Mapping[str, Any]) -> None:
        """Hands in the job's figures, and waits until it is this job's turn to
        exit. Nothing may be freed in between: the conductor looks at what the
        device gets back."""
        self._ask("leave", report=report)

    def _say(self, message: Mapping[str, Any]) -> None:
        if self._connection is not None:
            self._connection.sendall(json.dumps({"name": self.name, "rank": self.rank, **message}).encode() + b"\n")

    def _ask(self, what: str, **more: Any) -> None:
        self._say({"ask": what, **more})
        if self._connection is not None and self._connection.recv(len(GO)) != GO:
            raise SystemExit(f"{self.name}: the conductor is gone")


class Seat:
    """What the conductor knows of one process."""

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
        """Takes what has arrived; a closed connection is a process that is gone."""
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
    """No job is left, or they do not go on."""


class Conductor:
    """The other side: lets each job go when it is its turn. A job that loses a
    process is out, and the others go on. Raises TurnsError where none is left or
    the deadline, in time.monotonic seconds, has passed.
    """

    def __init__(self, folder: str, ranks: Mapping[str, int], deadline: float = float("inf")) -> None:
        """ranks: the jobs and how many processes each has."""
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
        """What a job's environment gets."""
        return {ENVIRONMENT: json.dumps({"socket": self._path, "name": name})}

    def jobs(self) -> List[str]:
        """The jobs that are still in, in their order."""
        return [name for name in self.ranks if name not in self._lost]

    def lose(self, name: str) -> None:
        """A job is out: its process ended before it could enter, for instance."""
        if name not in self._lost:
            self._lost.append(name)

    def reports(self, name: str) -> List[Dict[str, Any]]:
        """What the ranks of a job handed in, by rank."""
        return [seat.report for seat in self._of(name)]

    def enter(self, watch: Callable[[], None] = lambda: None) -> None:
        """Waits until every job has come, and lets them build side by side.
        watch is called now and then; it may call lose."""
        self._until("enter", watch)
        for name in self.jobs():
            self._go(name)

    def together(self, steps: int = sys.maxsize) -> None:
        """All jobs take so many steps, or as many as they have left, side by
        side, each as fast as it can."""
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
        """Every job takes this many steps, as far as it has them, each alone on
        the device, in an order that rotates from round to round. Returns the
        seconds of each step, of the slowest rank."""
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
        """Lets one job after the other exit. exited is called with each job's
        name when it has been told to, and returns when its processes are gone."""
        self._until("leave")
        for name in self.jobs():
            self._go(name)
            exited(name)

    def close(self) -> None:
        """Processes that still wait end with an error. May be called again."""
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
        """Every rank has ended what it was let go for, and asks for more."""
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
        return f"{name}: {len(seats)} of {self.ranks[name]} processes, {'/'.join(asking) or 'none came'}"
