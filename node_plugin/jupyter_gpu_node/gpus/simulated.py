"""Simulated GPUs, for machines that have none: everything but the hardware is real.

Each is a character device that really opens or really fails to. Root makes nodes of the virtual consoles 4:40 … 4:63,
which are otherwise unused; other users, and a root that may not, make plain files, which no device rule can guard (soft
mode).

    <directory>/gpu0 …         nodes or files; nodes lie in /dev/jupyter-gpu where the directory's mount forbids devices
    <directory>/load/          what programs say they do (`simulated_programs`)
    <directory>/health/<uuid>  why that GPU is out of order, for demonstrations and tests
    <directory>/slow/<uuid>    that GPU is slow, likewise
    <directory>/instances/     which GPUs are in MIG mode (`simulated_instances`)

All servers of a machine share the directory, and find the same GPUs there. On a node of a cluster they are the node's
own: nodes that share a machine have device numbers and uuids of their own, and containers see a device elsewhere.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import stat
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from jupyter_gpu.model.gpu import Device, Gpu
from jupyter_gpu.model.view import GpuLoad
from jupyter_gpu_node.gpus.rules.instances import MIG_MODE, InstancesByGpu
from jupyter_gpu_node.processes import trusted_file

from . import simulated_instances

if TYPE_CHECKING:  # loaded at the first question, not when a server starts
    from jupyter_gpu.model.details import ProcessUse, Reading

MAJOR, FIRST_MINOR, MINORS_END, MAX_COUNT = 4, 40, 64, 24
MEMORY = 24 * 2**30
MODEL = "Simulated GPU"
COMPUTE = 30_000
"""Billions of operations a second, as real GPUs with so much memory have."""
DEVICES = frozenset(Device(MAJOR, minor) for minor in range(FIRST_MINOR, MINORS_END))
"""All devices that can ever stand for a simulated GPU."""
VARIABLE = "JUPYTER_GPU_SIMULATED"
"""Environment variable of kernels with the directory, for where the nodes have to lie elsewhere."""
DEVICE_DIRECTORY = Path("/dev/jupyter-gpu")
_UNPLUGGED = "unplugged"
_OPEN = os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC


class SimulatedGpus:
    """``count`` simulated GPUs below ``directory``, which is made if need be.

    GPUs 0 and 1, 2 and 3 and so on share an island and a switch. On a node of a cluster: ``first`` is the minor
    number of the first, ``node`` the node's name, ``devices`` where the nodes lie, and programs find them in
    `DEVICE_DIRECTORY` of their container. Raises `ValueError` for a count that is not possible and
    `OSError` if a directory cannot be used.
    """

    simulated = True

    def __init__(
        self,
        directory: str | os.PathLike[str],
        count: int,
        *,
        first: int | None = None,
        node: str = "",
        devices: Path | None = None,
    ) -> None:
        self._first = FIRST_MINOR if first is None else first
        most = min(MAX_COUNT, MINORS_END - self._first)
        if not 0 <= count <= most:
            raise ValueError(f"{count} simulated GPUs are not possible; choose 0 to {most}.")
        self.directory = Path(directory)
        self.count = count
        self._node = node
        self._devices = devices
        self._instances: InstancesByGpu = {}
        self.note = "" if count else "There are no simulated GPUs: their number is set to 0."
        for name in ("", "load", "health", "slow", simulated_instances.FOLDER):
            _shared_directory(self.directory / name)
        for index in range(count):
            if devices is None:
                _provide(self.directory, index)
            elif not _is_node(devices / f"gpu{index}", device_of(index, self._first)):
                _make_node(devices / f"gpu{index}", device_of(index, self._first), must_open=False)

    def inventory(self) -> tuple[Gpu, ...]:
        """Return all GPUs that are plugged in."""
        names = (uuid_of(index, self._node) for index in range(self.count))
        divided = {uuid: simulated_instances.read(self.directory, uuid) for uuid in names}
        seen = (self._gpu(index, divided=parts is not None) for index, parts in enumerate(divided.values()))
        found = tuple(gpu for gpu in seen if gpu.health != _UNPLUGGED)
        self._instances = {gpu.uuid: divided[gpu.uuid] for gpu in found}
        return found

    def instances(self) -> InstancesByGpu:
        """Return the instances of the GPUs that were plugged in at the last `inventory`."""
        return self._instances

    def loads(self, uuids: Collection[str]) -> Mapping[str, GpuLoad]:
        """Return the sum of the loads that the living programs on them report."""
        from jupyter_gpu_node.gpus.rules import simulated_sensors

        from . import simulated_programs

        known = {uuid_of(index, self._node) for index in range(self.count)}
        busy = {uuid: 0.0 for uuid in uuids if uuid in known}
        memory = dict.fromkeys(busy, 0)
        for load in simulated_programs.read(self.directory / "load"):
            if load.uuid in busy:
                busy[load.uuid] += load.busy
                memory[load.uuid] += load.memory
        return {uuid: simulated_sensors.load(min(1.0, busy[uuid]), min(MEMORY, memory[uuid])) for uuid in busy}

    def details(self, uuids: Collection[str]) -> Mapping[str, Reading]:
        """Return the memory of each living program, and sensor readings that match the load."""
        from jupyter_gpu.model.details import ProcessUse
        from jupyter_gpu_node.gpus.rules import simulated_sensors

        from . import simulated_programs

        found = self.loads(uuids)
        uses: dict[str, list[ProcessUse]] = {uuid: [] for uuid in found}
        for load in simulated_programs.read(self.directory / "load"):
            if load.uuid in uses:
                uses[load.uuid].append(ProcessUse(load.pid, min(MEMORY, load.memory)))
        linked = self.count > 1
        return {
            uuid: simulated_sensors.reading((load.utilisation or 0) / 100, uses[uuid], linked=linked)
            for uuid, load in found.items()
        }

    def processes(self) -> frozenset[int]:
        """Return none: simulated GPUs need no helper."""
        return frozenset()

    def close(self) -> None:
        """Do nothing: nodes stay for the other servers."""

    def _gpu(self, index: int, *, divided: bool) -> Gpu:
        uuid = uuid_of(index, self._node)
        path = self._devices / f"gpu{index}" if self._devices else _path(self.directory, index)
        device, problem = _device_at(path, device_of(index, self._first))
        health = _health(self.directory, uuid) or problem or (MIG_MODE if divided else "")
        return Gpu(
            uuid=uuid,
            index=index,
            model=MODEL,
            memory=MEMORY,
            device=device,
            path=str(DEVICE_DIRECTORY / path.name if self._devices else path),
            healthy=not health,
            health=health,
            numa=0,
            island=f"island-{index // 2}",
            switch=f"switch-{index // 2}",
            simulated=True,
            slow=(self.directory / "slow" / uuid).exists(),
            compute=COMPUTE,
        )


def uuid_of(index: int, node: str = "") -> str:
    """Return the uuid: the same for every user of this machine, another on each; in a cluster, by the ``node`` alone.

    A container knows its machine only by its own name, which another plugin's pod of the same node does not share.
    """
    owner = f"node {node}" if node else machine_id()
    digest = hashlib.sha256(f"jupyter-gpu simulated {owner} {index}".encode()).hexdigest()
    text = f"5ea1{digest[:28]}"
    return f"GPU-{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def device_of(index: int, first: int | None = None) -> Device:
    """Return the character device behind simulated GPU ``index`` where there is one."""
    return Device(MAJOR, (FIRST_MINOR if first is None else first) + index)


def write_load(directory: str | os.PathLike[str], uuid: str, busy: float, memory: int) -> None:
    """Report that this process keeps ``uuid`` busy (0–1) and has so many bytes there, until its next report or end."""
    from . import simulated_programs

    simulated_programs.write(Path(directory) / "load", uuid, busy, memory)


def clear_load(directory: str | os.PathLike[str], uuid: str) -> None:
    """Report that this process no longer uses ``uuid``."""
    from . import simulated_programs

    simulated_programs.clear(Path(directory) / "load", uuid)


def set_slow(directory: str | os.PathLike[str], uuid: str, slow: bool, *, node: str = "") -> None:
    """Make a simulated GPU slow, or fast again."""
    path = Path(directory) / "slow" / _checked(uuid, node)
    if slow:
        path.touch()
    else:
        path.unlink(missing_ok=True)


def set_health(directory: str | os.PathLike[str], uuid: str, problem: str | None, *, node: str = "") -> None:
    """Make a simulated GPU unhealthy, with the reason in plain words, or healthy again (None)."""
    path = Path(directory) / "health" / _checked(uuid, node)
    if problem is None:
        path.unlink(missing_ok=True)
        return
    draft = path.with_name(f".{uuid}.{os.getpid()}")
    draft.write_text(problem[:500])
    draft.replace(path)


def unplug(directory: str | os.PathLike[str], uuid: str, *, node: str = "") -> None:
    """Make a simulated GPU disappear, as one that fell off the bus; ``set_health(…, None)`` brings it back."""
    set_health(directory, uuid, _UNPLUGGED, node=node)


def _checked(uuid: str, node: str) -> str:
    if uuid not in {uuid_of(index, node) for index in range(MAX_COUNT)}:
        raise ValueError(f"{uuid!r} is not a simulated GPU of this machine.")
    return uuid


def _health(directory: Path, uuid: str) -> str:
    """Return why the GPU is unhealthy; empty if it is not.

    Only root and the owner of the directory may say so: any other user could harm all with it.
    """
    text = trusted_file.read_text(directory / "health" / uuid, directory, 500)
    return "" if text is None else text or "It is out of order."


@functools.cache
def machine_id() -> str:
    """Return the id of this machine; its host name where it has none."""
    for path in ("/etc/machine-id", "/var/lib/dbus/machine-id"):
        with contextlib.suppress(OSError):
            if text := Path(path).read_text().strip():
                return text
    return os.uname().nodename  # containers have no machine-id


def _shared_directory(path: Path) -> None:
    """Make a directory in which all users may make files, and none may touch those of others."""
    with contextlib.suppress(FileExistsError):
        path.mkdir(parents=True)
        path.chmod(0o1777)  # mkdir's mode is cut by the umask
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise NotADirectoryError(f"{path} is in the way: it must be a directory, and no link to one.")
    if os.geteuid() == 0 and (found.st_uid or stat.S_IMODE(found.st_mode) != 0o1777):
        os.chown(path, 0, 0, follow_symlinks=False)
        path.chmod(0o1777)


def _path(directory: Path, index: int) -> Path:
    """Return the path of simulated GPU ``index``: in /dev where the directory's own mount cannot have devices."""
    elsewhere = DEVICE_DIRECTORY / f"gpu{index}"
    if os.statvfs(directory).f_flag & os.ST_NODEV and _is_node(elsewhere, device_of(index)):
        return elsewhere
    return directory / f"gpu{index}"


def _is_node(path: Path, device: Device) -> bool:
    try:
        found = path.lstat()
    except OSError:
        return False
    numbers = Device(os.major(found.st_rdev), os.minor(found.st_rdev))
    return stat.S_ISCHR(found.st_mode) and numbers == device


def _device_at(path: Path, device: Device) -> tuple[Device | None, str]:
    """Return the device at ``path``, None if it is none, and what is wrong with it."""
    if _is_node(path, device):
        return device, ""
    try:
        found = path.lstat()
    except OSError as error:
        return None, f"{path} cannot be read: {error.strerror}."
    return None, "" if stat.S_ISREG(
        found.st_mode
    ) else f"{path} is neither a device of a simulated GPU nor a plain file."


def _provide(directory: Path, index: int) -> None:
    """Make node or file ``index`` unless it is there. Root replaces what is not a device by one."""
    path = _path(directory, index)
    if _is_node(path, device_of(index)):
        return
    if os.geteuid() == 0:
        home = DEVICE_DIRECTORY if os.statvfs(directory).f_flag & os.ST_NODEV else directory
        if _make_node(home / f"gpu{index}", device_of(index), must_open=True):
            return
    with contextlib.suppress(FileExistsError):
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o666)
        os.fchmod(descriptor, 0o666)
        os.close(descriptor)


def _make_node(path: Path, device: Device, *, must_open: bool) -> bool:
    """Make the node; return whether it is there. A container's own rules may forbid to make it, or to open it here."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(mode=0o755, exist_ok=True)
        draft.unlink(missing_ok=True)
        os.mknod(draft, stat.S_IFCHR | 0o666, os.makedev(device.major, device.minor))
        draft.chmod(0o666)
        if must_open:
            os.close(os.open(draft, _OPEN))
        draft.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            draft.unlink()
        return False
    return True
