"""Details of GPUs that take the driver long to measure: read in a thread of the helper (`nvml_helper`).

PCIe alone takes the driver 20 ms for each direction. So nothing is measured while a caller waits: a question is
answered with the last measurement, and keeps the measuring going. Without questions nothing is measured.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from jupyter_gpu.model.details import MAX_PROCESSES, LinkRates, ProcessUse, Reading

PACE = 2.0
"""Seconds from one round to the next."""
INTEREST = 10.0
"""Seconds for which a question keeps the measuring of its GPUs going."""
ALL_LINKS = 0xFFFFFFFF
"""In the place of the number of an NVLink."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes sent over NVLink since the driver began to count, at one time."""

    time: float
    received: int
    sent: int


def rates(before: Traffic | None, now: Traffic | None) -> LinkRates | None:
    """Return the rates between two counts; None where one is missing, or the driver began anew."""
    if before is None or now is None or now.time <= before.time:
        return None
    received, sent = now.received - before.received, now.sent - before.sent
    if received < 0 or sent < 0:
        return None
    return LinkRates(round(received / (now.time - before.time)), round(sent / (now.time - before.time)))


class DetailsReader:
    """Readings of the GPUs that were asked for lately. ``api``: the module ``pynvml``, initialised."""

    def __init__(self, api: Any) -> None:
        self._api = api
        self._changed = threading.Condition()
        self._wanted: dict[str, float] = {}
        """Time, by uuid, until which it is measured."""
        self._skip: frozenset[int] = frozenset()
        self._found: dict[str, tuple[float, Reading]] = {}
        self._traffic: dict[str, Traffic] = {}
        self._thread: threading.Thread | None = None

    def answer(self, uuids: Iterable[str], skip: Collection[int]) -> list[dict[str, Any]]:
        """Return the last measurements of ``uuids``, and keep measuring them. Never asks the driver itself."""
        now = time.monotonic()
        with self._changed:
            self._skip = frozenset(skip)
            self._wanted.update(dict.fromkeys(uuids, now + INTEREST))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="closer", daemon=True)
                self._thread.start()
            self._changed.notify()
            fresh = {uuid: reading for uuid, (taken, reading) in self._found.items() if now - taken < INTEREST}
        return [{"uuid": uuid, **fresh[uuid].to_json()} for uuid in uuids if uuid in fresh]

    def _run(self) -> None:
        while True:
            with self._changed:
                while not (uuids := self._now_wanted()):
                    self._found.clear()
                    self._traffic.clear()
                    self._changed.wait()
                skip = self._skip
            for uuid in uuids:
                reading = self._read(uuid, skip)
                with self._changed:
                    if reading is not None:
                        self._found[uuid] = (time.monotonic(), reading)
            time.sleep(PACE)

    def _now_wanted(self) -> tuple[str, ...]:
        now = time.monotonic()
        self._wanted = {uuid: until for uuid, until in self._wanted.items() if until > now}
        return tuple(self._wanted)

    def _read(self, uuid: str, skip: Collection[int]) -> Reading | None:
        """Read one GPU; None if it is not there, or is to be skipped."""
        api = self._api
        try:
            handle = api.nvmlDeviceGetHandleByUUID(uuid.encode())
            if api.nvmlDeviceGetIndex(handle) in skip:
                return None
        except api.NVMLError:
            return None
        slowdown = limit = None
        with contextlib.suppress(api.NVMLError):
            found = int(api.nvmlDeviceGetTemperatureThreshold(handle, api.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN))
            slowdown = found or None  # some drivers say 0 where there is none
        with contextlib.suppress(api.NVMLError):
            limit = api.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000
        return Reading(slowdown, limit, self._pcie(handle), self._nvlink(uuid, handle), self._processes(handle))

    def _pcie(self, handle: Any) -> LinkRates | None:
        """Measure PCIe over 20 ms."""
        api = self._api
        try:
            received = api.nvmlDeviceGetPcieThroughput(handle, api.NVML_PCIE_UTIL_RX_BYTES)
            sent = api.nvmlDeviceGetPcieThroughput(handle, api.NVML_PCIE_UTIL_TX_BYTES)
        except api.NVMLError:
            return None
        return LinkRates(1000 * int(received), 1000 * int(sent))  # kilobytes a second

    def _nvlink(self, uuid: str, handle: Any) -> LinkRates | None:
        """Return the rates of all links together since the last round."""
        before, now = self._traffic.pop(uuid, None), self._count(handle)
        if now is not None:
            self._traffic[uuid] = now
        return rates(before, now)

    def _count(self, handle: Any) -> Traffic | None:
        api = self._api
        fields = (api.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, api.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX)
        try:
            values = api.nvmlDeviceGetFieldValues(handle, [(field, ALL_LINKS) for field in fields])
        except api.NVMLError:
            return None
        if any(value.nvmlReturn != 0 for value in values):
            return None
        received, sent = (1024 * int(value.value.ullVal) for value in values)  # KiB
        return Traffic(time.monotonic(), received, sent)

    def _processes(self, handle: Any) -> tuple[ProcessUse, ...] | None:
        """Return the processes that compute or draw; None where the driver reports neither."""
        api = self._api
        found: dict[int, int | None] = {}
        told = False
        for ask in (api.nvmlDeviceGetComputeRunningProcesses, api.nvmlDeviceGetGraphicsRunningProcesses):
            with contextlib.suppress(api.NVMLError):
                found.update((int(one.pid), one.usedGpuMemory) for one in ask(handle))
                told = True
        some = sorted(found.items())[:MAX_PROCESSES]
        return tuple(ProcessUse(pid, None if memory is None else int(memory)) for pid, memory in some) if told else None
