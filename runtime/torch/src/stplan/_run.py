"""Serves one process of a job that `stplan run` started: chooses its plan, installs the
allocator right before CUDA is initialised, and reports to the launcher."""

from __future__ import annotations

import glob
import os
import sys
from typing import Any, Callable, Optional

from stplan._imports import after_import
from stplan._process import described, rank, say, stem
from stplan._report import Report, read
from stplan._settings import RunSettings

_armed = False


def arm(settings: RunSettings) -> None:
    """Serve this process if it initialises CUDA. Only the first call in a process counts:
    two nested launchers both call it."""
    global _armed
    if _armed:
        return
    _armed = True
    after_import("torch", lambda torch: before_cuda(torch, lambda: serve(settings)))


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


def serve(settings: RunSettings) -> None:
    """Install the allocator now. If that fails torch's own stays, and the reason is
    printed and reported. Raises OSError if the report cannot be written."""
    number = rank(os.environ)
    plan, without = choose(settings, number)
    report = Report(settings.reports, stem(sys.argv, os.environ))
    facts: dict[str, Any] = {"rank": number, "plan": plan, "without": without}
    report.write("installing", **facts)
    try:
        from stplan import _serving

        facts["backend"] = _serving.install(plan, settings.memory, _counters(settings, report.name), settings.move)
    except Exception as error:
        _refuse(error)
        report.write("failed", error=described(error), **facts)
        return
    report.write("serving", **facts)
    if plan is not None:
        settings.hand_on(os.environ, report.name)


def choose(settings: RunSettings, number: Optional[str]) -> tuple[Optional[str], str]:
    """The path of this process's plan and "", or None and the reason why the pool alone
    serves it. The reason is "" if the run has no plan. number is the process's rank."""
    plan = settings.plan
    if plan is None:
        return None, ""
    if settings.by_rank:
        if number is None:
            return None, "no rank to choose its plan by (RANK, LOCAL_RANK or torch.distributed)"
        plan = f"{plan}{number}.bin"
        if not os.path.exists(plan):
            return None, "no plan for its rank"
    if settings.within is not None and _has_plan(settings, settings.within, number):
        return None, f"it was started by {settings.within}, which allocates by the plan"
    return plan, ""


def _has_plan(settings: RunSettings, name: str, number: Optional[str]) -> bool:
    """Whether the process `name` allocates by its plan and this one is its helper, that
    is, has the same rank or none. A helper with the plan would take the plan's memory a
    second time. If `name` has initialised CUDA but allocated nothing, it leaves the plan
    to the processes that it starts."""
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
