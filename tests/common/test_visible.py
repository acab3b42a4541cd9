"""GPUs that a program is told of in `CUDA_VISIBLE_DEVICES`, with the attached GPUs 1 and 2 of four."""

from __future__ import annotations

import pytest

from jupyter_gpu.common.attached import AttachedGpu, Hint
from jupyter_gpu.common.rules.visible import BUS_ORDER, NAMED_BY, ORDER, OURS, VISIBLE, WANTED, changes, start

ONE, TWO = (AttachedGpu(f"GPU-0000000{index}-aaaa", index, f"/dev/nvidia{index}") for index in (1, 2))
SOFT, ENFORCED = (Hint("here", 1, False, (ONE, TWO), enforced) for enforced in (False, True))
BY_BUS = {ORDER: BUS_ORDER}


@pytest.mark.parametrize(
    ("wanted", "value"),
    [
        ("2", TWO.uuid),
        ("0,2", TWO.uuid),
        ("GPU-00000002", TWO.uuid),
        (f"{TWO.uuid}, 1", f"{TWO.uuid},{ONE.uuid}"),
        (f"1,GPU-ffffffff,{TWO.uuid}", ONE.uuid),
        (f"1,GPU-0000000,{TWO.uuid}", ONE.uuid),
        ("GPU-,1", ""),
        ("-1,1", ""),
        (",1", ""),
        ("9999999999,1", ""),
    ],
)
def test_choice_is_narrowed_to_attached_gpus(wanted: str, value: str) -> None:
    """A number of another GPU is left out; what names no GPU, or more than one, ends the list, as in CUDA."""
    assert changes({VISIBLE: wanted}, SOFT) == {VISIBLE: value, OURS: value, WANTED: wanted}


def test_numbers_stay_where_cuda_counts_by_bus() -> None:
    """In another order, the same number could mean another GPU."""
    assert changes({VISIBLE: "0,2", **BY_BUS}, SOFT)[VISIBLE] == "2"


def test_own_value_is_replaced() -> None:
    """A value that the product set is no choice; the user's own, which it narrowed before, is narrowed again."""
    both = f"{ONE.uuid},{TWO.uuid}"
    assert changes({VISIBLE: "7", OURS: "7"}, SOFT) == {VISIBLE: both, OURS: both, WANTED: None}
    assert changes({VISIBLE: "7", OURS: "7", WANTED: "0,1", **BY_BUS}, SOFT)[VISIBLE] == "1"


def test_gpus_are_named_by_uuid_unless_numbers_are_wanted() -> None:
    """Numbers need the order that defines them, too."""
    both = f"{ONE.uuid},{TWO.uuid}"
    assert [changes(environ, SOFT)[VISIBLE] for environ in ({}, BY_BUS, {NAMED_BY: "index"})] == [both] * 3
    assert changes({NAMED_BY: "index", **BY_BUS}, SOFT)[VISIBLE] == "1,2"


def test_beginning_that_all_uuids_share_names_no_gpu() -> None:
    """It names none even where only one GPU is attached."""
    assert changes({VISIBLE: "GPU-"}, Hint("here", 1, False, (ONE,)))[VISIBLE] == ""


def test_devices_that_the_system_enforces_need_no_value() -> None:
    """A choice stays, and so does the absence of one; only a value of the product's own is updated."""
    for environ in ({}, {VISIBLE: "0"}, {VISIBLE: "1", OURS: "0"}):
        assert changes(environ, ENFORCED) == {}
    assert changes({VISIBLE: "", OURS: "", NAMED_BY: "index", **BY_BUS}, ENFORCED)[VISIBLE] == "0,1"
    assert changes({VISIBLE: "", OURS: "", NAMED_BY: "index"}, ENFORCED)[VISIBLE] == f"{ONE.uuid},{TWO.uuid}"
    assert start({VISIBLE: ""}, {VISIBLE: ""}, ENFORCED) == {}


def test_choice_for_one_program_stays_at_its_start() -> None:
    """A value that the server itself has is narrowed."""
    assert start({VISIBLE: "2"}, {}, SOFT) == {}
    assert start({VISIBLE: "2", **BY_BUS}, {VISIBLE: "2"}, SOFT)[VISIBLE] == "2"
    assert start({}, {}, Hint("here", 1, True, (ONE,))) == {}
