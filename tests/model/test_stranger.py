"""Programs that use a GPU without having been given it, and the words for them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.kernel.reports.status import GpuStatus, devices
from jupyter_gpu.model.cards import cards
from jupyter_gpu.model.gpu import Holder
from jupyter_gpu.model.stranger import MAX_STRANGERS, Stranger
from jupyter_gpu.model.strict import FieldError
from jupyter_gpu.model.view import PodGpu, View
from tests.builders import allocated, attached, gpu, uuid
from tests.model import golden
from tests.model.strategies import json_values

ALICE = Stranger(123, "python", "alice")


@pytest.mark.parametrize(
    ("stranger", "name"),
    [
        (ALICE, "python (process 123, alice)"),
        (ALICE._replace(user=None), "python (process 123)"),
        (ALICE._replace(pid=0), "python (alice)"),
        (Stranger(0, "a program"), "a program"),
    ],
)
def test_program_has_the_best_known_name(stranger: Stranger, name: str) -> None:
    """The name has whatever can be seen of the program."""
    assert stranger.name == name
    assert Stranger.from_json(stranger.to_json()) == stranger


@given(st.sampled_from(["pid", "command", "user"]), json_values)
def test_any_field_is_read_or_refused(key: str, value: object) -> None:
    """Whatever stands in a field, it is read or refused."""
    try:
        again = Stranger.from_json({**ALICE.to_json(), key: value})
    except FieldError:
        return
    assert Stranger.from_json(again.to_json()) == again


def test_card_names_a_process_once() -> None:
    """An outside process is not among the users too, and a card names only so many."""
    many = [Stranger(pid, "python", "alice") for pid in range(100, 200)]
    holders = {uuid(0): [Holder(123, "python", foreign=True), Holder(7, "python")]}
    (card,) = cards(allocated([0]), attached([0]), {uuid(0): gpu(0)}, holders, {uuid(0): many})
    assert (len(card.strangers), [user.pid for user in card.users]) == (MAX_STRANGERS, [123, 7])
    (card,) = cards(allocated([0]), attached([0]), {uuid(0): gpu(0)}, holders, {uuid(0): [ALICE]})
    assert (card.strangers, [user.pid for user in card.users]) == ((ALICE,), [7])
    assert not card.exclusive
    assert PodGpu.from_json(card.to_json()) == card


def test_used_gpu_is_not_called_exclusive() -> None:
    """Neither the table of a status nor a device."""
    case = next(case for case in golden.load("views") if case["name"] == "ready, a stranger uses one")
    view = View.from_json(case["view"])
    assert [device.exclusive for device in devices(view)] == [True, False]
    rows = repr(GpuStatus(view)).splitlines()
    assert "exclusive" in rows[1]
    assert "exclusive" not in rows[2]
    assert "all of it, others use it too" in rows[2]
    assert "GPU 1 is also used by python (process 123, alice)" in rows[0]
    half = replace(view, gpus=tuple(item._replace(milli=500) for item in view.gpus))
    assert "0.5 of it, others use it too" in repr(GpuStatus(half))
