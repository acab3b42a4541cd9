"""Facts about this process's environment. Collecting them only reads, and never fails: facts that cannot be read are
reported as such.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import platform
import socket
import stat
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import jupyter_gpu
from jupyter_gpu.common.rules import visible
from jupyter_gpu.common.rules.search_path import VARIABLE, entries
from jupyter_gpu.common.state_dir import default_path
from jupyter_gpu.doctor.rules.facts import Facts, KernelFact
from jupyter_gpu.kube.credentials import SERVICE_ACCOUNT
from jupyter_gpu_node.shares import gate_files

_SOCKET = "JUPYTER_GPU_NODE_SOCKET"
_LAB = "jupyter-gpu"
_EVERYBODY = stat.S_IWOTH | stat.S_IXOTH
_DEADLINE = 2.0
_BEFORE_NVML = "jupyter_gpu_nvml_follow"
"""Exported by the library before NVML alone."""


def collect_facts(state_dir: str = "", kernels: Iterable[KernelFact] = (), *, driver: bool = True) -> Facts:
    """Return the facts; ``driver``: whether NVML may be loaded into this process."""
    env = os.environ
    state = Path(state_dir) if state_dir else default_path()
    version, trouble = _driver() if driver else ("", "")
    disabled, lab = _labextension()
    return Facts(
        version=jupyter_gpu.__version__,
        python=platform.python_version(),
        prefix=sys.prefix,
        extension=_extension(),
        labextension=lab,
        labextension_disabled=disabled,
        visible=visible.chosen(env) or "",
        gate=gate_files.local() is not None,
        state=str(state),
        state_trouble=_state_trouble(state),
        state_private=_is_private(state),
        driver=version,
        driver_trouble=trouble,
        nvml=_nvml_past() if driver else "",
        devices=sum(name[6:].isdigit() for name in os.listdir("/dev") if name.startswith("nvidia")),  # noqa: PTH208
        socket=env.get(_SOCKET, ""),
        socket_trouble=_socket_trouble(env.get(_SOCKET, "")),
        token=_can_read(SERVICE_ACCOUNT / "token"),
        kernels=tuple(kernels),
    )


def kernels_of(manager: Any) -> tuple[KernelFact, ...]:
    """List the kernels that a server runs, and which of them are not guarded."""
    found = []
    for kernel_id in manager.list_kernel_ids():
        with contextlib.suppress(KeyError):  # it ended since the list was made
            one = manager.get_kernel(kernel_id)
            found.append(KernelFact(str(one.kernel_name), str(kernel_id), _why(getattr(one, "provisioner", None))))
    return tuple(found)


def _why(provisioner: Any) -> str:
    said = getattr(provisioner, "unguarded", None)
    return "its kernel spec names a provisioner of its own" if said is None else str(said)


def _extension() -> str:
    from jupyter_core.paths import jupyter_config_path
    from jupyter_server.extension.config import ExtensionConfigManager

    config: Callable[..., Any] = ExtensionConfigManager
    try:
        chosen: Mapping[str, Any] = config(read_config_path=jupyter_config_path()).get_jpserver_extensions()
    except Exception:  # a user's file may contain anything
        return "missing"
    if "jupyter_gpu" not in chosen:
        return "missing"
    return "enabled" if chosen["jupyter_gpu"] else "disabled"


def _labextension() -> tuple[bool, str]:
    """Return whether the JupyterLab extension is disabled, and its version."""
    from jupyter_core.paths import jupyter_config_path, jupyter_path

    version = ""
    for folder in jupyter_path("labextensions"):
        about = _read_json(Path(folder) / _LAB / "package.json")
        if about:
            version = str(about.get("version", "")).replace("-alpha.", "a").replace("-beta.", "b").replace("-rc.", "rc")
            break
    disabled: dict[str, bool] = {}
    for folder in reversed(jupyter_config_path()):  # the first one has the last word
        chosen = _read_json(Path(folder) / "labconfig" / "page_config.json").get("disabledExtensions", {})
        if isinstance(chosen, Mapping):
            disabled.update({str(name): bool(off) for name, off in chosen.items()})
    return disabled.get(_LAB, False), version


def _read_json(path: Path) -> Mapping[str, Any]:
    try:
        body = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return body if isinstance(body, Mapping) else {}


def _driver() -> tuple[str, str]:
    """Return the version of the driver, or why it is not known."""
    import pynvml

    try:
        pynvml.nvmlInit()
        try:
            return str(pynvml.nvmlSystemGetDriverVersion()), ""
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError as error:
        return "", str(error).rstrip(".")


def _nvml_past() -> str:
    """Return NVML's file, if something stands before it for programs like this one, which has opened NVML past that."""
    search = entries(os.environ.get(VARIABLE))
    if not any((Path(one) / gate_files.NVML_BEHIND).is_symlink() for one in search) and not _is_filled(
        Path(gate_files.NVML_IN_POD)
    ):
        return ""
    with contextlib.suppress(OSError):  # there is none, or it cannot be read
        if not hasattr(ctypes.CDLL(gate_files.NVML), _BEFORE_NVML):
            return _opened()
    return ""


def _opened() -> str:
    """Return NVML's file in this process."""
    lines = Path("/proc/self/maps").read_text(errors="surrogateescape").splitlines()
    return next((line.split(None, 5)[5] for line in lines if "/libnvidia-ml.so" in line), "")


def _is_filled(path: Path) -> bool:
    """Tell whether there is more than the empty file upon which a container gets its own."""
    with contextlib.suppress(OSError):
        return path.stat().st_size > 0
    return False


def _state_trouble(state: Path) -> str:
    """Return why servers cannot keep records in a directory, or empty. The directory may be missing yet."""
    there = next((path for path in (state / "pods", state) if path.exists()), None)
    try:
        if there is None:
            return "" if os.access(state.parent, os.W_OK | os.X_OK) else f"{state.parent} cannot be written to"
        if there.is_symlink() or not there.is_dir():
            return "it is not a directory"
        return "" if os.access(there, os.R_OK | os.W_OK | os.X_OK) else "it cannot be written to"
    except OSError as error:
        return str(error.strerror or error)


def _is_private(state: Path) -> bool:
    """Tell whether other users can neither write in a directory nor create it."""
    path = state if state.exists() else state.parent
    try:
        return path.stat().st_mode & _EVERYBODY != _EVERYBODY
    except OSError:
        return False


def _socket_trouble(path: str) -> str:
    if not path:
        return ""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as tried:
        tried.settimeout(_DEADLINE)
        try:
            tried.connect(path)
        except OSError as error:
            return str(error.strerror or error)
    return ""


def _can_read(path: Path) -> bool:
    return os.access(path, os.R_OK)
