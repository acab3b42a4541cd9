"""Kubernetes Events about our pod, if the pod may read them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from jupyter_gpu.kube import Forbidden, Kube, KubeError, ObjectChange, Reflector, Selection, Unauthorized
from jupyter_gpu.kube.rules import paths

_log = logging.getLogger(__name__)

Events = tuple[Mapping[str, Any], ...]


async def follow(kube: Kube, namespace: str, uid: str, saw: Callable[[Events], None]) -> None:
    """Follow the pod's Events until cancelled; return at once if it may not read them, as they are only a help."""
    path, fields = paths.events(namespace), f"involvedObject.uid={uid}"
    try:
        await kube.list(path, fields=fields, resource_version="0")
    except (Forbidden, Unauthorized):
        _log.info("This pod may not read events: what the cluster says of it is not shown.")
        return
    except KubeError:
        pass  # the reflector goes on trying

    def changed(_: ObjectChange) -> None:
        saw(tuple(reflector.objects.values()))

    reflector = Reflector(kube, Selection(path, fields=fields), on_change=changed)
    await reflector.run()
