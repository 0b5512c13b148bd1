"""Runs a callback once a module that the job imports is complete."""

from __future__ import annotations

import importlib.util
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Callable, Optional, Sequence


def after_import(name: str, callback: Callable[[ModuleType], None]) -> None:
    """Call callback(module) right after the top-level module `name` has been
    imported: at once where it is complete already, never where it is not used.
    An import that fails may be tried again."""
    module = sys.modules.get(name)
    if module is not None and not _under_way(module):
        callback(module)
        return
    sys.meta_path.insert(0, _Finder(name, callback))


def _under_way(module: ModuleType) -> bool:
    return bool(getattr(module.__spec__, "_initializing", False))


class _Finder(MetaPathFinder):
    """Finds nothing itself: it asks the finders behind it and adds the callback
    to the loader that they give for its one module."""

    def __init__(self, name: str, callback: Callable[[ModuleType], None]) -> None:
        self._name = name
        self._callback = callback
        self._asking = False

    def find_spec(
        self,
        fullname: str,
        path: Optional[Sequence[str]],
        target: Optional[ModuleType] = None,
    ) -> Optional[ModuleSpec]:
        if fullname != self._name or self._asking:
            return None
        self._asking = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._asking = False
        if spec is not None and spec.loader is not None:
            self._extend(spec.loader)
        return spec

    def _extend(self, loader: Any) -> None:
        """The loader belongs to this one spec, so its instance is changed and
        everything else that it offers stays as it is."""
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
                self._callback(module)

        loader.exec_module = exec_module
