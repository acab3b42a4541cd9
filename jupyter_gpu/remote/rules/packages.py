"""Pure: packages of which both ends must have the same version, as what is pickled by one is read by the other."""

from __future__ import annotations

from collections.abc import Mapping

from jupyter_gpu.model import strict
from jupyter_gpu.model.message import gettext

COMPARED = ("cloudpickle", "cupy", "jax", "numpy", "pandas", "polars", "pyarrow", "scipy", "tensorflow", "torch")
"""Modules by whose version the form of their pickled values changes; each is of a distribution of its name."""


def refusal(here: Mapping[str, str], there: Mapping[str, str]) -> str:
    """Return why two sets of versions do not go together; empty if they do.

    What only one end has loaded or installed does not matter: what needs it will say so. Nor does what follows a ``+``,
    as one build of PyTorch says in its metadata what another says in its module only.
    """
    for name in sorted(here.keys() & there.keys()):
        if _public(here[name]) != _public(there[name]):
            return gettext(
                "The worker has %1 %2 and this process %3: values of one cannot be read by the other. Restart the "
                "kernel if the package was changed meanwhile; else use an image with the same packages for both.",
                name,
                strict.printable(there[name], 40),
                strict.printable(here[name], 40),
            )
    return ""


def _public(version: str) -> str:
    return version.partition("+")[0]
