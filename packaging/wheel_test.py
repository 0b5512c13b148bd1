"""Installs a wheel into an empty environment and goes the way of a user there, with nothing
on PATH that compiles: neither Go nor a C compiler. Prints the commands and their times."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path
from typing import Dict, List

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "examples" / "llama7b-pp4-VR" / "llama7b-pp4-VR.pickle.gz"

# What a user finds in /usr/bin, without the compilers that may lie there too.
_TOOLS = ("env", "sh", "ls", "cat", "uname")

# What diff has to say about the plan of the example: all of it is used (README.md).
_SAVED = "38.84 GiB    100.00 %"


def main() -> None:
    folder = Path(sys.argv[1])
    wheels = [w for w in sorted(folder.glob("stplan-*.whl")) if platform.machine() in w.name]
    if len(wheels) != 1:
        raise SystemExit(f"{folder}: expected one wheel for {platform.machine()}, found {len(wheels)}")
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        environment = bare(work)
        python = str(work / "venv" / "bin" / "python")

        def say(command: List[str], shown: str = "") -> str:
            started = time.monotonic()
            done = subprocess.run(command, env=environment, cwd=work, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8")
            print(f"{time.monotonic() - started:6.2f} s  {shown or ' '.join(command)}", flush=True)
            if done.returncode != 0:
                raise SystemExit(f"exit status {done.returncode}:\n{done.stdout}")
            return done.stdout

        venv.create(work / "venv", with_pip=True)
        say([python, "-m", "pip", "install", "-q", "--no-index", str(wheels[0].resolve())], f"pip install {wheels[0].name}")
        shutil.copy(EXAMPLE, work)
        versions = {say(["stplan", "--version"]), say([python, "-m", "stplan", "--version"], "python -m stplan --version")}
        own = say([python, "-c", "import stplan; print(stplan.__version__)"], "import stplan").strip()
        demand(versions == {f"stplan {own} (with the C runtime)\n"}, f"one version, found {versions} and {own}")
        demand(wheels[0].name.startswith(f"stplan-{own}-"), f"version {own} in {wheels[0].name}")
        say(["stplan", "compile", EXAMPLE.name, "-o", "plan.bin"])
        say(["stplan", "verify", "plan.bin", "--trace", EXAMPLE.name])
        said = say(["stplan", "diff", "plan.bin", "--trace", EXAMPLE.name])
        demand(_SAVED in said, f"{_SAVED!r} in\n{said}")
        say(["stplan", "replay", "plan.bin", EXAMPLE.name])
        # A job finds the compiled library in the launcher's package, also if its Python is
        # another one, in which stplan is not installed.
        look = "from stplan import _build, _library; print(_library.find()); assert _build.compiler('c') is None"
        found = say(["stplan", "run", "--no-plan", "--", sys.executable, "-c", look], "stplan run --no-plan -- python ...").splitlines()
        demand(found[0].startswith(str(work.resolve() / "venv")), f"the installed library, found {found}")
        left = [str(path) for path in (work / "home").rglob("*.so")]
        demand(not left, f"nothing compiled, found {left}")
        names = say([python, "-m", "pip", "show", "-f", "stplan"], "pip show -f stplan")
        for name in ("licenses/LICENSE", "licenses/NOTICE", "stplan/bin/THIRD_PARTY_LICENSES.txt", "stplan/py.typed"):
            demand(name in names, f"{name} in the wheel")


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
