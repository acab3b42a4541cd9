"""The body of ``PUT workers``: a process, and the bytes that it shipped to each worker and had from it. Pure."""

from __future__ import annotations

from jupyter_gpu.model import strict
from jupyter_gpu.model.errors import InvalidRequest, TooLarge
from jupyter_gpu.model.message import gettext
from jupyter_gpu.model.reservation import MAX_RESERVATION_BYTES, ReservationOwner
from jupyter_gpu.model.service import MAX_WORKERS, read_worker_id

_read_bytes = strict.integer(0, strict.MAX_GENERATION)


def decode_shipped(body: bytes) -> tuple[ReservationOwner, dict[str, int]]:
    """Read it; raises `InvalidRequest` or `TooLarge`."""
    try:
        fields = strict.an_object(strict.loads(body, MAX_RESERVATION_BYTES), "body")
        strict.no_unknown(fields, ("owner", "shipped"))
        found = strict.required(fields, "shipped", strict.an_object)
        if len(found) > MAX_WORKERS:
            raise strict.FieldError(gettext("A server has at most %1 workers.", MAX_WORKERS), "shipped")
        shipped = {read_worker_id(name, "shipped"): _read_bytes(count, "shipped") for name, count in found.items()}
        return strict.required(fields, "owner", ReservationOwner.from_json), shipped
    except strict.OversizeError as error:
        raise TooLarge(str(error)) from None
    except strict.FieldError as error:
        raise InvalidRequest(str(error), field=error.field) from None
