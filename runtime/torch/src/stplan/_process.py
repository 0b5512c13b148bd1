"""What this process is called, and how it speaks."""

from __future__ import annotations

import os
import re
import sys
from typing import Mapping, Optional, Sequence


def rank(environment: Mapping[str, str]) -> Optional[str]:
    """The process's rank: as its launcher gives it in RANK, as the script has told
    torch.distributed, or LOCAL_RANK; None for a lone process."""
    for value in (environment.get("RANK"), _distributed_rank(), environment.get("LOCAL_RANK")):
        if value is not None and re.fullmatch(r"[0-9]+", value):
            return value
    return None


def _distributed_rank() -> Optional[str]:
    """That of a process group which exists by now: torch.multiprocessing and the
    launchers of clusters start processes without RANK. Nothing is imported, and
    CUDA not initialised."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return str(distributed.get_rank())


def stem(argv: Sequence[str], environment: Mapping[str, str]) -> str:
    """A name for files of this process: the script's name, then the rank, or
    the process id where there is none."""
    script = argv[0] if argv else ""
    if script.startswith("-"):  # -c, -m: no file
        script = ""
    name = os.path.splitext(os.path.basename(script))[0]
    if name == "__main__":
        name = os.path.basename(os.path.dirname(script))
    name = re.sub(r"[^A-Za-z0-9._-]+", "_", name).strip(".-_") or "python"
    number = rank(environment)
    return f"{name}-rank{number}" if number is not None else f"{name}-pid{os.getpid()}"


def say(text: str) -> None:
    """One line on standard error, whole beside what other ranks print. Past
    sys.stderr, which a signal handler may have interrupted in a write."""
    try:
        os.write(2, f"stplan: {text}\n".encode(errors="replace"))
    except OSError:
        pass  # The job has closed it.


def described(error: Exception) -> str:
    """An error as messages and reports say it: ours are sentences already."""
    ours = type(error).__module__.startswith("stplan.")
    return str(error) if ours else f"{type(error).__name__}: {error}"
