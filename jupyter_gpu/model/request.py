"""A client's request: the amount, and the options that it names. The others stay as they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

from . import strict
from .annotations import Wish
from .errors import InvalidRequest, TooLarge
from .gpu import MAX_GPUS
from .quantity import parse_bytes, parse_milli
from .reservation import own

MAX_REQUEST_BYTES = 16 * 1024

FORGET: Mapping[str, None] = dict.fromkeys(Wish.OPTIONS)
"""Options of a request that takes all of them back."""


class Request(NamedTuple):
    """A body of ``PUT request``, checked."""

    wish: Wish
    """The wish, as if nothing had been requested before."""
    named: frozenset[str] = frozenset()
    """The options that it sets, or takes back where they are ``None``."""
    generation: int | None = None
    """Generation of the wish that it is based on, if it names one."""
    overrule: bool = False
    """Whether it ends the reservations that need more (`reservation`)."""

    def after(self, now: Wish | None) -> Wish:
        """Return the wish that follows ``now``. Shares stay cut as they are where the new amount can be cut so.

        Raises `InvalidRequest` if that makes more shares than a pod can have.
        """
        old, new = own(now), self.wish
        kept = {name: getattr(old, name) for name in Wish.OPTIONS if name not in self.named}
        after = replace(new, **kept)
        if after.each and after.milli % after.each:
            return replace(after, each=None)
        if len(after.pieces) > MAX_GPUS:
            raise InvalidRequest(
                f"{len(after.pieces)} shares are more than one pod can have ({MAX_GPUS}). Name 'each' as well.",
                field="each",
            )
        return after


def decode_request(body: bytes) -> Request:
    """Read the body of ``PUT request``. A field that is null is an option taken back.

    ``gpus`` (``2``, ``0.5``, ``"500m"``) may stand instead of ``milli``, and ``memory`` may be text such as
    ``"20GiB"``. Unlike annotations, unknown fields are refused: a person misspelt them just now. Raises
    `InvalidRequest` or `TooLarge`.
    """
    try:
        fields = dict(strict.an_object(strict.loads(body, MAX_REQUEST_BYTES), "body"))
        strict.no_unknown(fields, ("gpus", "milli", "generation", "overrule", *Wish.OPTIONS))
        if "gpus" in fields:
            if "milli" in fields:
                raise strict.FieldError("'gpus' and 'milli' say the same; give one of them.", "gpus")
            fields["milli"] = _converted(parse_milli, fields.pop("gpus"), "gpus")
        if isinstance(fields.get("memory"), str):
            fields["memory"] = _converted(parse_bytes, fields["memory"], "memory")
        return Request(
            Wish.from_fields(fields),
            frozenset(fields.keys() & set(Wish.OPTIONS)),
            strict.optional(fields, "generation", strict.integer(0, strict.MAX_GENERATION)),
            strict.optional(fields, "overrule", strict.boolean) or False,
        )
    except strict.OversizeError as error:
        raise TooLarge(str(error)) from None
    except strict.FieldError as error:
        raise InvalidRequest(str(error), field=error.field) from None


def _converted(convert: Callable[[object], int], value: object, key: str) -> int:
    try:
        return convert(value)
    except ValueError as error:
        raise strict.FieldError(str(error), key) from None
