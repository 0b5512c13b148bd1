"""stplan inside a PyTorch process.

A script need not import this package: `stplan record -- python train.py` and
`stplan run PLAN -- python train.py` load it into every Python process of the job. A
script can also call `stplan.record` or `stplan.enable` itself, before its first CUDA
allocation.

Importing this package does not import torch.
"""

from __future__ import annotations

import os

from stplan._errors import PauseError, ServingError
from stplan._pausing import memory, pause, paused, resume
from stplan._public import enable, exchanging, mark, pin, stats, unpin
from stplan._recorder import arm
from stplan._settings import STACKS, Settings, SettingsError
from stplan._version import __version__ as __version__

__all__ = [
    "STACKS",
    "PauseError",
    "ServingError",
    "SettingsError",
    "enable",
    "exchanging",
    "mark",
    "memory",
    "pause",
    "paused",
    "pin",
    "record",
    "resume",
    "stats",
    "unpin",
]


def record(directory: str = ".", steps: int = 4, stacks: str = "python") -> None:
    """Record this process's CUDA memory from now on, and write one trace.

    directory: an existing folder for the trace.
    steps: number of optimizer steps after which the trace is written; 0 records
        until the process ends.
    stacks: which frames of each allocation's call stack are kept, one of STACKS.

    Raises SettingsError for a bad argument. A second call has no effect, and neither
    has a call in a process that `stplan record` started.
    """
    arm(Settings.checked(os.path.abspath(directory), steps, stacks))
