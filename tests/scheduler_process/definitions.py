"""The chart's CustomResourceDefinitions in an API server."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import yaml

from jupyter_gpu.kube import Kube, NotFound, Unavailable
from jupyter_gpu.kube.rules import paths
from tests.deploy.chart import CHART

PATIENCE = 60.0


async def define(kube: Kube, *plurals: str) -> None:
    """Create the definitions of these kinds and wait until the API server has them."""
    for plural in plurals:
        body = yaml.safe_load((CHART / f"crds/{plural}.yaml").read_text())
        path = paths.definition(plural)
        await kube.create(path.rpartition("/")[0], body)
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    await kube.list(f"/apis/jupyter-gpu.io/v1alpha1/{plural}")
                except (NotFound, Unavailable):
                    await asyncio.sleep(0.05)
                else:
                    break


async def undefine(kube: Kube, *plurals: str) -> None:
    """Delete the definitions of these kinds, with all their objects."""
    for plural in plurals:
        await kube.delete(paths.definition(plural))
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    await kube.get(paths.definition(plural))
                except NotFound:
                    break
                await asyncio.sleep(0.05)


def limit_body(name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON of a ``GpuLimit``."""
    return {
        "apiVersion": "jupyter-gpu.io/v1alpha1",
        "kind": "GpuLimit",
        "metadata": {"name": name},
        "spec": dict(spec),
    }
