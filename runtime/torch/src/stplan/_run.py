"""One process's place in a run that is served: its plan, the allocator put in
place right before CUDA is initialised, and what the launcher reads of it."""

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
    """Serve this process, if it ever initialises CUDA. Only the first call of a
    process counts: a launcher inside a launcher asks twice."""
    global _armed
    if _armed:
        return
    _armed = True
    after_import("torch", lambda torch: before_cuda(torch, lambda: serve(settings)))


def before_cuda(torch: Any, callback: Callable[[], None]) -> None:
    """Call callback() once, right before torch initialises CUDA on a machine
    that has a device, in whichever process that is: an allocator can be
    exchanged until then, and a process that never gets there pays nothing.

    torch._C._cuda_init is what every way to initialise CUDA from Python calls;
    torch holds a lock meanwhile that is not reentrant, so the callback must
    neither initialise CUDA nor call torch.cuda._lazy_call.
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
    """Put the allocator in place, now. Where that fails torch's own remains,
    and the reason is said and reported. Raises OSError where nothing can be
    reported."""
    number = rank(os.environ)
    plan, without = choose(settings, number)
    report = Report(settings.reports, stem(sys.argv, os.environ))
    facts: dict[str, Any] = {"rank": number, "plan": plan, "without": without}
    report.write("installing", **facts)
    try:
        from stplan import _serving

        facts["backend"] = _serving.install(plan, settings.memory, _counters(settings, report.name))
    except Exception as error:
        _refuse(error)
        report.write("failed", error=described(error), **facts)
        return
    report.write("serving", **facts)
    if plan is not None:
        settings.hand_on(os.environ, report.name)


def choose(settings: RunSettings, number: Optional[str]) -> tuple[Optional[str], str]:
    """The path of this process's plan, None where the pool alone serves it, and
    then why, unless nothing else was asked for. number is its rank."""
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
        return None, f"{settings.within} has started it and has the plan"
    return plan, ""


def _has_plan(settings: RunSettings, name: str, number: Optional[str]) -> bool:
    """Whether the process `name` allocates by its plan, and this one, without a rank
    or of the same, is its helper. The other one trains then, and its helpers would
    each take a plan's memory again. One that has only looked at the device has left
    the plan to those it starts."""
    try:
        other = read(settings.reports, name)
    except (OSError, ValueError):
        return False
    if number not in (None, other["rank"]) or other["pid"] == os.getpid():  # its own past, before an exec
        return False
    return bool(glob.glob(glob.escape(_counters(settings, name)) + "*"))


def _counters(settings: RunSettings, name: str) -> str:
    """Path of a process's counters, less the device's number."""
    return os.path.join(settings.reports, name + ".device")


def _refuse(error: Exception) -> None:
    say(f"cannot serve this process, PyTorch's own allocator stays: {described(error)}")
