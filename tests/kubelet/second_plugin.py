"""A second device plugin, as NVIDIA's is one: ``python -m tests.kubelet.second_plugin PLUGINS OFFERED DEVICES``.

It offers ``nvidia.com/gpu`` by the uuids of the file OFFERED, a JSON object from uuid to index, again whenever that
changes; a container finds ``gpu<index>`` of the folder DEVICES as ``/dev/nvidia<index>``.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc

from jupyter_gpu_node.kubelet.protos import deviceplugin_v1beta1_pb2 as api
from jupyter_gpu_node.kubelet.registration import register

RESOURCE = "nvidia.com/gpu"


class SecondPlugin:
    """Its calls."""

    def __init__(self, offered: Path, devices: Path) -> None:
        self._offered = offered
        self._devices = devices

    async def options(self, _request: Any, _context: Any) -> api.DevicePluginOptions:
        """It wants nothing of the kubelet."""
        return api.DevicePluginOptions()

    async def watch(self, _request: Any, _context: Any) -> AsyncIterator[api.ListAndWatchResponse]:
        """Yield the devices, again after each change."""
        sent = None
        while True:
            now = self._read()
            if now != sent:
                sent = now
                yield api.ListAndWatchResponse(devices=[api.Device(ID=uuid, health="Healthy") for uuid in now])
            await asyncio.sleep(0.1)

    async def allocate(self, request: api.AllocateRequest, _context: Any) -> api.AllocateResponse:
        """The device nodes."""
        known = self._read()
        return api.AllocateResponse(
            container_responses=[
                api.ContainerAllocateResponse(
                    devices=[
                        api.DeviceSpec(
                            container_path=f"/dev/nvidia{known[uuid]}",
                            host_path=str(self._devices / f"gpu{known[uuid]}"),
                            permissions="rw",
                        )
                        for uuid in one.devices_ids
                    ]
                )
                for one in request.container_requests
            ]
        )

    def _read(self) -> dict[str, int]:
        found: dict[str, int] = json.loads(self._offered.read_text())
        return found


async def main(plugins: Path, offered: Path, devices: Path) -> None:
    """Until killed."""
    plugin = SecondPlugin(offered, devices)
    server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))

    def unary(call: Any, request: Any) -> Any:
        return grpc.unary_unary_rpc_method_handler(
            call, request_deserializer=request.FromString, response_serializer=lambda a: a.SerializeToString()
        )

    stream: Any = grpc.unary_stream_rpc_method_handler(
        plugin.watch, request_deserializer=api.Empty.FromString, response_serializer=lambda a: a.SerializeToString()
    )
    handlers = {
        "GetDevicePluginOptions": unary(plugin.options, api.Empty),
        "ListAndWatch": stream,
        "Allocate": unary(plugin.allocate, api.AllocateRequest),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("v1beta1.DevicePlugin", handlers),))
    server.add_insecure_port(f"unix:{plugins / 'second.sock'}")
    await server.start()
    await register(plugins / "kubelet.sock", "second.sock", RESOURCE)
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(main(*map(Path, sys.argv[1:])))
