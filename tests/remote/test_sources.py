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

from jupyter_gpu.remote import sources
from jupyter_gpu.remote.rules.imports import imported, with_parents
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


def write(folder: Path, **files: str) -> None:
    """Write modules; two underscores divide folders."""
    for name, text in files.items():
        path = folder.joinpath(*name.split("__")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def names(found: list[Source]) -> list[str]:
    """Return the modules."""
    return [one.module for one in found]


def test_what_code_imports_when_it_is_called(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Modules that it names go with all that these import, from the folder only, and again when they were changed."""
    write(folder, lazy_one__first="from .second import n\nimport json, installed_late", lazy_one__second="n = 1")
    write(folder, lazy_one__unused="", lazy_two="import lazy_one.first", **{"site-packages__installed_late": ""})
    (folder / "lazy_one" / "__init__.py").write_text("")
    outside = tmp_path_factory.mktemp("outside")
    write(outside, secret="")
    (folder / "linked.py").symlink_to(outside / "secret.py")
    (folder / "json.py").write_text("")
    found = Sources(folder, known=False)
    assert found.named(["json"]) == []  # it is loaded, from elsewhere
    assert names(found.named(["lazy_two", "linked", "sys", "changes_often", "nowhere.at_all"])) == [
        *("lazy_two", "lazy_one", "lazy_one.first", "lazy_one.second")
    ]
    assert found.named(["lazy_two"]) == []
    write(folder, lazy_one__second="n = 2")
    assert found.named([]) == [Source("lazy_one.second", str(folder / "lazy_one" / "second.py"), "n = 2")]
    assert Sources(folder).named(["lazy_two"]) == []


def test_loaded_modules_name_others(folder: Path) -> None:
    """Imports in functions of a loaded module go, too; loaded later with the same text, they do not go again."""
    write(folder, changes_often="def f():\n  import comes_later, lazy_spaces.deep.module")
    write(folder, comes_later="", lazy_spaces__deep__module="")
    found = Sources(folder, known=False)
    assert "changes_often" in names(found.changed())
    assert names(found.named([])) == ["comes_later", "lazy_spaces.deep.module"]
    importlib.import_module("comes_later")
    assert found.changed() == []
    importlib.reload(sys.modules["comes_later"])
    assert names(found.changed()) == ["comes_later"]
    importlib.import_module("lazy_spaces")
    try:
        write(folder, lazy_spaces__other="")
        assert names(found.named(["lazy_spaces.other"])) == ["lazy_spaces.other"]
    finally:
        del sys.modules["lazy_spaces"]


def test_only_so_many_are_sent(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That some are left out is known, also later."""
    write(folder, lazy_a="", lazy_b="", lazy_c="#" * 100)
    monkeypatch.setattr(sources, "MOST_MODULES", 2)
    found = Sources(folder, known=False)
    assert (names(found.named(["lazy_a", "lazy_b"])), found.left_out) == (["lazy_a", "lazy_b"], False)
    assert (found.named(["lazy_c"]), found.left_out) == ([], True)
    assert (found.named([]), found.left_out) == ([], False)
    monkeypatch.setattr(sources, "MOST_BYTES", 99)
    assert (Sources(folder, known=False).named(["lazy_c"])) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import a, b.c", "a b.c"),
        ("from a.b import c as d, e", "a.b a.b.c a.b.e"),
        ("from a import *", "a"),
        ("def f():\n  from . import x", "pack.age pack.age.x"),
        ("from .. import x\nfrom ..y import z", "pack pack.x pack.y pack.y.z"),
        ("from ... import x", ""),
        ("import_module('a.b'); importlib.import_module('c', p); __import__('d')", "a.b c d"),
        ("import_module('.a'); import_module(a); __import__(); f('a'); import_module(1); f()('a')", ""),
        ("no python", ""),
        ("\0", ""),
    ],
)
def test_imported(text: str, expected: str) -> None:
    """Absolute names, also inside functions."""
    assert imported(text, "pack.age") == set(expected.split())


def test_relative_imports_outside_of_packages() -> None:
    """There is nothing that they could be relative to."""
    assert imported("from . import x") == frozenset()
    assert with_parents("a.b.c") == ["a", "a.b", "a.b.c"]
