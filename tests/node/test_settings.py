"""Settings of the node plugin: one file for all nodes, and what each node's environment says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpu.common.settings_file import SettingsError
from jupyter_gpu_node.settings import SLOT, Settings, Simulated, load

HERE = {"NODE_NAME": "node1", "POD_NAME": "plugin-x", "POD_NAMESPACE": "jupyter-gpu", "POD_IP": "10.0.0.7"}


def read(tmp_path: Path, text: Any, environment: dict[str, str] = HERE) -> Settings:
    """Settings of a file with that content."""
    path = tmp_path / "settings.json"
    path.write_text(json.dumps(text))
    return load(path, environment)


def test_everything_has_a_default() -> None:
    """Without a file the node's own GPUs are offered by 64 slots."""
    settings = load(None, HERE)
    assert settings.resource == SLOT
    assert len(settings.slot_names) == 64
    assert settings.simulated is None
    assert settings.kubelet_socket == Path("/var/lib/kubelet/device-plugins/kubelet.sock")
    assert settings.pod_resources_socket == Path("/var/lib/kubelet/pod-resources/kubelet.sock")
    assert settings.slot_directory("slot-0001") == Path("/run/jupyter-gpu/slots/slot-0001")


def test_the_environment_says_where_the_plugin_is(tmp_path: Path) -> None:
    """As Kubernetes' downward API gives it."""
    settings = read(tmp_path, {"slots": 3})
    assert (settings.node, settings.pod, settings.namespace, settings.pod_ip) == (
        "node1",
        "plugin-x",
        "jupyter-gpu",
        "10.0.0.7",
    )


def test_simulated_gpus_differ_from_node_to_node(tmp_path: Path) -> None:
    """Nodes of one machine share its device numbers."""
    text = {"simulated": {"count": 4, "firstMinor": 56, "nodes": {"node2": {"firstMinor": 60}, "node3": {"count": 0}}}}
    chosen = [read(tmp_path, text, {"NODE_NAME": f"node{n}"}).simulated for n in (1, 2, 3)]
    assert chosen == [Simulated(4, 56), Simulated(4, 60), Simulated(0, 56)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ({"slotts": 3}, "slotts"),
        ({"slots": 0}, "slots"),
        ({"slots": "3"}, "slots"),
        ({"resource": "slot"}, "a name with a domain"),
        ({"node": "node2"}, "comes from the environment"),
        ({"simulated": {"count": 4, "firstMinor": 61}}, "63 is the last"),
        ({"simulated": {"count": 4, "nodes": {"node7": {"firstMinor": 62}}}}, "63 is the last"),
        ([], "object"),
    ],
)
def test_invalid_settings_are_refused_with_a_sentence(tmp_path: Path, text: Any, words: str) -> None:
    """On every node, also where it would do no harm."""
    with pytest.raises(SettingsError, match=words):
        read(tmp_path, text)


def test_without_the_name_of_its_node_the_plugin_does_not_start() -> None:
    """It could not tell its own pods from those of others."""
    with pytest.raises(SettingsError, match="NODE_NAME"):
        load(None, {})
