"""The NVLink fabric that a GPU is in, which may join GPUs of several nodes. Pure."""

from __future__ import annotations

from itertools import pairwise

COMPLETED = 3
"""The state of a GPU that is registered with its fabric (`NVML_GPU_FABRIC_STATE_COMPLETED`)."""
_CUTS = (0, 8, 12, 16, 20, 32)
"""The places at which the parts of a uuid begin and end."""


def word(cluster: bytes, clique: int, *, state: int, status: int) -> str | None:
    """Return the word of the GPUs that a GPU can reach: the fabric's id and the number of the clique in it.

    NVIDIA's label ``nvidia.com/gpu.clique`` has the same text. ``None``: it is in no fabric that joins nodes, whose
    driver says an id of zeros, or could not be registered with it (``status``: an error of NVML).
    """
    if state != COMPLETED or status or not any(cluster):
        return None
    text = cluster.hex()
    parts = (text[start:end] for start, end in pairwise(_CUTS))
    return f"{'-'.join(parts)}.{clique}"
