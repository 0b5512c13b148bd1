"""This process's rank and name, and its messages on standard error."""

from __future__ import annotations

import os
import re
import sys
from typing import Mapping, Optional, Sequence


def rank(environment: Mapping[str, str]) -> Optional[str]:
    """The process's rank: RANK if its launcher sets that, else the rank that the script
    gave torch.distributed, else LOCAL_RANK. None if there is none of them."""
    for value in (environment.get("RANK"), _distributed_rank(), environment.get("LOCAL_RANK")):
        if value is not None and re.fullmatch(r"[0-9]+", value):
            return value
    return None


def _distributed_rank() -> Optional[str]:
    """The rank in torch.distributed's process group, if the group exists already. This
    is for processes without RANK, which torch.multiprocessing and launchers of clusters
    start. It imports nothing and does not initialise CUDA."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return str(distributed.get_rank())


def stem(argv: Sequence[str], environment: Mapping[str, str]) -> str:
    """A name for files of this process: the script's name, then the rank, or the process
    id if there is no rank."""
    name, number = script_name(argv), rank(environment)
    return f"{name}-rank{number}" if number is not None else f"{name}-pid{os.getpid()}"


def script_name(argv: Sequence[str]) -> str:
    """The script's name as a part of a file's name."""
    script = argv[0] if argv else ""
    if script.startswith("-"):  # -c, -m: no file
        script = ""
    name = os.path.splitext(os.path.basename(script))[0]
    if name == "__main__":
        name = os.path.basename(os.path.dirname(script))
    return re.sub(r"[^A-Za-z0-9._-]+", "_", name).strip(".-_") or "python"


def say(text: str) -> None:
    """Write one line to standard error, in one write so that lines of other ranks do not
    mix with it. It does not use sys.stderr: this may run in a signal handler that has
    interrupted a write to sys.stderr."""
    try:
        os.write(2, f"stplan: {text}\n".encode(errors="replace"))
    except OSError:
        pass  # The job has closed standard error.


def described(error: Exception) -> str:
    """The text of an error for messages and reports. Errors of this package are
    sentences; others get the name of their type in front."""
    ours = type(error).__module__.startswith("stplan.")
    return str(error) if ours else f"{type(error).__name__}: {error}"
