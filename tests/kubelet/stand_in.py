"""A kubelet as far as a device plugin sees one: real gRPC on real sockets, and the kubelet's own order of steps.

Its weaknesses are the kubelet's too: it calls the options before it answers a registration, it forgets everything but
its checkpoint when it restarts, it removes the sockets of all plugins then, and when a stream ends it drops whatever
plugin is registered *now*, even a newer one.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import stat
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from jupyter_gpu_node.kubelet.protos import deviceplugin_v1beta1_pb2 as api
from jupyter_gpu_node.kubelet.protos import podresources_v1_pb2 as resources
from jupyter_gpu_node.settings import SLOT

PATIENCE = 60.0
_OPTIONS = (("grpc.default_authority", "localhost"), ("grpc.use_local_subchannel_pool", 1))


async def until(condition: Callable[[], Any], what: str, seconds: float = PATIENCE) -> Any:
    """Wait until ``condition()`` is true, and give what it was."""
    async with asyncio.timeout(seconds) as limit:
        while not (found := condition()):
            await asyncio.sleep(0.01)
            if limit.expired():
                break
    assert found, f"not so after {seconds} s: {what}"
    return found


@dataclass
class Plugin:
    """One registration."""

    resource: str
    channel: grpc.aio.Channel
    options: api.DevicePluginOptions | None = None
    health: dict[str, str] = field(default_factory=dict)
    """Health of the slots, as the stream reported it last."""
    messages: int = 0
    stopped: bool = False

    async def call(self, method: str, request: Any, answer: Any, seconds: float = 30) -> Any:
        """One call of the plugin."""
        stub: Any = self.channel.unary_unary(
            f"/v1beta1.DevicePlugin/{method}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=answer.FromString,
        )
        try:
            return await stub(request, timeout=seconds)
        except asyncio.CancelledError:
            if self.stopped:  # the connection was closed under the call
                raise ConnectionError("the client connection is closing") from None
            raise


@dataclass(frozen=True)
class Given:
    """A container's slot, as the kubelet knows it."""

    uid: str
    namespace: str
    name: str
    container: str
    slot: str


class Kubelet:
    """A kubelet whose directory is ``home``."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.plugins = home / "device-plugins"
        self.checkpoint = self.plugins / "kubelet_internal_checkpoint"
        self.current: Plugin | None = None
        self.registrations = 0
        self.given: list[Given] = []
        self.busy = 0
        """So many of the next questions about resources are refused: too many of them."""
        self.questions = 0
        self.on_register: Callable[[], None] = lambda: None
        self._servers: dict[Path, grpc.aio.Server] = {}
        self._streams: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Start as the kubelet does: all sockets of plugins are removed, then its own is made."""
        self.plugins.mkdir(parents=True, exist_ok=True)
        (self.home / "pod-resources").mkdir(exist_ok=True)
        for path in self.plugins.iterdir():
            if stat.S_ISSOCK(path.lstat().st_mode):
                path.unlink()
        await self._serve(
            self.plugins / "kubelet.sock",
            "v1beta1.Registration",
            {
                "Register": (self._register, api.RegisterRequest),
            },
        )
        await self._serve(
            self.home / "pod-resources" / "kubelet.sock",
            "v1.PodResourcesLister",
            {
                "List": (self._list, resources.ListPodResourcesRequest),
            },
        )

    async def stop(self) -> None:
        """Stop as if killed: clients notice only broken connections, and the sockets stay."""
        for path, server in self._servers.items():
            hidden = path.with_name("hidden")
            path.rename(hidden)  # gRPC removes what it finds there, and a killed process removes nothing
            await server.stop(None)
            hidden.rename(path)
        self._servers.clear()
        for stream in self._streams:
            stream.cancel()
        await asyncio.gather(*self._streams, return_exceptions=True)
        self._streams.clear()
        if self.current:
            await self.current.channel.close()
        self.current = None

    async def restart(self) -> None:
        """Killed and started again."""
        await self.stop()
        await self.start()

    async def plugin(self, what: str = "a plugin that offers healthy slots") -> Plugin:
        """The plugin, when it offers slots."""

        def ready() -> Plugin | None:
            found = self.current
            return found if found and not found.stopped and "Healthy" in found.health.values() else None

        found: Plugin = await until(ready, what)
        return found

    async def allocate(self, *slots: str) -> api.ContainerAllocateResponse:
        """Admit a container."""
        plugin = await self.plugin()
        request = api.AllocateRequest(container_requests=[api.ContainerAllocateRequest(devices_ids=slots)])
        answer: api.AllocateResponse = await plugin.call("Allocate", request, api.AllocateResponse)
        return answer.container_responses[0]

    async def before_start(self, *slots: str) -> None:
        """Just before a container starts. Skipped, as by the kubelet, where the plugin's options are not known."""
        plugin = self.current
        if plugin is None or plugin.options is None or not plugin.options.pre_start_required:
            return
        if plugin.stopped:
            raise ConnectionError("endpoint has been stopped")
        request = api.PreStartContainerRequest(devices_ids=slots)
        await plugin.call("PreStartContainer", request, api.PreStartContainerResponse)

    def give(self, uid: str, name: str, slot: str, *, container: str = "main", namespace: str = "team") -> Given:
        """Remember the owner of a slot, in the checkpoint too."""
        self.given.append(Given(uid, namespace, name, container, slot))
        self.write_checkpoint()
        return self.given[-1]

    def write_checkpoint(self) -> None:
        """Write the checkpoint as the kubelet does."""
        entries = [
            {
                "PodUID": given.uid,
                "ContainerName": given.container,
                "ResourceName": SLOT,
                "DeviceIDs": {"-1": [given.slot]},
                "AllocResp": "CgA=",
            }
            for given in self.given
        ]
        data: dict[str, Any] = {"PodDeviceEntries": entries or None, "RegisteredDevices": {SLOT: []}}
        self.checkpoint.write_text(json.dumps({"Data": data, "Checksum": 11284738299123456789}))

    async def _serve(self, path: Path, service: str, methods: dict[str, Any]) -> None:
        path.unlink(missing_ok=True)
        server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
        handlers: dict[str, Any] = {
            name: grpc.unary_unary_rpc_method_handler(
                call, request_deserializer=request.FromString, response_serializer=lambda a: a.SerializeToString()
            )
            for name, (call, request) in methods.items()
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
        server.add_insecure_port(f"unix:{path}")
        await server.start()
        self._servers[path] = server

    async def _register(self, request: api.RegisterRequest, context: Any) -> api.Empty:
        assert request.version == "v1beta1"
        self.registrations += 1
        self.on_register()
        channel = grpc.aio.insecure_channel(f"unix:{self.plugins / request.endpoint}", options=_OPTIONS)
        plugin = self.current = Plugin(request.resource_name, channel)
        try:
            plugin.options = await plugin.call("GetDevicePluginOptions", api.Empty(), api.DevicePluginOptions, 10)
        except grpc.aio.AioRpcError as error:
            await context.abort(grpc.StatusCode.UNKNOWN, f"failed to dial device plugin: {error.details()}")
        self._streams.append(asyncio.create_task(self._listen(plugin)))
        return api.Empty()

    async def _listen(self, plugin: Plugin) -> None:
        stub = plugin.channel.unary_stream(
            "/v1beta1.DevicePlugin/ListAndWatch",
            request_serializer=api.Empty.SerializeToString,
            response_deserializer=api.ListAndWatchResponse.FromString,
        )
        # gRPC says either, as it happens, when the channel is closed here
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.CancelledError):
            async for message in stub(api.Empty()):
                plugin.health = {device.ID: device.health for device in message.devices}
                plugin.messages += 1
        if self.current is not None:  # whichever it is by now
            self.current.stopped = True
            await self.current.channel.close()

    async def _list(self, request: Any, context: Any) -> resources.ListPodResourcesResponse:
        self.questions += 1
        if self.busy:
            self.busy -= 1
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")
        return resources.ListPodResourcesResponse(
            pod_resources=[
                resources.PodResources(
                    name=given.name,
                    namespace=given.namespace,
                    containers=[
                        resources.ContainerResources(
                            name=given.container,
                            devices=[resources.ContainerDevices(resource_name=SLOT, device_ids=[given.slot])],
                        )
                    ],
                )
                for given in self.given
            ]
        )


@contextlib.asynccontextmanager
async def running(home: Path) -> AsyncIterator[Kubelet]:
    """A kubelet that runs."""
    kubelet = Kubelet(home)
    await kubelet.start()
    try:
        yield kubelet
    finally:
        await kubelet.stop()
