"""The image of a container, by its digest where the node tells which one it got. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from jupyter_gpu.kube.rules import objects

_DIGEST = re.compile(r"(?P<repository>.+)@(?P<digest>sha256:[0-9a-f]{64})")


def pulled_image(pod: Mapping[str, Any], container: Mapping[str, Any]) -> str:
    """Return the image of one of a pod's containers; empty: not known."""
    image = container.get("image")
    if not isinstance(image, str):
        return ""
    status = pod.get("status")
    found = status.get("containerStatuses") if isinstance(status, Mapping) else None
    for item in found if isinstance(found, list) else ():
        if isinstance(item, Mapping) and item.get("name") == container.get("name"):
            pulled = _DIGEST.fullmatch(str(item.get("imageID", "")).rpartition("://")[2])
            # The same content can be there under another repository's name, for which the secrets may not do.
            if pulled and _repository(pulled["repository"]) == _repository(image):
                return f"{_untagged(image)}@{pulled['digest']}"
    return image


def slot_images(pod: Mapping[str, Any]) -> frozenset[str]:
    """Return the image of a pod's first container with a slot: as it is written there, and as it was pulled."""
    slots = objects.slots(pod)
    for container in objects.containers(pod):
        if container.get("name") in slots:
            return frozenset({str(container.get("image", "")), pulled_image(pod, container)} - {""})
    return frozenset()


def _untagged(image: str) -> str:
    """Return an image's repository as it is written, without tag and digest."""
    name = image.partition("@")[0]
    head, slash, last = name.rpartition("/")
    return head + slash + last.partition(":")[0]


def _repository(image: str) -> str:
    """Return the whole name of an image's repository: ``busybox:1`` is ``docker.io/library/busybox``."""
    name = _untagged(image)
    first, slash, _ = name.partition("/")
    if not slash:
        return f"docker.io/library/{name}"
    known = "." in first or ":" in first or first == "localhost"
    return name if known else f"docker.io/{name}"
