"""The messages: what is written is read as it was, and what is none is refused."""

import struct
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu_node.shares.rules import protocol
from jupyter_gpu_node.shares.rules.framing import MOST, SIZE, VERSION, Malformed
from jupyter_gpu_node.shares.rules.protocol import (
    FOREVER,
    NO_LIMIT,
    Ask,
    Done,
    FromClient,
    FromServer,
    Grant,
    Memory,
    Need,
    Revoke,
    encode,
    from_client,
    from_server,
)

numbers = st.integers(0, MOST)
asked: st.SearchStrategy[FromClient] = (
    st.builds(Ask, numbers, st.booleans(), st.just(False))
    | st.builds(Ask, numbers, st.just(True), st.just(True))
    | st.builds(Done, st.none() | st.integers(0, MOST - 1), numbers, numbers)
    | st.builds(Need, numbers, st.booleans(), st.booleans(), st.booleans())
)
told: st.SearchStrategy[FromServer] = (
    st.builds(Grant, numbers, st.integers(1, MOST), st.booleans(), st.just(False), st.just(False))
    | st.builds(Grant, numbers, st.integers(1, MOST), st.just(False), st.just(True), st.just(False))
    | st.builds(Grant, numbers, st.integers(1, MOST), st.just(False), st.just(False), st.just(True))
    | st.builds(Revoke, st.integers(1, MOST))
    | st.builds(Memory, numbers, numbers, numbers)
)
GOLDEN: dict[str, tuple[FromClient | FromServer, str]] = {
    "ask": (Ask(5000), "0101000000000000881300000000000000000000000000000000000000000000"),
    "ask, has the whole GPU still": (Ask(0, True), "0101000000000000000000000000000001000000000000000000000000000000"),
    "ask, waits for a launch": (
        Ask(0, True, True),
        "0101000000000000000000000000000003000000000000000000000000000000",
    ),
    "done, wants 7": (Done(7, 9, 3), "0102000000000000080000000000000009000000000000000300000000000000"),
    "done, no demand": (Done(), "0102000000000000000000000000000000000000000000000000000000000000"),
    "need": (Need(2**40), "0103000000000000000000000001000000000000000000000000000000000000"),
    "need, knows single launches": (
        Need(1, True),
        "0103000000000000010000000000000001000000000000000000000000000000",
    ),
    "need, knows all leases": (
        Need(1, True, True, True),
        "0103000000000000010000000000000007000000000000000000000000000000",
    ),
    "grant": (Grant(20000, 2), "0110000000000000204e00000000000002000000000000000000000000000000"),
    "for one launch": (
        Grant(20000, 2, True),
        "0110000000000000204e00000000000002000000000000000100000000000000",
    ),
    "nobody else is there": (
        Grant(20000, 2, ahead=True),
        "0110000000000000204e00000000000002000000000000000200000000000000",
    ),
    "nothing is queued": (
        Grant(20000, 2, single=True),
        "0110000000000000204e00000000000002000000000000000300000000000000",
    ),
    "for ever": (Grant(FOREVER, 1), "0110000000000000ffffffffffffffff01000000000000000000000000000000"),
    "revoke": (Revoke(4), "0111000000000000040000000000000000000000000000000000000000000000"),
    "memory": (Memory(1, NO_LIMIT, 3), "01120000000000000100000000000000ffffffffffffffff0300000000000000"),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_the_bytes_on_the_wire(name: str) -> None:
    """They are what the other side, in another language, expects."""
    message, text = GOLDEN[name]
    assert encode(message).hex() == text


def test_the_twin_has_the_same_numbers() -> None:
    """The kinds and the version in the header for C are those here."""
    header = Path(protocol.__file__).parents[3] / "gate" / "connection" / "protocol.h"
    text = header.read_text()
    for name in ("ASK", "DONE", "NEED", "GRANT", "REVOKE", "MEMORY"):
        assert f"{name} = {getattr(protocol, name)}" in text
    assert f"MESSAGE_SIZE = {SIZE}, MESSAGE_VERSION = {VERSION}" in header.with_name("message.h").read_text()


@given(st.lists(asked), st.lists(st.integers(1, 70)))
def test_a_stream_may_come_in_any_pieces(messages: list[FromClient], cuts: list[int]) -> None:
    """The messages do not depend on where the bytes are cut."""
    data = b"".join(encode(message) for message in messages)
    stream, found = from_client(), []
    for cut in cuts:
        found += stream.feed(data[:cut])
        data = data[cut:]
    found += stream.feed(data)
    assert (found, stream.rest) == (messages, b"")


@given(st.lists(told))
def test_the_other_direction(messages: list[FromServer]) -> None:
    """A client reads what the server wrote."""
    assert from_server().feed(b"".join(encode(message) for message in messages)) == messages


@given(asked | told, st.integers(0, SIZE - 1), st.integers(1, 255))
def test_a_changed_byte_is_refused_or_another_message(message: FromClient | FromServer, at: int, change: int) -> None:
    """It never raises another error, and is never taken for the same message."""
    data = bytearray(encode(message))
    data[at] ^= change
    for stream in (from_client(), from_server()):
        with suppress(Malformed):
            assert stream.feed(bytes(data)) != [message]


@given(st.binary(max_size=4 * SIZE))
def test_garbage_is_refused_with_a_reason(data: bytes) -> None:
    """Or it happens to be messages, which are written in the same way again."""
    stream = from_client()
    try:
        found = stream.feed(data)
    except Malformed:
        return
    assert b"".join(encode(message) for message in found) + stream.rest == data


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ((2, 1, 0, 0, 0, 0, 0), "version 2"),
        ((0, 0, 0, 0, 0, 0, 0), "version 0"),
        ((1, 16, 0, 0, 0, 1, 0), "kind 16"),
        ((1, 1, 1, 0, 0, 0, 0), "not 0"),
        ((1, 1, 0, 1, 0, 0, 0), "not 0"),
        ((1, 1, 0, 0, 0, 2, 0), "not 0"),
        ((1, 1, 0, 0, 0, 4, 0), "not 0"),
        ((1, 3, 0, 0, 0, 0, 1), "not 0"),
        ((1, 3, 0, 0, 0, 8, 0), "not 0"),
    ],
)
def test_refusal_names_the_error(fields: tuple[int, ...], reason: str) -> None:
    """It is for the log of the node; a message of the server is none from a client."""
    with pytest.raises(Malformed, match=reason):
        from_client().feed(struct.pack("<BBHIQQQ", *fields))


@pytest.mark.parametrize(("kind", "a", "b"), [(16, 5, 0), (17, 0, 0)])
def test_leases_are_counted_from_one(kind: int, a: int, b: int) -> None:
    """A number that is left out is no number."""
    with pytest.raises(Malformed, match="lease 0"):
        from_server().feed(struct.pack("<BBHIQQQ", 1, kind, 0, 0, a, b, 0))


def test_number_that_does_not_fit_is_not_written() -> None:
    """A programming error shows at once."""
    for message in (Ask(-1), Need(2**64), Done(MOST)):
        with pytest.raises(struct.error):
            encode(message)
