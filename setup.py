"""Adds to the package that pyproject.toml describes what has been compiled: the C runtime,
the command line as bin/stplan, and shims for releases of torch.

If STPLAN_COMPILED names a folder, its files are taken as they are (packaging/wheel.py
compiles them for any machine of a kind). Otherwise the compilers of this machine make the
first two for it. Without a C compiler or without Go the package comes without that part,
and without both it is the same on every platform. GO names another go command."""

import os
import shlex
import shutil
import subprocess
import sys
from typing import Optional

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "runtime", "torch", "src"))

from stplan import _build, _library  # noqa: E402
from stplan._version import __version__  # noqa: E402

COMPILED = os.environ.get("STPLAN_COMPILED", "")


def go() -> "Optional[str]":
    """The go command, or None if there is none."""
    return shutil.which(os.environ.get("GO") or "go")


class Package(Distribution):
    def has_ext_modules(self) -> bool:
        return bool(COMPILED) or _build.compiler("c") is not None or go() is not None


class Build(build_py):
    def run(self) -> None:
        if self.editable_mode:
            super().run()
            return  # the library is built in the cache at first use
        # What an earlier build has left there would come into this package too.
        shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()
        package = os.path.join(self.build_lib, "stplan")
        if COMPILED:
            shutil.copytree(COMPILED, package, dirs_exist_ok=True)
            return
        try:
            _library.build(os.path.join(package, _library.file_name()))
        except _build.BuildError as error:
            self.warn(f"the package comes without a compiled C runtime: {error}")
        self.command_line(os.path.join(package, "bin", "stplan"))

    def command_line(self, path: str) -> None:
        command = go()
        if command is None:
            self.warn("the package comes without the stplan command: no Go (go on PATH, or what GO names)")
            return
        arguments = ["build", "-trimpath", "-ldflags", "-s -w", "-o", os.path.abspath(path), "./cmd/stplan"]
        print(shlex.join([command, *arguments]), flush=True)
        subprocess.run([command, *arguments], cwd=HERE, check=True)


class Wheel(bdist_wheel):
    def get_tag(self) -> "tuple[str, str, str]":
        # Nothing in it depends on the version of Python.
        return ("py3", "none", super().get_tag()[2])


setup(version=__version__, distclass=Package, cmdclass={"build_py": Build, "bdist_wheel": Wheel})
