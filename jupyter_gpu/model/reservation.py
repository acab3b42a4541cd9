"""Reservations: the GPUs that blocks of code (`gpu.at_least`) need while they run.

A server's wish has a *base*, set by the slider and `gpu.resize`, and reservations, each with an owner: the process that
it ends with. These rules hold:

- The wish is the larger of the base and the largest reservation: "at least 1" is said of the server as a whole, so two
  blocks that need one GPU each need one together.
- Code changes the base and no reservation: a block keeps what it needs until it ends.
- A person has the last word: the slider *overrules* the reservations that need more than it says, and they end. So does
  any other writer of the wish (`kubectl annotate`, an arbiter that takes a share away).
- A reservation may need its GPUs on one node, as one process uses them: a *set*. The largest one is in the wish.
- The base is recorded with the wish. Reservations are not: a server that starts again has none, and falls back to the
  base.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, NamedTuple

from . import strict
from .annotations import Requested, Wish
from .errors import InvalidRequest, TooLarge
from .gpu import MAX_GPUS
from .quantity import MAX_MILLI, MILLI_PER_GPU, count_gpus, format_gpus
from .view import Condition, View

MAX_RESERVATION_BYTES = 2048
MAX_RESERVATION_MILLI = MAX_MILLI - MILLI_PER_GPU
"""A GPU less than the largest request, so that it can be rounded up to whole shares."""
MAX_RESERVATIONS = 1024
"""The most reservations of one server: far more than programs nest, and a bound for one that goes wrong."""
_BY = "gpu.at_least, jupyter gpu run"
HELD = "Held"
"""Type of the condition that says that reservations raise the wish."""

WishChange = Callable[[Wish | None], Wish]
"""Function from the current wish to the next. Pure: it may be called more than once, with different wishes."""

_NAMED, _NAME = 3, 200
"""The most blocks that are named, and the most letters of a name."""

_read_key = strict.text(64)


class ReservationOwner(NamedTuple):
    """The process that a reservation ends with, as it describes itself: pid and start time in its own pid namespace."""

    pid: int
    started: int
    """Clock ticks after boot: a reused pid is another process."""
    namespace: int
    """Number of the pid namespace in which it has this pid."""
    kernel: str | None = None
    """Id of the kernel, if the process is one."""

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object."""
        body = {"pid": self.pid, "started": self.started, "namespace": self.namespace}
        return {**body, "kernel": self.kernel} if self.kernel else body

    @classmethod
    def from_json(cls, value: Any, key: str = "owner") -> ReservationOwner:
        """Read and check the JSON; raises `FieldError`."""
        body = strict.an_object(value, key)
        strict.no_unknown(body, cls._fields)
        return cls(
            pid=strict.required(body, "pid", strict.integer(1, 2**31 - 1)),
            started=strict.required(body, "started", strict.integer(0, strict.MAX_GENERATION)),
            namespace=strict.required(body, "namespace", strict.integer(0, strict.MAX_GENERATION)),
            kernel=strict.optional(body, "kernel", strict.text(256)),
        )


class Reservation(NamedTuple):
    """A need for GPUs until its owner ends or gives it back. The owner chooses ``key``."""

    key: str
    milli: int
    owner: ReservationOwner
    generation: int = 0
    """Generation of the wish in which it counts first: a later wish for less overrules it."""
    together: bool = False
    """Whether all of it is needed on one node."""


def decode_reservation(key: str, body: bytes) -> Reservation:
    """Read the body of ``PUT reservations/<key>``; raises `InvalidRequest` or `TooLarge`."""
    try:
        fields = strict.an_object(strict.loads(body, MAX_RESERVATION_BYTES), "body")
        strict.no_unknown(fields, ("milli", "owner", "together"))
        milli = strict.required(fields, "milli", strict.integer(0, MAX_RESERVATION_MILLI))
        owner = strict.required(fields, "owner", ReservationOwner.from_json)
        together = strict.optional(fields, "together", strict.boolean) or False
        return Reservation(_read_key(key, "key"), milli, owner, together=together)
    except strict.OversizeError as error:
        raise TooLarge(str(error)) from None
    except strict.FieldError as error:
        raise InvalidRequest(str(error), field=error.field) from None


def resolve(wish: Wish | WishChange, current: Requested | None) -> Wish:
    """Return the wish that follows ``current``."""
    return wish(current.wish if current else None) if callable(wish) else wish


def base_of(wish: Wish | None) -> int:
    """Return the base of ``wish``: its amount without reservations."""
    if wish is None:
        return 0
    return wish.milli if wish.base is None else wish.base


def own(wish: Wish | None) -> Wish:
    """Return ``wish`` without what reservations add to it."""
    return Wish(0) if wish is None else replace(wish, milli=base_of(wish), base=None, set=None)


def need(reservations: Iterable[Reservation], *, together: bool = False) -> int:
    """Return the amount that ``reservations`` need: the largest; ``together``: the largest that is for one node."""
    return max((one.milli for one in reservations if one.together or not together), default=0)


def raised(wish: Wish | None, needed: int, together: int = 0) -> Wish:
    """Return ``wish`` with the same base, and at least ``needed`` milli, in whole shares if it is cut into shares.

    ``together``: the set that is needed on one node; part of ``needed``.

    Raises `InvalidRequest` if these are more than a pod can have.
    """
    alone = own(wish)
    unit = alone.each or 1
    milli, whole = (-(-amount // unit) * unit for amount in (needed, together))
    if alone.each and milli // unit > MAX_GPUS:
        raise InvalidRequest(
            f"GPUs are asked for in shares of {format_gpus(unit)}, and {count_gpus(milli)} would be more than "
            f"{MAX_GPUS} of them. Ask for larger shares first.",
            field="each",
        )
    alone = replace(alone, set=whole or None)
    return alone if milli <= alone.milli else replace(alone, milli=milli, base=alone.milli)


def overruled(reservations: Iterable[Reservation], view: View) -> tuple[Reservation, ...]:
    """Return the ``reservations`` for which ``view`` requests too little, on purpose: our own wishes have enough."""
    wanted = view.requested.milli if view.requested else 0
    return tuple(one for one in reservations if view.generation > one.generation and wanted < one.milli)


def idle(wish: Wish | None, needed: int, together: int = 0) -> bool:
    """Tell whether ``wish`` is for more than its base and ``needed``, as after the end of a reservation."""
    has_more = wish is not None and (wish.base is not None or wish.set is not None)
    return has_more and wish != raised(wish, needed, together)


class Block(NamedTuple):
    """A block of code that has a reservation, as people know it."""

    name: str
    """Name of the notebook, console, terminal or process in which it runs."""
    milli: int


def held(view: View, blocks: Iterable[Block] = ()) -> View:
    """Return ``view``, with a condition that names those of ``blocks`` that raise the wish, if any do."""
    wish = view.requested.wish if view.requested else None
    if wish is None or wish.base is None:
        return view
    beside = f"; {count_gpus(wish.base)} asked for beside it" if wish.base else ""
    names = _names(block for block in blocks if block.milli > (wish.base or 0))
    amount = count_gpus(wish.milli)
    if len(names) < 2:
        name = names[0] if names else "Running code"
        text = f"{name} holds {amount} while it needs them ({_BY}) and gives back what it took at its end"
    else:
        each = f"{', '.join(names[:-1])} and {names[-1]}"
        text = f"{each} hold {amount} together while they need them ({_BY}) and give back what they took at their end"
    return replace(view, conditions=(*view.conditions, Condition(HELD, f"{text}{beside}.")))


def _names(blocks: Iterable[Block]) -> list[str]:
    """Return up to `_NAMED` names, largest amount first, each once; with amounts if there are several."""
    most: dict[str, int] = {}
    for block in blocks:
        most[block.name] = max(block.milli, most.get(block.name, 0))
    shown = {name: strict.printable(name, _NAME) for name in sorted(most, key=lambda name: (-most[name], name))}
    if len(shown) < 2:
        return list(shown.values())
    names = [f"{text} ({count_gpus(most[name])})" for name, text in shown.items()]
    return names if len(names) <= _NAMED else [*names[:_NAMED], f"{len(names) - _NAMED} more"]
