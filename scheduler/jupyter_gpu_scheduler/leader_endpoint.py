"""Directs kube-scheduler to the leader: the leader writes its address into an EndpointSlice of the extender's Service.

The leader also keeps the slice up to date: a write of an earlier leader may arrive late, and a tool that installs the
chart may remove objects that the chart does not have. Only the leader writes the slice; the Service owns it, so it is
removed with the Service. Each write has the version that was read as a precondition, so a late write changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from jupyter_gpu.kube import Conflict, Kube, KubeError, NotFound
from jupyter_gpu.kube.rules import objects

from .writer import PASSING, AllocationWriter

CHECK_SECONDS = 5.0
"""Seconds between two checks that the slice is up to date."""

_log = logging.getLogger(__name__)


class LeaderEndpoint:
    """The EndpointSlice ``name`` of the Service of that name, kept at this process's ``address``."""

    def __init__(
        self, kube: Kube, writer: AllocationWriter, namespace: str, name: str, address: str, port: int
    ) -> None:
        self._kube = kube
        self._pauses = writer.pauses
        self._name = name
        there, called = quote(namespace, safe=""), quote(name, safe="")
        self._slices = f"/apis/discovery.k8s.io/v1/namespaces/{there}/endpointslices"
        self._path = f"{self._slices}/{called}"
        self._service = f"/api/v1/namespaces/{there}/services/{called}"
        self._address_type = "IPv6" if ":" in address else "IPv4"
        self._port = port
        self._wanted = [{"addresses": [address], "conditions": {"ready": True}}]
        self._trouble = ""

    async def publish(self) -> None:
        """Write the slice; retry until it is written or refused. If it is refused, the log says so."""
        pauses = self._pauses()
        while True:
            try:
                await self._reconcile()
            except (Conflict, *PASSING) as error:
                _log.warning("The EndpointSlice %s can't be written now: %s", self._name, error)
                await asyncio.sleep(pauses())
            except KubeError as error:
                self._report(error.message)
                return
            else:
                self._report("")
                return

    async def keep(self) -> None:
        """Write the slice again whenever it is out of date, until cancelled."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            await self.publish()

    async def _reconcile(self) -> None:
        try:
            found = await self._kube.get(self._path)
        except NotFound:
            await self._create()
        else:
            if not self._is_current(found):
                await self._write(found)

    def _is_current(self, found: Mapping[str, Any]) -> bool:
        there = found.get("endpoints")
        short = [
            {"addresses": each.get("addresses"), "conditions": {"ready": (each.get("conditions") or {}).get("ready")}}
            for each in there or ()
        ]
        return short == self._wanted

    async def _write(self, found: Mapping[str, Any]) -> None:
        precondition = {"uid": objects.uid(found), "resourceVersion": objects.resource_version(found)}
        await self._kube.patch(self._path, {"metadata": precondition, "endpoints": self._wanted})

    async def _create(self) -> None:
        """Create the slice without the chart's labels: tools remove objects with these that the chart does not have."""
        service = await self._kube.get(self._service)
        owner = {"apiVersion": "v1", "kind": "Service", "name": self._name, "uid": objects.uid(service)}
        labels = {
            "kubernetes.io/service-name": self._name,
            "endpointslice.kubernetes.io/managed-by": "jupyter-gpu-scheduler",
        }
        body = {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": self._name, "labels": labels, "ownerReferences": [owner]},
            "addressType": self._address_type,
            "ports": [{"name": "extender", "port": self._port, "protocol": "TCP"}],
            "endpoints": self._wanted,
        }
        await self._kube.create(self._slices, body)

    def _report(self, trouble: str) -> None:
        """Log a trouble once, and again only when it changes."""
        if trouble and trouble != self._trouble:
            _log.error("kube-scheduler may not find us: the EndpointSlice %s can't be written: %s", self._name, trouble)
        self._trouble = trouble
