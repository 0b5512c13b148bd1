"""Installs a wheel into an empty environment and goes the way of a user there, with nothing
on PATH that compiles: neither Go nor a C compiler. Prints the commands and their times.

If there is a torch, a job of it is recorded, compiled and run as well, on the tests' simulated
device, by the shim that the wheel has for this torch. Only that device is compiled, before."""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path
from typing import Callable, Dict, List, Optional

ROOT = Path(__file__).resolve().parents[1]

# What stplan example writes: a recording, and its plan.
EXAMPLE, PLAN = "llama7b-pp4-VR.pickle.gz", "llama7b-pp4-VR.bin"

# What a user finds in /usr/bin, without the compilers that may lie there too.
_TOOLS = ("env", "sh", "ls", "cat", "uname")

# What diff has to say about the plan of the example: all of it is used (README.md).
_SAVED = "38.84 GiB    100.00 %"


# Prints the release of torch and that of CUDA which it was built with, or nothing if there is no
# torch.
_TORCH = """
import importlib.util
if importlib.util.find_spec("torch") is not None:
    import torch
    print(torch.__version__, torch.version.cuda)
"""

# A job: three weights, and four activations in each step. Prints the shims that it has loaded.
_JOB = """
import sys, torch
parameter = torch.nn.Parameter(torch.zeros(3))
optimizer = torch.optim.SGD([parameter])
weights = [torch.empty(300_000, dtype=torch.uint8, device="cuda") for _ in range(3)]
for _ in range(int(sys.argv[1])):
    activations = [torch.empty(size << 20, dtype=torch.uint8, device="cuda") for size in (1, 3, 2, 5)]
    del activations
    parameter.grad = torch.ones(3)
    optimizer.step()
print(*{line.split()[-1] for line in open("/proc/self/maps") if "libstplan_shim" in line})
"""

# A script that serves itself.
_ENABLE = """
import torch, stplan
stplan.enable()
tensor = torch.empty(1000, device="cuda")
print(stplan.stats()["backend"], torch.cuda.memory_allocated())
"""

Say = Callable[..., str]
"""Runs a command, prints its time, and returns what it printed: see main."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="with one wheel for this machine")
    parser.add_argument("--torch", metavar="PYTHON", help="a Python that has torch; default: this one, if it has")
    asked = parser.parse_args()
    folder: Path = asked.folder
    wheels = [w for w in sorted(folder.glob("stplan-*.whl")) if platform.machine() in w.name]
    if len(wheels) != 1:
        raise SystemExit(f"{folder}: expected one wheel for {platform.machine()}, found {len(wheels)}")
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        environment = bare(work)
        python = str(work / "venv" / "bin" / "python")

        def say(command: List[str], shown: str = "", **variables: str) -> str:
            started = time.monotonic()
            done = subprocess.run(
                command, env={**environment, **variables}, cwd=work, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8"
            )
            print(f"{time.monotonic() - started:6.2f} s  {shown or ' '.join(command)}", flush=True)
            if done.returncode != 0:
                raise SystemExit(f"exit status {done.returncode}:\n{done.stdout}")
            return done.stdout

        venv.create(work / "venv", with_pip=True)
        say([python, "-m", "pip", "install", "-q", "--no-index", str(wheels[0].resolve())], f"pip install {wheels[0].name}")
        versions = {say(["stplan", "--version"]), say([python, "-m", "stplan", "--version"], "python -m stplan --version")}
        own = say([python, "-c", "import stplan; print(stplan.__version__)"], "import stplan").strip()
        demand(versions == {f"stplan {own} (with the C runtime)\n"}, f"one version, found {versions} and {own}")
        demand(wheels[0].name.startswith(f"stplan-{own}-"), f"version {own} in {wheels[0].name}")
        said = say(["stplan", "example"])
        demand(_SAVED in said, f"{_SAVED!r} in\n{said}")
        say(["stplan", "compile", EXAMPLE, "-o", "plan.bin"])
        demand((work / "plan.bin").read_bytes() == (work / PLAN).read_bytes(), "the same plan as example wrote")
        say(["stplan", "verify", "plan.bin", "--trace", EXAMPLE])
        said = say(["stplan", "diff", "plan.bin", "--trace", EXAMPLE])
        demand(_SAVED in said, f"{_SAVED!r} in\n{said}")
        say(["stplan", "replay", "plan.bin", EXAMPLE])
        # A job finds the compiled library in the launcher's package, also if its Python is
        # another one, in which stplan is not installed.
        look = "from stplan import _build, _library; print(_library.find()); assert _build.compiler('c') is None"
        found = say(["stplan", "run", "--no-plan", "--", sys.executable, "-c", look], "stplan run --no-plan -- python ...").splitlines()
        demand(found[0].startswith(str(work.resolve() / "venv")), f"the installed library, found {found}")
        skipped = serve(say, work, asked.torch or sys.executable)
        if skipped is not None:
            print(f"   skipped: the wheel's shim in a process of torch: {skipped}", flush=True)
            demand(asked.torch is None, f"a process of --torch {asked.torch} to be served")
        left = [str(path) for path in (work / "home").rglob("*.so")]
        demand(not left, f"nothing compiled, found {left}")
        names = say([python, "-m", "pip", "show", "-f", "stplan"], "pip show -f stplan")
        for name in ("licenses/LICENSE", "licenses/NOTICE", "stplan/bin/THIRD_PARTY_LICENSES.txt", "stplan/py.typed"):
            demand(name in names, f"{name} in the wheel")


def serve(say: Say, work: Path, python: str) -> Optional[str]:
    """Record, compile and run a job of the torch of this Python with the installed wheel, and
    raise SystemExit if the wheel's shim does not serve it. Returns why that was skipped, or None."""
    torch = subprocess.run([python, "-c", _TORCH], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8")
    if torch.returncode != 0 or not torch.stdout.strip():
        return f"{python} has no torch (--torch names a Python that has): {torch.stdout.strip()}".rstrip(": ")
    release, cuda = torch.stdout.split()[-2:]
    if cuda == "None":
        return f"torch {release} of {python} was built without CUDA"
    package = next((work / "venv" / "lib").glob("python*/site-packages/stplan")).resolve()
    if not (package / "shims").exists():
        return "the wheel has no shims"
    (work / "device").mkdir()
    # The compilers of this machine make the device, and are gone when a process is served.
    tests = ROOT / "runtime" / "torch"
    made = subprocess.run(
        [python, str(tests / "tests" / "simulated.py"), str(work / "device")],
        env={**os.environ, "PYTHONPATH": str(tests / "src")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )
    if made.returncode != 0:
        return f"no simulated device: {made.stderr.strip().splitlines()[-1]}"
    device: Dict[str, str] = json.loads(made.stdout)
    (work / "train.py").write_text(_JOB)
    say(["stplan", "record", "--", python, "train.py", "6"], f"stplan record -- python train.py, torch {release}", **device)
    (trace,) = (work / "traces").iterdir()
    say(["stplan", "compile", str(trace), "-o", "job.bin"], "stplan compile traces/train-pid*.pickle.gz -o job.bin")
    said = say(["stplan", "run", "job.bin", "--summary", "job.json", "--", python, "train.py", "10"], "stplan run job.bin -- python train.py", **device)
    (process,) = json.loads((work / "job.json").read_text())["processes"]
    served = process["backend"], process["devices"][0]["planned_fraction"]
    demand(served == ("shim", 1), f"the shim to serve all by the plan, found {served}:\n{said}")
    loaded = [line for line in said.splitlines() if "libstplan_shim" in line]
    demand(len(loaded) == 1 and Path(loaded[0]).parent == package / "shims", f"one shim of {package}, found {loaded}")
    said = say([python, "-c", _ENABLE], "stplan.enable()", PYTHONPATH=str(package.parent), **device)
    demand(said == "shim 4096\n", f"the shim to serve 4096 B, found\n{said}")
    return None


def bare(work: Path) -> Dict[str, str]:
    """An environment with a home of its own and with a PATH on which nothing compiles."""
    tools = work / "tools"
    tools.mkdir()
    for name in _TOOLS:
        found = shutil.which(name)
        if found is not None:
            (tools / name).symlink_to(found)
    (work / "home").mkdir()
    path = os.pathsep.join([str(work / "venv" / "bin"), str(tools)])
    for compiler in ("go", "cc", "gcc", "c++", "g++", "clang", "clang++"):
        demand(shutil.which(compiler, path=path) is None, f"no {compiler} on {path}")
    return {"PATH": path, "HOME": str(work / "home"), "LANG": "C.UTF-8", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


def demand(holds: bool, expected: str) -> None:
    if not holds:
        raise SystemExit(f"expected {expected}")


if __name__ == "__main__":
    main()
