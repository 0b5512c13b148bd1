"""Adds the compiled C runtime to the package that pyproject.toml describes, if there
is a C compiler. Without one the package is the same on every platform, and the
library is built on the machine that uses it."""

import os
import sys

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "src"))

from stplan import _build, _library  # noqa: E402


class Package(Distribution):
    def has_ext_modules(self) -> bool:
        return _build.compiler("c") is not None


class Build(build_py):
    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return  # the library is built in the cache at first use
        try:
            _library.build(os.path.join(self.build_lib, "stplan", _library.file_name()))
        except _build.BuildError as error:
            self.warn(f"the package comes without a compiled C runtime: {error}")


class Wheel(bdist_wheel):
    def get_tag(self) -> "tuple[str, str, str]":
        # The library does not depend on the version of Python.
        return ("py3", "none", super().get_tag()[2])


setup(distclass=Package, cmdclass={"build_py": Build, "bdist_wheel": Wheel})
