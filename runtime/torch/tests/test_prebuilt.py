"""Which prebuilt shim is taken for the installed torch, and what is said if none fits."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, List, Optional

import pytest

from stplan import _build, _library, _prebuilt, _shim

NAMES = ["c10/core/Allocator.h", "c10/cuda/CUDACachingAllocator.h"]


class Site:
    """An installed package with shims, and an installed torch."""

    def __init__(self, folder: Path) -> None:
        self.package, self.torch_folder = folder / "site" / "stplan", folder / "site" / "torch"
        self.source = folder / "source.cpp"
        self.source.write_text("int shim;")
        for name in NAMES:
            header = self.torch_folder / "include" / name
            header.parent.mkdir(parents=True, exist_ok=True)
            header.write_text(f"// {name}\n")
        (self.package / "shims").mkdir(parents=True)
        self.write("2.11", True)

    def write(self, torch: str, abi: bool) -> None:
        digest = _prebuilt.digest_of(NAMES, str(self.torch_folder / "include"))
        shim = {"file": "shim.so", "torch": torch, "cxx11_abi": abi, "names": NAMES, "headers": digest}
        index = {"sources": _prebuilt.digest_of([str(self.source)]), "shims": [shim]}
        (self.package / "shims" / "index.json").write_text(json.dumps(index))

    def torch(self, abi: bool = True) -> Any:
        return SimpleNamespace(
            __version__="2.11.0+cu130",
            __file__=str(self.torch_folder / "__init__.py"),
            compiled_with_cxx11_abi=lambda: abi,
        )

    def find(self, torch: Optional[Any] = None) -> Any:
        return _prebuilt.find(torch or self.torch(), (2, 11), [str(self.source)])


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    found = Site(tmp_path)
    monkeypatch.setattr(_library, "packages", lambda: iter([str(tmp_path / "empty"), str(found.package)]))
    return found


def test_the_shim_for_these_headers_is_taken(site: Site) -> None:
    assert site.find() == (str(site.package / "shims" / "shim.so"), None)


def test_another_torch_of_the_same_version_is_refused(site: Site) -> None:
    with (site.torch_folder / "include" / NAMES[1]).open("a") as header:
        header.write("// patched\n")
    assert site.find() == (None, "the prebuilt shims for torch 2.11 do not fit torch 2.11.0+cu130: its headers are others")
    (site.torch_folder / "include" / NAMES[0]).unlink()
    path, reason = site.find()
    assert path is None and reason.endswith(f"{NAMES[0]}: No such file or directory")


def test_another_abi_or_release_is_refused(site: Site) -> None:
    path, reason = site.find(site.torch(abi=False))
    assert path is None and reason.endswith("has another C++ ABI than torch 2.11.0+cu130 (_GLIBCXX_USE_CXX11_ABI=0)")
    site.write("2.9", True)
    assert site.find() == (None, "there is no prebuilt shim for torch 2.11.0+cu130: they are for 2.9")


def test_shims_of_other_sources_do_not_count(site: Site) -> None:
    site.source.write_text("int other;")
    assert site.find() == (None, None)


@pytest.mark.parametrize("content", ["", "[]", "{}", "{"])
def test_an_index_that_is_none(site: Site, content: str) -> None:
    (site.package / "shims" / "index.json").write_text(content)
    assert site.find() == (None, None)


def test_a_shim_that_does_not_load_is_compiled(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    (site.package / "shims" / "shim.so").write_text("of another machine")
    asked: List[Optional[str]] = []

    def find(torch: Any, reason: Optional[str]) -> str:
        asked.append(reason)
        raise _build.BuildError("cannot build the shim: no C++ compiler")

    monkeypatch.setattr(_shim, "sources", lambda: [str(site.source)])
    monkeypatch.setattr(_library, "sources", lambda: [])
    monkeypatch.setattr(_shim, "find", find)
    with pytest.raises(_build.BuildError) as caught:
        _shim.install(site.torch(), None, "auto", None)
    (reason,) = asked
    assert reason is not None and reason.startswith(f"the prebuilt shim {site.package}/shims/shim.so cannot be used: ")
    assert str(caught.value) == f"{reason}; cannot build the shim: no C++ compiler"


def test_the_version_is_one() -> None:
    import stplan

    header = Path(__file__).resolve().parents[2] / "cuda" / "stplan.h"
    assert f'#define STPLAN_VERSION "{stplan.__version__}"' in header.read_text().splitlines()
