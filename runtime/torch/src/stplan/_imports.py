"""Calls a function when the job has imported a given module."""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Callable, Optional, Sequence


def after_import(name: str, callback: Callable[[ModuleType], None]) -> None:
    """Call callback(module) right after the top-level module `name` has been imported:
    at once if it is imported already, and never if the job does not import it. If an
    import fails, the callback waits for the next one."""
    module = sys.modules.get(name)
    if module is not None and not _under_way(module):
        callback(module)
        return
    sys.meta_path.insert(0, _Finder(name, callback))


def _under_way(module: ModuleType) -> bool:
    return bool(getattr(module.__spec__, "_initializing", False))


class _Finder:
    """Waits for one module. It asks the other finders for the module's loader, and makes
    that loader call the callback after it has run the module.

    It has no base class of importlib.abc: importing that takes 14 ms, in every Python process
    of a job."""

    def __init__(self, name: str, callback: Callable[[ModuleType], None]) -> None:
        self._name = name
        self._callback = callback
        self._asking = False
        self._called = False

    def find_spec(
        self,
        fullname: str,
        path: Optional[Sequence[str]],
        target: Optional[ModuleType] = None,
    ) -> Optional[ModuleSpec]:
        if fullname != self._name:
            # Another finder may have loaded the module without asking the others. Then it is there by the next import.
            module = sys.modules.get(self._name)
            if module is not None and not _under_way(module):
                self._loaded(module)  # It stays on sys.meta_path, which is being gone through.
            return None
        if self._asking:
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
        """Replaces exec_module of this loader instance. The instance belongs to this one
        spec; its other methods stay as they are."""
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            self._loaded(module)

        loader.exec_module = exec_module

    def _loaded(self, module: ModuleType) -> None:
        if not self._called:
            self._called = True
            self._callback(module)
