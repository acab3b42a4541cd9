"""Fake GPU hardware: the part of NVML that is used, told by a JSON file what it has and how it fails.

``FAKE_NVML`` names the file: ``{"init": error?, "gpus": [{"uuid", "fails": function?, "hangs": function?, "dies":
function?, "recovery": action?, "pids": […]?, "unnumbered": true?, …}], "nodes": "-test", "links": [[0, 1]], "switches":
[[0, 1]], "xids": [[index, xid]], "broken": true?}``. An event set tells of those ``xids`` that come after it was made;
``broken``: of none any more.
"""

import json
import os
import signal
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

NVML_P2P_CAPS_INDEX_NVLINK, NVML_P2P_STATUS_OK = 2, 0
NVML_TOPOLOGY_SINGLE, NVML_TOPOLOGY_SYSTEM = 10, 50
nvmlEventTypeXidCriticalError = 8  # noqa: N816 - NVML's names


NVML_FI_DEV_GET_GPU_RECOVERY_ACTION = 230
NVML_ERROR_NOT_SUPPORTED, NVML_ERROR_TIMEOUT, NVML_ERROR_UNKNOWN = 3, 10, 999


class NVMLError(Exception):
    """Any error of the driver."""

    def __init__(self, words: str, value: int = NVML_ERROR_UNKNOWN) -> None:
        super().__init__(words)
        self.value = value


def _world() -> dict[str, Any]:
    world: dict[str, Any] = json.loads(Path(os.environ["FAKE_NVML"]).read_text())
    return world


def _misbehave(function: str, who: dict[str, Any]) -> None:
    if who.get("hangs") == function:
        time.sleep(600)
    if who.get("dies") == function:
        os.kill(os.getpid(), signal.SIGKILL)
    if who.get("fails") == function:
        raise NVMLError("GPU is lost")


def _gpu(handle: int, function: str) -> dict[str, Any]:
    gpu: dict[str, Any] = _world()["gpus"][handle]
    _misbehave(function, gpu)
    return gpu


def nvmlInit() -> None:  # noqa: N802
    world = _world()
    _misbehave("Init", world)
    if "init" in world:
        raise NVMLError(world["init"])


def nvmlDeviceGetCount() -> int:  # noqa: N802
    world = _world()
    _misbehave("Count", world)
    return len(world["gpus"])


def nvmlDeviceGetHandleByIndex(index: int) -> int:  # noqa: N802
    _gpu(index, "HandleByIndex")
    return index


def nvmlDeviceGetHandleByUUID(uuid: bytes) -> int:  # noqa: N802
    for index, gpu in enumerate(_world()["gpus"]):
        if gpu["uuid"] == uuid.decode():
            return index
    raise NVMLError("Not Found")


def nvmlDeviceGetIndex(handle: int) -> int:  # noqa: N802
    return handle


def nvmlDeviceGetUUID(handle: int) -> str:  # noqa: N802
    return str(_gpu(handle, "UUID")["uuid"])


def nvmlDeviceGetName(handle: int) -> bytes:  # noqa: N802
    return str(_gpu(handle, "Name").get("name", "NVIDIA Test")).encode()  # some versions give bytes


def nvmlDeviceGetMinorNumber(handle: int) -> str:  # noqa: N802
    who = _gpu(handle, "MinorNumber")
    if who.get("unnumbered"):
        raise NVMLError("Not Supported", NVML_ERROR_NOT_SUPPORTED)
    return f"{_world()['nodes']}{who.get('minor', handle)}"  # a node of the test


def nvmlDeviceGetMemoryInfo(handle: int) -> SimpleNamespace:  # noqa: N802
    gpu = _gpu(handle, "MemoryInfo")
    return SimpleNamespace(total=gpu.get("total", 80 * 2**30), used=gpu.get("used", 2**30))


def nvmlDeviceGetPciInfo(handle: int) -> SimpleNamespace:  # noqa: N802
    return SimpleNamespace(busId=f"00000000:{handle:02X}:00.0")


def nvmlDeviceGetRemappedRows(handle: int) -> tuple[int, int, int, int]:  # noqa: N802
    return (0, 0, 0, int(_gpu(handle, "RemappedRows").get("worn", 0)))


def nvmlDeviceGetMigMode(handle: int) -> list[int]:  # noqa: N802
    mode = _gpu(handle, "MigMode").get("mig")
    if mode is None:
        raise NVMLError("Not Supported")
    return [mode, mode]


def nvmlDeviceGetUtilizationRates(handle: int) -> SimpleNamespace:  # noqa: N802
    return SimpleNamespace(gpu=_gpu(handle, "UtilizationRates").get("busy", 0))


def nvmlDeviceGetComputeRunningProcesses(handle: int) -> list[SimpleNamespace]:  # noqa: N802
    pids = _gpu(handle, "ComputeRunningProcesses").get("pids")
    if pids is None:
        raise NVMLError("Not Supported", NVML_ERROR_NOT_SUPPORTED)
    return [SimpleNamespace(pid=pid, usedGpuMemory=None) for pid in pids]


def nvmlDeviceGetP2PStatus(first: int, second: int, kind: int) -> int:  # noqa: N802
    assert kind == NVML_P2P_CAPS_INDEX_NVLINK
    return NVML_P2P_STATUS_OK if [first, second] in _world().get("links", []) else 5


def nvmlDeviceGetTopologyCommonAncestor(first: int, second: int) -> int:  # noqa: N802
    return NVML_TOPOLOGY_SINGLE if [first, second] in _world().get("switches", []) else NVML_TOPOLOGY_SYSTEM


def nvmlDeviceGetFieldValues(handle: int, fields: list[int]) -> list[SimpleNamespace]:  # noqa: N802
    assert fields == [NVML_FI_DEV_GET_GPU_RECOVERY_ACTION]
    action = _gpu(handle, "FieldValues").get("recovery")
    return [SimpleNamespace(nvmlReturn=0 if action is not None else 3, value=SimpleNamespace(uiVal=action))]


def nvmlEventSetCreate() -> SimpleNamespace:  # noqa: N802
    return SimpleNamespace(gpus=[], seen=len(_world().get("xids", [])))


def nvmlEventSetFree(events: SimpleNamespace) -> None:  # noqa: N802
    events.gpus.clear()


def nvmlDeviceRegisterEvents(handle: int, kind: int, events: SimpleNamespace) -> None:  # noqa: N802
    assert kind == nvmlEventTypeXidCriticalError
    _gpu(handle, "RegisterEvents")
    events.gpus.append(handle)


def nvmlEventSetWait(events: SimpleNamespace, timeout: int) -> SimpleNamespace:  # noqa: N802
    if _world().get("broken"):
        raise NVMLError("Unknown Error")
    waiting = _world().get("xids", [])
    while events.seen < len(waiting):
        gpu, xid = waiting[events.seen]
        events.seen += 1
        if gpu in events.gpus:
            return SimpleNamespace(device=gpu, eventData=xid)
    raise NVMLError("Timeout", NVML_ERROR_TIMEOUT)
