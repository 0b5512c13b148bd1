"""A simulated CUDA device for the installed torch: a driver and a few functions of CUDA's
runtime that know addresses and no memory (shim/fake_driver.c, shim/fake_cuda.cpp).

Needs a C and a C++ compiler, CUDA's headers, and torch. As a command it compiles the device into
a folder, and prints as JSON the environment of a process that has it."""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any, Dict

from stplan import _build, _shim

HERE = Path(__file__).resolve().parent


def compile_into(folder: Path) -> Dict[str, str]:
    """The environment of a process that has the device, compiled into an existing folder.
    Raises BuildError."""
    torch: Any = importlib.import_module("torch")
    c, cxx = _shim._compiler("c"), _shim._compiler("c++")
    flags = ["-shared", "-fPIC", "-O1", "-w"]
    _build.execute([*c, *flags, str(HERE / "shim" / "fake_driver.c"), "-o", str(folder / "libcuda.so.1")], "the driver")
    headers = ["-I", os.path.join(_shim.SOURCES, "include", "first"), "-I", _shim._cuda_headers(torch.version.cuda)]
    headers += ["-idirafter", os.path.join(_shim.SOURCES, "include", "last")]
    fake = folder / "libfake.so"
    _build.execute([*cxx, *flags, *headers, str(HERE / "shim" / "fake_cuda.cpp"), "-o", str(fake)], "the fake")
    return {"LD_LIBRARY_PATH": str(folder), "LD_PRELOAD": str(fake)}


if __name__ == "__main__":
    print(json.dumps(compile_into(Path(sys.argv[1]))))
