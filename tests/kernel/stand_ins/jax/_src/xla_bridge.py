"""Stands for JAX's bridge: the backends that it found first are the backends."""

import os
from types import SimpleNamespace

import stand_in_cuda  # type: ignore[import-not-found] # on the path of the kernels only

config = SimpleNamespace(jax_platforms=SimpleNamespace(value=os.environ.get("JAX_PLATFORMS")))
_backends: dict[str, list[str]] = {}


def backends() -> dict[str, list[str]]:
    if not _backends:
        _backends["cpu"] = ["cpu:0"]
        if config.jax_platforms.value != "cpu" and stand_in_cuda.devices():
            _backends["cuda"] = stand_in_cuda.devices()
    return _backends
