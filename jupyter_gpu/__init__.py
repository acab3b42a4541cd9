"""Change how many GPUs a running notebook has.

    from jupyter_gpu import gpu   # or: import jupyter_gpu as gpu
    gpu.resize(2)

This module imports nothing but the standard library, and most of that on first use: it is loaded in every kernel.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as in typing, whose import costs more than this whole module
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from jupyter_gpu.kernel.api import Runner, gpu
    from jupyter_gpu.kernel.blocks import AtLeast
    from jupyter_gpu.kernel.cuda.errors import CudaStartedTooEarly, NoGpuAttached
    from jupyter_gpu.kernel.task import Calls, Clients
    from jupyter_gpu.model.errors import (
        BackendUnavailable,
        Draining,
        GpuError,
        Infeasible,
        InvalidAnnotation,
        InvalidRequest,
        LimitExceeded,
        NoCapacity,
        NotPermitted,
        OutsideServer,
        ServerUnreachable,
        StaleGeneration,
        TooLarge,
        Unhealthy,
    )
    from jupyter_gpu.remote.errors import CannotSend, ExtraNotInstalled, WorkerLost, WorkerRefused

    resize = gpu.resize
    aresize = gpu.aresize
    release = gpu.release
    at_least = gpu.at_least
    connect = gpu.connect
    on_change = gpu.on_change
    status = gpu.status
    usage = gpu.usage
    wait = gpu.wait
    keep = gpu.keep
    machine = gpu.machine
    widget = gpu.widget
    run = gpu.run
    arun = gpu.arun
    map = gpu.map  # noqa: A001 - as an attribute of the module
    task = gpu.task
    client = gpu.client
    devices = gpu.devices
    __version__: str

__all__ = [
    "BackendUnavailable",
    "CannotSend",
    "CudaStartedTooEarly",
    "Draining",
    "ExtraNotInstalled",
    "GpuError",
    "Infeasible",
    "InvalidAnnotation",
    "InvalidRequest",
    "LimitExceeded",
    "NoCapacity",
    "NoGpuAttached",
    "NotPermitted",
    "OutsideServer",
    "ServerUnreachable",
    "StaleGeneration",
    "TooLarge",
    "Unhealthy",
    "WorkerLost",
    "WorkerRefused",
    "__version__",
    "aresize",
    "arun",
    "at_least",
    "client",
    "connect",
    "gpu",
    "keep",
    "machine",
    "on_change",
    "release",
    "resize",
    "run",
    "status",
    "task",
    "usage",
    "wait",
    "widget",
]

_METHODS = frozenset({name for name in __all__ if name[0].islower()} - {"gpu"} | {"devices", "map"})
"""Names of `gpu`; ``map`` is no name of ``from jupyter_gpu import *``, as it would hide Python's own."""


def __getattr__(name: str) -> Any:
    """Make ``import jupyter_gpu as gpu`` work like ``from jupyter_gpu import gpu``."""
    if name == "gpu":
        from jupyter_gpu.kernel.api import gpu

        globals()["gpu"] = gpu
        return gpu
    if name in _METHODS:
        return getattr(__getattr__("gpu"), name)  # not kept: `devices` is another list each time
    if name == "__version__":
        globals()[name] = _find_version()
        return globals()[name]
    if name in __all__:
        from jupyter_gpu.kernel.cuda import errors as cuda_errors
        from jupyter_gpu.model import errors
        from jupyter_gpu.remote import errors as remote_errors

        return next(getattr(place, name) for place in (errors, cuda_errors, remote_errors) if hasattr(place, name))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(
        {*globals(), *__all__}
    )  # without `devices`: help() and inspect read what they list, and it asks the server


def _find_version() -> str:
    try:
        from ._version import __version__  # type: ignore[import-not-found,unused-ignore] # the build writes it
    except ImportError:
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version("jupyter-gpu")
        except PackageNotFoundError:  # a source tree that was never installed
            return "0.0.0"
    return str(__version__)


def _repr_mimebundle_(include: object = None, exclude: object = None) -> Any:
    """Show the same as `gpu` in a cell that ends with the module."""
    return __getattr__("gpu")._repr_mimebundle_(include=include, exclude=exclude)


def _jupyter_labextension_paths() -> list[dict[str, str]]:
    return [{"src": "labextension", "dest": "jupyter-gpu"}]


def _jupyter_server_extension_points() -> list[dict[str, Any]]:
    from jupyter_gpu.server.app import GpuExtension

    return [{"module": "jupyter_gpu.server.app", "app": GpuExtension}]


def load_ipython_extension(shell: Any) -> None:
    """Register the magic ``%gpu`` at ``%load_ext jupyter_gpu``, where the kernel's server has not done so."""
    from jupyter_gpu import magic

    magic.register(shell)


def _make_calls(runner: Runner, at_least: Callable[..., AtLeast]) -> Calls:
    """Return what `gpu.run` and its kin are made with. Raises `ExtraNotInstalled`."""
    try:
        from jupyter_gpu.remote.gpu_calls import GpuCalls
    except ModuleNotFoundError as error:
        from jupyter_gpu.remote.errors import not_installed

        raise not_installed(error) from None
    return GpuCalls(runner, at_least)


def _make_clients(runner: Runner) -> Clients:
    """Return what `gpu.client` is made with. Raises `ExtraNotInstalled`."""
    try:
        from jupyter_gpu.dask.clients import DaskClients
    except ModuleNotFoundError as error:
        from jupyter_gpu.remote.errors import not_installed

        raise not_installed(error) from None
    return DaskClients(runner)


def _guard() -> None:
    """Set up the CUDA guard in a kernel whose start could not be prepared."""
    import os

    if os.environ.get("JUPYTER_GPU_ATTACHED"):
        from jupyter_gpu import startup

        startup.install()


_guard()
