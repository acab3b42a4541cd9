"""GPU use and memory by process, and the peak of a GPU's use, from NVML.

NVML runs in a helper process here, too (`nvml`), as a question can hang for ever:
``python -P -m jupyter_gpu_node.shares.scans.usage_by_process``. One JSON object a line:
``{"gpu": uuid, "since": time}``, and as the answer ``{"uses": [[pid, per cent]…]}`` or ``{"error": …}``. Times are the
driver's: µs since 1970. Without ``since`` it asks for the memory, ``{"memory": [[pid, bytes or null]…]}``, or null
where the driver reports no processes. With ``peak`` it asks for the highest sample since then,
``{"peak": per cent or null}``.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TextIO, TypeVar

from jupyter_gpu.model import strict
from jupyter_gpu_node.gpus.nvml import MARK
from jupyter_gpu_node.gpus.nvml_peak import peak

COMMAND = (sys.executable, "-P", "-m", "jupyter_gpu_node.shares.scans.usage_by_process")
MAX_ANSWER = 64 * 1024
MAX_MEMORY = 2**53 - 1
T = TypeVar("T")
TimeByPid = Mapping[int, int]
"""Microseconds of GPU time by pid."""
MemoryByPid = Mapping[int, int | None]
"""Bytes of GPU memory by pid; None: the driver does not report them."""


class UsageReader(Protocol):
    """The interface for reading how much of a GPU each process used."""

    async def read(self, gpu: str, begin: int, end: int) -> TimeByPid | None:
        """Return the uses between two moments of the monotonic clock, in microseconds. None: not known now."""

    @property
    def note(self) -> str:
        """The reason why nothing is known, if so."""

    async def memory(self, gpu: str) -> MemoryByPid | None:
        """Return the memory that each process has now, of those that have any. None: not known now."""

    async def close(self) -> None:
        """End: nothing more will be asked."""


class PeakReader(Protocol):
    """The interface for reading how much of a GPU was used at most."""

    async def peak(self, gpu: str, begin: int) -> int | None:
        """Return the highest per cent since a moment of the monotonic clock, in microseconds. None: not known now."""


class NvmlUsageReader:
    """The reader of real GPUs.

    ``leave`` is called with the pid of each helper, and moves it out of the pod, as `NvmlSource` does.

    A helper that does not answer within ``deadline`` seconds, or ends, is killed, and a new one asked after ``retry``.
    """

    def __init__(
        self,
        leave: Callable[[int], None] | None = None,
        *,
        deadline: float = 5,
        retry: float = 60,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.note = ""
        """Reason why nothing is known, if so."""
        self._leave = leave
        self.deadline = deadline
        """Seconds in which a helper must answer."""
        self._retry = retry
        self._environment = {**os.environ, **(environment or {}), MARK: "1"}
        self._silent_until = 0.0
        self._helper: asyncio.subprocess.Process | None = None
        self._one = asyncio.Lock()

    async def read(self, gpu: str, begin: int, end: int) -> TimeByPid | None:
        """Return each process's use, by the driver's samples: five a second, each of one process (an H100, driver 580).

        Right on average, and off by a fifth of a GPU over one second.
        """
        answer = await self._answer({"gpu": gpu, "since": _driver_time(begin)}, _read_uses)
        return None if answer is None else {pid: percent * (end - begin) // 100 for pid, percent in answer.items()}

    async def peak(self, gpu: str, begin: int) -> int | None:
        """Return the highest of the driver's samples, see `nvml_peak`."""
        return await self._answer({"gpu": gpu, "since": _driver_time(begin), "peak": True}, _read_peak)

    async def memory(self, gpu: str) -> MemoryByPid | None:
        """Return each process's memory, contexts and code included."""
        return await self._answer({"gpu": gpu}, _read_memory)

    async def _answer(self, question: Mapping[str, Any], read: Callable[[Mapping[str, Any]], T]) -> T | None:
        async with self._one:
            if time.monotonic() < self._silent_until:
                return None
            try:
                async with asyncio.timeout(self.deadline):
                    answer = read(await self._ask(question))
            except (OSError, EOFError, TimeoutError, ValueError) as error:
                await self._drop()
                self.note = str(error) or f"No answer within {self.deadline:g} seconds."
                self._silent_until = time.monotonic() + self._retry
                return None
        self.note = ""
        return answer

    async def close(self) -> None:
        """End the helper."""
        async with self._one:
            self._silent_until = float("inf")
            await self._drop()

    async def _ask(self, question: Mapping[str, Any]) -> Mapping[str, Any]:
        helper = self._helper = self._helper or await self._started()
        assert helper.stdin is not None
        assert helper.stdout is not None
        helper.stdin.write(json.dumps(question).encode() + b"\n")
        await helper.stdin.drain()
        line = await helper.stdout.readline()
        if not line:
            raise EOFError("The process that asks the driver ended.")
        answer = strict.an_object(strict.loads(line, MAX_ANSWER), "answer")
        if "error" in answer:
            raise OSError(str(answer["error"])[:500])
        return answer

    async def _started(self) -> asyncio.subprocess.Process:
        pipe, null = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
        helper = await asyncio.create_subprocess_exec(
            *COMMAND, stdin=pipe, stdout=pipe, stderr=null, cwd="/", env=self._environment, start_new_session=True,
            limit=MAX_ANSWER,
        )  # fmt: skip
        self._helper = helper
        if self._leave:
            self._leave(helper.pid)
        return helper

    async def _drop(self) -> None:
        """Drop the helper. One that hangs in the driver cannot even be killed: it is left to the kernel."""
        helper, self._helper = self._helper, None
        if helper is None:
            return
        with contextlib.suppress(ProcessLookupError):
            helper.kill()
        if helper.stdin:
            helper.stdin.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1):
                await helper.wait()


def _driver_time(moment: int) -> int:
    """Return a moment of the monotonic clock as the driver counts, both in microseconds."""
    return time.time_ns() // 1000 - (time.monotonic_ns() // 1000 - moment)


def _read_peak(answer: Mapping[str, Any]) -> int | None:
    return strict.optional(answer, "peak", strict.integer(0, 100))


def _read_uses(answer: Mapping[str, Any]) -> dict[int, int]:
    return dict(strict.required(answer, "uses", strict.list_of(_use, 4096)))


def _read_memory(answer: Mapping[str, Any]) -> dict[int, int | None] | None:
    found = strict.optional(answer, "memory", strict.list_of(_piece, 4096))
    return None if found is None else dict(found)


def _use(value: Any, key: str) -> tuple[int, int]:
    match value:
        case [int(pid), int(percent)] if pid > 0 and 0 <= percent <= 100:
            return pid, percent
        case _:
            raise strict.FieldError("A use is a pid and a part of 100.", key)


def _piece(value: Any, key: str) -> tuple[int, int | None]:
    match value:
        case [int(pid), None] if pid > 0:
            return pid, None
        case [int(pid), int(size)] if pid > 0 and 0 <= size <= MAX_MEMORY:
            return pid, size
        case _:
            raise strict.FieldError("The memory of a process is a pid and a number of bytes.", key)


# --- the helper -------------------------------------------------------------------------------------------------------


def _uses(api: Any, gpu: str, since: int) -> list[list[int]]:
    """Return the mean of what the driver has of each process."""
    try:
        samples = api.nvmlDeviceGetProcessUtilization(api.nvmlDeviceGetHandleByUUID(gpu.encode()), since)
    except api.NVMLError as error:
        if getattr(error, "value", None) == api.NVML_ERROR_NOT_FOUND:  # no process used it
            return []
        raise
    found: dict[int, list[int]] = {}
    for sample in samples:
        if int(sample.timeStamp) > since:  # a driver may report older ones, too
            found.setdefault(int(sample.pid), []).append(min(100, int(sample.smUtil)))
    return [[pid, sum(parts) // len(parts)] for pid, parts in found.items() if pid > 0]


def _memory(api: Any, gpu: str) -> list[list[int | None]] | None:
    """Return the memory of programs that compute or draw; None where the driver reports neither."""
    handle = api.nvmlDeviceGetHandleByUUID(gpu.encode())
    found: dict[int, int | None] = {}
    told = False
    for ask in (api.nvmlDeviceGetComputeRunningProcesses, api.nvmlDeviceGetGraphicsRunningProcesses):
        with contextlib.suppress(api.NVMLError):
            for one in ask(handle):
                size = one.usedGpuMemory
                known = size is not None and 0 <= int(size) <= MAX_MEMORY  # "not available" is 2⁶⁴−1 in some versions
                found[int(one.pid)] = max(int(size), found.get(int(one.pid)) or 0) if known else found.get(int(one.pid))
            told = True
    return [[pid, size] for pid, size in found.items() if pid > 0] if told else None


def serve(questions: TextIO, answers: TextIO) -> None:
    """Answer until the questions end."""
    api: Any = None
    for line in questions:
        question = json.loads(line)
        try:
            if api is None:
                import pynvml  # here, so that no other process ever loads it

                pynvml.nvmlInit()
                api = pynvml
            if "peak" in question:
                handle = api.nvmlDeviceGetHandleByUUID(question["gpu"].encode())
                answer: dict[str, Any] = {"peak": peak(api, handle, question["since"])}
            elif "since" in question:
                answer = {"uses": _uses(api, question["gpu"], question["since"])}
            else:
                answer = {"memory": _memory(api, question["gpu"])}
        except Exception as error:  # no driver, no library, a broken one, a GPU that is gone: all the same here
            answer = {"error": f"The NVIDIA driver does not tell who uses a GPU: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    serve(sys.stdin, sys.stdout)
