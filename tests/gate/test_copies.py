"""Copies and fills are GPU work: they ask for turns, are waited for and charged. All of the table."""

import sys
import time

import pytest

from jupyter_gpu_node.shares.rules.protocol import Ask, Done, Revoke
from scripts.lib import gated

from .copying import HOST, KINDS, PACKED, WITHIN, WORD, base_of
from .place import MIB, Place, Program

TITLES = ("Copies and fills, prefetches, decompression", "Words that a stream writes")
LARGE = {HOST: 4 * MIB, WITHIN: 64 * MIB, PACKED: 4 * MIB}
RATES = {HOST: 40, WITHIN: 8, PACKED: 1}
"""Bytes in a microsecond from the host at which a large one takes 50 ms or more: the gate charges by its looks, one
every half millisecond, and a look that comes late, as on a busy machine, leaves out the work that ended before it."""
DISCARDS = "cuMemDiscardAndPrefetchBatch"
"""It brings nothing from the host: the GPU clears its memory, and so it takes the lowest rate."""
SMALL = 16_000
"""Bytes of a copy that passes some twenty times, whichever its kind."""
LEAST = 4096
"""Bytes of one that never waits, from the host or to it."""
MINUTE = 60_000_000
TOLD = 5_000
"""Microseconds of small ones that are worth a message."""


def _functions() -> dict[str, bool]:
    """Return the symbols of these kinds, and whether each is older than 64-bit addresses."""
    found = {}
    for name, end, since in gated.functions():
        if gated.kind_of(name).title in TITLES:
            found[name + end] = since < gated.OLD and name + end not in gated.ours()
    return found


COPIES = [name for name, old in _functions().items() if not old and KINDS[base_of(name)] != WORD]
NEVER_WAIT = [name for name, old in _functions().items() if not old and KINDS[base_of(name)] in (HOST, WORD)]


def _copies(place: Place, symbol: str, *commands: str, rate: int = 100) -> Program:
    """Start the copying program. ``rate``: bytes in a microsecond from the host; on the GPU 80 times as many."""
    program = [sys.executable, "-m", "tests.gate.copying", symbol, *commands]
    return Program(program, place.env() | {"JUPYTER_GPU_STANDIN_COPY": str(rate)})


def _spent(place: Place, since: int) -> int:
    return sum(work.end - work.start for work in place.log(since))


def test_table_has_all_copies_and_fills() -> None:
    """There are 118 copies and fills, of which those with 32-bit addresses are not gated, and 12 word operations."""
    functions = _functions()
    assert len(functions) == 118 + 12
    assert {name for name, old in functions.items() if not old} <= gated.ours()
    assert {base_of(name) for name in (*COPIES, *NEVER_WAIT)} == set(KINDS)


@pytest.mark.parametrize("symbol", COPIES)
def test_each_copy_and_fill_asks_for_a_turn(place: Place, symbol: str) -> None:
    """A few small ones pass, then one waits; a large one waits at once. Both are charged."""
    kind = KINDS[base_of(symbol)]
    rate = 1 if base_of(symbol) == DISCARDS else RATES[kind]
    commands = (f"60:{SMALL}", "wait", f"1:{LARGE[kind]}", "wait")
    with place.stub() as stub, _copies(place, symbol, *commands, rate=rate) as program:
        connection = stub.accept()
        connection.expect(Ask)
        before = place.launches()
        assert program.line() == "ready"
        assert 5 <= before <= 26
        assert connection.charged_until(lambda: place.launches() >= 60) > 0
        assert program.line() == "done"
        program.tell("")
        connection.expect(Ask)
        before = place.launches()
        assert 60 <= before <= 62  # of the data, the copies that bring it to the GPU
        charged = connection.charged_until(lambda: place.launches() > before)
        assert program.line() == "done"
        assert place.launches() == before + 1
        assert 50_000 < _spent(place, before) <= charged * 1.2


@pytest.mark.parametrize("symbol", NEVER_WAIT)
def test_smallest_copies_never_wait_but_are_reported(place: Place, symbol: str) -> None:
    """Thousands pass without a lease, as running work may wait for them; their estimated time is reported."""
    with place.stub() as stub, _copies(place, symbol, f"6000:{LEAST}", "wait") as program:
        connection = stub.accept()
        told = connection.expect(Done)
        assert told.number == 0
        assert told.want is None
        assert TOLD <= told.measured < 2.5 * TOLD
        assert (program.line(), program.line()) == ("ready", "done")
        program.tell("")
        with pytest.raises(EOFError):
            connection.expect(Ask)


def test_word_that_running_work_waits_for_is_written_without_a_lease(place: Place) -> None:
    """After a revoke a word that a stream waits for is still written, so the GPU can be given back."""
    with place.stub() as stub, place.run("dlsym", "word", "wait-line") as program:
        connection = stub.accept()
        lease = connection.until(lambda: place.launches() == 2)
        assert [program.line(), program.line()] == ["ready", "waits"]
        connection.say(Revoke(lease))
        late = connection.expect(Ask)  # after 5 ms: what it let through has not ended
        assert late.keeps
        program.tell("")
        assert connection.expect(Done).number == lease


def test_thousand_fills_wait_for_a_turn(place: Place) -> None:
    """While another share has the GPU, fills wait however small they are."""
    with place.stub() as stub, _copies(place, "cuMemsetD8Async", f"1000:{SMALL // 2}") as program:
        connection = stub.accept()
        connection.expect(Ask)
        assert program.line() == "ready"
        time.sleep(0.3)  # nothing happens meanwhile, and nothing tells that
        assert place.launches() <= 25
        connection.grant(MINUTE)
        connection.serve(MINUTE)  # it asks again after each idle moment
        assert program.lines() == ["done"]
    assert place.launches() == 1000


def test_copies_are_waited_for_and_charged(place: Place) -> None:
    """A lease is given back when its copies have ended, and reports what they took."""
    with place.stub() as stub, _copies(place, "cuMemcpyHtoDAsync_v2", f"20000:{MIB}", rate=25000):
        connection = stub.accept()
        lease = connection.until(lambda: place.launches() >= 100)
        connection.say(Revoke(lease))
        done = connection.expect(Done, lambda done: done.number == lease)
        now = time.monotonic_ns() // 1000
        log = place.log()
        assert all(work.end <= now for work in log[:-2])  # these may have been too small to need a lease
        assert done.measured > 1000
