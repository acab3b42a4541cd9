"""The process that talks to NVML: ``python -P -m jupyter_gpu_node.gpus.nvml_helper``. Its other end is `nvml`.

One JSON object a line. In: ``{"do": "inventory" | "loads" | "details" | "peaks" | "users", "uuids": […]?, "skip":
[index…], "bare": true?, "since": µs?}``; ``bare`` if GPUs without a device of their own count; ``since`` for peaks, in
microseconds since 1970.

Out: any number of ``{"at": index}`` just before GPU ``index`` is touched, so that the other end knows which one hangs,
and of ``{"uuid", "xid"}`` for errors that the driver reported since the last time; then ``{"gpus": […], "actions":
{…}, "instances": {…}}``, or ``{"error": …}`` if nothing could be asked. An item of ``inventory`` is a GPU as in the
inventory annotation, or ``{"index", "error"}``; ``actions`` says by uuid what the driver thinks that a GPU needs
(`xids`), null where it does not tell; ``instances`` says by uuid which instances (MIG) a GPU has, null for one
that is not in MIG mode. An item of ``loads`` is ``{"uuid", "utilisation", "memory", "temperature", "power"}``, one of
``details`` a `Reading` with ``uuid``, as measured last (`nvml_details`), one of ``peaks`` ``{"uuid", "peak"}``
(`nvml_peak`), one of ``users`` ``{"uuid", "pids"}``, with null where the driver does not tell.

NVML is loaded at the first question and released when the input ends. Instances are not managed: a GPU in MIG mode is
reported as unusable, because it cannot be used as a whole. Its instances are reported, so that they are recognised when
others give them away. The driver shows them to programs with ``CAP_SYS_ADMIN``, and may hide them from this one.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import stat
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from jupyter_gpu.model.gpu import Device, Gpu
from jupyter_gpu_node.gpus.rules import fabric
from jupyter_gpu_node.gpus.rules.compute import billions
from jupyter_gpu_node.gpus.rules.instances import MIG_MODE

from .nvml_peak import peak

SLOWED = 0x8 | 0x20 | 0x40 | 0x80
"""Reasons for lower clocks that are no one's wish: hardware, heat by software and by hardware, power brake."""
DXG = "/dev/dxg"
"""The device that stands for all GPUs in WSL 2."""

if TYPE_CHECKING:
    from .nvml_details import DetailsReader


class Nvml:
    """NVML of this process. ``say`` writes one object for the other end."""

    def __init__(self, say: Callable[[dict[str, Any]], None]) -> None:
        import pynvml  # here, so that no other process ever loads it

        self.api: Any = pynvml
        self.say = say
        self.names: dict[int | None, str] = {}
        self.actions: dict[str, int | None] = {}
        self.instances: dict[str, list[str] | None] = {}
        self.neighbours: dict[frozenset[int], dict[str, dict[int, str]]] = {}
        self.events: Any = None
        self.api.nvmlInit()
        self.reader: DetailsReader | None = None

    def inventory(self, skip: Collection[int], *, bare: bool = False) -> list[dict[str, Any]]:
        """Return every GPU but those to skip; ``bare``: those without a device of their own are not refused."""
        self.read_events()
        self.actions, self.instances = {}, {}
        items: dict[int, dict[str, Any]] = {}
        handles: dict[int, Any] = {}
        for index in range(self.api.nvmlDeviceGetCount()):
            if index in skip:
                continue
            self.say({"at": index})
            try:
                handles[index] = self.api.nvmlDeviceGetHandleByIndex(index)
                items[index] = self.describe(index, handles[index], bare=bare)
            except (self.api.NVMLError, OSError, ValueError) as error:
                items[index] = {"index": index, "error": _sentence(error)}
        present = frozenset(handles)
        if present not in self.neighbours:  # asked once: GPUs do not move to another slot meanwhile
            words = {"island": self.group(handles, self.linked), "switch": self.group(handles, self.switched)}
            self.neighbours = {present: words}
            self.watch(handles.values())
        for word, groups in self.neighbours[present].items():
            for index, name in groups.items():
                if "uuid" in items[index]:
                    items[index][word] = name
        return [items[index] for index in sorted(items)]

    def describe(self, index: int, handle: Any, *, bare: bool) -> dict[str, Any]:
        """Return one GPU without its neighbours."""
        uuid = _text(self.api.nvmlDeviceGetUUID(handle))
        number = self.number(handle)
        if number is None and not bare:
            raise ValueError("it has no device of its own, so nothing can guard it; it can be used in soft mode")
        path = f"/dev/nvidia{number}" if number is not None else DXG if Path(DXG).exists() else ""
        divided = self.divided(handle)
        self.instances[uuid] = self.parts(handle) if divided else None
        problem = self.health(handle) or (MIG_MODE if divided else "")
        found = Gpu(
            uuid=uuid,
            index=index,
            model=_text(self.api.nvmlDeviceGetName(handle)),
            memory=int(self.api.nvmlDeviceGetMemoryInfo(handle).total),
            device=_device(path) if number is not None else None,
            path=path,
            healthy=not problem,
            health=problem,
            slow=self.slow(handle),
            numa=_numa(_text(self.api.nvmlDeviceGetPciInfo(handle).busId)),
            compute=self.compute(handle),
            fabric=self.fabric(handle),
        ).to_json()
        self.names[_address(handle)] = uuid
        self.actions[uuid] = self.action(handle)
        return found

    def number(self, handle: Any) -> str | None:
        """Return the number of its device node; None for a GPU that has none, as in WSL 2."""
        try:
            return str(self.api.nvmlDeviceGetMinorNumber(handle))
        except self.api.NVMLError as error:
            if getattr(error, "value", None) != self.api.NVML_ERROR_NOT_SUPPORTED:
                raise
            return None

    def health(self, handle: Any) -> str:
        """Return what is wrong with the GPU, as far as a few cheap questions tell; empty: nothing."""
        with contextlib.suppress(self.api.NVMLError):  # older GPUs have no such memory
            if self.api.nvmlDeviceGetRemappedRows(handle)[3]:
                return "Its memory is worn out: a broken row could not be replaced."
        return ""

    def slow(self, handle: Any) -> bool:
        """Tell whether the GPU is slowed down now, or is to be drained; False where the driver does not tell."""
        with contextlib.suppress(self.api.NVMLError):
            if self.api.nvmlDeviceGetCurrentClocksThrottleReasons(handle) & SLOWED:
                return True
        with contextlib.suppress(self.api.NVMLError):
            if self.api.nvmlDeviceGetRemappedRows(handle)[2]:  # a row waits for the next reset
                return True
        with contextlib.suppress(self.api.NVMLError):
            return bool(self.api.nvmlDeviceQueryDrainState(self.api.nvmlDeviceGetPciInfo(handle)))
        return False

    def compute(self, handle: Any) -> int | None:
        """Return the compute of all cores at the highest clock; None where the driver does not tell."""
        try:
            cores = int(self.api.nvmlDeviceGetNumGpuCores(handle))
            return billions(cores, int(self.api.nvmlDeviceGetMaxClockInfo(handle, self.api.NVML_CLOCK_SM)))
        except self.api.NVMLError:
            return None

    def fabric(self, handle: Any) -> str | None:
        """Return the word of the NVLink fabric that the GPU is in; None where it is in none, or the driver is old."""
        try:
            info = self.api.c_nvmlGpuFabricInfoV_t()
            self.api.nvmlDeviceGetGpuFabricInfoV(handle, ctypes.byref(info))
        except (AttributeError, self.api.NVMLError):  # the binding, too, may be older
            return None
        cluster = ctypes.string_at(ctypes.addressof(info) + type(info).clusterUuid.offset, 16)  # it may have zeros
        return fabric.word(cluster, int(info.cliqueId), state=int(info.state), status=int(info.status))

    def divided(self, handle: Any) -> bool:
        """Tell whether the GPU is in MIG mode. One that does not say is not used, as it may be."""
        try:
            return bool(self.api.nvmlDeviceGetMigMode(handle)[0])
        except self.api.NVMLError as error:
            no_such_mode = (self.api.NVML_ERROR_NOT_SUPPORTED, self.api.NVML_ERROR_FUNCTION_NOT_FOUND)
            if getattr(error, "value", None) not in no_such_mode:
                raise ValueError(f"it does not tell whether it is in MIG mode: {_sentence(error)}") from None
            return False

    def parts(self, handle: Any) -> list[str]:
        """Return the uuids of the instances of a GPU in MIG mode that the driver shows: places may be empty."""
        found = []
        with contextlib.suppress(self.api.NVMLError):
            for place in range(self.api.nvmlDeviceGetMaxMigDeviceCount(handle)):
                with contextlib.suppress(self.api.NVMLError):
                    part = self.api.nvmlDeviceGetMigDeviceHandleByIndex(handle, place)
                    found.append(_text(self.api.nvmlDeviceGetUUID(part)))
        return found

    def action(self, handle: Any) -> int | None:
        """Return the recovery action that the driver reports, 0: none; None for a driver that does not report it."""
        field = getattr(self.api, "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION", None)
        if field is None:
            return None
        try:
            (value,) = self.api.nvmlDeviceGetFieldValues(handle, [field])
        except self.api.NVMLError:
            return None
        return int(value.value.uiVal) if value.nvmlReturn == 0 else None

    def watch(self, handles: Iterable[Any]) -> None:
        """Subscribe to the errors of each GPU that reports them; a failure of another kind is noticed all the same."""
        if self.events is not None:
            with contextlib.suppress(self.api.NVMLError):
                self.api.nvmlEventSetFree(self.events)
        self.events = None
        with contextlib.suppress(self.api.NVMLError):
            self.events = self.api.nvmlEventSetCreate()
            for handle in handles:
                with contextlib.suppress(self.api.NVMLError):
                    self.api.nvmlDeviceRegisterEvents(handle, self.api.nvmlEventTypeXidCriticalError, self.events)

    def read_events(self) -> None:
        """Report errors since the last call, at once: a GPU that hangs in the next question must not hide them."""
        while self.events is not None:
            try:
                event = self.api.nvmlEventSetWait(self.events, 0)
            except self.api.NVMLError as error:
                if getattr(error, "value", None) != self.api.NVML_ERROR_TIMEOUT:
                    self.neighbours = {}  # the set is broken: make it anew
                return
            if uuid := self.names.get(_address(event.device)):  # a GPU that is lost cannot be asked for its name
                self.say({"uuid": uuid, "xid": int(event.eventData)})

    def group(self, handles: dict[int, Any], joined: Callable[[Any, Any], bool]) -> dict[int, str]:
        """Return the group of each GPU that is joined with others, directly or through other GPUs."""
        leader = {index: index for index in handles}
        for (first, one), (second, other) in combinations(sorted(handles.items()), 2):
            new, old = sorted((leader[first], leader[second]))
            if new != old and joined(one, other):
                leader = {index: new if top == old else top for index, top in leader.items()}
        sizes = list(leader.values())
        return {index: f"group-{top}" for index, top in leader.items() if sizes.count(top) > 1}

    def linked(self, first: Any, second: Any) -> bool:
        """Tell whether two GPUs reach each other over NVLink."""
        try:
            status = self.api.nvmlDeviceGetP2PStatus(first, second, self.api.NVML_P2P_CAPS_INDEX_NVLINK)
        except self.api.NVMLError:
            return False
        return bool(status == self.api.NVML_P2P_STATUS_OK)

    def switched(self, first: Any, second: Any) -> bool:
        """Tell whether two GPUs are on one PCIe switch."""
        try:
            level = self.api.nvmlDeviceGetTopologyCommonAncestor(first, second)
        except self.api.NVMLError:
            return False
        return bool(level <= self.api.NVML_TOPOLOGY_SINGLE)

    def loads(self, uuids: Sequence[str], skip: Collection[int]) -> list[dict[str, Any]]:
        """Return per cent, bytes, °C and watts; None where the GPU does not report them."""
        found = []
        for uuid in uuids:
            try:
                handle = self.api.nvmlDeviceGetHandleByUUID(uuid.encode())
                index = self.api.nvmlDeviceGetIndex(handle)
            except self.api.NVMLError:
                continue
            if index in skip:
                continue
            self.say({"at": index})
            utilisation = memory = temperature = power = None
            with contextlib.suppress(self.api.NVMLError):
                utilisation = float(self.api.nvmlDeviceGetUtilizationRates(handle).gpu)
            with contextlib.suppress(self.api.NVMLError):
                memory = int(self.api.nvmlDeviceGetMemoryInfo(handle).used)
            with contextlib.suppress(self.api.NVMLError):
                temperature = int(self.api.nvmlDeviceGetTemperature(handle, self.api.NVML_TEMPERATURE_GPU))
            with contextlib.suppress(self.api.NVMLError):
                power = self.api.nvmlDeviceGetPowerUsage(handle) / 1000
            load = {"utilisation": utilisation, "memory": memory, "temperature": temperature, "power": power}
            found.append({"uuid": uuid, **load})
        return found

    def users(self, uuids: Sequence[str], skip: Collection[int]) -> list[dict[str, Any]]:
        """Return the programs that compute on them, of all users of the machine."""
        return [{"uuid": uuid, "pids": self.programs(handle)} for uuid, handle in self.asked(uuids, skip)]

    def peaks(self, uuids: Sequence[str], skip: Collection[int], since: int) -> list[dict[str, Any]]:
        """Return the highest use of each since then, in per cent."""
        return [{"uuid": uuid, "peak": peak(self.api, handle, since)} for uuid, handle in self.asked(uuids, skip)]

    def asked(self, uuids: Sequence[str], skip: Collection[int]) -> Iterator[tuple[str, Any]]:
        """Yield the GPUs that are there, each with its handle, once it is said which one is touched next."""
        for uuid in uuids:
            with contextlib.suppress(self.api.NVMLError):
                handle = self.api.nvmlDeviceGetHandleByUUID(uuid.encode())
                index = self.api.nvmlDeviceGetIndex(handle)
                if index not in skip:
                    self.say({"at": index})
                    yield uuid, handle

    def programs(self, handle: Any) -> list[int] | None:
        """Return pids; None for a driver that does not report them."""
        try:
            return sorted({int(process.pid) for process in self.api.nvmlDeviceGetComputeRunningProcesses(handle)})
        except self.api.NVMLError:
            return None

    def details(self, uuids: Sequence[str], skip: Collection[int]) -> list[dict[str, Any]]:
        """Return the last measurements; the first question begins them."""
        if self.reader is None:
            from .nvml_details import DetailsReader  # needed only while details are shown

            self.reader = DetailsReader(self.api)
        return self.reader.answer(uuids, skip)


def _address(handle: Any) -> int | None:
    """Return the address in a handle, by which two handles of one GPU are equal."""
    return ctypes.cast(handle, ctypes.c_void_p).value


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _sentence(error: Exception) -> str:
    return f"{str(error).rstrip('.') or type(error).__name__}."


def _device(path: str) -> Device:
    found = Path(path).stat()
    if not stat.S_ISCHR(found.st_mode):
        raise ValueError(f"{path} is not a device.")
    return Device(os.major(found.st_rdev), os.minor(found.st_rdev))


def _numa(bus: str) -> int | None:
    domain, _, rest = bus.lower().partition(":")  # NVML gives eight digits of the domain, sysfs has four
    try:
        node = int(Path(f"/sys/bus/pci/devices/{domain[-4:]}:{rest}/numa_node").read_text())
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None


def serve(questions: TextIO, answers: TextIO) -> None:
    """Answer until the questions end."""

    def say(value: dict[str, Any]) -> None:
        answers.write(json.dumps(value) + "\n")
        answers.flush()

    nvml: Nvml | None = None
    for line in questions:
        question = json.loads(line)
        try:
            nvml = nvml or Nvml(say)
        except Exception as error:  # no driver, no library, a broken one: all the same to the user
            say({"error": f"No NVIDIA GPU can be used: {_sentence(error)}"})
            continue
        try:
            if question["do"] == "loads":
                say({"gpus": nvml.loads(question["uuids"], question["skip"])})
            elif question["do"] == "details":
                say({"gpus": nvml.details(question["uuids"], question["skip"])})
            elif question["do"] == "peaks":
                say({"gpus": nvml.peaks(question["uuids"], question["skip"], question["since"])})
            elif question["do"] == "users":
                say({"gpus": nvml.users(question["uuids"], question["skip"])})
            else:
                found = nvml.inventory(question["skip"], bare=question.get("bare", False))
                say({"gpus": found, "actions": nvml.actions, "instances": nvml.instances})
        except nvml.api.NVMLError as error:
            say({"error": f"The NVIDIA driver failed: {_sentence(error)}"})


if __name__ == "__main__":
    serve(sys.stdin, sys.stdout)
