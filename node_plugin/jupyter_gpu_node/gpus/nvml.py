"""Real GPUs, through NVML in a process of its own (`nvml_helper`).

NVML shows a process only the GPUs that it may open, and a question about a dying GPU can hang for ever. So it lives in
a helper outside the pod's control group, and each answer has a deadline. A GPU that does not answer in time, or kills
the helper, is unhealthy and not asked again for a while; the others are asked by a fresh helper.

A GPU in MIG mode is unhealthy: it cannot be given as a whole. Its instances are
reported, so that they are recognised when other plugins give them away (`NvmlSource.instances`).
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from jupyter_gpu.model import strict
from jupyter_gpu.model.gpu import MAX_GPUS, Gpu
from jupyter_gpu.model.view import GpuLoad, read_celsius, read_watts
from jupyter_gpu_node.gpus.rules.instances import InstancesByGpu
from jupyter_gpu_node.gpus.rules.slowness import Slowness
from jupyter_gpu_node.gpus.rules.xids import GpuErrors
from jupyter_gpu_node.processes import proc

if TYPE_CHECKING:  # loaded at the first question, not when a server starts
    from jupyter_gpu.model.details import Reading

MARK = "JUPYTER_GPU_NVML_HELPER"
"""Environment variable of every helper. They have all GPUs open and use none."""
COMMAND = (sys.executable, "-P", "-m", "jupyter_gpu_node.gpus.nvml_helper")
MAX_ANSWER = 1024 * 1024
T = TypeVar("T")

_read_index = strict.integer(0, 4095)
_read_text = strict.text(96)
_read_percent = strict.integer(0, 100)
_read_instances = strict.list_of(_read_text, 64)
_read_pids = strict.list_of(strict.integer(1, 2**31 - 1), 65536)


class HelperError(Exception):
    """The helper hung, ended or could ask nothing; ``index`` is the GPU that it was at, if any.

    ``chance``: it ended at no GPU, perhaps killed from outside, so that another one may do better at once.
    """

    def __init__(self, message: str, index: int | None = None, *, chance: bool = False) -> None:
        super().__init__(message)
        self.index = index
        self.chance = chance


class NvmlSource:
    """The GPUs that the NVIDIA driver of this machine shows.

    Make it before the server enters its control group. ``leave`` is called with the pid of each helper that is started
    later and moves it outside. ``deadline`` (seconds) is for an answer; the first has ``first_deadline``, because the
    driver may have to start the GPUs. What failed is tried again after ``retry`` seconds. ``bare`` says whether GPUs
    without a device of their own count: nothing can guard them.
    """

    simulated = False

    def __init__(
        self,
        leave: Callable[[int], None] | None = None,
        *,
        deadline: float = 5,
        first_deadline: float = 30,
        retry: float = 60,
        environment: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.monotonic,
        bare: Callable[[], bool] = lambda: False,
    ) -> None:
        self.leave = leave
        self._bare = bare
        self.note = ""
        self.deadlines = (first_deadline, deadline)
        """Seconds for the first answer of a helper, and for each later one."""
        self._retry = retry
        self._environment = {**os.environ, **(environment or {}), MARK: "1"}
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[int, Gpu] = {}
        self._instances: InstancesByGpu = {}
        self._suspects: dict[int, tuple[float, str]] = {}
        self._gpu_errors = GpuErrors()
        self._slowness = Slowness()
        self._silent_until = 0.0
        self._closed = False
        self.helper: Helper | None = None
        """The process that asks the driver; None: the next question starts one."""
        with contextlib.suppress(HelperError):  # tried again at the first question
            self.helper = Helper(self._environment)

    def inventory(self) -> tuple[Gpu, ...]:
        """Return all GPUs by index; one that does not answer stays as it was, unhealthy."""
        with self._lock:
            answer = self._ask({"do": "inventory", "bare": self._bare()})
            self._instances = answer.instances if answer else {}
            if answer is not None:
                self._learn(answer)
            gpus = [self._with_problem(gpu, silent=answer is None) for gpu in self._known.values()]
            return tuple(sorted(gpus, key=lambda gpu: gpu.index))

    def instances(self) -> InstancesByGpu:
        """Return the instances as of the last `inventory`; none of GPUs that did not answer then."""
        return self._instances

    def loads(self, uuids: Collection[str]) -> Mapping[str, GpuLoad]:
        """Return the load of those that answer."""
        with self._lock:
            answer = self._ask({"do": "loads", "uuids": sorted(uuids)}) if uuids else None
        found = {}
        for item in answer.gpus if answer else ():
            with contextlib.suppress(strict.FieldError):
                found[strict.required(item, "uuid", _read_text)] = _read_load(item)
        return found

    def details(self, uuids: Collection[str]) -> Mapping[str, Reading]:
        """Return the readings of those that were asked for before, some seconds old at most; see `nvml_details`."""
        from jupyter_gpu.model.details import Reading

        with self._lock:
            answer = self._ask({"do": "details", "uuids": sorted(uuids)}) if uuids else None
        found = {}
        for item in answer.gpus if answer else ():
            with contextlib.suppress(strict.FieldError):
                found[strict.required(item, "uuid", _read_text)] = Reading.from_json(item)
        return found

    def users(self, uuids: Collection[str]) -> Mapping[str, frozenset[int]]:
        """Return pids of the programs that compute on them, of all users, for GPUs whose users the driver reports."""
        with self._lock:
            answer = self._ask({"do": "users", "uuids": sorted(uuids)}) if uuids else None
        found = {}
        for item in answer.gpus if answer else ():
            with contextlib.suppress(strict.FieldError):
                found[strict.required(item, "uuid", _read_text)] = frozenset(strict.required(item, "pids", _read_pids))
        return found

    def peaks(self, uuids: Collection[str], seconds: float) -> Mapping[str, int]:
        """Return the highest use of each in the last ``seconds``, in per cent, where the driver has samples of them."""
        since = time.time_ns() // 1000 - int(seconds * 1e6)  # the driver dates its samples so
        with self._lock:
            answer = self._ask({"do": "peaks", "uuids": sorted(uuids), "since": since}) if uuids else None
        found = {}
        for item in answer.gpus if answer else ():
            with contextlib.suppress(strict.FieldError):
                found[strict.required(item, "uuid", _read_text)] = strict.required(item, "peak", _read_percent)
        return found

    def processes(self) -> frozenset[int]:
        """Return pids of the helpers of all servers of this machine."""
        return frozenset(process.pid for process in proc.with_environment(MARK, "1"))

    def close(self) -> None:
        """End the helper."""
        with self._lock:
            self._closed = True
            self._drop()

    def _ask(self, question: dict[str, Any]) -> Answer | None:
        """Return the answer; None: there is none now. A GPU that hangs costs one deadline, then it is skipped."""
        chances = 1
        while not self._closed and self._clock() >= self._silent_until:
            skip = [index for index, (until, _) in self._suspects.items() if self._clock() < until]
            try:
                answer = self._answer({**question, "skip": skip})
                self._suspects = {index: self._suspects[index] for index in skip}
                self.note = " ".join(text for _, text in self._suspects.values())
                return answer
            except HelperError as error:
                self._drop()
                until = self._clock() + self._retry
                if error.chance and chances:
                    chances -= 1
                elif error.index is None or error.index in skip:
                    self.note, self._silent_until = str(error), until
                else:
                    self._suspects[error.index] = (until, f"GPU {error.index} is out of order: {error}")
        return None

    def _answer(self, question: dict[str, Any]) -> Answer:
        if self.helper is None:
            self.helper = Helper(self._environment)
            try:
                if self.leave:
                    self.leave(self.helper.pid)
            except OSError as error:
                raise HelperError(f"The process that asks the driver cannot leave the pod: {error}.") from None
        first, later = self.deadlines
        try:
            return self.helper.ask(question, later if self.helper.answered else first)
        finally:  # also where a GPU hung after it
            for uuid, xid in self.helper.errors:
                self._gpu_errors.record_error(uuid, xid)
            self.helper.errors.clear()

    def _drop(self) -> None:
        if self.helper:
            self.helper.end()
        self.helper = None

    def _learn(self, answer: Answer) -> None:
        seen: dict[int, Gpu] = {}
        problems = [self.note] if self.note else []
        for item in answer.gpus:
            try:
                index = strict.required(item, "index", _read_index)
                seen[index] = Gpu.from_json(item) if "error" not in item else self._failed(index, item["error"])
            except (strict.FieldError, LookupError):
                problems.append(f"A GPU cannot be used: {str(item.get('error') or 'its data cannot be read.')[:200]}")
        self.note = " ".join(problems)
        self._slowness.update({gpu.uuid: gpu.slow for gpu in seen.values() if gpu.healthy})
        for index in self._suspects:
            if index in self._known:
                seen.setdefault(index, self._known[index])
        unasked = [self._known[index].uuid for index in self._suspects if index in self._known]
        self._gpu_errors.update(answer.actions, unasked)
        self._known = seen

    def _failed(self, index: int, error: object) -> Gpu:
        """Return a GPU that answered with an error as it was before: without that there is no identity to report."""
        return replace(self._known[index], healthy=False, health=str(error)[:500])

    def _with_problem(self, gpu: Gpu, *, silent: bool) -> Gpu:
        problem = self.note if silent else self._suspects.get(gpu.index, (0, ""))[1]
        problem = " ".join(filter(None, (problem, self._gpu_errors.problem(gpu.uuid))))
        found = replace(gpu, slow=self._slowness.is_slow(gpu.uuid))
        return replace(found, healthy=False, health=problem[:500]) if problem else found


def _read_load(item: Mapping[str, Any]) -> GpuLoad:
    utilisation = item.get("utilisation")
    if not isinstance(utilisation, (int, float)) or not 0 <= utilisation <= 100:
        utilisation = None
    return GpuLoad(
        utilisation,
        strict.optional(item, "memory", strict.integer(0, 2**53 - 1)),
        _or_none(item, "temperature", read_celsius),
        _or_none(item, "power", read_watts),
    )


def _or_none(item: Mapping[str, Any], key: str, read: Callable[[Any, str], T]) -> T | None:
    """Read a value, or None: a broken sensor does not spoil the rest of the GPU's answer."""
    with contextlib.suppress(strict.FieldError):
        return strict.optional(item, key, read)
    return None


def _read_instances_by_gpu(body: Mapping[str, Any]) -> InstancesByGpu:
    """Read the instances; what cannot be read is not known."""
    told: dict[str, frozenset[str] | None] = {}
    for uuid, names in body.items():
        with contextlib.suppress(strict.FieldError):
            told[uuid] = None if names is None else frozenset(_read_instances(names, "instances"))
    return told


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of the helper."""

    gpus: Sequence[Mapping[str, Any]]
    actions: Mapping[str, int | None] = field(default_factory=dict)
    """The recovery action that the driver reports, by uuid."""
    instances: InstancesByGpu = field(default_factory=dict)

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Answer:
        """Parse and check an answer; raises `FieldError`."""
        actions = strict.optional(body, "actions", strict.an_object) or {}
        return cls(
            strict.required(body, "gpus", strict.list_of(strict.an_object, MAX_GPUS)),
            {uuid: action if isinstance(action, int) else None for uuid, action in actions.items()},
            _read_instances_by_gpu(strict.optional(body, "instances", strict.an_object) or {}),
        )


class Helper:
    """One helper process and its pipes. One question at a time."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.answered = False
        self.errors: list[tuple[str, int]] = []
        """Uuid and Xid of the errors that the driver reported; the reader clears it."""
        self._unread = b""
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own module
                COMMAND,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                cwd="/",
                env=dict(environment),
                start_new_session=True,  # Ctrl-C in the server's terminal is not for the helper
                bufsize=0,
            )
        except OSError as error:
            raise HelperError(f"The process that asks the driver cannot start: {error}.") from None

    @property
    def pid(self) -> int:
        """Pid of the process."""
        return self._process.pid

    def ask(self, question: Mapping[str, Any], deadline: float) -> Answer:
        """Return the answer; raises `HelperError` if there is none within ``deadline`` seconds."""
        end = time.monotonic() + deadline
        index: int | None = None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(question).encode() + b"\n")
            while True:
                answer = strict.an_object(strict.loads(self._line(end, deadline), MAX_ANSWER), "answer")
                if "error" in answer:
                    raise HelperError(str(answer["error"])[:1000])
                if "gpus" in answer:
                    self.answered = True
                    return Answer.from_json(answer)
                if "xid" in answer:
                    self.errors.append(
                        (strict.required(answer, "uuid", _read_text), strict.required(answer, "xid", _read_index))
                    )
                    continue
                index = strict.required(answer, "at", _read_index)
        except (OSError, EOFError, strict.FieldError) as error:
            hung = isinstance(error, TimeoutError)
            raise HelperError(str(error), index, chance=index is None and not hung) from None

    def _line(self, end: float, deadline: float) -> bytes:
        assert self._process.stdout is not None
        while b"\n" not in self._unread:
            if not select.select([self._process.stdout], [], [], max(0, end - time.monotonic()))[0]:
                raise TimeoutError(f"No answer within {deadline:g} seconds.")
            piece = os.read(self._process.stdout.fileno(), 65536)
            if not piece:
                raise EOFError("The process that asks the driver ended.")
            self._unread += piece
            if len(self._unread) > MAX_ANSWER:
                raise EOFError("The answer is too long.")
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def end(self) -> None:
        """Kill it. One that hangs in the driver cannot even be killed: it is left to the kernel."""
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe:
                with contextlib.suppress(OSError):
                    pipe.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=1)
