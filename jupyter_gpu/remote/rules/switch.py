"""Pure: an environment variable that switches something on or off."""

from __future__ import annotations

from collections.abc import Mapping

from jupyter_gpu.model import strict
from jupyter_gpu.model.message import gettext


def is_on(environ: Mapping[str, str], variable: str) -> bool:
    """Tell whether something is on: it is, unless its variable is ``0``. Raises `FieldError`."""
    value = environ.get(variable, "")
    if value not in ("", "0", "1"):
        raise strict.FieldError(gettext("%1 must be 0 or 1.", variable), variable)
    return value != "0"
