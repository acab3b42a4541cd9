"""Keys of the web application's settings, by which parts of the extension find each other.

Kernels load this module even if the extension is off, so it imports nothing.
"""

from __future__ import annotations

BACKEND = "jupyter_gpu_backend"
"""The `Backend`, once it has started."""
VIEWERS = "jupyter_gpu_viewers"
"""A `Viewers`, or the error that says why there is none."""
STARTING = "jupyter_gpu_starting"
"""The task that starts the backend, in a server that is embedded in a running program; else ``None``."""
RESIZES = "jupyter_gpu_resizes"
"""The `Resizes` of the server."""
RESERVATIONS = "jupyter_gpu_reservations"
"""The `Reservations` of the backend; set together with `VIEWERS`."""
USAGE_ACCOUNT = "jupyter_gpu_usage_account"
"""The `UsageAccount` of the server."""
LOCAL_ENDPOINT = "jupyter_gpu_local_endpoint"
"""The `LocalEndpoint` for this server's own kernels and terminals, or ``None``."""
ATTACHED_WRITER = "jupyter_gpu_attached_file"
"""The `AttachedWriter` of the server, as soon as a program needs its file."""
DETAILS = "jupyter_gpu_details"
"""The details of the GPUs, as a `Recent`."""
MACHINE = "jupyter_gpu_machine"
"""The view of the whole machine, as a `Recent`."""
VISIBLE_BY = "jupyter_gpu_visible_by"
"""The form in which ``CUDA_VISIBLE_DEVICES`` names GPUs in kernels (``uuid``, ``index``)."""
STATE_DIR = "jupyter_gpu_state_dir"
"""Path of the configured state directory, or empty."""
SHOW_MACHINE = "jupyter_gpu_show_machine"
"""The setting of what this server's users see of other servers."""

PAGE_MACHINE = "jupyterGpuMachine"
"""Page option with the same value."""
PAGE_LIMITS = "jupyterGpuLimits"
"""Page option with the address of the page about limits, or empty."""
