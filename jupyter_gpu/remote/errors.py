"""Errors of calls in a worker, apart from what raises them: they can be imported where no worker can be used."""

from __future__ import annotations

import pickle

from jupyter_gpu.kernel import error_box  # noqa: F401 - it has IPython show our errors
from jupyter_gpu.model.errors import GpuError
from jupyter_gpu.model.message import gettext

_MODULES = frozenset({"cloudpickle", "ipykernel", "jupyter_client", "zmq"})
"""Packages that the extra ``remote`` installs."""
_DASK = frozenset({"cryptography", "dask", "distributed"})
"""Packages that the extra ``dask`` installs beside them."""


class WorkerLost(GpuError, RuntimeError):
    """The error of what ran in a worker that ended, or that no longer answers. It may have had effects."""

    reason = "WorkerLost"
    http_status = 503


class WorkerRefused(GpuError, RuntimeError):
    """The error of what a worker does not do, with its reason; or of an error there that cannot be sent."""

    reason = "WorkerRefused"
    http_status = 409


class CannotSend(GpuError, pickle.PicklingError):
    """The error of a value that is not sent, with the reason."""

    reason = "CannotSend"
    http_status = 400


class ExtraNotInstalled(GpuError, ImportError):
    """The packages of an extra of ours are not installed."""

    reason = "ExtraNotInstalled"
    http_status = 503


def not_installed(error: ModuleNotFoundError) -> ExtraNotInstalled:
    """Return the error for a module that could not be imported; raises it again if it is none of the extra's."""
    name = str(error.name)
    package = name.partition(".")[0]
    if package in _DASK:
        return ExtraNotInstalled(
            gettext(
                "gpu.client needs %1, which is not installed in this environment. Install the extra "
                "'dask': pip install 'jupyter_gpu-….whl[dask]', with the wheel's whole name.",
                name,
            )
        )
    if package not in _MODULES:
        raise error
    return ExtraNotInstalled(
        gettext(
            "gpu.run, gpu.map and gpu.task need %1, which is not installed in this environment. Install the extra "
            "'remote': pip install 'jupyter_gpu-….whl[remote]', with the wheel's whole name.",
            name,
        )
    )
