"""Writes the licences and notices of all that the stplan binary is linked from: the Go modules
and Go's own library. Whoever hands a binary on has to hand on these as well.

Needs Go. Ends with an error if a module has no licence file."""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Dict, Iterator, List, NamedTuple

ROOT = Path(__file__).resolve().parent.parent

FILE_NAME = "THIRD_PARTY_LICENSES.txt"
"""The name of the file beside a binary."""

PLATFORMS = (("linux", "1"), ("darwin", "0"))
"""GOOS and CGO_ENABLED of the binaries (docs/releasing.md): each is linked from a few others."""

LICENSE = re.compile(r"(licen[cs]e|copying|notice|patents|unlicense)([-.].*)?", re.IGNORECASE)

# Modules whose licence stands elsewhere: one leaves the choice between two, one has it in its
# README.
ELSEWHERE = {"github.com/golang/freetype": "licenses/ftl.txt", "github.com/JohnCGriffin/overflow": "README.md"}


class Module(NamedTuple):
    """A Go module, or Go itself."""

    name: str  # with its version
    texts: List[str]


def linked() -> Iterator[Dict[str, object]]:
    """The packages of the binary on each of PLATFORMS, as `go list -json` has them."""
    for system, cgo in PLATFORMS:
        environment = {**os.environ, "GOOS": system, "CGO_ENABLED": cgo}
        command = ["go", "list", "-deps", "-json=ImportPath,Dir,Standard,Module", "./cmd/stplan"]
        text = subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True).stdout
        decoder, at = json.JSONDecoder(), 0
        while at < len(text.rstrip()):
            package, at = decoder.raw_decode(text, at)
            at = len(text) - len(text[at:].lstrip())
            yield package


def license_files(folder: Path, root: Path) -> Iterator[Path]:
    """The licence files of a package's folder and of those above it, up to the module's root."""
    while True:
        yield from sorted(file for file in folder.iterdir() if LICENSE.fullmatch(file.name) and file.is_file())
        if folder == root:
            return
        folder = folder.parent


def modules() -> List[Module]:
    """What the binary is linked from, by name. Raises SystemExit if a licence is missing."""
    files: Dict[str, Dict[Path, None]] = {}
    for package in linked():
        module = package.get("Module")
        if not isinstance(module, dict) or module.get("Main"):
            continue
        root = Path(module["Dir"])
        found = files.setdefault(f"{module['Path']} {module['Version']}", {})
        found.update(dict.fromkeys(license_files(Path(str(package["Dir"])), root)))
        if module["Path"] in ELSEWHERE:
            found[root / ELSEWHERE[module["Path"]]] = None
    missing = [name for name, found in files.items() if not found]
    if missing:
        raise SystemExit(f"no licence file in {', '.join(missing)}")
    version, goroot = subprocess.run(["go", "env", "GOVERSION", "GOROOT"], check=True, capture_output=True, text=True).stdout.split()
    # Distributions of Go keep its licence elsewhere; x/sys has the same one.
    own = [file for file in (Path(goroot, "LICENSE"), Path(goroot, "PATENTS")) if file.exists()]
    own = own or list(next(found for name, found in files.items() if name.startswith("golang.org/x/sys ")))
    files[f"Go's library {version}"] = dict.fromkeys(own)
    return [Module(name, [file.read_text("utf-8", "replace").strip() for file in found]) for name, found in sorted(files.items())]


def write(path: Path) -> None:
    """Write the file. A text that several modules share stands there once."""
    names: Dict[str, List[str]] = {}
    for module in modules():
        for text in module.texts:
            names.setdefault(text, []).append(module.name)
    rule = "=" * 80
    parts = ["The stplan binary contains the following third-party software.\n"]
    parts += [f"{rule}\n{chr(10).join(dict.fromkeys(of))}\n{rule}\n\n{text}\n" for text, of in names.items()]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(parts), "utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path, help="the file to write")
    write(parser.parse_args().path)
