"""AMD's GPUs, from the files of the Linux kernel's driver (amdgpu); `kfd` understands them.

ROCm is not needed here. The driver shows a GPU's node only to programs that may open the GPU, so the node plugin must
be privileged, and the server of one machine asks before it guards itself: what it read then counts for as long as the
same chip is behind the same device.

For a program that opened ``/dev/kfd`` the driver keeps the GPUs that the program could open then, until it ends, even
if it closes their own devices. So the driver's record of such programs is part of the proof of a release
(`AmdSource.holders`).

Written after the driver's source code, and tried on files alone, on no GPU.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from jupyter_gpu.model import strict
from jupyter_gpu.model.gpu import Gpu
from jupyter_gpu.model.view import GpuLoad

from .busy_sampler import BusySampler
from .patience import Patience
from .rules import kfd
from .rules.slowness import Slowness

if TYPE_CHECKING:  # loaded at the first question, not when a server starts
    from jupyter_gpu.model.details import Reading

DEADLINE = 5.0
"""Seconds for one answer about all GPUs."""
MAX_FILE = 16 * 1024
_SILENT = "The driver of AMD's GPUs does not answer."
_ABSENT = "There is no driver of AMD's GPUs (amdgpu)."
_DENIED = (
    "AMD's driver shows a GPU only to programs that may open it: the node plugin must be privileged, and a Jupyter "
    "server be started where the GPU can be opened."
)


class AmdSource:
    """The GPUs that AMD's driver shows below ``system``."""

    simulated = False

    def __init__(self, system: Path = Path("/sys"), deadline: float = DEADLINE) -> None:
        self._kfd = system / "class/kfd/kfd"
        self._cards = system / "class/drm"
        self.note = ""
        self._known: tuple[Gpu, ...] = ()
        self._nodes: dict[str, kfd.Node] = {}
        """Nodes by uuid, also of GPUs that are gone: the driver may keep these for a program all the same."""
        self._chips: dict[str, str | None] = {}
        """By uuid, what the device said of its chip when the node was read."""
        self._slowness = Slowness()
        self._busy = BusySampler(self._read_busy)
        self._inventories: Patience[tuple[list[tuple[kfd.Node, kfd.Files]], list[str]]] = Patience(deadline)
        self._loads: Patience[dict[str, GpuLoad]] = Patience(deadline)

    def inventory(self) -> tuple[Gpu, ...]:
        """Return all GPUs by the numbers of their devices. All are unhealthy while one makes the driver hang."""
        answer = self._inventories.ask(self._look)
        if answer is None:
            self.note = _SILENT
            return tuple(replace(gpu, healthy=False, health=_SILENT) for gpu in self._known)
        found, problems = answer
        self.note = " ".join(problems)[:500]
        self._nodes.update({node.uuid: node for node, _ in found})
        self._chips.update({node.uuid: files.unique for node, files in found})
        seen = kfd.gpus(found)
        self._slowness.update({gpu.uuid: gpu.slow for gpu in seen if gpu.healthy})
        self._known = tuple(replace(gpu, slow=self._slowness.is_slow(gpu.uuid)) for gpu in seen)
        return self._known

    def loads(self, uuids: Collection[str]) -> Mapping[str, GpuLoad]:
        """Return the load of those that answer."""
        known = {gpu.uuid for gpu in self._known}.intersection(uuids)
        asked = {uuid: self._nodes[uuid].minor for uuid in known}
        read = self._loads.ask(lambda: {uuid: kfd.load(self._files(minor)) for uuid, minor in asked.items()})
        return read or {}

    def peaks(self, uuids: Collection[str], seconds: float) -> Mapping[str, int]:
        """Return the highest use of each in the last ``seconds``, in per cent, as far as it was sampled."""
        return self._busy.peaks([uuid for uuid in uuids if uuid in self._nodes], seconds)

    def details(self, uuids: Collection[str]) -> Mapping[str, Reading]:  # noqa: ARG002 - as all sources
        """Return none: nothing more is read."""
        return {}

    def holders(self, uuids: Collection[str]) -> Mapping[str, frozenset[int]]:
        """Return pids of the processes for which the driver keeps these GPUs: it has files for each process and GPU."""
        asked = {self._nodes[uuid].gpu_id: uuid for uuid in uuids if uuid in self._nodes}
        found: dict[str, set[int]] = {uuid: set() for uuid in asked.values()}
        for pid, folder in _numbered(self._kfd / "proc") if asked else ():
            for gpu_id in _kept(folder, asked.keys()):
                found[asked[gpu_id]].add(pid)
        return {uuid: frozenset(pids) for uuid, pids in found.items()}

    def buses(self) -> Mapping[str, str]:
        """Return the PCI addresses of all that were ever there."""
        return {uuid: node.bus for uuid, node in self._nodes.items()}

    def processes(self) -> frozenset[int]:
        """Return none: files need no helper."""
        return frozenset()

    def close(self) -> None:
        """Stop sampling; no file stays open."""
        self._busy.close()

    def _look(self) -> tuple[list[tuple[kfd.Node, kfd.Files]], list[str]]:
        """Read all nodes; what is wrong with those that cannot be used, in plain words."""
        found, problems = [], dict[str, None]()
        hidden = 0
        for number, folder in _numbered(self._kfd / "topology/nodes"):
            try:
                if node := _node(folder):
                    found.append((node, self._files(node.minor)))
            except PermissionError:
                hidden += 1
            except (OSError, strict.FieldError) as error:
                problems[f"The AMD GPU of node {number} cannot be used: {error}"] = None
        if hidden:
            known = self._remembered(node.uuid for node, _ in found)
            found += known
            if len(known) < hidden:
                problems[_DENIED] = None
        return found, list(problems) if found or problems else [_ABSENT]

    def _remembered(self, shown: Iterable[str]) -> list[tuple[kfd.Node, kfd.Files]]:
        """Return the nodes that were read earlier and are not ``shown`` now, as far as their chips are still there."""
        others = [(self._nodes[uuid], self._chips[uuid]) for uuid in self._nodes.keys() - frozenset(shown)]
        found = [(node, self._files(node.minor), chip) for node, chip in others if self._device(node.minor).exists()]
        return [(node, files) for node, files, chip in found if files.unique == chip]

    def _read_busy(self, uuids: Collection[str]) -> dict[str, int | None]:
        return {uuid: kfd.busy(_text(self._device(self._nodes[uuid].minor) / "gpu_busy_percent")) for uuid in uuids}

    def _device(self, minor: int) -> Path:
        return self._cards / f"renderD{minor}" / "device"

    def _files(self, minor: int) -> kfd.Files:
        device = self._device(minor)
        sensors = next(iter(sorted(device.glob("hwmon/hwmon*"))), device / "hwmon")
        power = _text(sensors / "power1_average")
        return kfd.Files(
            product=_text(device / "product_name"),
            numa=_text(device / "numa_node"),
            total=_text(device / "mem_info_vram_total"),
            busy=_text(device / "gpu_busy_percent"),
            used=_text(device / "mem_info_vram_used"),
            celsius=_text(sensors / "temp1_input"),
            watts=_text(sensors / "power1_input") if power is None else power,
            unique=_text(device / "unique_id"),
            metrics=_bytes(device / "gpu_metrics"),
        )


def _node(folder: Path) -> kfd.Node | None:
    """Read one node of the topology; None: a CPU. Raises OSError or `FieldError`."""
    gpu_id = _read(folder / "gpu_id")
    banks = (_read(bank / "properties") for _, bank in _numbered(folder / "mem_banks"))
    return kfd.node(gpu_id, _read(folder / "properties"), banks)


def _kept(folder: Path, gpu_ids: Set[int]) -> Set[int]:
    """Return which of these GPUs the driver keeps for the process with this folder; all if it cannot be read."""
    try:
        return kfd.held(path.name for path in folder.iterdir()) & gpu_ids
    except FileNotFoundError:  # it has just ended
        return frozenset()
    except OSError:
        return gpu_ids


def _numbered(folder: Path) -> Iterator[tuple[int, Path]]:
    """Yield what lies in a folder and has a number for a name; nothing where there is no such folder."""
    try:
        found = tuple(folder.iterdir())
    except FileNotFoundError:
        return
    yield from sorted((int(path.name), path) for path in found if path.name.isascii() and path.name.isdigit())


def _read(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(MAX_FILE).decode(errors="replace")


def _bytes(path: Path) -> bytes | None:
    """Return a file's content; None where it cannot be read, as while the driver resets the GPU."""
    with suppress(OSError), path.open("rb") as file:
        return file.read(MAX_FILE)
    return None


def _text(path: Path) -> str | None:
    content = _bytes(path)
    return None if content is None else content.decode(errors="replace")
