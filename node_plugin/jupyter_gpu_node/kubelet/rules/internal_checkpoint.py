"""The kubelet's own record of devices and their owners. Pure.

Before Kubernetes 1.36 it is the only place on a node that joins a device with the uid of its pod. The format is the
kubelet's private matter, without a version: entries that look different are left out, and a file that is no such record
gives None. It is never written.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from google.protobuf.message import DecodeError

from jupyter_gpu.model import strict
from jupyter_gpu_node.kubelet.protos import deviceplugin_v1beta1_pb2 as api

from .slots import CheckpointEntry

MAX_BYTES = 16 * 2**20
"""An entry holds all that a container got from a plugin, as text."""


def parse(text: bytes, resource: str) -> tuple[CheckpointEntry, ...] | None:
    """Return the holders of ``resource``'s devices; None where this is not the kubelet's checkpoint as we know it."""
    try:
        body = strict.loads(text, MAX_BYTES)
    except strict.FieldError:
        return None
    data = body.get("Data") if isinstance(body, Mapping) else None
    if not isinstance(data, Mapping) or "PodDeviceEntries" not in data:
        return None
    entries = data["PodDeviceEntries"]
    if entries is None:  # how Go writes an empty list
        return ()
    if not isinstance(entries, list):
        return None
    found = (_entry(entry, resource) for entry in entries)
    return tuple(held for held in found if held is not None)


def _entry(entry: Any, resource: str) -> CheckpointEntry | None:
    if not isinstance(entry, Mapping) or entry.get("ResourceName") != resource:
        return None
    uid, container = entry.get("PodUID"), entry.get("ContainerName")
    if not (isinstance(uid, str) and uid and isinstance(container, str) and container):
        return None
    return CheckpointEntry(
        uid, container, tuple(sorted(_devices(entry.get("DeviceIDs")))), _paths(entry.get("AllocResp"))
    )


def _paths(text: Any) -> frozenset[str] | None:
    """Return the container's device paths from the plugin's answer at admission; None: they are not recorded."""
    try:
        answer = api.ContainerAllocateResponse.FromString(base64.b64decode(text, validate=True))
    except (TypeError, ValueError, DecodeError):
        return None
    return frozenset(device.container_path for device in answer.devices) or None


def _devices(ids: Any) -> list[str]:
    """Return the ids, which are by NUMA node since Kubernetes 1.20, a plain list before."""
    groups = list(ids.values()) if isinstance(ids, Mapping) else [ids]
    return [item for group in groups if isinstance(group, list) for item in group if isinstance(item, str)]
