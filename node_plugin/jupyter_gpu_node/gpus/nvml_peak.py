"""The peak of a GPU's use, from the samples that the NVIDIA driver keeps. Runs in a process that has loaded NVML.

There are five a second, kept for 14 seconds (an H200, driver 580). Each is the part of its fifth of a second in which a
kernel ran, rounded down: 2 ms are seen, 1 ms is not, nor a copy of a megabyte. A process that has the GPU open and does
nothing leaves it at 0.
"""

from __future__ import annotations

from typing import Any


def peak(api: Any, handle: Any, since: int) -> int | None:
    """Return the highest sample in per cent after ``since``, in µs since 1970; None where the driver has none of then.

    ``api``: pynvml, or what has its functions.
    """
    try:
        _, samples = api.nvmlDeviceGetSamples(handle, api.NVML_GPU_UTILIZATION_SAMPLES, since)
    except api.NVMLError:
        return None
    return max((min(100, int(one.sampleValue.uiVal)) for one in samples if int(one.timeStamp) > since), default=None)
