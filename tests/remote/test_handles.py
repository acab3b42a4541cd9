"""Handles of values that stayed in a worker."""

from __future__ import annotations

import pytest

from jupyter_gpu.remote.errors import WorkerLost
from jupyter_gpu.remote.handles import Handle, Handles, Remote
from tests.remote.spaces import sent, space


def handles(*names: str, where: str = "node2") -> Handles:
    """Return handles of some names, whose values are the names in capitals."""
    made = Handles()
    for name in names:
        made.add(Handle(name, where, "Net", 3 * 1024**2, str.upper))
    return made


def test_values_come_when_they_are_asked_for() -> None:
    """As attributes or items; they say where they are."""
    remote = Remote(handles("model", "keep"))
    assert remote.model.get() == "MODEL"
    assert remote["keep"].get() == "KEEP"
    assert (remote.model.where, remote.model.size, remote.model.type) == ("node2", 3 * 1024**2, "Net")
    assert (list(remote), len(remote), dir(remote)) == (["keep", "model"], 2, ["keep", "model"])
    assert "model" in remote
    assert "other" not in remote
    assert repr(remote) == "<keep: Net on node2, 3 MiB>\n<model: Net on node2, 3 MiB>"
    assert repr(Handle("x", "here", "int", None, str)) == "<x: int on here>"


def test_unknown_names() -> None:
    """The error names those that there are."""
    remote = Remote(handles("model"))
    with pytest.raises(AttributeError, match=r"No worker has kept modle: there are model\."):
        remote.modle  # noqa: B018
    with pytest.raises(KeyError):
        remote["modle"]
    empty = Remote(Handles())
    with pytest.raises(AttributeError, match=r"nothing stayed there\."):
        empty.model  # noqa: B018
    assert repr(empty) == "<nothing stayed in a worker>"


def test_names_cannot_be_set() -> None:
    """They are assigned by cells."""
    with pytest.raises(AttributeError, match="assign it in a cell"):
        Remote(Handles()).model = 1


def test_deleted() -> None:
    """The worker is told first: an error there keeps the handle."""
    dropped: list[str] = []
    known = Handles()
    known.add(Handle("model", "node2", "Net", None, str.upper, dropped.append))
    remote, handle = Remote(known), known.by_name["model"]
    del remote.model
    assert (dropped, len(remote), handle.is_lost) == (["model"], 0, True)

    def refuse(name: str) -> None:
        raise WorkerLost(name)

    known.add(Handle("model", "node2", "Net", None, str.upper, refuse))
    with pytest.raises(WorkerLost):
        del remote.model
    assert "model" in remote
    known.by_name["model"].lose()
    del remote.model
    assert "model" not in remote


def test_a_worker_that_ended() -> None:
    """Its handles say so; those of others stay."""
    known = handles("a")
    known.add(Handle("b", "node3", "int", None, str.upper))
    known.by_name["a"].lose()
    with pytest.raises(WorkerLost, match="a was in the worker on node2, which has ended: make it again"):
        known.by_name["a"].get()
    assert known.by_name["b"].get() == "B"
    assert repr(known.by_name["a"]) == "<a: Net on node2, 3 MiB, lost: the worker has ended>"


def test_a_handle_arrives_as_the_value() -> None:
    """Where the value is no longer there, it says so."""
    here, there = space(x=[handles("model").by_name["model"]]), space(model="the model")
    assert sent(here, {"x"}, there) == {}
    assert there["x"] == ["the model"]
    assert sent(here, {"x"}, space()) == {"x": "model is no longer there"}
