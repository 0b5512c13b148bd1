"""The name of a process's plan in the cache, and the digests by which the plan of a similar run is
found: hashes of what decides how it allocates.

They need not tell everything apart, as a plan that does not fit costs places only."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import json
import os
import sys
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from stplan._process import script_name

VARIABLES = (
    "CUBLASLT_WORKSPACE_SIZE",
    "CUBLAS_WORKSPACE_CONFIG",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "TORCHDYNAMO_DISABLE",
    "TORCH_COMPILE_DISABLE",
)
"""Variables of the environment that change what torch allocates: workspaces of cuBLAS,
settings of the allocator, and whether code is compiled."""

# Letters of the script's name in a file's name: with the hash it stays below 255.
_NAME = 100


class PlanKey(NamedTuple):
    """family is what the names of plans begin with that may serve this process, and name that of its
    own, without a folder. call has a digest for the script's path, one for its content and one for each argument;
    it is empty if no other run is similar to this one."""

    family: str
    name: str
    call: List[str]


def plan_key(torch: Any, versions: str, rank: Optional[str]) -> PlanKey:
    """The key of this process. versions is the launcher's part."""
    called, is_script = program(sys.argv, getattr(sys, "orig_argv", []))
    surroundings = _digest(json.dumps(parts(torch, versions, rank), sort_keys=True))
    family = f"{script_name(sys.argv)[:_NAME]}-{surroundings}-"
    digests = [_digest(text) for text in called] if is_script else []
    return PlanKey(family, f"{family}{_digest(json.dumps(called))}.bin", digests)


def _digest(text: str) -> str:
    """64 bits: enough for the plans of one cache. Arguments may be secrets, and are kept like this."""
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:16]


def parts(torch: Any, versions: str, rank: Optional[str]) -> Dict[str, Any]:
    """What decides beside the program."""
    return {
        "rank": rank,
        "world": world(os.environ),
        "torch": str(getattr(torch, "__version__", "")),
        "cuda": str(getattr(getattr(torch, "version", None), "cuda", "")),
        "devices": devices(),
        "stplan": versions,
        "environment": {name: os.environ[name] for name in VARIABLES if name in os.environ},
    }


def program(argv: Sequence[str], original: Sequence[str]) -> Tuple[List[str], bool]:
    """The script's absolute path, a hash of its content, and its arguments; and whether there is such a script.
    Without one it is how Python was called: original has the code of `python -c`."""
    script = argv[0] if argv else ""
    if script == "-c":
        return list(original) or list(argv), False
    with contextlib.suppress(OSError), open(script, "rb") as file:
        content = hashlib.sha256(file.read()).hexdigest()
        return [os.path.realpath(script), content, *argv[1:]], True
    return list(argv), False


def world(environment: Mapping[str, str]) -> Optional[str]:
    """How many ranks the job has: WORLD_SIZE, or what torch.distributed knows."""
    distributed = sys.modules.get("torch.distributed")
    if "WORLD_SIZE" in environment:
        return environment["WORLD_SIZE"]
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return str(distributed.get_world_size())


def devices() -> List[Tuple[str, int]]:
    """The kinds of device that this process sees, by name and bytes of memory. It asks the
    driver, as torch cannot be asked before it has initialised CUDA. Empty if there is none."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        count = ctypes.c_int()
        if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
            return []
        return sorted({_device(driver, ordinal) for ordinal in range(count.value)})
    except (OSError, AttributeError):
        return []


def _device(driver: ctypes.CDLL, ordinal: int) -> Tuple[str, int]:
    device, name, memory = ctypes.c_int(), ctypes.create_string_buffer(256), ctypes.c_size_t()
    driver.cuDeviceGet(ctypes.byref(device), ordinal)
    driver.cuDeviceGetName(name, len(name), device)
    driver.cuDeviceTotalMem_v2(ctypes.byref(memory), device)
    return name.value.decode("utf-8", "replace"), memory.value
