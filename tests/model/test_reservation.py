"""Reservations: blocks that begin and end in any order, beside a slider that moves."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from jupyter_gpu.model.annotations import Requested, Wish, record
from jupyter_gpu.model.errors import InvalidRequest, TooLarge
from jupyter_gpu.model.gpu import MAX_GPUS
from jupyter_gpu.model.request import Request
from jupyter_gpu.model.reservation import (
    HELD,
    MAX_RESERVATION_BYTES,
    Block,
    Reservation,
    ReservationOwner,
    base_of,
    decode_reservation,
    held,
    idle,
    need,
    overruled,
    own,
    raised,
    resolve,
)
from tests.kernel.builders import view

from . import strategies as any_

OWNER = ReservationOwner(7, 11, 13, "k")
BODY = {"milli": 2000, "owner": OWNER.to_json()}


def test_body_of_a_reservation_is_read() -> None:
    """A client's body is read; a process that is no kernel names none."""
    assert decode_reservation("a1", json.dumps(BODY).encode()) == Reservation("a1", 2000, OWNER)
    one_node = decode_reservation("a1", json.dumps({**BODY, "together": True}).encode())
    assert one_node == Reservation("a1", 2000, OWNER, together=True)
    plain = OWNER._replace(kernel=None)
    assert ReservationOwner.from_json(plain.to_json()) == plain


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"milli": 1000}, "owner"),
        ({**BODY, "milli": -1}, "milli"),
        ({**BODY, "milli": 10**6}, "milli"),
        ({**BODY, "more": 1}, "more"),
        ({**BODY, "together": 2000}, "together"),
        ({**BODY, "owner": 7}, "owner"),
        ({**BODY, "owner": {**OWNER.to_json(), "pid": 0}}, "pid"),
        ({**BODY, "owner": {**OWNER.to_json(), "name": "x"}}, "name"),
    ],
)
def test_bad_body_is_refused(body: object, field: str) -> None:
    """The refusal names the field."""
    with pytest.raises(InvalidRequest) as caught:
        decode_reservation("a1", json.dumps(body).encode())
    assert caught.value.field == field


def test_large_body_is_refused_before_it_is_read() -> None:
    """A body above the limit is refused by its size."""
    with pytest.raises(TooLarge):
        decode_reservation("a1", b" " * (MAX_RESERVATION_BYTES + 1))


def test_reservation_without_a_wish_has_base_zero() -> None:
    """A reservation on top of no wish has the base 0."""
    assert base_of(None) == 0
    assert own(None) == Wish(0)
    assert raised(None, 1000) == Wish(1000, base=0)
    assert not idle(None, 0)
    assert resolve(Wish(1), None) == Wish(1)
    assert resolve(own, Requested(3, Wish(2000, base=1000))) == Wish(1000)
    assert resolve(own, None) == Wish(0)
    assert own(Wish(1000, vendor="amd", set=2000)) == Wish(1000, vendor="amd")


def test_reservation_takes_whole_shares() -> None:
    """A reservation takes whole shares of those that were asked for."""
    wish = Wish(1000, each=500, memory=7, model=("A",), vendor="nvidia", topology="island", priority=3)
    more = raised(wish, 1250)
    assert more == replace(wish, milli=1500, base=1000)
    assert raised(more, 0) == wish
    with pytest.raises(InvalidRequest, match="larger shares first"):
        raised(Wish(250, each=250), 250 * (MAX_GPUS + 1))


def test_set_of_a_reservation() -> None:
    """The largest one is in the wish, in whole shares, also where the base is as much; it goes with its reservation."""
    one, two = (Reservation("a", milli, OWNER, together=milli > 1500) for milli in (3000, 1250))
    assert (need([one, two]), need([one, two], together=True), need([], together=True)) == (3000, 3000, 0)
    assert need([two], together=True) == 0
    base = Wish(2000, each=500)
    assert raised(base, 1250, 1250) == replace(base, set=1500)
    assert raised(base, 2250, 1250) == replace(base, milli=2500, base=2000, set=1500)
    assert not idle(replace(base, set=1500), 1250, 1250)
    assert idle(replace(base, set=1500), 1250)
    assert raised(replace(base, set=1500), 1250) == base


def test_only_a_later_smaller_wish_overrules_a_reservation() -> None:
    """A view from before the reservation, and one that is enough, say nothing about it."""
    reservation = Reservation("a", 2000, OWNER, generation=5)
    assert overruled([reservation], view(1000, generation=5)) == ()
    assert overruled([reservation], view(2000, generation=6)) == ()
    assert overruled([reservation], view(1000, generation=6)) == (reservation,)
    assert overruled([reservation._replace(generation=-1)], view(0)) == (reservation._replace(generation=-1),)


def test_view_tells_that_reservations_raise_the_wish() -> None:
    """The view tells it only while reservations raise the wish."""
    assert held(view(0)) == view(0)
    assert held(view(2000)) == view(2000)
    (condition,) = held(view(2000, base=1000)).conditions
    assert condition.type == HELD
    assert "holds 2 GPUs" in condition.message
    assert "1 GPU asked for beside it" in condition.message
    assert "beside" not in held(view(2000, base=0)).conditions[0].message


def test_view_names_the_blocks_that_hold_gpus() -> None:
    """It names those that need more than was asked for; each once, the largest first, and not too many."""
    notice = "hold{} 2 GPUs{} while {} them (gpu.at_least, jupyter gpu run)"

    def message(*blocks: tuple[str, int]) -> str:
        (condition,) = held(view(2000, base=1000), (Block(*block) for block in blocks)).conditions
        return condition.message

    one, many = notice.format("s", "", "it needs"), notice.format("", " together", "they need")
    assert message() == f"Running code {one} and gives back what it took at its end; 1 GPU asked for beside it."
    assert message(("a.ipynb", 2000), ("b.ipynb", 1000), ("a.ipynb", 1500)).startswith(f"a.ipynb {one}")
    assert message(("a.ipynb", 1500), ("b.ipynb", 2000)).startswith(f"b.ipynb (2 GPUs) and a.ipynb (1.5 GPUs) {many}")
    crowd = message(*((f"{n}.ipynb", 2000) for n in range(5)))
    assert crowd.startswith(f"0.ipynb (2 GPUs), 1.ipynb (2 GPUs), 2.ipynb (2 GPUs) and 2 more {many}")
    assert len(message(*((f"{n}" * 4000, 2000) for n in range(5)))) < 1024


@given(any_.wishes | st.none(), st.integers(0, 10_000))
def test_raised_wish_keeps_its_options(wish: Wish | None, needed: int) -> None:
    """The amount is enough, the base and all options stay, and it can be read and raised again; or it is refused."""
    if wish and wish.each and needed > 256 * wish.each:
        with pytest.raises(InvalidRequest, match="more than 256"):
            raised(wish, needed)
        return
    after = raised(wish, needed)
    assert after.milli >= max(needed, base_of(wish))
    assert after.milli - max(needed, base_of(wish)) < (after.each or 1)
    assert own(after) == own(wish)
    assert raised(after, needed) == after
    assert not idle(after, needed)
    assert raised(after, 0) == own(wish)
    assert Requested.from_json(Requested(1, after).to_json()).wish == after


class Blocks(RuleBasedStateMachine):
    """A server's wish, blocks in any order, code that resizes, a person with a slider."""

    def __init__(self) -> None:
        super().__init__()
        self.requested: Requested | None = None
        self.reservations: dict[str, Reservation] = {}
        self.count = 0
        self.last = 0

    def write(self, wish: Wish) -> None:
        self.requested = record(self.requested, wish)

    @property
    def wish(self) -> Wish | None:
        return self.requested.wish if self.requested else None

    @rule(milli=st.integers(0, 4000))
    def begin(self, milli: int) -> None:
        """A block."""
        self.count += 1
        self.write(raised(self.wish, max(need(self.reservations.values()), milli)))
        assert self.requested
        self.reservations[str(self.count)] = Reservation(str(self.count), milli, OWNER, self.requested.generation)

    @precondition(lambda self: self.reservations)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        """Any of them, by itself or with its process."""
        del self.reservations[data.draw(st.sampled_from(sorted(self.reservations)))]
        self.write(raised(self.wish, need(self.reservations.values())))

    @rule(milli=st.integers(0, 4000), each=st.none() | st.sampled_from([250, 500]))
    def resize(self, milli: int, each: int | None) -> None:
        """Code changes what is asked for."""
        asked = Request(Wish(milli - milli % (each or 1), each=each), frozenset({"each"}))
        self.write(raised(asked.after(self.wish), need(self.reservations.values())))
        self.last = asked.wish.milli

    @rule(milli=st.integers(0, 4000))
    def slide(self, milli: int) -> None:
        """A person does."""
        self.write(raised(Request(Wish(milli)).after(self.wish), 0))
        assert self.requested
        seen = view(milli, generation=self.requested.generation)
        for reservation in overruled(self.reservations.values(), seen):
            del self.reservations[reservation.key]
        self.write(raised(self.wish, need(self.reservations.values())))
        self.last = milli
        assert self.requested.milli == milli, "the slider has the last word"

    @invariant()
    def every_block_has_its_gpus(self) -> None:
        """Whichever others ended."""
        assert not self.wish or self.wish.milli >= need(self.reservations.values())

    @invariant()
    def nothing_is_held_without_an_owner(self) -> None:
        """The wish is no more than base and reservations need, and the base is what was asked for last."""
        assert base_of(self.wish) == self.last
        assert not idle(self.wish, need(self.reservations.values()))
        if not self.reservations:
            assert (self.wish.milli if self.wish else 0) == self.last


TestBlocks = Blocks.TestCase
TestBlocks.__doc__ = "Blocks that begin and end in any order, beside a slider."
