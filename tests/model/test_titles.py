"""Names of notebooks and consoles."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.titles import Title, labels, titles

words = st.sampled_from(["a", "b", "train.ipynb", ""])
paths = st.sets(st.lists(words, min_size=1, max_size=4).map("/".join), max_size=8)


def session(kernel: str, path: str, kind: str = "notebook", name: str = "") -> dict[str, Any]:
    """Return a session as `GET api/sessions` has it."""
    return {"path": path, "name": name, "type": kind, "kernel": {"id": kernel}}


def test_label_has_as_many_folders_as_it_takes() -> None:
    """The name alone where it is enough, as many folders as it takes where not."""
    assert labels(["x/a.ipynb", "b.ipynb"]) == {"x/a.ipynb": "a.ipynb", "b.ipynb": "b.ipynb"}
    assert labels(["x/a.ipynb", "y/a.ipynb"]) == {"x/a.ipynb": "x/a.ipynb", "y/a.ipynb": "y/a.ipynb"}
    assert labels(["p/x/a.ipynb", "p/y/a.ipynb", "b"]) == {
        "p/x/a.ipynb": "x/a.ipynb",
        "p/y/a.ipynb": "y/a.ipynb",
        "b": "b",
    }
    assert labels(["a.ipynb", "x/a.ipynb"]) == {"a.ipynb": "a.ipynb", "x/a.ipynb": "x/a.ipynb"}


@given(paths)
def test_labels_tell_paths_apart(paths: set[str]) -> None:
    """No two are equal; each is an end of its path at a slash, and with one word less it would be no name."""
    found = labels(paths)
    assert found.keys() == paths
    assert len(set(found.values())) == len(paths)
    for path, label in found.items():
        assert f"/{path}".endswith(f"/{label}")
        _, slash, shorter = label.partition("/")
        if slash:
            assert any(f"/{other}".endswith(f"/{shorter}") for other in paths - {path})


def test_kernel_is_called_by_its_notebook() -> None:
    """Notebooks come before consoles, consoles have their name, and those of one name are distinguished by kernel."""
    assert titles(
        [
            session("k1", "console-1-6f2e", "console", "Console 1"),
            session("k1", "x/a.ipynb"),
            session("k2", "y/a.ipynb"),
            session("k3", "y/console-1-77aa", "console", "Console 1"),
            session("k4", "y/console-1-99bb", "console", "Console 1"),
            session("k5", "z/console-2-11cc", "console"),
            session("k6", ""),
            {"path": "no kernel", "type": "notebook", "kernel": None},
        ]
    ) == {
        "k1": Title("x/a.ipynb", "x/a.ipynb"),
        "k2": Title("y/a.ipynb", "y/a.ipynb"),
        "k3": Title("y/Console 1 (kernel k3)", "Console 1 (kernel k3)"),
        "k4": Title("y/Console 1 (kernel k4)", "Console 1 (kernel k4)"),
        "k5": Title("z/console-2-11cc", "console-2-11cc"),
    }
    assert titles([]) == {}


@given(st.dictionaries(st.uuids().map(str), st.tuples(words, words, words), max_size=8))
def test_titles_tell_kernels_apart(sessions: dict[str, tuple[str, str, str]]) -> None:
    """Two kernels never have one label."""
    found = titles(session(kernel, f"{a}/{b}", kind, a) for kernel, (a, b, kind) in sessions.items())
    assert len({title.label for title in found.values()}) == len(found)
