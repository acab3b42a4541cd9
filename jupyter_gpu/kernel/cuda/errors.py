"""Errors of the CUDA guard, apart from it because kernels load the guard at their start, and these hardly ever."""

from __future__ import annotations

from jupyter_gpu.kernel import error_box  # noqa: F401 - it has IPython show our errors
from jupyter_gpu.model.errors import GpuError


class NoGpuAttached(GpuError, RuntimeError):
    """CUDA was about to start in a kernel that has no GPU. Nothing is broken: attach one and try again."""

    reason = "NoGpuAttached"
    http_status = 409


class CudaStartedTooEarly(GpuError, RuntimeError):
    """CUDA looked for GPUs in this process before there were any, and does not look again."""

    reason = "CudaStartedTooEarly"
    http_status = 409
