"""GPUs that a program is told of in `CUDA_VISIBLE_DEVICES`, with the attached GPUs 1 and 2 of four."""

from __future__ import annotations

import pytest

from jupyter_gpu.common.attached import AttachedGpu, Hint
from jupyter_gpu.common.rules.visible import (
    BUS_ORDER,
    HIP,
    NAMED_BY,
    ORDER,
    OUR_HIP,
    OURS,
    ROCR,
    VARIABLES,
    VISIBLE,
    WANTED,
    changes,
    choose,
    is_ours,
    of_process,
    of_uuids,
    start,
)

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


_, ROCR_OURS, ROCR_WANTED = VARIABLES["amd"]
AMD = AttachedGpu("GPU-8a5f01c2d3e4b600", 3, "/dev/dri/renderD128", "amd")


def test_gpus_of_amd_are_told_in_their_own_variable() -> None:
    """By uuid, whatever is said of CUDA's numbers; CUDA's variable is not touched, as HIP reads it, too."""
    amd = Hint("here", 1, False, (AMD,))
    told = {ROCR: AMD.uuid, ROCR_OURS: AMD.uuid, ROCR_WANTED: None}
    assert changes({NAMED_BY: "index", **BY_BUS, VISIBLE: "0"}, amd) == told
    assert changes({}, Hint("here", 1, False, (), vendors=("amd",))) == {ROCR: "", ROCR_OURS: "", ROCR_WANTED: None}
    assert changes({ROCR: "0,3"}, amd) == {**told, ROCR_WANTED: "0,3"}
    assert changes({}, Hint("here", 1, False, (AMD,), enforced=True)) == {}


def test_each_vendor_has_a_variable_where_there_are_both() -> None:
    """Each names the GPUs of its vendor alone, also if none of them is attached."""
    both = Hint("here", 1, False, (ONE, AMD))
    found = changes({}, both)
    assert (found[VISIBLE], found[ROCR]) == (ONE.uuid, AMD.uuid)
    assert (found[HIP], found[OUR_HIP]) == ("0", "0"), "HIP would look for NVIDIA's"
    assert HIP not in changes({HIP: "1"}, both), "its user's"
    told = {name: value for name, value in changes({}, both).items() if value is not None}
    assert HIP not in changes(told, both), "it is there"
    assert changes(told, Hint("here", 2, False, (ONE,), vendors=("amd", "nvidia")))[HIP] is None
    none = changes({}, Hint("here", 1, False, (), vendors=("amd", "nvidia", "acme")))
    assert (none[VISIBLE], none[ROCR], len(none)) == ("", "", 6)


def test_choice_of_the_user_counts_for_the_vendors_that_are_there() -> None:
    """A variable that no library of these GPUs reads is nobody's choice about them."""
    amd = Hint("here", 1, False, (AMD,))
    assert is_ours({VISIBLE: "0"}, amd)
    assert not is_ours({ROCR: "0"}, amd)
    assert not is_ours({VISIBLE: "0"}, SOFT)
    assert is_ours({ROCR: "0", ROCR_OURS: "0"}, amd)
    assert start({ROCR: "0"}, {}, amd) == {}
    assert start({}, {}, amd)[ROCR] == AMD.uuid


def test_process_sees_its_gpus_alone() -> None:
    """Those of each vendor in its variable; what the user chose for the notebook is narrowed to them."""
    assert of_process({}, SOFT, [TWO.uuid, "other"]) == {VISIBLE: TWO.uuid}
    assert of_process({VISIBLE: "1"}, SOFT, [TWO.uuid]) == {VISIBLE: ""}
    assert of_process({NAMED_BY: "index", **BY_BUS}, ENFORCED, [TWO.uuid]) == {VISIBLE: "1"}
    assert of_process({ROCR: "7"}, Hint("here", 1, False, (AMD,)), [AMD.uuid]) == {ROCR: ""}
    assert of_process({VISIBLE: "0"}, Hint("here", 1, True, (ONE, TWO)), [ONE.uuid]) == {VISIBLE: ONE.uuid}


def test_process_with_gpus_of_both_vendors() -> None:
    """HIP is told which of its own it has, as it would look for NVIDIA's among them; not if the user says it."""
    both = Hint("here", 1, False, (ONE, AMD))
    assert of_process({}, both, [ONE.uuid, AMD.uuid]) == {VISIBLE: ONE.uuid, ROCR: AMD.uuid, HIP: "0"}
    assert of_process({HIP: "1"}, both, [AMD.uuid]) == {VISIBLE: "", ROCR: AMD.uuid}
    assert of_process({HIP: "0,1", OUR_HIP: "0,1"}, both, [AMD.uuid])[HIP] == "0"
    assert of_process({}, both, [ONE.uuid]) == {VISIBLE: ONE.uuid, ROCR: ""}


def test_process_on_another_node() -> None:
    """The form of a uuid tells the vendor; what others use there is seen by no library."""
    second = "GPU-8a5f01c2d3e4b601"
    assert of_uuids([second, AMD.uuid], [AMD.uuid, second]) == {ROCR: f"{AMD.uuid},{second}"}
    there = ["GPU-00000001-aaaa-bbbb-cccc-000000000001", AMD.uuid, second]
    assert of_uuids(there, there) == {VISIBLE: there[0], ROCR: f"{AMD.uuid},{second}", HIP: "0,1"}
    assert of_uuids(there[:1], there) == {VISIBLE: there[0], ROCR: ""}
    assert of_uuids([], []) == {VISIBLE: ""}


def test_values_of_a_process_do_not_follow() -> None:
    """They count as a user's choice."""
    environ = {VISIBLE: "0", OURS: "0", ROCR: "a", ROCR_OURS: "a"}
    choose(environ, {VISIBLE: ONE.uuid})
    assert environ == {VISIBLE: ONE.uuid, ROCR: "a", ROCR_OURS: "a"}
    assert not is_ours(environ, SOFT)
    for given, left in (
        ({HIP: "0", OUR_HIP: "0"}, {}),
        ({HIP: "1", OUR_HIP: "0"}, {HIP: "1"}),
        ({HIP: "1"}, {HIP: "1"}),
    ):
        environ = dict(given)
        choose(environ, {ROCR: "a"})
        assert environ == {ROCR: "a", **left}
    environ = {HIP: "0,1", OUR_HIP: "0,1"}
    choose(environ, {ROCR: "a", HIP: "0"})
    assert environ == {ROCR: "a", HIP: "0"}


def test_file_of_attached_gpus_names_vendors() -> None:
    """A kernel reads all that a server writes; without another vendor the file is as it always was."""
    for hint in (Hint("here", 1, False, (ONE, AMD)), Hint("here", 1, False, (), vendors=("amd",)), SOFT):
        read = Hint.from_text(hint.to_text().encode())
        assert (read, read.vendors, read.gpus) == (hint, hint.vendors, hint.gpus)
    assert "vendor" not in SOFT.to_text()
    assert SOFT.vendors == {"nvidia"}
    with pytest.raises(ValueError, match="vendor"):
        AttachedGpu("GPU-1", 0, "/dev/x", "A Vendor")
