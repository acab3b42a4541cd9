"""Fake GPU hardware: the part of NVML that is used, told by a JSON file what it has and how it fails.

``FAKE_NVML`` names the file: ``{"init": error?, "gpus": [{"uuid", "fails": function?, "hangs": function?, "dies":
function?, "slow": seconds?, "recovery": action?, "computing": [[pid, bytes]]?, "samples": [[age in s, per cent]]?,
"throttled": reasons?, "pending": 1?, "drained": 1?, "unnumbered": true?, "cores": number?, "clock": MHz?, "mig": mode?,
"instances": [uuid | null]?, "fabric": [id in hexadecimal, clique]?, …}], "nodes": "-test", "links": [[0, 1]],
"switches": [[0, 1]], "xids": [[index, xid]], "broken": true?}``. An event set tells of those ``xids`` that come after
it was made; ``broken``: of none any more. What takes PCIe's measure is noted in a file beside it.
"""

import ctypes
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
NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX = 139, 138
NVML_TEMPERATURE_GPU, NVML_TEMPERATURE_THRESHOLD_SLOWDOWN = 0, 1
NVML_PCIE_UTIL_TX_BYTES, NVML_PCIE_UTIL_RX_BYTES = 0, 1
NVML_ERROR_NOT_SUPPORTED, NVML_ERROR_NOT_FOUND, NVML_ERROR_TIMEOUT, NVML_ERROR_UNKNOWN = 3, 6, 10, 999
NVML_ERROR_FUNCTION_NOT_FOUND = 13
NVML_GPU_UTILIZATION_SAMPLES = 1
NVML_CLOCK_SM = 1


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


def nvmlDeviceGetUUID(handle: int | SimpleNamespace) -> str:  # noqa: N802
    if isinstance(handle, SimpleNamespace):
        return str(handle.instance)
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
    gpu = _gpu(handle, "RemappedRows")
    return (0, 0, int(gpu.get("pending", 0)), int(gpu.get("worn", 0)))


def nvmlDeviceGetCurrentClocksThrottleReasons(handle: int) -> int:  # noqa: N802
    return int(_sensor(handle, "CurrentClocksThrottleReasons", "throttled"))


def nvmlDeviceQueryDrainState(pci: SimpleNamespace) -> int:  # noqa: N802
    return int(_sensor(int(pci.busId.split(":")[1], 16), "QueryDrainState", "drained"))


def nvmlDeviceGetNumGpuCores(handle: int) -> int:  # noqa: N802
    return int(_sensor(handle, "NumGpuCores", "cores"))


def nvmlDeviceGetMaxClockInfo(handle: int, kind: int) -> int:  # noqa: N802
    assert kind == NVML_CLOCK_SM
    return int(_sensor(handle, "MaxClockInfo", "clock"))


class c_nvmlGpuFabricInfoV_t(ctypes.Structure):  # noqa: N801
    """The second version of what the driver tells of a fabric."""

    _fields_ = (
        ("version", ctypes.c_uint),
        ("clusterUuid", ctypes.c_uint8 * 16),
        ("status", ctypes.c_uint),
        ("cliqueId", ctypes.c_uint32),
        ("state", ctypes.c_uint),
        ("healthMask", ctypes.c_uint32),
    )


def nvmlDeviceGetGpuFabricInfoV(handle: int, reference: Any) -> None:  # noqa: N802
    cluster, clique = _sensor(handle, "GpuFabricInfoV", "fabric")
    info = reference._obj  # what `byref` was given
    info.clusterUuid[:] = list(bytes.fromhex(cluster))
    info.cliqueId, info.state = clique, 3


def nvmlDeviceGetMigMode(handle: int) -> list[int]:  # noqa: N802
    mode = _gpu(handle, "MigMode").get("mig")
    if mode is None:
        raise NVMLError("Not Supported", NVML_ERROR_NOT_SUPPORTED)
    return [mode, mode]


def nvmlDeviceGetMaxMigDeviceCount(handle: int) -> int:  # noqa: N802
    return 7 if _gpu(handle, "MaxMigDeviceCount").get("mig") else 0


def nvmlDeviceGetMigDeviceHandleByIndex(handle: int, index: int) -> SimpleNamespace:  # noqa: N802
    parts = _gpu(handle, "MigDeviceHandleByIndex").get("instances", [])
    if index >= len(parts) or parts[index] is None:  # a place may be empty
        raise NVMLError("Not Found", NVML_ERROR_NOT_FOUND)
    return SimpleNamespace(instance=parts[index])


def nvmlDeviceGetUtilizationRates(handle: int) -> SimpleNamespace:  # noqa: N802
    return SimpleNamespace(gpu=_gpu(handle, "UtilizationRates").get("busy", 0))


def nvmlDeviceGetP2PStatus(first: int, second: int, kind: int) -> int:  # noqa: N802
    assert kind == NVML_P2P_CAPS_INDEX_NVLINK
    return NVML_P2P_STATUS_OK if [first, second] in _world().get("links", []) else 5


def nvmlDeviceGetTopologyCommonAncestor(first: int, second: int) -> int:  # noqa: N802
    return NVML_TOPOLOGY_SINGLE if [first, second] in _world().get("switches", []) else NVML_TOPOLOGY_SYSTEM


def _sensor(handle: int, function: str, key: str) -> Any:
    value = _gpu(handle, function).get(key)
    if value is None:
        raise NVMLError("Not Supported")
    return value


def nvmlDeviceGetTemperature(handle: int, sensor: int) -> int:  # noqa: N802
    assert sensor == NVML_TEMPERATURE_GPU
    return int(_sensor(handle, "Temperature", "celsius"))


def nvmlDeviceGetTemperatureThreshold(handle: int, kind: int) -> int:  # noqa: N802
    assert kind == NVML_TEMPERATURE_THRESHOLD_SLOWDOWN
    return int(_sensor(handle, "TemperatureThreshold", "slowdown"))


def nvmlDeviceGetPowerUsage(handle: int) -> int:  # noqa: N802
    return int(_sensor(handle, "PowerUsage", "milliwatts"))


def nvmlDeviceGetEnforcedPowerLimit(handle: int) -> int:  # noqa: N802
    return int(_sensor(handle, "EnforcedPowerLimit", "limit"))


def nvmlDeviceGetPcieThroughput(handle: int, counter: int) -> int:  # noqa: N802
    kilobytes = _sensor(handle, "PcieThroughput", "pcie")
    calls = Path(os.environ["FAKE_NVML"]).with_suffix(".pcie")
    with calls.open("a") as file:
        file.write(f"{handle}\n")
    time.sleep(_gpu(handle, "PcieThroughput").get("slow", 0.02))
    return int(kilobytes[0 if counter == NVML_PCIE_UTIL_RX_BYTES else 1])


def nvmlDeviceGetComputeRunningProcesses(handle: int) -> list[SimpleNamespace]:  # noqa: N802
    found = _sensor(handle, "ComputeRunningProcesses", "computing")
    return [SimpleNamespace(pid=pid, usedGpuMemory=memory) for pid, memory in found]


def nvmlDeviceGetGraphicsRunningProcesses(handle: int) -> list[SimpleNamespace]:  # noqa: N802
    found = _sensor(handle, "GraphicsRunningProcesses", "drawing")
    return [SimpleNamespace(pid=pid, usedGpuMemory=memory) for pid, memory in found]


def nvmlDeviceGetSamples(handle: int, kind: int, since: int) -> tuple[int, list[SimpleNamespace]]:  # noqa: N802
    assert kind == NVML_GPU_UTILIZATION_SAMPLES
    now, found = time.time_ns() // 1000, _sensor(handle, "Samples", "samples")
    dated = [(now - int(age * 1e6), SimpleNamespace(uiVal=percent)) for age, percent in found]
    return 1, [SimpleNamespace(timeStamp=at, sampleValue=value) for at, value in dated if at > since - 1_000_000]


def _links(handle: int) -> list[SimpleNamespace]:
    """Counts of KiB that grow evenly, at the rates that the world tells."""
    rates = _gpu(handle, "FieldValues").get("nvlink")
    if rates is None:
        return [SimpleNamespace(nvmlReturn=3, value=SimpleNamespace(ullVal=0))] * 2
    now = time.monotonic()
    return [SimpleNamespace(nvmlReturn=0, value=SimpleNamespace(ullVal=int(rate * now))) for rate in rates]


def nvmlDeviceGetFieldValues(handle: int, fields: list[Any]) -> list[SimpleNamespace]:  # noqa: N802
    if len(fields) == 2:
        assert [scope for _, scope in fields] == [2**32 - 1] * 2, "all links together"
        return _links(handle)
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
