"""Stands for JAX with its CUDA plugin."""

from ._src import xla_bridge


def devices(kind: str | None = None) -> list[str]:
    found = xla_bridge.backends()
    if kind is not None and kind not in found:
        raise RuntimeError(f"Unknown backend {kind}")
    return found[kind] if kind else found.get("cuda", found["cpu"])
