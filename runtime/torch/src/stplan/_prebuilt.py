"""Finds the shim that a wheel has for the installed torch.

A wheel has one shim for each release of torch, in the folder shims of the package. It fits
if it was compiled from the very headers that the installed torch has, with the same ABI of
the C++ library. Every torch brings these headers; their contents are compared, and not
version numbers alone, since others build torch as well."""

from __future__ import annotations

import hashlib
import json
import os
from typing import Any, Dict, List, Optional, Sequence, Tuple

from stplan import _library

FOLDER = "shims"
INDEX = "index.json"
"""In FOLDER: {"sources": digest, "shims": [{"file", "torch", "cxx11_abi", "names",
"headers"}]}, with torch as "2.11", and headers the digest of the headers names."""

# Of each file, in bytes: an index is 100 KB, a header of torch 100 KB at most.
_MOST = 16 << 20


def find(torch: Any, release: Tuple[int, ...], sources: Sequence[str]) -> Tuple[Optional[str], Optional[str]]:
    """The path of a shim that was compiled from these sources for the installed torch of
    this release, or None, and why it is none. Both are None if no package has any shim
    from these sources."""
    reason: Optional[str] = None
    digest = digest_of(sources)
    for package in _library.packages():
        index = _read(os.path.join(package, FOLDER, INDEX))
        if index.get("sources") != digest:
            continue
        shims = index["shims"]
        path, reason = _fitting(torch, ".".join(map(str, release)), shims)
        if path is not None:
            return os.path.join(package, FOLDER, path), None
    return None, reason


def digest_of(paths: Sequence[str], below: Optional[str] = None) -> str:
    """A digest of files' contents and of their names, which are relative to the folder
    below if that is given. Raises OSError."""
    digest = hashlib.sha256()
    for path in paths:
        name = os.path.basename(path) if below is None else path
        with open(path if below is None else os.path.join(below, path), "rb") as file:
            content = file.read(_MOST)
        digest.update(f"{name} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()


def _read(path: str) -> Dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:
            found = json.loads(file.read(_MOST))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _fitting(torch: Any, release: str, shims: List[Dict[str, Any]]) -> Tuple[Optional[str], Optional[str]]:
    """The file of the shim that fits, or why none does."""
    of_release = [shim for shim in shims if shim["torch"] == release]
    if not of_release:
        have = sorted({shim["torch"] for shim in shims}, key=lambda name: [int(part) for part in name.split(".")])
        return None, f"there is no prebuilt shim for torch {torch.__version__}: they are for {', '.join(have)}"
    abi = bool(torch.compiled_with_cxx11_abi())
    with_abi = [shim for shim in of_release if shim["cxx11_abi"] == abi]
    if not with_abi:
        return None, f"the prebuilt shim for torch {release} has another C++ ABI than torch {torch.__version__} (_GLIBCXX_USE_CXX11_ABI={int(abi)})"
    headers = os.path.join(os.path.dirname(torch.__file__), "include")
    try:
        for shim in with_abi:
            if digest_of(shim["names"], headers) == shim["headers"]:
                return str(shim["file"]), None
    except OSError as error:
        return None, f"no prebuilt shim can be chosen for torch {torch.__version__}: {error.filename}: {error.strerror}"
    return None, f"the prebuilt shims for torch {release} do not fit torch {torch.__version__}: its headers are others"
