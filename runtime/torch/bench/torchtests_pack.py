"""Copies test files from a git repository of PyTorch, with what they need from its test
folder, so that they can be carried to a machine without a network."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path, PurePosixPath
from typing import Dict, Iterator, List, Sequence, Set


class Repository:
    """The files of one revision. repository may be bare."""

    def __init__(self, repository: Path, revision: str) -> None:
        self._git = ["git", "-C", str(repository)]
        self.revision = self._call("rev-parse", f"{revision}^{{commit}}").decode().strip()
        listed = self._call("ls-tree", "-r", "-z", "--name-only", self.revision).decode(errors="replace")
        self.paths: Set[str] = set(listed.split("\0")) - {""}

    def read(self, path: str) -> bytes:
        return self._call("show", f"{self.revision}:{path}")

    def _call(self, *arguments: str) -> bytes:
        done = subprocess.run([*self._git, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if done.returncode:
            raise SystemExit(f"torchtests.py: {' '.join([*self._git, *arguments])}: {done.stderr.decode(errors='replace').strip()}")
        return done.stdout


def pack(repository: Repository, folder: Path, files: Sequence[str]) -> Dict[str, int]:
    """Copies the files, and what they name, into the folder. Returns the bytes of each
    by its path."""
    missing = [path for path in files if path not in repository.paths]
    if missing:
        raise SystemExit(f"torchtests.py: revision {repository.revision[:12]} has no {', '.join(missing)}")
    copied: Dict[str, int] = {}
    waiting = list(files)
    while waiting:
        path = waiting.pop()
        if path in copied:
            continue
        data = repository.read(path)
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        copied[path] = len(data)
        if path.endswith(".py"):
            waiting += needed(data, path, repository.paths)
    (folder / "REVISION").write_text(f"{repository.revision}\n")
    return copied


def needed(source: bytes, path: str, paths: Set[str]) -> List[str]:
    """The files of the test folder that a file imports, and those that a string in it
    names: as a file beside it, or as a module, as for importlib. Modules are looked for
    beside the file and in the test folder, which are the places on the path."""
    own = PurePosixPath(path)
    folders = list(dict.fromkeys([own.parent, PurePosixPath(own.parts[0])]))
    found: List[str] = []
    for name in named(ast.parse(source), own):
        parts = name.split(".")
        for folder in folders:
            # a.b needs a/__init__.py too, and `from a import b` may mean the file a/b.py.
            for count in range(1, len(parts) + 1):
                base = folder.joinpath(*parts[:count])
                found += [str(p) for p in (base / "__init__.py", base.with_name(base.name + ".py")) if str(p) in paths]
    for text in strings(ast.parse(source)):
        for folder in folders if "/" in text or "." in text else []:
            candidate = str(folder / text)
            if candidate in paths:
                found.append(candidate)
    return [p for p in dict.fromkeys(found) if p != path]


def named(tree: ast.AST, path: PurePosixPath) -> Iterator[str]:
    """The modules that a file may import, as dotted names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level <= 1:
            base = f"{node.module}." if node.module else ""
            yield from (f"{base}{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and "import_module" in ast.dump(node.func):
            yield from strings(node)


def strings(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and 0 < len(node.value) < 200:
            if node.value.isprintable() and not node.value.startswith(("/", ".")):
                yield node.value


def report(copied: Dict[str, int]) -> List[str]:
    """The sizes, largest first."""
    lines = [f"{size:>10,}  {path}" for path, size in sorted(copied.items(), key=lambda item: (-item[1], item[0]))]
    return [*lines, f"{sum(copied.values()):>10,}  bytes in {len(copied)} files"]
