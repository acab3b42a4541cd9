"""The service that the kubelet calls. Every call is answered within its own deadline, well below the kubelet's.

A call that can't be served is refused in words: the kubelet shows them in the events of the pod.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any, Protocol, TypeVar

import grpc

from jupyter_gpu.model.gpu import Gpu
from jupyter_gpu.model.strict import printable
from jupyter_gpu_node.kubelet.protos import deviceplugin_v1beta1_pb2 as api
from jupyter_gpu_node.kubelet.rules import allocation, slots
from jupyter_gpu_node.kubelet.rules.allocation import AllocationRefused, Mount, Preparation
from jupyter_gpu_node.kubelet.rules.slots import PodRef, Unresolved
from jupyter_gpu_node.settings import Settings

from . import device_nodes, gate_mount
from .gate_mount import Gate
from .registration import options
from .slot_owners import SlotOwners

NAME = "v1beta1.DevicePlugin"
HEALTHY, UNHEALTHY = "Healthy", "Unhealthy"
QUICK_SECONDS = 5.0
"""Deadline of calls that read only this machine."""
START_SECONDS = 20.0
"""Deadline of calls that ask others before a container starts; the kubelet gives up after 30 s and retries later."""

Request = TypeVar("Request")
Answer = TypeVar("Answer")
Context = grpc.aio.ServicerContext[Any, Any]
_log = logging.getLogger(__name__)


class StartGuard(Protocol):
    """The guard that closes a pod before its container starts."""

    async def before_start(self, pod: PodRef, container: str, slot: str) -> None:
        """Close the pod's control group before this returns. If it raises, the container does not start.

        The text of the error is what the user reads in the events of the pod. It may be cancelled at any await.
        """


class Service:
    """The service for the kubelet; one for the life of the process, while sockets come and go."""

    def __init__(
        self,
        settings: Settings,
        gpus: Callable[[], tuple[Gpu, ...]],
        guard: StartGuard,
        owners: SlotOwners,
        gate: Gate | None = None,
    ) -> None:
        self._settings = settings
        self._gate = gate
        self._gpus = gpus
        self._guard = guard
        self._owners = owners
        self._problem = ""
        self._changed = asyncio.Event()
        self._ending = False
        self.streams = 0
        """Number of kubelets that listen now; normally 1."""
        self.on_stream: Callable[[], None] = lambda: None
        """Called when a stream begins or ends."""

    def handler(self) -> grpc.GenericRpcHandler:
        """Return the handler for a gRPC server."""
        unary: dict[str, tuple[Callable[[Any], Awaitable[Any]], Any, float]] = {
            "GetDevicePluginOptions": (self.options, api.Empty, QUICK_SECONDS),
            "GetPreferredAllocation": (self.prefer, api.PreferredAllocationRequest, QUICK_SECONDS),
            "Allocate": (self.allocate, api.AllocateRequest, QUICK_SECONDS),
            "PreStartContainer": (self.before_start, api.PreStartContainerRequest, START_SECONDS),
        }
        methods: dict[str, Any] = {
            name: grpc.unary_unary_rpc_method_handler(
                _answering(name, call, seconds),
                request_deserializer=request.FromString,
                response_serializer=lambda answer: answer.SerializeToString(),
            )
            for name, (call, request, seconds) in unary.items()
        }
        methods["ListAndWatch"] = grpc.unary_stream_rpc_method_handler(
            self.list_and_watch,
            request_deserializer=api.Empty.FromString,
            response_serializer=api.ListAndWatchResponse.SerializeToString,
        )
        return grpc.method_handlers_generic_handler(NAME, methods)

    def set_problem(self, problem: str) -> None:
        """Set why no pod may get a slot now, in plain words; empty if all is well. Running pods are not affected."""
        if problem != self._problem:
            self._problem = problem
            self._tell()

    def listen(self) -> None:
        """Let kubelets listen from now on."""
        self._ending = False

    def end_streams(self) -> None:
        """End all streams; new ones are turned away."""
        self._ending = True
        self._tell()

    async def list_and_watch(self, _request: api.Empty, _context: Context) -> AsyncIterator[api.ListAndWatchResponse]:
        """Yield all slots, at once and after each change, until the kubelet or the server goes."""
        self.streams += 1
        self.on_stream()
        try:
            while not self._ending:
                changed = self._changed
                yield self._listing()
                await changed.wait()
        finally:
            self.streams -= 1
            self.on_stream()

    async def options(self, _request: api.Empty) -> api.DevicePluginOptions:
        """Return the options, which the kubelet asks for before it takes the plugin."""
        return options()

    async def prefer(self, request: api.PreferredAllocationRequest) -> api.PreferredAllocationResponse:
        """Answer which of the free slots to take."""
        known, used = self._owners.known, self._owners.allocated
        chosen = [
            slots.prefer(asked.available_deviceIDs, asked.must_include_deviceIDs, asked.allocation_size, known, used)
            for asked in request.container_requests
        ]
        answers = [api.ContainerPreferredAllocationResponse(deviceIDs=ids) for ids in chosen]
        return api.PreferredAllocationResponse(container_responses=answers)

    async def allocate(self, request: api.AllocateRequest) -> api.AllocateResponse:
        """Return the devices and files of the containers, and no right: a pod that names its own node gets here too.

        Only a request that can never work is refused here: that fails the pod for good. Passing trouble is refused
        before the start of the container, which the kubelet tries again.
        """
        names = frozenset(self._settings.slot_names)
        wanted = [allocation.one_slot(asked.devices_ids, names) for asked in request.container_requests]
        gpus = self._gpus()
        nodes = allocation.nodes(gpus, self._settings)
        bare = not gpus and await asyncio.to_thread(device_nodes.is_bare, self._settings)
        present, driver = await asyncio.to_thread(_find_all, [node.host for node in nodes], self._settings, self._gate)
        answers = []
        for slot in wanted:
            made = allocation.prepare(slot, gpus, present, driver, self._settings, bare=bare)
            control = frozenset(allocation.control_devices(self._settings.vendors))
            paths = frozenset(node.container for node in made.devices) - control
            await self._owners.given(slot, gated=allocation.has_gate(driver), devices=paths)
            await self._owners.directory(slot)
            answers.append(_message(made))
        return api.AllocateResponse(container_responses=answers)

    async def before_start(self, request: api.PreStartContainerRequest) -> api.PreStartContainerResponse:
        """Find the owner of a slot before each start of its container, and have that pod closed."""
        slot = allocation.one_slot(request.devices_ids, frozenset(self._settings.slot_names))
        if missing := await asyncio.to_thread(self._absent, slot):
            raise AllocationRefused(missing)
        pod, container = await self._owners.resolve(slot)
        await self._owners.directory(slot)
        await self._guard.before_start(pod, container, slot)
        return api.PreStartContainerResponse()

    def _absent(self, slot: str) -> str:
        devices = self._owners.devices.get(slot, frozenset())
        return allocation.absent(devices, lambda host: device_nodes.exists(host, self._settings.driver), self._settings)

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _listing(self) -> api.ListAndWatchResponse:
        health = UNHEALTHY if self._problem else HEALTHY
        return api.ListAndWatchResponse(
            devices=[api.Device(ID=slot, health=health) for slot in self._settings.slot_names]
        )


def _answering(
    name: str, call: Callable[[Request], Awaitable[Answer]], seconds: float
) -> Callable[[Request, Context], Awaitable[Answer]]:
    """Return ``call`` with a deadline and with errors in words. No error of it is fatal: it fails closed."""

    async def answer(request: Request, context: Context) -> Answer:
        try:
            async with asyncio.timeout(seconds):
                return await call(request)
        except (AllocationRefused, Unresolved) as error:
            why, code = str(error), grpc.StatusCode.FAILED_PRECONDITION
        except TimeoutError:
            why = f"{name} took longer than {seconds:g} seconds; the kubelet tries again"
            code = grpc.StatusCode.DEADLINE_EXCEEDED
        except Exception as error:
            _log.exception("%s failed", name)
            why, code = str(error) or type(error).__name__, grpc.StatusCode.INTERNAL
        _log.warning("%s is refused: %s", name, why)
        await context.abort(code, printable(why, 1000))
        raise AssertionError("unreachable")

    return answer


def _find_all(hosts: Iterable[str], settings: Settings, gate: Gate | None) -> tuple[frozenset[str], tuple[Mount, ...]]:
    """Find which device nodes exist, and the driver's files, the gate before them. Blocks."""
    return device_nodes.present(hosts, settings.driver), gate_mount.mounts(settings, gate)


def _message(made: Preparation) -> api.ContainerAllocateResponse:
    return api.ContainerAllocateResponse(
        envs=dict(made.environment),
        mounts=[
            api.Mount(host_path=mount.host, container_path=mount.container, read_only=True) for mount in made.mounts
        ],
        devices=[
            api.DeviceSpec(host_path=node.host, container_path=node.container, permissions=node.permissions)
            for node in made.devices
        ],
    )
