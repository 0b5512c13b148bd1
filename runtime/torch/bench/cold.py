"""Measures the time of an allocation and of a free when the processor's caches hold other
data.

    python runtime/torch/bench/cold.py bin/stplan run.pickle.gz

Sends the recorded program to torch's native allocator and to the shim, with the
recording's own plan and without one, on a simulated device (cold.cpp). Between two
operations --kib KiB of other memory are touched at random. The variants run in turns, and
the table has medians. With --runtime the C runtime is also built from other folders, to
compare versions of it. Needs torch with CUDA's headers and libraries, and compilers; it
needs no GPU.
"""

from __future__ import annotations

import argparse
import gzip
import os
import pickle
import statistics
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Dict, List, Tuple

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "src"))

from stplan import _build, _library, _shim  # noqa: E402

FAKES = HERE.parent / "tests" / "shim"

Costs = Dict[Tuple[str, str, int], List[Tuple[float, float]]]
"""By runtime, allocator and KiB: the ns of an allocation and of a free, for
each round."""


def program(recording: Path) -> bytes:
    """The allocations and frees of a snapshot's first device, in cold.cpp's format."""
    with gzip.open(recording) as f:
        events = pickle.load(f)["device_traces"][0]
    live: Dict[int, int] = {}
    operations: List[Tuple[int, int, int]] = []
    for event in events:
        if event["action"] == "alloc" and event["size"] > 0:
            live[event["addr"]] = len(operations)
            operations.append((len(operations), event["size"], event["stream"]))
        elif event["action"] == "free_requested" and event["addr"] in live:
            operations.append((live.pop(event["addr"]), 0, event["stream"]))
    return b"".join(struct.pack("=3Q", *operation) for operation in operations)


def build(runtime: str, folder: Path, torch: Any) -> Path:
    """Builds cold.cpp with the C runtime whose sources are in the folder `runtime`."""
    c, cxx = _build.compiler("c"), _build.compiler("c++")
    if c is None or cxx is None:
        raise SystemExit("cold.py: expected a C and a C++ compiler, found at most one")
    torch_headers, cuda_headers = Path(torch.__file__).parent / "include", Path(_shim._cuda_headers(torch.version.cuda))
    cudart = next((cuda_headers.parent / "lib").glob("libcudart.so.*"), None)
    if cudart is None:
        raise SystemExit(f"cold.py: no library of CUDA's runtime beside {cuda_headers}")
    folder.mkdir()
    objects, built = folder / "runtime.o", folder / "cold"
    sources = sorted(str(path) for path in Path(runtime).glob("*.c"))
    _build.execute([*c, *_shim._C_FLAGS, "-r", "-nodefaultlibs", *sources, "-o", str(objects)], "the C runtime")
    libraries = [str(torch_headers.parent / "lib"), str(cudart.parent)]
    _build.execute(
        [
            *cxx,
            *("-O2", "-rdynamic", "-w", f"-DFAKE_CUDA_MIB={256 << 10}", "-I", runtime, "-I", str(FAKES), "-I", _shim.SOURCES),
            *_shim.cxx_flags(torch, str(torch_headers), str(cuda_headers)),
            *(str(HERE / "cold.cpp"), str(FAKES / "fake_cuda.cpp"), str(objects)),
            *("-o", str(built), "-L", libraries[0], "-lc10", "-lc10_cuda", str(cudart)),
            *(f"-Wl,-rpath,{library}" for library in libraries),
            *("-lpthread", "-ldl"),
        ],
        "the bench",
    )
    return built


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stplan", help="the stplan binary")
    parser.add_argument("recording", type=Path, help="a snapshot, compressed by gzip")
    parser.add_argument("--kib", type=int, nargs="+", default=[0, 256, 1024], help="KiB touched between two operations")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each variant")
    parser.add_argument("--runtime", nargs="+", default=[], help="folders with other versions of the C runtime")
    arguments = parser.parse_args()
    import torch

    costs: Costs = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        plan, sent = folder / "plan.bin", folder / "program"
        subprocess.run([arguments.stplan, "-q", "compile", str(arguments.recording), "-o", str(plan)], check=True, stdout=subprocess.DEVNULL)
        sent.write_bytes(program(arguments.recording))
        runtimes = [_library.SOURCES, *arguments.runtime]
        built = [build(runtime, folder / str(i), torch) for i, runtime in enumerate(runtimes)]
        for _ in range(arguments.rounds):
            for kib in arguments.kib:
                for name, serving in (("pool", "-"), ("plan", str(plan))):
                    for runtime, binary in zip(runtimes, built):
                        run = subprocess.run([str(binary), str(sent), serving, str(kib)], check=True, stdout=subprocess.PIPE, encoding="utf-8")
                        for line in run.stdout.splitlines()[:2]:
                            allocator, *took = line.split()
                            column = name if allocator == "stplan" else allocator
                            costs.setdefault((runtime, column, kib), []).append((float(took[0]), float(took[1])))
    print("| KiB | allocator | runtime | allocation ns | free ns | both |\n| ---: | --- | --- | ---: | ---: | ---: |")
    for (runtime, column, kib), rounds in sorted(costs.items(), key=lambda item: (item[0][2], item[0][1], item[0][0])):
        allocation, free = (statistics.median(round_[i] for round_ in rounds) for i in (0, 1))
        print(f"| {kib} | {column} | {os.path.relpath(runtime)} | {allocation:.0f} | {free:.0f} | {allocation + free:.0f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
