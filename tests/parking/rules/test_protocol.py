"""The messages: what is written is read as it was, what is none is refused, and the gate's header says the same."""

from __future__ import annotations

import re
import struct
from contextlib import suppress
from enum import IntEnum, IntFlag
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu_node.parking.rules import protocol
from jupyter_gpu_node.parking.rules.messages import (
    Ability,
    Can,
    Cancel,
    Cannot,
    Check,
    Failed,
    FromGate,
    FromNode,
    Gpu,
    Hello,
    Map,
    Need,
    Park,
    Parked,
    ProcessState,
    Reason,
    Restore,
    Running,
    State,
    Step,
    Use,
)
from jupyter_gpu_node.parking.rules.protocol import encode, from_gate, from_node
from jupyter_gpu_node.shares.rules.framing import MOST, SIZE, Malformed
from jupyter_gpu_node.shares.rules.protocol import from_client, from_server

GATE = Path(protocol.__file__).parents[3] / "gate"
UUID = "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"

numbers, orders, codes = st.integers(0, MOST), st.integers(1, MOST), st.integers(0, 2**31 - 1)
small, gpu_numbers, ms = st.integers(0, 2**32 - 1), st.integers(0, 63), st.integers(0, 3_600_000)
states = st.sampled_from(State)
uuids = st.binary(min_size=16, max_size=16).map(
    lambda one: f"GPU-{one[:4].hex()}-{one[4:6].hex()}-{one[6:8].hex()}-{one[8:10].hex()}-{one[10:].hex()}"
)
said: st.SearchStrategy[FromGate] = (
    st.builds(Hello, codes, numbers.map(Ability), st.integers(0, 64))
    | st.builds(Gpu, uuids, gpu_numbers)
    | st.builds(ProcessState, states, numbers, numbers, st.integers(0, 2**56 - 1))
    | st.builds(Use, st.just(True), st.booleans(), st.just(0), numbers)
    | st.builds(Use, st.just(False), st.booleans(), numbers, numbers)
    | st.builds(Can, orders, numbers, numbers)
    | st.builds(Cannot, orders, orders, numbers)
    | st.builds(Parked, orders, numbers, small, small)
    | st.builds(Running, orders, numbers, numbers)
    | st.builds(Failed, orders, st.integers(1, 255), states, codes)
    | st.builds(Need, st.booleans())
)
told: st.SearchStrategy[FromNode] = (
    st.builds(Check, orders)
    | st.builds(Park, orders, ms)
    | st.builds(Restore, orders, st.integers(0, 64), ms)
    | st.builds(Map, uuids, gpu_numbers)
    | st.builds(Cancel, orders)
)
GOLDEN: dict[str, tuple[FromGate | FromNode, str]] = {
    "hello": (Hello(13000, Ability.PARK | Ability.SHUT, 2), "c832000000000000 0300000000000000 0200000000000000"),
    "gpu": (Gpu(UUID, 1), "0001020304050607 08090a0b0c0d0e0f 0100000000000000"),
    "state": (ProcessState(State.PARKED, 7, 2**20, 3), "0700000000000000 0000100000000000 0103000000000000"),
    "use": (Use(False, True, 5000, 9), "0200000000000000 8813000000000000 0900000000000000"),
    "can": (Can(7, 9, 2), "0700000000000000 0900000000000000 0200000000000000"),
    "cannot": (Cannot(7, Reason.SPACE, 9), "0700000000000000 0600000000000000 0900000000000000"),
    "parked": (Parked(7, 9, 2, 3), "0700000000000000 0900000000000000 0200000003000000"),
    "running": (Running(7, 2, 3), "0700000000000000 0200000000000000 0300000000000000"),
    "failed": (Failed(7, Step.CHECKPOINT, State.BROKEN, 801), "0700000000000000 0502000000000000 2103000000000000"),
    "need": (Need(True), "0100000000000000 0000000000000000 0000000000000000"),
    "check": (Check(7), "0700000000000000 0000000000000000 0000000000000000"),
    "park": (Park(7, 2000), "0700000000000000 d007000000000000 0000000000000000"),
    "restore": (Restore(7, 1, 60000), "0700000000000000 0100000000000000 60ea000000000000"),
    "map": (Map(UUID, 1), "0001020304050607 08090a0b0c0d0e0f 0100000000000000"),
    "cancel": (Cancel(7), "0700000000000000 0000000000000000 0000000000000000"),
}
KINDS = [*range(32, 42), *range(48, 53)]


@pytest.mark.parametrize(("name", "kind"), list(zip(GOLDEN, KINDS, strict=True)))
def test_the_bytes_on_the_wire(name: str, kind: int) -> None:
    """They are what the other side, in another language, expects."""
    message, text = GOLDEN[name]
    assert encode(message).hex() == f"01{kind:02x}000000000000" + text.replace(" ", "")
    assert (from_gate() if kind < 48 else from_node()).feed(encode(message)) == [message]


def _listed(header: str, kind: str, prefix: str = "") -> dict[str, int]:
    """Return the numbers of an enum in C."""
    found = re.search(rf"enum {kind} {{(.*?)}}", re.sub(r"/\*.*?\*/", "", header, flags=re.DOTALL), re.DOTALL)
    assert found
    numbers: dict[str, int] = {}
    latest = -1
    for word in found[1].split(","):
        name, _, value = word.strip().partition(" = ")
        latest = int(value) if value else latest + 1
        numbers[name.removeprefix(prefix)] = latest
    return numbers


def test_the_twin_has_the_same_numbers() -> None:
    """The kinds, states, abilities and reasons in the header for C are those here, and the steps are the gate's own."""
    header = (GATE / "parking" / "protocol.h").read_text()
    for kind, prefix in (("said", "SAY_"), ("told", "TOLD_")):
        assert all(getattr(protocol, name) == number for name, number in _listed(header, kind, prefix).items())
    assert [*_listed(header, "said").values(), *_listed(header, "told").values()] == KINDS
    pairs: list[tuple[str, str, type[IntEnum] | type[IntFlag]]] = [
        ("said_state", "SAID_", State),
        ("obstacle", "OBSTACLE_", Reason),
    ]
    for kind, prefix, ours in pairs:
        assert _listed(header, kind, prefix) == {one.name: one.value for one in ours}
    abilities = _listed(header, "ability", "ABLE_")
    assert {name.removeprefix("TO_"): value for name, value in abilities.items()} == {
        str(one.name): one.value for one in Ability
    }
    steps = _listed((GATE / "parking" / "park.h").read_text(), "park_step", "PARK_")
    assert {name: steps[name] for name in Step.__members__} == dict(Step.__members__)
    assert f"MOST_MAPS = {protocol.MOST_GPUS}, LONGEST_MS = {protocol.LONGEST}" in header


@given(st.lists(said), st.lists(st.integers(1, 70)))
def test_a_stream_may_come_in_any_pieces(messages: list[FromGate], cuts: list[int]) -> None:
    """The messages do not depend on where the bytes are cut."""
    data = b"".join(encode(message) for message in messages)
    stream, found = from_gate(), []
    for cut in cuts:
        found += stream.feed(data[:cut])
        data = data[cut:]
    found += stream.feed(data)
    assert (found, stream.rest) == (messages, b"")


@given(st.lists(told))
def test_the_other_direction(messages: list[FromNode]) -> None:
    """A gate reads what the node wrote."""
    assert from_node().feed(b"".join(encode(message) for message in messages)) == messages


@given(said | told, st.integers(0, SIZE - 1), st.integers(1, 255))
def test_a_changed_byte_is_refused_or_another_message(message: FromGate | FromNode, at: int, change: int) -> None:
    """It never raises another error, and is never taken for the same message."""
    data = bytearray(encode(message))
    data[at] ^= change
    for stream in (from_gate(), from_node()):
        with suppress(Malformed):
            assert stream.feed(bytes(data)) != [message]


@given(st.sampled_from(range(31, 54)), numbers, numbers, numbers, st.sampled_from([0, 0, 0, 1]))
def test_garbage_is_refused_with_a_reason(kind: int, a: int, b: int, c: int, zero: int) -> None:
    """Or it happens to be a message, which is written in the same way again."""
    for fields in ((a, b, c), (a % 4, b % 70, c % 70)):
        data = struct.pack("<BBHIQQQ", 1, kind, zero, 0, *fields)
        for stream in (from_gate(), from_node()):
            try:
                found = stream.feed(data)
            except Malformed:
                continue
            assert [encode(message) for message in found] == [data]


@given(said | told)
def test_the_wrong_socket_refuses_them(message: FromGate | FromNode) -> None:
    """No kind means anything to a share."""
    for stream in (from_client(), from_server()):
        with pytest.raises(Malformed, match="kind"):
            stream.feed(encode(message))


@pytest.mark.parametrize(
    ("kind", "fields", "reason"),
    [
        (protocol.HELLO, (2**31, 0, 0), "the most"),
        (protocol.HELLO, (0, 0, 65), "64 is the most"),
        (protocol.GPU, (0, 0, 64), "63 is the most"),
        (protocol.STATE, (0, 0, 6), "state 6"),
        (protocol.USE, (1, 1, 0), "not 0"),
        (protocol.USE, (4, 0, 0), "not 0"),
        (protocol.CAN, (0, 0, 0), "order 0"),
        (protocol.CANNOT, (1, 0, 0), "reason 0"),
        (protocol.FAILED, (1, 0, 0), "step or"),
        (protocol.FAILED, (1, 1 << 16 | 1, 0), "not 0"),
        (protocol.NEED, (2, 0, 0), "not 0"),
        (protocol.CHECK, (1, 0, 0), "that end"),
    ],
)
def test_refusal_names_the_error(kind: int, fields: tuple[int, ...], reason: str) -> None:
    """It is for the log of the node; a message of the node is none from a gate."""
    with pytest.raises(Malformed, match=reason):
        from_gate().feed(struct.pack("<BBHIQQQ", 1, kind, 0, 0, *fields))


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (protocol.CHECK, (1, 1, 0)),
        (protocol.PARK, (1, 3_600_001, 0)),
        (protocol.PARK, (1, 0, 1)),
        (protocol.RESTORE, (1, 65, 0)),
        (protocol.RESTORE, (1, 0, 3_600_001)),
        (protocol.MAP, (0, 0, 64)),
        (protocol.CANCEL, (1, 0, 1)),
        (protocol.CANCEL, (0, 0, 0)),
    ],
)
def test_gate_refuses_what_an_order_cannot_say(kind: int, fields: tuple[int, ...]) -> None:
    """The header for C refuses the same."""
    with pytest.raises(Malformed):
        from_node().feed(struct.pack("<BBHIQQQ", 1, kind, 0, 0, *fields))


def test_what_a_newer_gate_says_is_kept() -> None:
    """Its further abilities, steps and reasons are numbers."""
    later: list[FromGate] = [Hello(14000, Ability(1 << 40 | 3), 0), Cannot(1, 77), Failed(1, 99, State.RUNNING, 0)]
    assert from_gate().feed(b"".join(encode(one) for one in later)) == later
