"""Files in the home of a notebook's pod, and settings of JupyterLab without questions, from ConfigMaps."""

import json
import re
from collections.abc import Mapping
from typing import Any

from scripts.lib.lab import QUIET
from tests.cluster.testbed import Cluster

FILES, SETTINGS = "notebook-files", "notebook-settings"
"""Names of the ConfigMaps."""
ENVIRONMENT = {"JUPYTERLAB_SETTINGS_DIR": "/tmp/settings"}
MOUNTS = [{"name": "files", "mountPath": "/files"}, {"name": "settings", "mountPath": "/settings"}]


def write(cluster: Cluster, namespace: str, files: Mapping[str, str]) -> None:
    """Write the ConfigMaps of a namespace."""
    objects = [_config_map(FILES, files), _config_map(SETTINGS, _settings())]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    cluster.kubectl("apply", "--namespace", namespace, "-f", "-", stdin=text)


def volumes() -> list[dict[str, Any]]:
    """Return the volumes of `MOUNTS`."""
    items = [{"key": _key(path), "path": path} for path in _settings()]
    return [
        {"name": "files", "configMap": {"name": FILES}},
        {"name": "settings", "configMap": {"name": SETTINGS, "items": items}},
    ]


def command(*words: str) -> list[str]:
    """Return a command that copies the files to its working directory, and goes on with ``words``."""
    copy = "cp /files/* . && mkdir -p /tmp/settings && cp -rL /settings/. /tmp/settings"
    return ["sh", "-c", f'{copy} && exec "$@"', "sh", *words]


def _config_map(name: str, files: Mapping[str, str]) -> dict[str, Any]:
    data = {_key(path): text for path, text in files.items()}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def _key(path: str) -> str:
    """Return the name of a file in a ConfigMap, which has neither slashes nor most other signs."""
    return re.sub(r"[^\w.-]", "-", path)


def _settings() -> dict[str, str]:
    """Return settings of JupyterLab by path: no questions and no external requests, as on one machine."""
    return {f"{plugin}.jupyterlab-settings": json.dumps(values) for plugin, values in QUIET.items()}
