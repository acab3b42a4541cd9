"""Files that tell a client the address of the API server and its own identity."""

import base64
import json
from pathlib import Path

from tests.cluster.testbed.pki import Identity


def write(path: Path, server: str, authority: Path, user: Identity) -> Path:
    """A kubeconfig that refers to no other file. It is JSON, which every reader of YAML takes."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": "testbed", "cluster": {"server": server, "certificate-authority-data": _data(authority)}}
        ],
        "users": [
            {
                "name": "user",
                "user": {"client-certificate-data": _data(user.certificate), "client-key-data": _data(user.key)},
            }
        ],
        "contexts": [{"name": "testbed", "context": {"cluster": "testbed", "user": "user"}}],
        "current-context": "testbed",
    }
    path.touch(mode=0o600)
    path.write_text(json.dumps(config, indent=2))
    return path


def _data(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
