"""Modules of the notebook's folder that were changed and loaded again."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from jupyter_gpu.remote.sources import Source, Sources, reload


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a folder with a module that is loaded, and one that is installed there."""
    (tmp_path / "changes_often.py").write_text("n = 1\n")
    (tmp_path / "site-packages").mkdir()
    (tmp_path / "site-packages" / "installed_there.py").write_text("n = 1\n")
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.syspath_prepend(tmp_path / "site-packages")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("changes_often")
    importlib.import_module("installed_there")
    yield tmp_path
    for name in ("changes_often", "installed_there", "comes_later"):
        sys.modules.pop(name, None)


def test_only_what_was_loaded_again_is_sent(folder: Path) -> None:
    """With its source of now, once; neither what was only changed or installed, nor what was imported first."""
    sources = Sources(folder)
    assert sources.changed() == []
    (folder / "changes_often.py").write_text("n = 22\n")
    (folder / "comes_later.py").write_text("")
    assert sources.changed() == []
    importlib.import_module("comes_later")
    importlib.reload(sys.modules["changes_often"])
    importlib.reload(sys.modules["installed_there"])
    assert sources.changed() == [Source("changes_often", str(folder / "changes_often.py"), "n = 22\n")]
    assert sources.changed() == []


def test_removed_file_is_left_out(folder: Path) -> None:
    """There is nothing to send."""
    sources = Sources(folder)
    importlib.reload(sys.modules["changes_often"])
    (folder / "changes_often.py").unlink()
    assert sources.changed() == []


def test_loaded_again_in_the_same_module() -> None:
    """So that functions that were imported from it see its new names; what is not loaded is not touched."""
    module = ModuleType("changes_often")
    exec("def f(): return n\nn = 1", module.__dict__)
    function = module.f
    reload([Source("changes_often", "f.py", "n = 2"), Source("other", "o.py", "1 / 0")], {"changes_often": module})
    assert function() == 2
