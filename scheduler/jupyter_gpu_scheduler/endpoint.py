"""Leads kube-scheduler to who leads: the leader writes its address into an EndpointSlice of the extender's Service."""

from __future__ import annotations

import asyncio
import logging
from urllib.parse import quote

from jupyter_gpu.kube import Kube, KubeError

from .writer import PASSING, Writer

_log = logging.getLogger(__name__)


async def publish(kube: Kube, writer: Writer, namespace: str, name: str, address: str) -> None:
    """Until it is written, or refused: then the Service leads elsewhere and its owner reads it in the log."""
    path = f"/apis/discovery.k8s.io/v1/namespaces/{quote(namespace, safe='')}/endpointslices/{quote(name, safe='')}"
    body = {"endpoints": [{"addresses": [address], "conditions": {"ready": True}}]}
    pauses = writer.pauses()
    while True:
        try:
            await kube.patch(path, body)
        except PASSING as error:
            _log.warning("The EndpointSlice %s can't be written now: %s", name, error)
            await asyncio.sleep(pauses())
        except KubeError as error:
            _log.error("kube-scheduler may not find us: the EndpointSlice %s can't be written: %s", name, error)
            return
        else:
            return
