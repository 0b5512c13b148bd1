"""Serves one process of a job that `stplan run` started: chooses its plan, installs the
allocator right before CUDA is initialised, and reports to the launcher."""

from __future__ import annotations

import contextlib
import glob
import os
import sys
from typing import Any, Callable, List, NamedTuple, Optional

from stplan._imports import after_import
from stplan._process import described, rank, say, stem
from stplan._report import Report, read
from stplan._settings import ENVIRONMENT, RunSettings

# The most digits of a rank in a plan's name: zeros may be before it. The launcher takes as many.
_RANK_DIGITS = 9

_armed = False


def arm(settings: RunSettings) -> None:
    """Serve this process if it initialises CUDA. Only the first call in a process counts:
    two nested launchers both call it."""
    global _armed
    if _armed:
        return
    _armed = True
    after_import("torch", lambda torch: before_cuda(torch, lambda: serve(torch, settings)))


def before_cuda(torch: Any, callback: Callable[[], None]) -> None:
    """Call callback() once, right before torch initialises CUDA, if the machine has a
    device. The allocator can be exchanged until then, and a process that never
    initialises CUDA costs nothing. In a forked child it works as in the parent.

    Every way of initialising CUDA from Python calls torch._C._cuda_init. torch holds a
    lock during that call, and the lock is not reentrant: the callback must neither
    initialise CUDA nor call torch.cuda._lazy_call.
    """
    bindings = getattr(torch, "_C", None)
    initialise = getattr(bindings, "_cuda_init", None)
    if bindings is None or initialise is None:  # torch was built without CUDA
        return

    def _cuda_init() -> Any:
        if bindings._cuda_init is _cuda_init:
            bindings._cuda_init = initialise
        try:
            if torch.cuda.device_count() > 0:
                callback()
        except Exception as error:
            _refuse(error)
        return initialise()

    bindings._cuda_init = _cuda_init


def serve(torch: Any, settings: RunSettings) -> None:
    """Install the allocator now. If that fails torch's own stays, and the reason is
    printed and reported. Raises OSError if the report cannot be written."""
    number = rank(os.environ)
    found = _look_up(torch, settings, number)
    plan, without = choose(settings._replace(plan=found.plan) if found else settings, number)
    report = Report(settings.reports, stem(sys.argv, os.environ))
    facts: dict[str, Any] = {"rank": number, "plan": plan, "without": without}
    similar = plan is not None and found is not None and found.similar
    facts.update(similar=similar, cached=found and found.name, call=found.call if found else [])
    report.write("installing", **facts)
    try:
        facts["backend"], facts["plan"] = _install(settings, plan, report.name, not similar)
        facts["similar"] = similar and facts["plan"] is not None
    except Exception as error:
        _refuse(error)
        report.write("failed", error=described(error), **facts)
        return
    report.write("serving", **facts)
    # A job that is recorded at the same time has its trace. Both would want to be told how
    # the process ends.
    if settings.learn > 0 and ENVIRONMENT not in os.environ and not _is_helper(settings, number):
        _learn(torch, settings, report.name, number, facts["plan"] if facts["similar"] else None)
    if facts["plan"] is not None or settings.learn > 0:
        settings.hand_on(os.environ, report.name)


class _Found(NamedTuple):
    """What the cache has for a process: the name of its own plan there, a plan that lies there or None, whether
    that is the plan of a similar run, and how this one was called (_plankey.py)."""

    name: str
    plan: Optional[str]
    similar: bool
    call: List[str]


def _look_up(torch: Any, settings: RunSettings, number: Optional[str]) -> Optional[_Found]:
    """Looks a plan up, if the launcher wants that."""
    if settings.cache is None:
        return None
    from stplan._plankey import plan_key
    from stplan._similar import nearest

    key = plan_key(torch, settings.versions, number)
    own = os.path.join(settings.cache, key.name)
    if _used(own):
        return _Found(key.name, own, False, key.call)
    near = nearest(settings.cache, key)
    if near is not None and _used(near):
        return _Found(key.name, near, True, key.call)
    return _Found(key.name, None, False, key.call)


def _used(plan: str) -> bool:
    """Whether the plan is there. The launcher removes those that were not used for longest."""
    with contextlib.suppress(OSError):
        os.utime(plan)
        return True
    return False


def _install(settings: RunSettings, plan: Optional[str], name: str, own: bool) -> tuple[str, Optional[str]]:
    """Install the allocator, and return the backend and the plan. A plan of the cache that
    is refused, for it may be damaged, is left out. That runs have followed it says nothing if it is not this run's own."""
    from stplan import _serving
    from stplan._proven import checksum

    proven = checksum(plan) if plan is not None and settings.cache is not None and own else 0
    try:
        return _serving.install(plan, settings.memory, _counters(settings, name), settings.move, proven), plan
    except _serving.ServingError as error:
        if plan is None or settings.cache is None:
            raise
        backend = _serving.install(None, settings.memory, _counters(settings, name), settings.move)
        say(f"{described(error)}; served without this plan")
        return backend, None


def _learn(torch: Any, settings: RunSettings, name: str, number: Optional[str], similar: Optional[str]) -> None:
    """Have the runtime keep a history for the launcher, in files beside the report that begin
    with its name. If that fails the process is served all the same."""
    try:
        from stplan import _serving
        from stplan._learning import Learner

        path = os.path.join(settings.reports, name)
        Learner(torch, _serving.served(), path, settings.learn, number, similar).begin()
    except Exception as error:
        say(f"nothing is learned from this process: {described(error)}")


def choose(settings: RunSettings, number: Optional[str]) -> tuple[Optional[str], str]:
    """The path of this process's plan and "", or None and the reason why the pool alone
    serves it. The reason is "" if the run has no plan. number is the process's rank."""
    plan = settings.plan
    if plan is None:
        return None, ""
    if settings.by_rank:
        if number is None:
            return None, "no rank to choose its plan by (RANK, LOCAL_RANK or torch.distributed)"
        ranks = (f"{plan}{number.zfill(digits)}.bin" for digits in range(1, _RANK_DIGITS + 1))
        plan = next(filter(os.path.exists, ranks), None)
        if plan is None:
            return None, "no plan for its rank"
    if _is_helper(settings, number):
        return None, f"it was started by {settings.within}, which allocates by the plan"
    return plan, ""


def _is_helper(settings: RunSettings, number: Optional[str]) -> bool:
    """Whether this is the helper of a process that allocates by its plan, or that a plan is
    learned from: it was started by that one and has the same rank or none. A helper with
    the plan would take the plan's memory a second time. If the other one has initialised
    CUDA but allocated nothing, it leaves the plan to the processes that it starts."""
    name = settings.within
    if name is None:
        return False
    try:
        other = read(settings.reports, name)
    except (OSError, ValueError):
        return False
    # The same process id is this process itself, before an exec.
    if number not in (None, other["rank"]) or other["pid"] == os.getpid():
        return False
    return bool(glob.glob(glob.escape(_counters(settings, name)) + "*"))


def _counters(settings: RunSettings, name: str) -> str:
    """The path of a process's counter files, without the device's number at the end."""
    return os.path.join(settings.reports, name + ".device")


def _refuse(error: Exception) -> None:
    say(f"cannot serve this process, PyTorch's own allocator stays: {described(error)}")
