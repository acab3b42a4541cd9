"""The arguments of `gpu`, checked before any server is asked: an error names the argument."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jupyter_gpu.model.annotations import Wish
from jupyter_gpu.model.errors import InvalidRequest
from jupyter_gpu.model.quantity import parse_bytes, parse_milli, parse_seconds, plain
from jupyter_gpu.model.strict import FieldError

from . import KEEP, error_box  # noqa: F401 - the second has IPython show our errors

ANY = "any"
"""Word that removes an option, as None does: for the command line, and for users who know it from there."""


def fields(amount: object, **options: Any) -> Mapping[str, Any]:
    """Return the body of the request; without ``amount`` it is for memory alone. Raises `InvalidRequest`."""
    readers = {"each": parse_milli, "memory": parse_bytes, "model": _models, "priority": plain}
    named = {name: _read_any(name, value) for name, value in options.items() if value is not KEEP}
    try:
        asked: dict[str, Any] = {} if amount is KEEP else {"milli": parse_milli(amount)}
        if amount is KEEP and named.get("memory") is None:
            raise FieldError("Name an amount of GPUs, or memory alone, such as '40GiB'.", "milli")
        asked |= {k: readers.get(k, plain)(value) for k, value in named.items() if value is not None}
        return {**dict.fromkeys(named), **Wish.from_fields(asked).to_json()}
    except FieldError as error:
        raise InvalidRequest(str(error), field=error.field) from None
    except (TypeError, ValueError) as error:
        raise InvalidRequest(str(error)) from None


def seconds(timeout: object) -> float | None:
    """Return the seconds to wait. Raises `InvalidRequest`."""
    try:
        return parse_seconds(timeout)
    except ValueError as error:
        raise InvalidRequest(f"'timeout': {error}", field="timeout") from None


def _read_any(name: str, value: Any) -> Any:
    """Return None for a value that removes the option. For a topology and a placement, "any" is a value."""
    alone = value[0] if isinstance(value, (list, tuple)) and len(value) == 1 else value
    taken = name not in ("topology", "placement") and isinstance(alone, str) and alone.strip().lower() == ANY
    return None if taken else value


def _models(value: Any) -> list[Any]:
    models = [value] if isinstance(value, str) else list(value)
    if any(isinstance(model, str) and model.strip().lower() == ANY for model in models):
        raise FieldError(f"'model': {ANY!r} takes the option back; name it alone, or only the models.", "model")
    return models
