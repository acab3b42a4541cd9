"""The file of one share, and what is left of a bank after a restart."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpu.model.strict import FieldError
from jupyter_gpu_node.shares import share_file
from jupyter_gpu_node.shares.bank import Deposit
from jupyter_gpu_node.shares.share_file import MAX_BYTES, MAX_DEPOSITS, MAX_TIME, ShareFile, decode, encode

FILE = ShareFile(
    250, 400, 0.93, 1_200_000, 17_000_000, 3, "Grew by 150 from what others do not use.", 1_700_000_000_000,
    ((700_000, 13_000_000), (500_000, 100)),
)  # fmt: skip

times = st.integers(0, MAX_TIME)
files = st.builds(
    ShareFile,
    st.integers(1, 1000),
    st.integers(1, 1000),
    st.floats(0, 1000).map(lambda use: round(use, 3)),
    times,
    st.none() | times,
    st.integers(1, 1000),
    st.text(st.characters(categories=("L", "N", "Zs")), max_size=200),
    times,
    st.none() | st.lists(st.tuples(times, times), max_size=20).map(tuple),
)


@given(files)
def test_what_is_written_is_read(file: ShareFile) -> None:
    """The node's copy has everything, the pod's all but the deposits."""
    assert decode(encode(file, public=False)) == file
    assert decode(encode(file, public=True)) == replace(file, deposits=None)


def test_the_copy_of_the_pod() -> None:
    """Its fields are what users of that file rely on."""
    assert json.loads(encode(FILE, public=True)) == {
        "allocated": 250,
        "effective": 400,
        "use": 0.93,
        "bank": 1_200_000,
        "expires": 17_000_000,
        "sharing": 3,
        "reason": "Grew by 150 from what others do not use.",
        "written": 1_700_000_000_000,
    }


@given(st.binary(max_size=300))
def test_garbage_is_no_file(text: bytes) -> None:
    """Never another error."""
    with pytest.raises(FieldError):
        decode(text)


def test_half_a_file_is_none() -> None:
    """Wherever it ends."""
    text = encode(FILE, public=False)
    for cut in range(len(text)):
        with pytest.raises(FieldError):
            decode(text[:cut])


@pytest.mark.parametrize(
    "change",
    [
        {"allocated": 0}, {"allocated": 1001}, {"effective": True}, {"use": -1}, {"use": "much"}, {"use": True},
        {"bank": -1}, {"bank": 0.5}, {"expires": "soon"}, {"sharing": 0}, {"reason": 7}, {"written": None},
        {"deposits": 3}, {"deposits": [1]}, {"deposits": [[1]]}, {"deposits": [[1, 2, 3]]}, {"deposits": [[1, -1]]},
        {"deposits": [[0, 0]] * (MAX_DEPOSITS + 1)}, {"deposits": [[2**60, 0]]}, {"deposits": [["9", 0]]},
    ],
)  # fmt: skip
def test_each_field_is_checked(change: dict[str, object]) -> None:
    """One that cannot be makes the file bad: it is never half believed."""
    body = json.loads(encode(FILE, public=False)) | change
    with pytest.raises(FieldError):
        decode(json.dumps(body).encode())


def test_a_reason_cannot_break_out_of_its_line() -> None:
    """However it was made."""
    file = replace(FILE, reason="x\n" * 300)
    found = decode(encode(file, public=True)).reason
    assert "\n" not in found
    assert len(found) <= 200


def test_deposits_are_older_after_a_restart() -> None:
    """By what passed on the wall clock; the monotonic clock of the new process may have begun anew."""
    deposits = (Deposit(300, 1_000_000), Deposit(200, 5_000_000))
    file = replace(FILE, deposits=share_file.saved(deposits, 6_000_000), written=50_000)
    assert file.deposits == ((300, 5_000_000), (200, 1_000_000))
    assert share_file.restored(file, 100, 53_000) == (Deposit(300, 100 - 8_000_000), Deposit(200, 100 - 4_000_000))


@given(st.lists(st.tuples(times, times), max_size=9), st.integers(0, 10**15), times, times)
def test_nothing_is_younger_after_a_restart(deposits: list[tuple[int, int]], now: int, written: int, wall: int) -> None:
    """A wall clock that went back cannot tell how old they are: then nothing is left."""
    found = share_file.restored(replace(FILE, deposits=tuple(deposits), written=written), now, wall)
    if wall < written:
        assert found == ()
    ages = [age for amount, age in deposits if amount]
    for deposit, age in zip(found, ages, strict=False):
        assert now - deposit.at >= age


def test_the_copy_of_the_pod_restores_nothing() -> None:
    """It has no deposits, whatever balance it tells."""
    assert share_file.restored(decode(encode(FILE, public=True)), 0, FILE.written) == ()


@settings(max_examples=15)
@given(st.integers(MAX_DEPOSITS - 2, 3 * MAX_DEPOSITS), st.integers(0, 50))
def test_many_deposits_are_merged(count: int, gap: int) -> None:
    """No time is lost, none becomes younger, and the file is never larger than is read."""
    deposits = [Deposit(number + 1, number * gap) for number in range(count)]
    found = share_file.saved(deposits, count * gap)
    assert len(found) <= MAX_DEPOSITS
    assert sum(amount for amount, _ in found) == sum(one.amount for one in deposits)
    assert [age for _, age in found] == sorted((age for _, age in found), reverse=True)
    assert found[0][1] == count * gap - deposits[0].at
    older = 0
    at = iter(deposits)
    for amount, age in found:
        while amount > 0:
            one = next(at)
            amount -= one.amount
            older += age < count * gap - one.at
        assert amount == 0
    assert older == 0
    assert len(encode(replace(FILE, deposits=found), public=False)) <= MAX_BYTES


def test_the_largest_file_can_be_read() -> None:
    """What one server writes the next one reads."""
    file = replace(FILE, deposits=((MAX_TIME, MAX_TIME),) * MAX_DEPOSITS)
    assert len(encode(file, public=False)) <= MAX_BYTES
    assert decode(encode(file, public=False)) == file
