"""The messages between the gate in a program and the part of its node that parks, over a Unix socket. Pure.

Their form is that of all messages (`shares.rules.framing`), their kinds are none of those of shares.
``gate/parking/protocol.h`` is the twin of this file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from jupyter_gpu_node.shares.rules.framing import Malformed, Stream, pack, unused

from .messages import (
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
    Restore,
    Running,
    State,
    Use,
)  # fmt: skip

HELLO, GPU, STATE, USE, CAN, CANNOT, PARKED, RUNNING, FAILED, NEED = range(32, 42)
CHECK, PARK, RESTORE, MAP, CANCEL = range(48, 53)
MOST_GPUS = 64
LONGEST = 3_600_000
"""Most milliseconds that an order may name."""


def encode(message: FromGate | FromNode) -> bytes:
    """Encode a message as 32 bytes; `struct.error` for a number that does not fit."""
    return _fields_of_node(message) if isinstance(message, FromNode) else _fields_of_gate(message)


def _fields_of_node(message: FromNode) -> bytes:
    match message:
        case Check(order):
            return pack(CHECK, order)
        case Park(order, lock):
            return pack(PARK, order, lock)
        case Restore(order, maps, patience):
            return pack(RESTORE, order, maps, patience)
        case Cancel(order):
            return pack(CANCEL, order)
    return pack(MAP, *_halves(message.uuid), message.number)


def _fields_of_gate(message: FromGate) -> bytes:
    match message:
        case Hello(driver, abilities, gpus):
            return pack(HELLO, driver, abilities, gpus)
        case Gpu(uuid, number):
            return pack(GPU, *_halves(uuid), number)
        case ProcessState(state, order, size, age):
            return pack(STATE, order, size, state | age << 8)
        case Use(busy, cell, rest, size):
            return pack(USE, busy + 2 * cell, rest, size)
        case Can(order, size, contexts):
            return pack(CAN, order, size, contexts)
        case Cannot(order, reason, figure):
            return pack(CANNOT, order, reason, figure)
        case Parked(order, size, lock, checkpoint):
            return pack(PARKED, order, size, lock | checkpoint << 32)
        case Running(order, restore, unlock):
            return pack(RUNNING, order, restore, unlock)
        case Failed(order, step, state, code):
            return pack(FAILED, order, step | state << 8, code)
    return pack(NEED, int(message.wanted))


def _halves(uuid: str) -> tuple[int, int]:
    """Return the two numbers of a uuid's bytes; raises `ValueError`."""
    found = bytes.fromhex(uuid.removeprefix("GPU-").replace("-", ""))
    return int.from_bytes(found[:8], "little"), int.from_bytes(found[8:], "little")


def _uuid(a: int, b: int) -> str:
    text = (a.to_bytes(8, "little") + b.to_bytes(8, "little")).hex()
    return "GPU-" + "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


# --- from the gate ------------------------------------------------------------------------------------------------


def _hello(a: int, b: int, c: int) -> Hello:
    return Hello(_below(a, 2**31), Ability(b), _below(c, MOST_GPUS + 1))


def _gpu(a: int, b: int, c: int) -> Gpu:
    return Gpu(_uuid(a, b), _below(c, MOST_GPUS))


def _state(a: int, b: int, c: int) -> ProcessState:
    return ProcessState(_known(c & 0xFF), a, b, c >> 8)


def _use(a: int, b: int, c: int) -> Use:
    unused(a >> 2, b if a & 1 else 0)
    return Use(a & 1 == 1, a & 2 == 2, b, c)


def _can(a: int, b: int, c: int) -> Can:
    return Can(_numbered(a), b, c)


def _cannot(a: int, b: int, c: int) -> Cannot:
    return Cannot(_numbered(a), _some(b), c)


def _parked(a: int, b: int, c: int) -> Parked:
    return Parked(_numbered(a), b, c & 0xFFFFFFFF, c >> 32)


def _running(a: int, b: int, c: int) -> Running:
    return Running(_numbered(a), b, c)


def _failed(a: int, b: int, c: int) -> Failed:
    unused(b >> 16)
    return Failed(_numbered(a), _some(b & 0xFF), _known(b >> 8), _below(c, 2**31))


def _need(a: int, b: int, c: int) -> Need:
    unused(a >> 1, b, c)
    return Need(a == 1)


# --- from the node ------------------------------------------------------------------------------------------------


def _check(a: int, b: int, c: int) -> Check:
    unused(b, c)
    return Check(_numbered(a))


def _park(a: int, b: int, c: int) -> Park:
    unused(c)
    return Park(_numbered(a), _below(b, LONGEST + 1))


def _restore(a: int, b: int, c: int) -> Restore:
    return Restore(_numbered(a), _below(b, MOST_GPUS + 1), _below(c, LONGEST + 1))


def _map(a: int, b: int, c: int) -> Map:
    return Map(_uuid(a, b), _below(c, MOST_GPUS))


def _cancel(a: int, b: int, c: int) -> Cancel:
    unused(b, c)
    return Cancel(_numbered(a))


def _numbered(number: int) -> int:
    if not number:
        raise Malformed("it is about order 0, and they are counted from 1")
    return number


def _below(number: int, end: int) -> int:
    if number >= end:
        raise Malformed(f"it names {number}, and {end - 1} is the most")
    return number


def _some(number: int) -> int:
    if not number:
        raise Malformed("it names step or reason 0, and they are counted from 1")
    return number


def _known(state: int) -> State:
    try:
        return State(state)
    except ValueError:
        raise Malformed(f"it names state {state}, which is none") from None


_FROM_GATE: Mapping[int, Callable[[int, int, int], FromGate]] = {
    HELLO: _hello, GPU: _gpu, STATE: _state, USE: _use, CAN: _can, CANNOT: _cannot, PARKED: _parked,
    RUNNING: _running, FAILED: _failed, NEED: _need,
}  # fmt: skip
_FROM_NODE: Mapping[int, Callable[[int, int, int], FromNode]] = {
    CHECK: _check, PARK: _park, RESTORE: _restore, MAP: _map, CANCEL: _cancel,
}  # fmt: skip


def from_gate() -> Stream[FromGate]:
    """Return a stream of the messages of one process."""
    return Stream(_FROM_GATE)


def from_node() -> Stream[FromNode]:
    """Return a stream of the node's messages to one process."""
    return Stream(_FROM_NODE)
