"""Client of the kubelet's PodResources service, which lists the devices of each container."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

import grpc

from jupyter_gpu_node.gpus.rules.managed import Given
from jupyter_gpu_node.kubelet.protos import podresources_v1_pb2 as api
from jupyter_gpu_node.kubelet.rules.slots import ListedContainer

METHOD = "/v1.PodResourcesLister/List"
OPTIONS = (
    ("grpc.default_authority", "localhost"),
    ("grpc.max_receive_message_length", 16 * 2**20),  # what the kubelet itself accepts
    ("grpc.use_local_subchannel_pool", 1),  # a channel of its own, so that nothing waits for an old one's back-off
)
_AGAIN = (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE)


class PodResourcesError(Exception):
    """The error if the kubelet does not answer; the text says why in plain words."""


class PodResources:
    """The client of the kubelet behind ``socket``. Each question makes a connection: the kubelet may have restarted."""

    def __init__(self, socket: Path, *, timeout: float = 5.0) -> None:
        self._socket = socket
        self._timeout = timeout

    async def list(self, resource: str) -> tuple[ListedContainer, ...]:
        """Return all containers that have devices of ``resource``; raises `PodResourcesError`."""
        return listed(await self._answer(), resource)

    async def others(self, resource: str) -> tuple[Given, ...]:
        """Return the devices of all other resources and of DRA drivers, by container; raises `PodResourcesError`."""
        return others(await self._answer(), resource)

    async def _answer(self) -> api.ListPodResourcesResponse:
        """Return the kubelet's answer; raises `PodResourcesError`.

        The kubelet refuses more than 100 questions a second, and is away while it restarts: asked again until the
        time is over.
        """
        pause, why = 0.02, ""
        try:
            async with asyncio.timeout(self._timeout):
                while True:
                    try:
                        return await self._ask()
                    except grpc.aio.AioRpcError as error:
                        why = error.details() or error.code().name
                        if error.code() not in _AGAIN:
                            break
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, 0.5)
        except TimeoutError:
            why = f"no answer within {self._timeout:g} seconds{f' ({why})' if why else ''}"
        raise PodResourcesError(f"The kubelet behind {self._socket} does not say who has which device: {why}.")

    async def _ask(self) -> api.ListPodResourcesResponse:
        async with grpc.aio.insecure_channel(f"unix:{self._socket}", options=OPTIONS) as channel:
            call = channel.unary_unary(
                METHOD,
                request_serializer=api.ListPodResourcesRequest.SerializeToString,
                response_deserializer=api.ListPodResourcesResponse.FromString,
            )
            answer: api.ListPodResourcesResponse = await call(api.ListPodResourcesRequest(), timeout=self._timeout)
            return answer


def listed(answer: api.ListPodResourcesResponse, resource: str) -> tuple[ListedContainer, ...]:
    """Return the parts of an answer that are about ``resource``."""
    return tuple(
        ListedContainer(pod.namespace, pod.name, container.name, ids)
        for pod in answer.pod_resources
        for container in pod.containers
        if (ids := _ids(container.devices, resource))
    )


def others(answer: api.ListPodResourcesResponse, resource: str) -> tuple[Given, ...]:
    """Return the other parts of an answer, not about ``resource``: devices of device plugins and of DRA drivers."""
    containers = [
        (f"{pod.namespace}/{pod.name}", container) for pod in answer.pod_resources for container in pod.containers
    ]
    plugins = [
        Given(pod, item.resource_name, tuple(item.device_ids))
        for pod, container in containers
        for item in container.devices
        if item.resource_name != resource
    ]
    drivers = [
        Given(pod, part.driver_name, (part.device_name,))
        for pod, container in containers
        for owner in container.dynamic_resources
        for part in owner.claim_resources
    ]
    return (*plugins, *drivers)


def _ids(devices: Iterable[api.ContainerDevices], resource: str) -> tuple[str, ...]:
    return tuple(sorted(name for item in devices if item.resource_name == resource for name in item.device_ids))
