"""The file of one share, and what is left of a bank after a restart."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpu.model.share import ShareUse
from jupyter_gpu.model.strict import FieldError
from jupyter_gpu_node.shares.rules import share_file
from jupyter_gpu_node.shares.rules.share_file import (
    KEEP,
    MAX_BYTES,
    MAX_DEPOSITS,
    MAX_TIME,
    Savings,
    ShareFile,
    decode,
    decode_debt,
    decode_savings,
    encode,
    is_due,
)
from jupyter_gpu_node.shares.rules.turns.bank import Bank, Deposit
from jupyter_gpu_node.shares.rules.turns.elastic import PreviousState

SHARE = ShareUse(
    uuid="GPU-1", allocated=250, effective=400, guaranteed=9_000_000, borrowed=800_000, idle=70_000, overrun=600,
    switching=5_000, waited=400_000, throttled=30_000, lost=2_000, balance=1_200_000, cap=2_000_000,
    expires=17_000_000, sharing=2, period=100_000, busy=0.93, reason="Grew by what others do not use.",
    memory_used=2**30, memory_limit=None,
)  # fmt: skip
FILE = ShareFile(SHARE, 0.93, 1_700_000_000_000, ((700_000, 13_000_000), (500_000, 100)))

times = st.integers(0, MAX_TIME)
shares = st.builds(
    ShareUse,
    uuid=st.just("GPU-1"),
    allocated=st.integers(1, 1000),
    effective=st.integers(1, 1000),
    **dict.fromkeys(("guaranteed", "borrowed", "idle", "overrun", "switching", "waited"), times),
    **dict.fromkeys(("throttled", "lost", "balance", "cap"), times),
    expires=st.none() | times,
    sharing=st.integers(0, 999),
    period=st.integers(1, MAX_TIME),
    busy=st.none() | st.floats(0, 1),
    reason=st.text(st.characters(categories=("L", "N", "Zs")), max_size=200),
    memory_used=st.none() | times,
    memory_limit=st.none() | times,
)
files = st.builds(
    ShareFile,
    shares,
    st.floats(0, 1000).map(lambda use: round(use, 3)),
    times,
    st.none() | st.lists(st.tuples(times, times), max_size=20).map(tuple),
    st.just((0, 0)) | st.tuples(st.integers(1, MAX_TIME), st.integers(1, 1000)),
)


@given(files)
def test_written_file_is_read(file: ShareFile) -> None:
    """The node's copy has everything, the pod's all but the deposits and what is owed."""
    assert decode(encode(file, public=False)) == file
    assert decode(encode(file, public=True)) == replace(file, deposits=None, owes=(0, 0))


@given(files)
def test_the_next_server_takes_the_bank(file: ShareFile) -> None:
    """It takes the bank and its state from the own copy; the pod's copy has no deposits, whatever it tells."""
    left = PreviousState(file.share.allocated, file.share.effective, file.share.reason)
    assert decode_savings(encode(file, public=False)) == Savings(file.written, file.deposits or (), left, file.owes)
    assert decode_savings(encode(file, public=True)) == Savings(file.written, (), left)


def test_the_copy_of_the_pod() -> None:
    """The public file has the fields of `ShareUse` and two more: users of that file rely on them."""
    body = json.loads(encode(FILE, public=True))
    assert body == {**SHARE.to_json(), "use": 0.93, "written": 1_700_000_000_000}
    assert ShareUse.from_json(body) == SHARE


def test_the_bank_of_an_earlier_version_is_not_lost() -> None:
    """Its server knew fewer fields, and others."""
    text = (
        b'{"allocated":250,"effective":400,"use":0.93,"bank":1200000,"expires":17000000,"sharing":3,"reason":"",'
        b'"written":50000,"deposits":[[700000,13000000],[500000,100]]}'
    )
    found = decode_savings(text)
    assert found == Savings(50_000, ((700_000, 13_000_000), (500_000, 100)), PreviousState(250, 400))
    assert decode_savings(text.replace(b"250", b"0")).previous is None, "how it stood makes no sense"
    assert len(share_file.restored(found, 10**9, 51_000)) == 2
    with pytest.raises(FieldError):
        decode(text)


def test_time_alone_is_no_news() -> None:
    """A share that is not used differs in what passing time changes, and in nothing else."""
    later = replace(FILE, share=replace(SHARE, expires=3, lost=9_000), written=FILE.written + 100, deposits=((9, 9),))
    assert later.steady == FILE.steady
    for change in ({"balance": 7}, {"waited": 400_001}, {"reason": ""}, {"busy": 0.5}):
        assert replace(FILE, share=replace(SHARE, **change)).steady != FILE.steady
    assert replace(FILE, use=0.5).steady != FILE.steady


def test_when_the_own_copy_is_due() -> None:
    """It is at once if there is none, or savings were spent; later if there is something new, or savings grow old."""
    kept = FILE.steady
    grown = replace(kept, share=replace(kept.share, balance=kept.share.balance + 9))
    spent = replace(kept, share=replace(kept.share, balance=kept.share.balance - 1))
    assert is_due(kept, 0, None, 0)
    assert [is_due(grown, now, kept, 5) for now in (5, KEEP + 4, KEEP + 5)] == [False, False, True]
    assert is_due(spent, 5, kept, 5)
    assert [is_due(kept, now, kept, 5) for now in (KEEP + 4, KEEP + 5)] == [False, True]
    assert is_due(replace(kept, owes=(share_file.SMALL + 1, 250)), 5, kept, 5)
    assert not is_due(replace(kept, owes=(share_file.SMALL, 250)), 5, kept, 5)
    empty = replace(kept, share=replace(kept.share, balance=0))
    assert not is_due(empty, 10 * KEEP, empty, 5)


@given(st.binary(max_size=300))
def test_garbage_is_no_file(text: bytes) -> None:
    """It never raises another error."""
    for read in (decode, decode_savings):
        with pytest.raises(FieldError):
            read(text)


def test_half_a_file_is_none() -> None:
    """It is refused, wherever it ends."""
    text = encode(FILE, public=False)
    for cut in range(len(text)):
        for read in (decode, decode_savings):
            with pytest.raises(FieldError):
                read(text[:cut])


BAD = (
    {"written": None}, {"written": -1}, {"written": 0.5}, {"deposits": 3}, {"deposits": [1]}, {"deposits": [[1]]},
    {"deposits": [[1, 2, 3]]}, {"deposits": [[1, -1]]}, {"deposits": [[0, 0]] * (MAX_DEPOSITS + 1)},
    {"deposits": [[2**60, 0]]}, {"deposits": [["9", 0]]}, {"owes": 5}, {"owes": [5]}, {"owes": [5, 0]},
    {"owes": [-5, 10]}, {"owes": [5, 1001]},
)  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        *BAD, {"allocated": 0}, {"allocated": 1001}, {"effective": True}, {"use": -1}, {"use": "much"}, {"use": True},
        {"balance": -1}, {"balance": 0.5}, {"expires": "soon"}, {"sharing": -1}, {"reason": 7}, {"busy": 2},
    ],
)  # fmt: skip
def test_each_field_is_checked(change: dict[str, object]) -> None:
    """One impossible field makes the whole file bad."""
    body = json.loads(encode(FILE, public=False)) | change
    with pytest.raises(FieldError):
        decode(json.dumps(body).encode())


@pytest.mark.parametrize("change", BAD)
def test_a_bank_that_cannot_be_is_none(change: dict[str, object]) -> None:
    """An impossible bank is empty, whatever else the file says."""
    body = json.loads(encode(FILE, public=False)) | change
    with pytest.raises(FieldError):
        decode_savings(json.dumps(body).encode())


anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
    | times,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
FIELDS = ("written", "owes", "deposits", "allocated", "effective", "reason", "use")


@given(files, st.sampled_from(FIELDS), anything)
def test_a_damaged_field_forgives_nothing_and_invents_nothing(file: ShareFile, field: str, value: object) -> None:
    """The bank is right or lost, and the debt counts if it can be read itself, whichever field is damaged."""
    body = json.loads(encode(file, public=False)) | {field: value}
    text = json.dumps(body).encode()
    try:
        found: Savings | None = decode_savings(text)
    except FieldError:
        found = decode_debt(text)
        assert found is None or found.deposits == ()
    if field not in ("written", "owes"):
        owes = found.owes if found else (0, 0)
        assert owes == file.owes
        assert found is None or share_file.owed(found, file.written) == file.owes[0]
        assert found is None or found.written == file.written
    if field != "deposits":
        assert found is None or found.deposits in ((), file.deposits or ())


@given(st.binary(max_size=200) | anything.map(lambda value: json.dumps(value).encode()))
def test_no_debt_is_read_where_none_is(text: bytes) -> None:
    """Nor does reading it raise an error."""
    assert decode_debt(text) is None


@given(st.lists(st.tuples(times, times), max_size=9).map(tuple), times, times, st.integers(0, 10**15))
def test_no_bank_is_larger_than_its_cap(
    deposits: tuple[tuple[int, int], ...], written: int, wall: int, now: int
) -> None:
    """The next server has bounded amounts of it, whatever the file says, and never more than there were."""
    found = share_file.restored(Savings(written, deposits), now, wall)
    balance = Bank(2_000_000, 20_000_000, found).balance(now)
    assert 0 <= balance <= min(2_000_000, sum(amount for amount, _ in deposits))


def test_a_reason_cannot_break_out_of_its_line() -> None:
    """The text has one printable line, however it was made."""
    file = replace(FILE, share=replace(SHARE, reason="x\n" * 300))
    found = decode(encode(file, public=True)).share.reason
    assert "\n" not in found
    assert len(found) <= 200


def test_deposits_are_older_after_a_restart() -> None:
    """They age by the wall clock; the monotonic clock of the new process may have begun anew."""
    deposits = (Deposit(300, 1_000_000), Deposit(200, 5_000_000))
    savings = Savings(50_000, share_file.saved(deposits, 6_000_000))
    assert savings.deposits == ((300, 5_000_000), (200, 1_000_000))
    assert share_file.restored(savings, 100, 53_000) == (Deposit(300, 100 - 8_000_000), Deposit(200, 100 - 4_000_000))


@given(st.lists(st.tuples(times, times), max_size=9), st.integers(0, 10**15), times, times)
def test_nothing_is_younger_after_a_restart(deposits: list[tuple[int, int]], now: int, written: int, wall: int) -> None:
    """A wall clock that went back cannot tell how old they are: then nothing is left."""
    found = share_file.restored(Savings(written, tuple(deposits)), now, wall)
    if wall < written:
        assert found == ()
    ages = [age for amount, age in deposits if amount]
    for deposit, age in zip(found, ages, strict=False):
        assert now - deposit.at >= age


@settings(max_examples=15)
@given(st.integers(MAX_DEPOSITS - 2, 3 * MAX_DEPOSITS), st.integers(0, 50))
def test_many_deposits_are_merged(count: int, gap: int) -> None:
    """No time is lost, no deposit becomes younger, and the file is never larger than is read."""
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
    """The next server reads what one server writes."""
    file = replace(FILE, deposits=((MAX_TIME, MAX_TIME),) * MAX_DEPOSITS)
    assert len(encode(file, public=False)) <= MAX_BYTES
    assert decode(encode(file, public=False)) == file
