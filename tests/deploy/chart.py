"""The chart as helm renders it."""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.testbed import binaries
from tests.cluster.testbed.commands import run

REGISTRY = ("--set", "image.repository=registry.example/gpu")
"""Values without a default."""
CHART = Path(__file__).parents[2] / "deploy" / "chart" / "jupyter-gpu"


def render(values: Mapping[str, Any] | None = None, *, namespace: str = "jupyter-gpu") -> list[dict[str, Any]]:
    """Return all objects, including hooks."""
    return list(yaml.load_all(text(values, namespace=namespace), yaml.CSafeLoader))  # ten times as fast as in Python


def text(values: Mapping[str, Any] | None = None, *, namespace: str = "jupyter-gpu") -> str:
    """Return the output of `helm template`. Raises CommandFailed if helm refuses the values."""
    return _template(json.dumps(values or {}, sort_keys=True), namespace)


@cache
def _template(values: str, namespace: str) -> str:
    flags = ("--namespace", namespace, "--kube-version", binaries.version(), *REGISTRY, "--values", "-")
    return run(binaries.path("helm"), "template", "jupyter-gpu", CHART, *flags, stdin=values)


def is_hook(item: Mapping[str, Any]) -> bool:
    """Return whether helm creates an object before or after the rest."""
    return "helm.sh/hook" in (item["metadata"].get("annotations") or {})


def find(objects: list[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    """Return the only object of that kind and name."""
    (found,) = (item for item in objects if item["kind"] == kind and item["metadata"]["name"] == name)
    return found


def hook_files(values: Mapping[str, Any] | None = None, *, namespace: str = "jupyter-gpu") -> dict[str, str]:
    """Return the files of the hooks' folder: policies, their bindings, the program."""
    found: dict[str, str] = find(render(values, namespace=namespace), "ConfigMap", "jupyter-gpu-hook")["data"]
    return found
