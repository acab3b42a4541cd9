"""Modules of the notebook's folder that were changed and loaded again."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest

from jupyter_gpu.remote.sources import Sent, Source, Sources


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
    sources = [Source("changes_often", "f.py", "n = 2"), Source("other", "o.py", "1 / 0")]
    with sent() as here:
        here.take(sources, {"changes_often": module})
        assert function() == 2


@contextmanager
def sent() -> Iterator[Sent]:
    """The modules that are sent here, until the end of the block."""
    before, loaded = list(sys.meta_path), set(sys.modules)
    try:
        yield Sent()
    finally:
        sys.meta_path[:] = before
        for name in sys.modules.keys() - loaded:
            del sys.modules[name]


def test_worker_that_cannot_read_them_gets_all(folder: Path) -> None:
    """At first those that are loaded, and later those that are new; each once."""
    sources = Sources(folder, known=False)
    assert [one.module for one in sources.changed()] == ["changes_often"]
    assert sources.changed() == []
    (folder / "comes_later.py").write_text("")
    importlib.import_module("comes_later")
    assert [one.module for one in sources.changed()] == ["comes_later"]


def test_import_of_what_was_sent() -> None:
    """Modules and packages, with and without a file of their own; a traceback shows the lines. Others are not found."""
    with sent() as here:
        files = {"sent_a": "a.py", "sent_b": "b/__init__.py", "sent_b.c": "b/c.py", "sent_n.d": "n/d.py"}
        here.take([Source(name, f"/nowhere/{file}", f"at = {file!r}\n") for name, file in files.items()], sys.modules)
        assert [importlib.import_module(name).at for name in files] == list(files.values())
        assert sys.modules["sent_b"].__path__ == []
        assert sys.modules["sent_a"].__file__ == "/nowhere/a.py"
        assert inspect.getsource(sys.modules["sent_b.c"]) == "at = 'b/c.py'\n"
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module("sent_x")
        here.take([Source("sent_a", "/nowhere/a.py", "at = 7")], sys.modules)
        assert sys.modules["sent_a"].at == 7
