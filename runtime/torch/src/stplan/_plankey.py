"""The name of a process's plan in the cache: a hash of what decides how it allocates.

It need not tell everything apart, as a plan that does not fit costs places only."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import json
import os
import sys
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

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


def file_name(torch: Any, versions: str, rank: Optional[str]) -> str:
    """The name of the file: the script's, and a hash. versions is the launcher's part."""
    text = json.dumps(parts(torch, versions, rank), sort_keys=True)
    return f"{script_name(sys.argv)[:_NAME]}-{hashlib.sha256(text.encode()).hexdigest()[:32]}.bin"


def parts(torch: Any, versions: str, rank: Optional[str]) -> Dict[str, Any]:
    """What the hash is made of."""
    return {
        "program": program(sys.argv, getattr(sys, "orig_argv", [])),
        "rank": rank,
        "world": world(os.environ),
        "torch": str(getattr(torch, "__version__", "")),
        "cuda": str(getattr(getattr(torch, "version", None), "cuda", "")),
        "devices": devices(),
        "stplan": versions,
        "environment": {name: os.environ[name] for name in VARIABLES if name in os.environ},
    }


def program(argv: Sequence[str], original: Sequence[str]) -> List[str]:
    """The script with a hash of its content, and its arguments. original is how Python was
    called: it has the code of `python -c`."""
    script = argv[0] if argv else ""
    if script == "-c":
        return list(original) or list(argv)
    with contextlib.suppress(OSError), open(script, "rb") as file:
        content = hashlib.sha256(file.read()).hexdigest()
        return [os.path.realpath(script), content, *argv[1:]]
    return list(argv)


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
