"""The places where GPU libraries first look for GPUs, and the guard at each of them.

No library is imported here: a patch is applied after the user's own import. Each patch replaces functions that the
library looks up by name at run time, so that replacing them is enough:

| library    | starts CUDA                            | asks only                            | remembers a failure |
|------------|----------------------------------------|--------------------------------------|---------------------|
| PyTorch    | ``torch._C._cuda_init``                | ``torch._C._cuda_getDeviceCount``    | for ever            |
| CuPy       | any call that makes an array           | ``is_available``, ``getDeviceCount`` | for ever            |
| Numba      | ``Driver.ensure_initialized``          | ``Driver.is_available``              | for ever            |
| JAX        | ``xla_bridge.backends``                |                                      | stays on the CPU    |
| TensorFlow | ``Context._initialize_physical_devices`` | ``list_physical_devices("GPU")``   | stays on the CPU    |

JAX and TensorFlow look for GPUs even for work on the CPU. Builds of them without CUDA are left alone, and so is JAX
with ``JAX_PLATFORMS=cpu``. If the user has set ``CUDA_VISIBLE_DEVICES``, everything is left alone.
"""
# ruff: noqa: SLF001 - no library has a public place for this

from __future__ import annotations

import importlib.abc
import importlib.util
import logging
import os
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from .guard import CudaGuard

log = logging.getLogger(__name__)

Patch = Callable[[Any, CudaGuard], None]

_CUPY_MAKERS = (
    *("array", "asarray", "asanyarray", "ascontiguousarray", "asfortranarray", "empty", "zeros", "ones", "full"),
    *("empty_like", "zeros_like", "ones_like", "full_like", "arange", "linspace", "logspace", "eye", "identity"),
    *("tri", "diag", "copy", "load", "loadtxt", "genfromtxt", "frombuffer", "fromfile", "from_dlpack", "fromDlpack"),
)
_CUPY_NAMESPACES = ("random", "cuda.runtime")


def torch(module: Any, guard: CudaGuard) -> None:
    """Guard PyTorch; a build without CUDA has no `_cuda_init`."""
    core = module._C
    if hasattr(core, "_cuda_init"):
        core._cuda_init = guard.starts(core._cuda_init)
        core._cuda_getDeviceCount = guard.answers(core._cuda_getDeviceCount, int)


def cupy(module: Any, guard: CudaGuard) -> None:
    """Guard CuPy. Its core is compiled, so only the functions with which programs begin can be guarded."""
    for name in _CUPY_MAKERS:
        _replace(module, name, guard.starts)
    for path in _CUPY_NAMESPACES:
        space = _find(module, path)
        for name, value in list(vars(space).items()) if space is not None else ():
            if _is_function(value) and not name.startswith("_") and "version" not in name.lower():
                _replace(space, name, guard.starts)
    runtime = _find(module, "cuda.runtime")
    if runtime is not None:
        # Replaces the guard that raises: asking is no mistake.
        _replace(runtime, "getDeviceCount", lambda function: guard.answers(function, int))
    for space in (module, _find(module, "cuda")):
        if space is not None:
            _replace(space, "is_available", lambda function: guard.answers(function, bool))


def numba(module: Any, guard: CudaGuard) -> None:
    """Guard Numba, both its own CUDA target and NVIDIA's `numba-cuda`."""
    driver = module.Driver
    driver.ensure_initialized = _once(driver.ensure_initialized, guard)
    available = driver.is_available
    driver.is_available = property(guard.answers(available.fget, bool), doc=available.__doc__)


def _once(initialise: Callable[[Any], Any], guard: CudaGuard) -> Callable[[Any], Any]:
    """Guard `Driver.ensure_initialized` until it has run: each use calls it, and only the first call starts CUDA."""
    start = guard.starts(initialise)

    def ensure_initialized(self: Any) -> Any:
        return initialise(self) if self.is_initialized else start(self)

    return ensure_initialized


def jax(module: Any, guard: CudaGuard) -> None:
    """Guard JAX: `backends` looks for all kinds of devices, and keeps what it found."""
    original = module.backends
    start = guard.starts(original)

    def backends() -> Any:
        found = start() if not module._backends and _jax_wants_cuda(module) else original()
        if module._backends:
            module.backends = original  # its work is done, and JAX calls it often
        return found

    module.backends = backends


def _jax_wants_cuda(module: Any) -> bool:
    chosen = getattr(getattr(module.config, "jax_platforms", None), "value", None) or os.environ.get("JAX_PLATFORMS")
    if chosen and not {"cuda", "gpu"} & set(str(chosen).split(",")):
        return False
    return any(_installed(name) for name in ("jax_cuda12_plugin", "jax_cuda13_plugin", "jax_plugins.xla_cuda"))


def tensorflow(module: Any, guard: CudaGuard) -> None:
    """Guard TensorFlow: the context looks for all kinds of devices, and keeps what it found."""
    build = sys.modules.get("tensorflow.python.platform.build_info")
    if build is not None and not getattr(build, "build_info", {}).get("is_cuda_build", True):
        return
    context = module.Context
    initialise, listing = context._initialize_physical_devices, context.list_physical_devices
    start = guard.starts(initialise)

    def initialize_physical_devices(self: Any, *args: Any, **kwargs: Any) -> Any:
        found = self._physical_devices is not None
        return (initialise if found else start)(self, *args, **kwargs)

    def list_physical_devices(self: Any, device_type: str | None = None) -> Any:
        if device_type == "GPU" and self._physical_devices is None and guard.blocked:
            return []
        return listing(self, device_type)

    context._initialize_physical_devices = initialize_physical_devices
    context.list_physical_devices = list_physical_devices


PATCHES: dict[str, Patch] = {
    "torch": torch,
    "cupy": cupy,
    "numba.cuda.cudadrv.driver": numba,
    "jax._src.xla_bridge": jax,
    "tensorflow.python.eager.context": tensorflow,
}


def install(guard: CudaGuard) -> None:
    """Guard the libraries that are loaded already, and those that are loaded later."""
    for name, patch in PATCHES.items():
        if name in sys.modules:
            _apply(name, patch, sys.modules[name], guard)
    sys.meta_path.insert(0, _Finder(guard))


def _apply(name: str, patch: Patch, module: ModuleType, guard: CudaGuard) -> None:
    try:
        patch(module, guard)
    except Exception:  # a version we do not know: the library must work as without us
        log.warning("jupyter-gpu could not guard %s; an early use of it needs a kernel restart.", name, exc_info=True)


class _Finder(importlib.abc.MetaPathFinder):
    """A finder that adds a patch to modules found by other finders."""

    def __init__(self, guard: CudaGuard) -> None:
        self._guard = guard

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find the modules in `PATCHES` only."""
        if fullname not in PATCHES:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            if finder is self or find is None:
                continue
            spec: ModuleSpec | None = find(fullname, path, target)
            if spec is not None:
                if spec.loader is not None and hasattr(spec.loader, "exec_module"):
                    spec.loader = _Loader(spec.loader, self._guard)
                return spec
        return None


class _Loader(importlib.abc.Loader):
    """A loader that loads as the real one does, then applies the patch."""

    def __init__(self, real: Any, guard: CudaGuard) -> None:
        self._real = real
        self._guard = guard

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Create the module as the real loader does."""
        module: ModuleType | None = self._real.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Run the module as the real loader does, which is restored before the module's own code runs."""
        module.__loader__ = self._real
        if module.__spec__ is not None:
            module.__spec__.loader = self._real
        self._real.exec_module(module)
        _apply(module.__name__, PATCHES[module.__name__], module, self._guard)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def _replace(space: Any, name: str, wrap: Callable[[Any], Any]) -> None:
    function = getattr(space, name, None)
    if _is_function(function):
        setattr(space, name, wrap(function))


def _is_function(value: object) -> bool:
    return isinstance(value, (FunctionType, BuiltinFunctionType)) or type(value).__name__ == "cython_function_or_method"


def _find(module: Any, path: str) -> Any:
    for name in path.split("."):
        module = getattr(module, name, None)
    return module


def _installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False
