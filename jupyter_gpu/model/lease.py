"""Leases: GPUs that blocks of code (`gpu.at_least`) need, in addition to the user's request.

The wish of a server has a *base*, which the slider and `gpu.resize` set, and leases, each with an owner that ends.
These rules hold:

- The wish is the larger of the base and the largest lease: "at least 1" is about the server as a whole, so two blocks
  that need one GPU each need one together.
- Code changes the base and no lease: what a block needs stays until the block ends.
- A person decides last: the slider *overrules* the leases that need more than its position, and ends them. So does any
  other writer of the wish (`kubectl annotate`, an arbiter that takes a share away).
- The base is recorded with the wish. Leases are not: a server that starts again knows none and falls back to the base.
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

MAX_LEASE_BYTES = 2048
MAX_LEASE_MILLI = MAX_MILLI - MILLI_PER_GPU
"""One GPU less than can be asked for at all, so that it can be made whole shares."""
MAX_LEASES = 1024
"""Most leases of one server: far above what programs nest, and a bound for one that goes wrong."""
_BY = "gpu.at_least, jupyter gpu run"
HELD = "Held"
"""Type of the condition that says that leases raise the wish."""

WishChange = Callable[[Wish | None], Wish]
"""Returns the next wish for the current one. Pure: it may be called more than once, with different wishes."""

_NAMED, _NAME = 3, 200
"""Most blocks that are named, and most letters of a name."""

_read_key = strict.text(64)


class LeaseOwner(NamedTuple):
    """The process with whose end a lease ends: pid and start time as the process itself sees them."""

    pid: int
    started: int
    """Clock ticks after boot: a reused pid is another process."""
    namespace: int
    """Number of the pid namespace in which it has this pid."""
    kernel: str | None = None
    """Id of the kernel that it is, if it is one."""

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object."""
        body = {"pid": self.pid, "started": self.started, "namespace": self.namespace}
        return {**body, "kernel": self.kernel} if self.kernel else body

    @classmethod
    def from_json(cls, value: Any, key: str = "owner") -> LeaseOwner:
        """Read and check the JSON; raises `FieldError`."""
        body = strict.an_object(value, key)
        strict.no_unknown(body, cls._fields)
        return cls(
            pid=strict.required(body, "pid", strict.integer(1, 2**31 - 1)),
            started=strict.required(body, "started", strict.integer(0, strict.MAX_GENERATION)),
            namespace=strict.required(body, "namespace", strict.integer(0, strict.MAX_GENERATION)),
            kernel=strict.optional(body, "kernel", strict.text(256)),
        )


class Lease(NamedTuple):
    """A need for GPUs, until its owner ends or gives it back. ``key`` is chosen by the owner."""

    key: str
    milli: int
    owner: LeaseOwner
    generation: int = 0
    """Generation of the wish from which on it counts: a later wish for less has overruled it."""


def decode_lease(key: str, body: bytes) -> Lease:
    """Read the body of ``PUT leases/<key>``; raises `InvalidRequest` or `TooLarge`."""
    try:
        fields = strict.an_object(strict.loads(body, MAX_LEASE_BYTES), "body")
        strict.no_unknown(fields, ("milli", "owner"))
        milli = strict.required(fields, "milli", strict.integer(0, MAX_LEASE_MILLI))
        return Lease(_read_key(key, "key"), milli, strict.required(fields, "owner", LeaseOwner.from_json))
    except strict.OversizeError as error:
        raise TooLarge(str(error)) from None
    except strict.FieldError as error:
        raise InvalidRequest(str(error), field=error.field) from None


def resolve(wish: Wish | WishChange, current: Requested | None) -> Wish:
    """Return the wish that follows ``current``."""
    return wish(current.wish if current else None) if callable(wish) else wish


def base_of(wish: Wish | None) -> int:
    """Return the amount wanted for itself, without leases."""
    if wish is None:
        return 0
    return wish.milli if wish.base is None else wish.base


def own(wish: Wish | None) -> Wish:
    """Return ``wish`` without what leases add."""
    return Wish(0) if wish is None else replace(wish, milli=base_of(wish), base=None)


def need(leases: Iterable[Lease]) -> int:
    """Return the amount that the leases need together: the largest."""
    return max((lease.milli for lease in leases), default=0)


def raised(wish: Wish | None, needed: int) -> Wish:
    """Return ``wish`` with its own base and as much as ``needed``, in whole shares where it is cut into such.

    Raises `InvalidRequest` if these are more than a pod can have.
    """
    alone = own(wish)
    unit = alone.each or 1
    milli = -(-needed // unit) * unit
    if alone.each and milli // unit > MAX_GPUS:
        raise InvalidRequest(
            f"GPUs are asked for in shares of {format_gpus(unit)}, and {count_gpus(milli)} would be more than "
            f"{MAX_GPUS} of them. Ask for larger shares first.",
            field="each",
        )
    return alone if milli <= alone.milli else replace(alone, milli=milli, base=alone.milli)


def overruled(leases: Iterable[Lease], view: View) -> tuple[Lease, ...]:
    """Return the ``leases`` that a later wish of another writer gives less than they need."""
    wanted = view.requested.milli if view.requested else 0
    return tuple(lease for lease in leases if view.generation > lease.generation and wanted < lease.milli)


def idle(wish: Wish | None, needed: int) -> bool:
    """Tell whether the wish holds more than base and leases need, as after the end of a lease."""
    return wish is not None and wish.base is not None and wish != raised(wish, needed)


class Block(NamedTuple):
    """A block of code that holds a lease, with a name for people."""

    name: str
    """Name of the notebook, console, terminal or process that it belongs to."""
    milli: int


def held(view: View, blocks: Iterable[Block] = ()) -> View:
    """Return ``view``, with a condition that names the holders if leases raise the wish. ``blocks``: all that run."""
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
    """Return the names of some blocks, the largest first, each once, with its amount if there are several."""
    most: dict[str, int] = {}
    for block in blocks:
        most[block.name] = max(block.milli, most.get(block.name, 0))
    shown = {name: strict.printable(name, _NAME) for name in sorted(most, key=lambda name: (-most[name], name))}
    if len(shown) < 2:
        return list(shown.values())
    names = [f"{text} ({count_gpus(most[name])})" for name, text in shown.items()]
    return names if len(names) <= _NAMED else [*names[:_NAMED], f"{len(names) - _NAMED} more"]
