"""The items of `gpu.map`, which are what they were at the call."""

from __future__ import annotations

import gc
import pickle
import resource
import threading
import weakref
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.remote import items
from jupyter_gpu.remote.errors import CannotSend
from jupyter_gpu.remote.items import Items
from tests.remote.spaces import Grid, space

values = st.recursive(
    st.none() | st.integers() | st.text(max_size=5) | st.binary(max_size=40_000).map(bytearray).map(Grid),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
)


def changed(value: Any) -> None:
    """Change all in a value that can be changed."""
    if isinstance(value, Grid):
        value.data[:] = b"x" * (len(value.data) + 1)
    elif isinstance(value, list | dict):
        for one in value.values() if isinstance(value, dict) else value:
            changed(one)
        value.clear()


@given(st.lists(values, max_size=5), st.sampled_from([100, items.MEMORY]))
def test_items_are_what_they_were(given_: list[Any], memory: int) -> None:
    """They stay so when they change afterwards, in any order, and again; in memory as in a file."""
    before = pickle.loads(pickle.dumps(given_, 5))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(items, "MEMORY", memory)
        with closing(Items(space(), given_)) as kept:
            for value in given_:
                changed(value)
            assert len(kept) == len(before)
            assert [kept[at] for at in reversed(range(len(before)))] == before[::-1]
            assert [kept[at] for at in range(len(before))] == before


def test_generator_that_yields_one_buffer() -> None:
    """Each item is what it was when it was yielded."""

    def rows() -> Iterator[bytearray]:
        row = bytearray(1)
        for number in range(5):
            row[0] = number
            yield row

    with closing(Items(space(), rows())) as kept:
        assert [kept[at][0] for at in range(5)] == [0, 1, 2, 3, 4]


def test_originals_are_let_go() -> None:
    """An array that nobody else has ends with its turn in the generator, without the collector of cycles."""
    ended: list[int] = []

    class Array(bytearray):
        def __reduce_ex__(self, _: Any) -> tuple[Any, ...]:
            return bytearray, (pickle.PickleBuffer(self),)

    def arrays() -> Iterator[Array]:
        for number in range(3):
            array = Array(items.MEMORY // 2**13)
            weakref.finalize(array, ended.append, number)
            yield array
            del array
            assert len(ended) >= number  # that of before

    gc.disable()
    try:
        with closing(Items(space(), arrays())) as kept:
            assert ended == [0, 1, 2]
            assert len(kept[2]) == items.MEMORY // 2**13
    finally:
        gc.enable()


def test_functions_and_classes_are_those_of_the_notebook() -> None:
    """They read its names of then, and an object is one of the same class."""
    here = space("n = 1\ndef f(): return n\nclass C: pass")
    with closing(Items(here, [here["f"], here["C"]()])) as kept:
        here["n"] = 2
        assert kept[0]() == 2
        assert type(kept[1]) is here["C"]
    assert "_gpu_call" not in here


def test_what_cannot_be_pickled_is_left_to_its_call() -> None:
    """It is the item itself, and only its own call fails."""
    lock = threading.Lock()
    with closing(Items(space(), [lock, 7])) as kept:
        assert kept[0] is lock
        assert kept[1] == 7


def test_full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said in a sentence."""
    monkeypatch.setattr(items, "MEMORY", 10)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, before[1]))
    try:
        with pytest.raises(CannotSend, match="no room to keep the items until they are sent: File too large"):
            Items(space(), [bytearray(2**22)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
