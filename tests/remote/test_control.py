"""Words between a notebook and the first process of a worker."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jupyter_gpu.model.gpu_kind import GpuKind
from jupyter_gpu.model.reservation import ReservationOwner
from jupyter_gpu.model.service import Z85
from jupyter_gpu.model.strict import FieldError
from jupyter_gpu.model.view import GpuLoad
from jupyter_gpu.remote.rules import control
from jupyter_gpu.remote.rules.control import (
    Allow,
    Check,
    Checked,
    KernelOf,
    Kill,
    Killed,
    Load,
    Loads,
    Look,
    Refused,
    Run,
    Running,
    Serve,
    Serving,
    Start,
    Started,
    Tell,
    Told,
    Word,
    read,
)

KINDS: tuple[type[Word], ...] = (
    *(Serve, Serving, Start, Started, Kill, Killed, Refused, Run, Allow, Look, Running, Load, Loads, Check, Checked),
    *(Tell, Told),
)
KEY = "a" * 40
OWNER = ReservationOwner(7, 70, 700)

texts = st.text("abc.:/ é", min_size=1, max_size=50)
ports = st.integers(1, 65535)
# The number in a key has 32 bytes, so five letters are at most those of 2³² - 1.
keys = st.lists(st.text(Z85[:80], min_size=5, max_size=5), min_size=8, max_size=8).map("".join)
owners = st.builds(ReservationOwner, ports, st.integers(0, 9), st.integers(0, 9), st.none() | texts)
loads = st.builds(
    GpuLoad, st.none() | st.floats(0, 100), st.none() | ports, st.none() | st.integers(0, 1000), st.none()
)
kinds = st.builds(GpuKind, texts, ports, st.just("nvidia"), st.booleans())
words = st.one_of(
    st.builds(Serve, texts, st.lists(keys, max_size=4).map(tuple)),
    st.builds(Serving, ports, keys),
    st.builds(Start, texts, texts, texts, owners),
    st.builds(Started, texts, ports, ports, ports, ports),
    st.builds(Kill, texts),
    st.builds(Killed, texts),
    st.builds(Refused, texts),
    st.just(Look()),
    st.just(Load()),
    st.just(Check()),
    st.builds(Checked, texts, st.dictionaries(texts, texts, max_size=8)),
    st.builds(Tell, texts),
    st.builds(Told, texts, st.booleans(), st.booleans()),
    st.builds(Loads, st.dictionaries(texts, loads, max_size=8), st.dictionaries(texts, kinds, max_size=8)),
    st.builds(Running, st.lists(st.builds(KernelOf, texts, owners), max_size=8).map(tuple)),
    st.builds(Allow, st.lists(keys, max_size=4).map(tuple)),
    st.builds(Run, texts, keys, keys, st.lists(keys, max_size=4).map(tuple), texts, st.integers(0, 65531)),
)


@given(words)
@example(Start("k", "/", "3.11", OWNER))
@example(Running((KernelOf("k", OWNER),)))
@example(Loads({"u": GpuLoad(1.0, None, None, None)}, {"u": GpuKind("H100", 1)}))
def test_word_arrives_as_it_was_sent(word: Word) -> None:
    """Every kind, with any content."""
    assert read(word.dump(), *KINDS) == word


@given(
    st.binary(max_size=200) | st.recursive(st.none() | texts | ports, st.lists).map(lambda v: json.dumps(v).encode())
)
def test_other_bytes_are_refused(data: bytes) -> None:
    """Nothing else is raised, whatever arrives."""
    with pytest.raises(FieldError):
        read(data, *KINDS)


@given(
    words, st.sampled_from(["port", "key", "kernel", "shell", "allow", "why"]), st.none() | st.text() | st.integers()
)
def test_wrong_fields_are_refused(word: Word, name: str, value: Any) -> None:
    """A field is missing, or is something else: either the word is read all the same, or it is refused."""
    body = json.loads(word.dump())
    fields = body[word.kind]
    if name in fields:
        fields[name] = value
        with contextlib.suppress(FieldError):
            assert getattr(read(json.dumps(body).encode(), *KINDS), name) is not None
        del fields[name]
        with pytest.raises(FieldError, match=name):
            read(json.dumps(body).encode(), *KINDS)


def test_only_kinds_that_are_expected_are_read() -> None:
    """The sentence names them."""
    with pytest.raises(FieldError, match="one of: start, kill"):
        read(Killed("k").dump(), Start, Kill)
    with pytest.raises(FieldError, match="one of: start"):
        read(b'{"start": {}, "kill": {}}', Start)
    with pytest.raises(FieldError, match="bytes"):
        read(Kill("k" * 40_000).dump(), Kill)


def test_loads_have_a_limit() -> None:
    """A worker cannot make its notebook's server keep more."""
    loads = {f"GPU-{number}": GpuLoad(1.0, 1) for number in range(control.MAX_LOADS + 1)}
    with pytest.raises(FieldError, match="at most 64 GPUs"):
        read(Loads(loads).dump(), Loads)
    whole = {
        "x" * 90 + str(number): GpuLoad(99.99999999999999, 2**53 - 1, 1000, 99999.99999999999) for number in range(64)
    }
    kinds_of = dict.fromkeys(
        whole, GpuKind("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", 2**53 - 1, gate=True)
    )
    assert read(Loads(whole, kinds_of).dump(), Loads) == Loads(whole, kinds_of)
    with pytest.raises(FieldError, match="at most 64 GPUs"):
        read(Loads({}, dict.fromkeys(loads, GpuKind("H100", 1))).dump(), Loads)


def test_versions_have_a_limit() -> None:
    """A worker cannot fill the doctor's answer."""
    many = {f"package{number}": "1" for number in range(control.MAX_PACKAGES + 1)}
    with pytest.raises(FieldError, match="at most 64 packages"):
        read(Checked("3.11", many).dump(), Checked)
    assert read(Checked("3.11", {"numpy": "2.1"}).dump(), Checked) == Checked("3.11", {"numpy": "2.1"})


def test_secret_key_is_in_no_log() -> None:
    """Neither that nor what signs messages is in the text of the word."""
    text = repr(Run("127.0.0.1", KEY, "b" * 40, (KEY,), "signs"))
    assert "127.0.0.1" in text
    assert "bbb" not in text
    assert "signs" not in text


def test_another_python_is_refused() -> None:
    """Its pickled functions could not be read."""
    start = Start("k", "/home/ann", "3.10", OWNER)
    assert "has Python 3.11 and this notebook 3.10" in control.refusal(start, "3.11", 0)
    assert control.refusal(Start("k", "/home/ann", "3.11", OWNER), "3.11", 0) == ""


def test_number_of_kernels_has_a_limit() -> None:
    """The one above it is refused."""
    start = Start("k", "/home/ann", "3.11", OWNER)
    assert control.refusal(start, "3.11", control.MAX_KERNELS - 1) == ""
    assert "8 kernels" in control.refusal(start, "3.11", control.MAX_KERNELS)
