"""The wire vocabulary: the annotations, the only writer of each, and their JSON.

| object | key               | class          | only writer                                  |
|--------|-------------------|----------------|----------------------------------------------|
| Pod    | ``requested``     | `Requested`    | server extension or hub, for the pod's user  |
| Pod    | ``allocated``     | `Allocated`    | scheduler                                    |
| Pod    | ``attached``      | `Attached`     | that pod's node plugin                       |
| Pod    | ``service``       | in `service`   | scheduler                                    |
| Pod    | ``worker``        | in `service`   | worker controller, when it creates the pod   |
| Pod    | ``worker-status`` | in `service`   | worker controller                            |
| Node   | ``inventory``     | list of `Gpu`  | that node's plugin                           |

``allocated`` has a field ``limit`` where limits are in force, ``{"milli", "max", "source", "giveBackAt"}``: the most
that this pod may have now and its owner's maximum (both in milli; both absent: unlimited), the limit that sets the
maximum, and, where the owner has more, the seconds since 1970 at which that is taken back. ``withWorkers`` says the
first three of the pod and its workers on other nodes as one. The classes are `limits.pod_limit.PodLimit` and
`limits.source.Source`. The items of ``park``, ``parked``, ``resting`` and ``unparkable`` are in `parking`.

The three states of a pod follow Kubernetes in-place resize (KEP-1287): desired, decided, actual.
Parsers are strict about known fields and keep unknown ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from . import strict
from .errors import InvalidAnnotation
from .gpu import MAX_GPUS, DrainingShare, Gpu, GpuShare, pieces, read_uuid, read_vendor
from .quantity import MAX_BYTES as MAX_MEMORY
from .quantity import MAX_MILLI, parse_milli

if TYPE_CHECKING:  # loaded with the first limit, peer or park, not when a kernel starts
    from .limits.pod_limit import PodLimit
    from .parking import ParkedShare, ParkOrder, RestingShare, UnparkableShare
    from .service import Peer

PREFIX = "jupyter-gpu.io/"
REQUESTED = PREFIX + "requested"
ALLOCATED = PREFIX + "allocated"
ATTACHED = PREFIX + "attached"
SERVICE = PREFIX + "service"
WORKER = PREFIX + "worker"
WORKER_STATUS = PREFIX + "worker-status"
INVENTORY = PREFIX + "inventory"

MAX_BYTES = 64 * 1024
"""Limit for one annotation. Kubernetes allows 256 KiB for all annotations of an object together."""

T = TypeVar("T")


class Reason(StrEnum):
    """The reason a wish is not, or not wholly, fulfilled."""

    DEFERRED = "Deferred"
    INFEASIBLE = "Infeasible"
    LIMIT_EXCEEDED = "LimitExceeded"
    PARTIAL = "Partial"
    DRAINING = "Draining"
    UNHEALTHY = "Unhealthy"


_read_reason = strict.one_of(*Reason)
_read_generation = strict.integer(0, strict.MAX_GENERATION)
_read_milli = strict.integer(0, MAX_MILLI)
_read_shares = strict.list_of(GpuShare.from_json, MAX_GPUS)
_read_revoked = strict.list_of(GpuShare.from_json, 2 * MAX_GPUS)
_read_uuids = strict.list_of(read_uuid, MAX_GPUS)


def _read_limit(value: Any, key: str) -> PodLimit:
    from .limits.pod_limit import PodLimit

    return PodLimit.from_json(value, key)


def _read_peer(value: Any, key: str) -> Peer:
    from .service import Peer

    return Peer.from_json(value, key)


def _read_orders(value: Any, key: str) -> tuple[ParkOrder, ...]:
    from .parking import read_orders

    orders = read_orders(value, key)
    _distinct(key, [order.uuid for order in orders])
    return orders


def _read_parked(value: Any, key: str) -> tuple[ParkedShare, ...]:
    from .parking import read_parked

    parked = read_parked(value, key)
    _distinct(key, [(share.uuid, share.bundle) for share in parked], "GPU and bundle")
    return parked


def _read_resting(value: Any, key: str) -> tuple[RestingShare, ...]:
    from .parking import read_resting

    resting = read_resting(value, key)
    _distinct(key, [share.uuid for share in resting])
    return resting


def _read_unparkable(value: Any, key: str) -> tuple[UnparkableShare, ...]:
    from .parking import read_unparkable

    unparkable = read_unparkable(value, key)
    _distinct(key, [share.uuid for share in unparkable])
    return unparkable


def _reason(body: Mapping[str, Any]) -> Reason | None:
    word = strict.optional(body, "reason", _read_reason)
    return Reason(word) if word else None


def _distinct(key: str, names: Sequence[object], what: str = "GPU") -> None:
    if len(set(names)) != len(names):
        raise strict.FieldError(f"{key!r} names a {what} twice.", key)


@dataclass(frozen=True, slots=True)
class Wish:
    """A request for GPUs: the amount and all options. `Requested` is a wish that was recorded, `request.Request` a
    message that changes one.
    """

    milli: int
    each: int | None = None
    """Cut into shares of this size, each on another GPU."""
    memory: int | None = None
    """Bytes of GPU memory of each share."""
    model: tuple[str, ...] = ()
    """Acceptable GPU models; empty means any."""
    topology: str | None = None
    """``any``, ``island`` (all on one NVLink island) or ``switch`` (on one PCIe switch)."""
    placement: str | None = None
    """``local`` or ``any``."""
    priority: int | None = None
    """0–9, higher is served first."""
    base: int | None = None
    """The part of ``milli`` wanted for itself, where reservations (`reservation`) raise it; less than ``milli``."""
    vendor: str | None = None
    """The vendor of the GPUs, in any case; ``None``: any."""
    set: int | None = None
    """Milli that a reservation needs on one node, as one process uses them: part of ``milli``, or more than it."""
    lendable: bool | None = None
    """Whether its whole GPUs may have guests, where no limit says that; ``None``: not."""
    lent: bool = False
    """Whether they may, as the scheduler has decided; it is not in the JSON."""

    OPTIONS = ("each", "memory", "model", "vendor", "topology", "placement", "priority", "lendable")
    KNOWN = ("milli", *OPTIONS, "base", "set")

    @property
    def pieces(self) -> tuple[int, ...]:
        """The milli of each share wanted, largest first."""
        return pieces(self.milli, self.each)

    def to_json(self) -> dict[str, Any]:
        """Return the fields that were set."""
        body = {
            "milli": self.milli,
            "each": self.each,
            "memory": self.memory,
            "model": list(self.model) or None,
            "vendor": self.vendor,
            "topology": self.topology,
            "placement": self.placement,
            "priority": self.priority,
            "lendable": self.lendable,
            "base": self.base,
            "set": self.set,
        }
        return strict.without_none(body)

    @classmethod
    def from_fields(cls, body: Mapping[str, Any]) -> Wish:
        """Read the fields of a JSON object; raises `FieldError`. Memory without an amount asks for the least share."""
        memory = strict.optional(body, "memory", strict.integer(1, MAX_MEMORY))
        wish = cls(
            milli=1 if memory and "milli" not in body else strict.required(body, "milli", _read_milli),
            each=strict.optional(body, "each", strict.integer(1, 1000)),
            memory=memory,
            model=strict.optional(body, "model", strict.list_of(strict.text(128), 16)) or (),
            vendor=strict.optional(body, "vendor", read_vendor),
            topology=strict.optional(body, "topology", strict.one_of("any", "island", "switch")),
            placement=strict.optional(body, "placement", strict.one_of("local", "any")),
            priority=strict.optional(body, "priority", strict.integer(0, 9)),
            lendable=strict.optional(body, "lendable", strict.boolean),
            base=strict.optional(body, "base", _read_milli),
            set=strict.optional(body, "set", strict.integer(1, MAX_MILLI)),
        )
        if wish.base is not None and (wish.base >= wish.milli or wish.base % (wish.each or 1)):
            raise strict.FieldError("'base' must be less than 'milli', and whole shares.", "base")
        _check_pieces("milli", wish.milli, wish.each)
        _check_pieces("set", wish.set or 0, wish.each)
        return wish


def _check_pieces(key: str, milli: int, each: int | None) -> None:
    try:
        count = len(pieces(milli, each))
    except ValueError as error:
        raise strict.FieldError(str(error), "each") from None
    if count > MAX_GPUS:
        raise strict.FieldError(f"{count} shares are more than one pod can have ({MAX_GPUS}).", key)


@dataclass(frozen=True, slots=True)
class Requested:
    """The recorded wish; ``generation`` counts the user's changes, as in Kubernetes objects."""

    generation: int
    wish: Wish
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)
    keep: int | None = None
    """Seconds since 1970 until which nothing of the pod is parked for others; no part of the wish."""

    KNOWN = ("generation", *Wish.KNOWN, "keep")

    @property
    def milli(self) -> int:
        """Amount wanted."""
        return self.wish.milli

    def to_json(self) -> dict[str, Any]:
        """Return the body of the annotation."""
        keep = {} if self.keep is None else {"keep": self.keep}
        return {"generation": self.generation, **self.wish.to_json(), **keep, **self.extra}

    @classmethod
    def from_json(cls, value: Any) -> Requested:
        """Read the annotation's JSON; a bare quantity (``2``, ``"500m"``) is generation 0."""
        if not isinstance(value, Mapping):
            try:
                return cls(0, Wish.from_fields({"milli": parse_milli(value)}))
            except strict.FieldError:
                raise
            except ValueError as error:
                raise strict.FieldError(str(error), "milli") from None
        generation = strict.required(value, "generation", _read_generation)
        keep = strict.optional(value, "keep", strict.read_time)
        return cls(generation, Wish.from_fields(value), strict.unknown(value, cls.KNOWN), keep)


@dataclass(frozen=True, slots=True)
class Allocated:
    """The scheduler's decision about one pod."""

    observed_generation: int
    shares: tuple[GpuShare, ...] = ()
    """Oldest first."""
    reason: Reason | None = None
    message: str = ""
    ticket: int | None = None
    """Order in line of what is still owed: lower is earlier. A number, no time: clocks can be set back."""
    position: int | None = None
    """Number of pods served up to and including this one, 1 = next; approximate beyond `~.quantity.EXACT_POSITIONS`.
    Absent where nothing is owed or it is not known."""
    revision: int = 0
    """Number of times that something was taken away."""
    revoked: tuple[GpuShare, ...] = ()
    """Shares that were taken away and may be open, whatever ``attached`` says, until ``attached`` has this revision. Of
    a GPU at most one that records its memory, and one that does not: only the GPU tells which of both has more."""
    limit: PodLimit | None = None
    """The limit that holds for the pod; ``None``: no limits are in force."""
    lendable: bool | None = None
    """Whether its whole GPUs are lent while they rest, where its requests say that; ``None``: a limit says it, or
    nothing is lent at all."""
    park: tuple[ParkOrder, ...] = ()
    """Orders to park what is on these GPUs; they stay in ``shares`` until ``attached`` says that they are parked."""
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)

    _KNOWN = ("observedGeneration", "shares", "reason", "message", "ticket", "position", "revision", "revoked", "limit",
              "lendable", "park")  # fmt: skip

    def pending(self, attached: Attached | None) -> tuple[GpuShare, ...]:
        """Return the revoked shares that the node has not reported on yet.

        It may have been about to open one when that was taken away: then it has recorded neither.
        """
        return () if attached and attached.revision >= self.revision else self.revoked

    def with_shares(self, shares: tuple[GpuShare, ...], attached: Attached | None) -> Allocated:
        """Replace the shares; what goes, wholly or in part, is revoked until the node has followed."""
        now = {share.uuid: share for share in shares}
        gone = [share for share in self.shares if not share.is_within(now.get(share.uuid))]
        if not gone:
            return replace(self, shares=shares)
        revoked: dict[tuple[str, bool], GpuShare] = {}
        for share in (*gone, *self.pending(attached)):
            revoked[share.kind] = share.joined(revoked.get(share.kind, share))
        return replace(self, shares=shares, revision=self.revision + 1, revoked=tuple(revoked.values()))

    def to_json(self) -> dict[str, Any]:
        """Return the body of the annotation."""
        body = {
            "observedGeneration": self.observed_generation,
            "shares": [share.to_json() for share in self.shares],
            "reason": self.reason.value if self.reason else None,
            "message": strict.printable(self.message, 1024) if self.message else None,
            "ticket": self.ticket,
            "position": self.position,
            "revision": self.revision or None,
            "revoked": [share.to_json() for share in self.revoked] or None,
            "limit": self.limit.to_json() if self.limit else None,
            "lendable": self.lendable,
            "park": [order.to_json() for order in self.park] or None,
        }
        return {**strict.without_none(body), **self.extra}

    @classmethod
    def from_json(cls, value: Any) -> Allocated:
        """Read and check the JSON; raises `FieldError`."""
        body = strict.an_object(value, "allocated")
        shares = strict.required(body, "shares", _read_shares)
        _distinct("shares", [share.uuid for share in shares])
        revoked = strict.optional(body, "revoked", _read_revoked) or ()
        _distinct("revoked", [share.kind for share in revoked])
        return cls(
            observed_generation=strict.required(body, "observedGeneration", _read_generation),
            shares=shares,
            reason=_reason(body),
            message=strict.optional(body, "message", strict.label(1024)) or "",
            ticket=strict.optional(body, "ticket", _read_generation),
            position=strict.optional(body, "position", strict.integer(1, 10**6)),
            revision=strict.optional(body, "revision", _read_generation) or 0,
            revoked=revoked,
            limit=strict.optional(body, "limit", _read_limit),
            lendable=strict.optional(body, "lendable", strict.boolean),
            park=strict.optional(body, "park", _read_orders) or (),
            extra=strict.unknown(body, cls._KNOWN),
        )


@dataclass(frozen=True, slots=True)
class Attached:
    """The shares that the pod can really open, and those that it gave back but has not closed."""

    observed_generation: int
    shares: tuple[GpuShare, ...] = ()
    draining: tuple[DrainingShare, ...] = ()
    reason: Reason | None = None
    revision: int = 0
    """Revision of the ``allocated`` that the rules in force follow: what it had revoked is closed, or listed here."""
    open: tuple[str, ...] = ()
    """Uuids of those in ``shares`` that some process of the pod has open; some seconds late."""
    rests: tuple[str, ...] = ()
    """Uuids of those in ``open`` that have done nothing for a minute; some seconds late (`use_class`)."""
    lacks: tuple[str, ...] = ()
    """Uuids of GPUs of the node that came after the pod's containers were created: they have no device of them."""
    peer: Peer | None = None
    """The public keys that the pod says are its own, for its remote GPUs or as a worker."""
    parked: tuple[ParkedShare, ...] = ()
    """Parked and proven closed: neither in ``shares``, unless ``kept``, nor in ``draining``, so nobody counts them."""
    resting: tuple[RestingShare, ...] = ()
    """Those in ``shares`` that could be parked now; at most a minute late."""
    unparkable: tuple[UnparkableShare, ...] = ()
    """Those in ``shares`` that cannot be parked."""
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)

    _KNOWN = ("observedGeneration", "shares", "draining", "reason", "revision", "open", "rests", "lacks", "peer",
              "parked", "resting", "unparkable")  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        """Return the body of the annotation."""
        return {
            "observedGeneration": self.observed_generation,
            "shares": [share.to_json() for share in self.shares],
            **({"draining": [item.to_json() for item in self.draining]} if self.draining else {}),
            **({"reason": self.reason.value} if self.reason else {}),
            **({"revision": self.revision} if self.revision else {}),
            **({"open": list(self.open)} if self.open else {}),
            **({"rests": list(self.rests)} if self.rests else {}),
            **({"lacks": list(self.lacks)} if self.lacks else {}),
            **({"peer": self.peer.to_json()} if self.peer else {}),
            **({"parked": [item.to_json() for item in self.parked]} if self.parked else {}),
            **({"resting": [item.to_json() for item in self.resting]} if self.resting else {}),
            **({"unparkable": [item.to_json() for item in self.unparkable]} if self.unparkable else {}),
            **self.extra,
        }

    @classmethod
    def from_json(cls, value: Any) -> Attached:
        """Read and check the JSON; raises `FieldError`."""
        body = strict.an_object(value, "attached")
        shares = strict.required(body, "shares", _read_shares)
        read_draining = strict.list_of(DrainingShare.from_json, MAX_GPUS)
        draining = strict.optional(body, "draining", read_draining) or ()
        _distinct("shares", [share.uuid for share in shares])
        _distinct("draining", [share.uuid for share in draining])
        uuids = {key: strict.optional(body, key, _read_uuids) or () for key in ("open", "rests", "lacks")}
        for key, found in uuids.items():
            _distinct(key, found)
        return cls(
            observed_generation=strict.required(body, "observedGeneration", _read_generation),
            shares=shares,
            draining=draining,
            reason=_reason(body),
            revision=strict.optional(body, "revision", _read_generation) or 0,
            open=uuids["open"],
            rests=uuids["rests"],
            lacks=uuids["lacks"],
            peer=strict.optional(body, "peer", _read_peer),
            parked=strict.optional(body, "parked", _read_parked) or (),
            resting=strict.optional(body, "resting", _read_resting) or (),
            unparkable=strict.optional(body, "unparkable", _read_unparkable) or (),
            extra=strict.unknown(body, cls._KNOWN),
        )


def held_shares(allocated: Allocated | None, attached: Attached | None) -> list[GpuShare]:
    """Return all shares that a pod has or may still have: allocated, just revoked, attached, draining."""
    shares = [*allocated.shares, *allocated.pending(attached)] if allocated else []
    if attached:
        shares += [*attached.shares, *(item.share for item in attached.draining)]
    return shares


def held(allocated: Allocated | None, attached: Attached | None) -> dict[str, int]:
    """Return the milli that a pod holds by uuid: the most of its `held_shares`."""
    found: dict[str, int] = {}
    for share in held_shares(allocated, attached):
        found[share.uuid] = max(found.get(share.uuid, 0), share.milli)
    return found


def decode(key: str, text: str | bytes, read: Callable[[Any], T]) -> T:
    """Decode the annotation ``key`` by ``read``; raises `InvalidAnnotation`."""
    try:
        return read(strict.loads(text, MAX_BYTES))
    except strict.FieldError as error:
        raise InvalidAnnotation(f"{key} cannot be read: {error}", key=key, field=error.field) from None


def decode_requested(text: str | bytes) -> Requested:
    """Decode the ``requested`` annotation; a bare quantity without quotes (``500m``) is accepted too."""
    word = text.decode(errors="replace") if isinstance(text, bytes) else text
    try:
        return Requested(0, Wish.from_fields({"milli": parse_milli(word)}))
    except ValueError:  # not a bare quantity: then it must be JSON
        return decode(REQUESTED, text, Requested.from_json)


def decode_allocated(text: str | bytes) -> Allocated:
    """Decode the ``allocated`` annotation; raises `InvalidAnnotation`."""
    return decode(ALLOCATED, text, Allocated.from_json)


def decode_attached(text: str | bytes) -> Attached:
    """Decode the ``attached`` annotation; raises `InvalidAnnotation`."""
    return decode(ATTACHED, text, Attached.from_json)


def decode_inventory(text: str | bytes) -> tuple[Gpu, ...]:
    """Decode the ``inventory`` annotation, with distinct uuids, indices and devices.

    Two GPUs with one device would be given away together by a rule for one of them.
    """

    def read(value: Any) -> tuple[Gpu, ...]:
        gpus = strict.list_of(Gpu.from_json, MAX_GPUS)(value, "inventory")
        _distinct("inventory", [gpu.uuid for gpu in gpus])
        _distinct("inventory", [gpu.index for gpu in gpus], "index")
        _distinct("inventory", [gpu.device for gpu in gpus if gpu.device], "device")
        return gpus

    return decode(INVENTORY, text, read)


class Written(Protocol):
    """A class of the vocabulary that knows its JSON."""

    def to_json(self) -> dict[str, Any]:
        """Return the body of the annotation."""


def encode(value: Written | tuple[Gpu, ...]) -> str:
    """Encode an annotation; reading the text gives the same value again."""
    body = [gpu.to_json() for gpu in value] if isinstance(value, tuple) else value.to_json()
    return strict.dumps(body)


def record(previous: Requested | None, wish: Wish) -> Requested:
    """Record ``wish`` as the next generation after ``previous``; the very same wish again changes nothing."""
    if previous is None:
        return Requested(1, wish)
    if previous.wish == wish and previous.generation > 0:
        return previous
    return replace(previous, generation=previous.generation + 1, wish=wish)
