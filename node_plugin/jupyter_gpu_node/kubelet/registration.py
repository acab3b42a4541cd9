"""Registration of the plugin for slots with the kubelet."""

from __future__ import annotations

from pathlib import Path

import grpc

from jupyter_gpu_node.kubelet.protos import deviceplugin_v1beta1_pb2 as api

from .pod_resources import OPTIONS

METHOD = "/v1beta1.Registration/Register"
VERSION = "v1beta1"
SECONDS = 20.0
"""The kubelet dials back, for up to 10 s, before it answers."""


class NotRegistered(Exception):
    """The error if the kubelet does not take the plugin; the text says why in plain words."""


async def register(kubelet: Path, endpoint: str, resource: str) -> None:
    """Register the plugin that serves ``endpoint``, a name beside the kubelet's socket; raises `NotRegistered`.

    The plugin must be serving already: the kubelet asks for its options before it answers, and ignores those here.
    """
    request = api.RegisterRequest(version=VERSION, endpoint=endpoint, resource_name=resource, options=options())
    try:
        async with grpc.aio.insecure_channel(f"unix:{kubelet}", options=OPTIONS) as channel:
            call = channel.unary_unary(
                METHOD,
                request_serializer=api.RegisterRequest.SerializeToString,
                response_deserializer=api.Empty.FromString,
            )
            await call(request, timeout=SECONDS)
    except grpc.aio.AioRpcError as error:
        raise NotRegistered(f"The kubelet behind {kubelet} did not take the plugin: {error.details()}.") from None


def options() -> api.DevicePluginOptions:
    """Return the options that tell the kubelet which calls to make."""
    return api.DevicePluginOptions(pre_start_required=True, get_preferred_allocation_available=True)
