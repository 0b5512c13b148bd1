"""The stplan command of an installed package: hands over to the binary in stplan/bin.

A module beside the package, because importing the package takes longer than most
commands do."""

from __future__ import annotations

import importlib.util
import os
import sys


def main() -> int:
    """Become the binary; returns only if that is not possible."""
    found = importlib.util.find_spec("stplan")
    assert found is not None and found.origin is not None
    binary = os.path.join(os.path.dirname(os.path.abspath(found.origin)), "bin", "stplan")
    try:
        os.execv(binary, ["stplan", *sys.argv[1:]])
    except OSError as error:
        sys.stderr.write(
            f"stplan: {binary}: {error.strerror}: this package was built without Go; a wheel from PyPI has the command\n"
        )
    return 2
