"""Looks at what GoReleaser has made: the archives, their checksums, and the SBOMs, which have to
name the release's version. Ends with an error if anything is missing or is another."""

from __future__ import annotations

import argparse
import hashlib
import json
from pathlib import Path
from typing import List

MODULE = "github.com/stplan/stplan"
"""The main module of the binaries (go.mod)."""

PLATFORMS = ("darwin-arm64", "linux-amd64", "linux-arm64")
"""What there is an archive for (.goreleaser.yaml)."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="GoReleaser's, with metadata.json")
    parser.add_argument("--skip", default="", help="what GoReleaser was told to skip, such as sbom")
    asked = parser.parse_args()
    version = str(json.loads((asked.folder / "metadata.json").read_text())["version"])
    stems = [f"stplan-{version}-{platform}" for platform in PLATFORMS]
    files = [f"{stem}.tar.gz" for stem in stems]
    if "sbom" not in asked.skip.split(","):
        files += [f"{stem}.cdx.json" for stem in stems]
        for stem in stems:
            demand_version(asked.folder / f"{stem}.cdx.json", version)
    demand_checksums(asked.folder / f"stplan-{version}-checksums.txt", files)
    print(f"{asked.folder}: {len(files)} files of {version}, as they should be")


def demand_version(path: Path, version: str) -> None:
    """Raise SystemExit if the SBOM is not of the main module in this version."""
    component = json.loads(path.read_text())["metadata"]["component"]
    expected = {"name": MODULE, "version": f"v{version}"}
    found = {key: component.get(key) for key in expected}
    if found != expected:
        raise SystemExit(f"{path}: the component is {found}, expected {expected}")
    if f"@v{version}" not in component["purl"]:
        raise SystemExit(f"{path}: the component's purl is {component['purl']}, expected one of v{version}")


def demand_checksums(path: Path, files: List[str]) -> None:
    """Raise SystemExit if the checksums are not of these files, which lie beside them."""
    checksums = {name: digest for digest, name in (line.split() for line in path.read_text().splitlines())}
    if sorted(checksums) != sorted(files):
        raise SystemExit(f"{path}: has {sorted(checksums)}, expected {sorted(files)}")
    for name, digest in checksums.items():
        found = hashlib.sha256((path.parent / name).read_bytes()).hexdigest()
        if found != digest:
            raise SystemExit(f"{path}: {name} has the SHA-256 {found}, expected {digest}")


if __name__ == "__main__":
    main()
