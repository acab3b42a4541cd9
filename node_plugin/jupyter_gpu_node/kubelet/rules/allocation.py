"""The devices and files of a container with a slot; they never include a right. Pure.

All managed GPUs are there as device nodes from the start, because a running container can't be given more of them;
opening one fails until the agent lets the pod. The driver's libraries are there too, so that a program can use the
first GPU that comes. The NVIDIA container runtime must not add anything by itself: it gets ``void``.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from jupyter_gpu.model.gpu import Gpu
from jupyter_gpu_node.gpus.rules.checkpoints import can_park
from jupyter_gpu_node.gpus.rules.vendor import Vendor
from jupyter_gpu_node.settings import Driver, Settings

NOT_KNOWN = "The GPUs of this node are not known now, and a container gets their devices only when it is created."
SOCKET_DIRECTORY = "/run/jupyter-gpu"
"""Directory in which a container finds the node's files and sockets for it."""
SOCKET = f"{SOCKET_DIRECTORY}/node.sock"

LIBRARY_DIRECTORIES = (
    *("usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib64", "usr/lib"),
    *("usr/lib/x86_64-linux-gnu/nvidia/current", "usr/lib/aarch64-linux-gnu/nvidia/current", "opt/nvidia/lib64"),
    *("home/kubernetes/bin/nvidia/lib64", "usr/local/nvidia/lib64"),
)
"""Below the driver's root; the first that has `DRIVER` is taken."""
PROGRAM_DIRECTORIES = ("usr/bin", "opt/nvidia/bin", "home/kubernetes/bin/nvidia/bin", "usr/local/nvidia/bin")
DRIVER = "libcuda.so.1"
REAL_DRIVER = f"{SOCKET_DIRECTORY}/driver/{DRIVER}"
"""Path of the real driver in a container that has the gate at the driver's place; the gate needs it there."""
NVML = "libnvidia-ml.so.1"
REAL_NVML = f"{SOCKET_DIRECTORY}/driver/{NVML}"
"""The same for NVML."""
LIBRARIES = (
    *("libcuda.so*", "libcudadebugger.so*", "libnvidia-ml.so*", "libnvidia-ptxjitcompiler.so*", "libnvidia-nvvm*.so*"),
    *("libnvidia-gpucomp.so*", "libnvidia-opencl.so*", "libnvidia-allocator.so*", "libnvidia-pkcs11*.so*"),
    *("libnvcuvid.so*", "libnvidia-encode.so*", "libnvidia-opticalflow.so*", "libnvidia-nscq.so*", "libnvoptix.so*"),
    *("libnvidia-rtcore.so*", "libnvidia-cfg.so*"),
)
PROGRAMS = ("nvidia-smi", "nvidia-debugdump")


CONTROLLER_3D, ACCELERATOR, DISPLAY = 0x0302, 0x1200, 0x03
"""Classes of PCI devices: two that only GPUs have, and that of all graphics cards."""
MAKERS = frozenset({0x10DE, 0x1002})
"""Makers whose graphics cards can compute: NVIDIA, AMD."""


class AllocationRefused(Exception):
    """The error for a request of the kubelet that is not possible; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Mount:
    """A file or directory of the host in the container, read-only."""

    host: str
    container: str


@dataclass(frozen=True, slots=True)
class DeviceNode:
    """A device of the host in the container."""

    host: str
    container: str
    permissions: str = "rw"


@dataclass(frozen=True, slots=True)
class Preparation:
    """The environment, mounts and devices of a container."""

    environment: Mapping[str, str]
    mounts: tuple[Mount, ...]
    devices: tuple[DeviceNode, ...]


def one_slot(asked: Sequence[str], slots: Collection[str]) -> str:
    """Return the slot that one container asks for; raises `AllocationRefused`."""
    if len(asked) != 1:
        raise AllocationRefused(
            f"A container asks for {len(asked)} slots. One is enough for any number of GPUs: "
            "ask for one, and say the number of GPUs in jupyter-gpu.io/requested."
        )
    if asked[0] not in slots:
        raise AllocationRefused(
            f"The slot {asked[0][:64]!r} does not exist on this node any more: "
            "the number of slots was lowered. Delete the pod; a new one gets a slot that exists."
        )
    return asked[0]


def is_gpu(maker: int, kind: int) -> bool:
    """Tell whether a PCI device is a GPU, as far as its maker and its class (without interface) tell."""
    return kind in (CONTROLLER_3D, ACCELERATOR) or (kind >> 8 == DISPLAY and maker in MAKERS)


def prepare(
    slot: str,
    gpus: Iterable[Gpu],
    present: Collection[str],
    driver: Sequence[Mount],
    settings: Settings,
    *,
    bare: bool = False,
) -> Preparation:
    """Return the preparation of the container with ``slot``.

    ``present``: those of `nodes` and control devices that exist.
    Devices that should exist and do not are given all the same: the container waits for them, as `absent` says
    before its start. Without such a device, it could never use that GPU. Raises `AllocationRefused` while no GPU is
    known, except on a node that has none and is to offer slots all the same (``bare``).
    """
    known = tuple(gpus)
    if not known and not bare:
        raise AllocationRefused(NOT_KNOWN)
    wanted = {*present, *_expected(known, settings)}
    return Preparation(
        environment=_environment(settings, bool(driver)),
        mounts=(Mount(str(settings.slot_directory(slot)), SOCKET_DIRECTORY), *driver),
        devices=tuple(node for node in nodes(known, settings) if node.host in wanted),
    )


def unusable(
    gpus: Iterable[Gpu], present: Collection[str], settings: Settings, *, silent: str = "", bare: bool = False
) -> str:
    """Say why a container created now could use no GPU, in plain words; empty if it can: its devices are final.

    ``silent``: why the driver does not answer. ``bare``: whether the node has no GPU and offers slots all the same.
    """
    known = tuple(gpus)
    if bare and not known:
        return ""
    if not known:
        return " ".join(filter(None, ("This node has no GPU that its driver tells of.", silent)))
    if silent:
        return f"The GPUs of this node cannot be asked now. {silent}"
    if not any(gpu.device for gpu in known):
        return " ".join(filter(None, ("No GPU of this node has a device.", known[0].health)))
    for host in _expected(known, settings):
        if host not in present:
            return f"The device {host} is not there, so a container that is created now could not use the GPUs."
    return ""


def absent(paths: Collection[str], present: Callable[[str], bool], settings: Settings) -> str:
    """Say why a container that sees these devices cannot be created now; empty if it can."""
    for path in sorted(paths):
        if not present(host := _host(path, settings)):
            return f"The device {host} of a GPU is not there now. The kubelet starts the container as soon as it is."
    return ""


def _host(path: str, settings: Settings) -> str:
    """Return the host's path of a device that containers see at ``path``."""
    return f"{settings.device_directory}/{path.rpartition('/')[2]}" if settings.simulated else path


def _expected(gpus: Sequence[Gpu], settings: Settings) -> tuple[str, ...]:
    """Return the host's device nodes that a program needs: of working GPUs, of all if none works, and the drivers'."""
    found = nodes([gpu for gpu in gpus if gpu.healthy] or gpus, settings)
    optional = {path for vendor in settings.vendors for path in vendor.optional}
    return tuple(node.host for node in found if node.host not in optional)


def nodes(gpus: Iterable[Gpu], settings: Settings) -> tuple[DeviceNode, ...]:
    """Return the device nodes of all GPUs, then the drivers'. An unhealthy GPU is included: it may be granted later."""
    known = sorted(gpus, key=lambda gpu: gpu.index)
    found = [
        DeviceNode(f"{settings.device_directory}/gpu{gpu.index}" if gpu.simulated else gpu.path, gpu.path)
        for gpu in known
        if gpu.device is not None
    ]
    there = {gpu.vendor for gpu in known if not gpu.simulated}
    control = control_devices(vendor for vendor in settings.vendors if vendor.name in there)
    return (*found, *(DeviceNode(path, path) for path in control))


def control_devices(vendors: Iterable[Vendor]) -> tuple[str, ...]:
    """Return the devices through which programs talk to the drivers of these vendors."""
    return tuple(path for vendor in vendors for path in vendor.control)


def _environment(settings: Settings, has_driver: bool) -> dict[str, str]:
    """Return the environment. The pod's own ``env`` overrides it, and it overrides the image's."""
    chosen = {
        "JUPYTER_GPU_NODE_SOCKET": SOCKET,
        "NVIDIA_VISIBLE_DEVICES": "void",
        # torch.cuda.is_available() must not initialise CUDA: a process that did so with no GPU never sees one
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
    }
    if has_driver and settings.driver.library_path:
        chosen["LD_LIBRARY_PATH"] = settings.driver.library_path
    return {**chosen, **settings.driver.environment}


def find_driver(listing: Mapping[str, Collection[str]], driver: Driver) -> tuple[Mount, ...]:
    """Return mounts of the driver's files. ``listing``: names in the existing directories; empty: no driver.

    Every name is mounted, links included: programs ask for ``libcuda.so.1``, and the loader for the name behind it.
    """
    home = next((path for path in LIBRARY_DIRECTORIES if DRIVER in listing.get(path, ())), None)
    if home is None:
        return ()
    libraries = [(f"{home}/{name}", f"lib64/{name}") for name in _matching(listing[home], LIBRARIES)]
    programs = {
        name: (f"{path}/{name}", f"bin/{name}")
        for path in reversed(PROGRAM_DIRECTORIES)
        for name in _matching(listing.get(path, ()), PROGRAMS)
    }
    root = str(driver.root).rstrip("/")
    return tuple(Mount(f"{root}/{host}", f"{driver.target}/{seen}") for host, seen in (*libraries, *programs.values()))


def gated(driver: Sequence[Mount], gate: str, nvml: str = "") -> tuple[Mount, ...]:
    """Return the mounts with ``gate``, a file of the host, before the driver: no name of the driver leads past it.

    A program could open the real one by its new path all the same: it must be there for the gate. Such a program is
    detected and stopped. ``nvml`` is the file before NVML, for drivers that can park a process: older ones lack
    functions that it has, and a program would find those.
    """
    if all(_name(mount) != DRIVER for mount in driver):
        return tuple(driver)
    found = _before(driver, gate, DRIVER, REAL_DRIVER)
    libraries = {name for mount in driver if fnmatch.fnmatchcase(name := _name(mount), "libnvidia-ml.so*")}
    if nvml and NVML in libraries and any(map(can_park, libraries)):
        return _before(found, nvml, NVML, REAL_NVML)
    return found


def _before(driver: Sequence[Mount], file: str, name: str, real: str) -> tuple[Mount, ...]:
    """Put ``file`` at every name of a library, and the library itself at ``real``."""
    behind = next(mount.host for mount in driver if _name(mount) == name)
    pattern = f"{name.removesuffix('.1')}*"
    named = (Mount(file, one.container) if fnmatch.fnmatchcase(_name(one), pattern) else one for one in driver)
    return (*named, Mount(behind, real))


def _name(mount: Mount) -> str:
    return mount.container.rpartition("/")[2]


def has_gate(driver: Iterable[Mount]) -> bool:
    """Tell whether these are mounts with the gate in front."""
    return any(mount.container == REAL_DRIVER for mount in driver)


def _matching(names: Collection[str], patterns: Iterable[str]) -> list[str]:
    wanted = tuple(patterns)
    return sorted(name for name in names if any(fnmatch.fnmatchcase(name, pattern) for pattern in wanted))
