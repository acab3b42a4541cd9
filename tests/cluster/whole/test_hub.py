"""A JupyterHub with KubeSpawner, configured as the example says: people log in, and their servers have a slider."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.testbed import until
from tests.cluster.whole import hub
from tests.cluster.whole.world import NOTEBOOKS, SECONDS, Product, World, world
from tests.hub import Person

pytestmark = [pytest.mark.root, pytest.mark.cluster, pytest.mark.timeout(900)]  # the first of all installs the product

EAGER = "eager"
"""This user's server starts with a GPU."""
CONFIG = """
c.KubeSpawner.node_selector = {{"kubernetes.io/hostname": {node!r}}}

def _eager(spawner):
    if spawner.user.name == {eager!r}:
        spawner.extra_annotations = {{"jupyter-gpu.io/requested": "1"}}

c.Spawner.pre_spawn_hook = _eager
"""
RESIZE = "from jupyter_gpu import gpu; print(gpu.resize(2).attached)"
"""Code of a notebook."""


def test_users_of_a_hub_change_their_gpus(product: Product, tmp_path: Path) -> None:
    """Through the hub's proxy from 0 to 2 and down to 1, and by code in a kernel to 2 again.

    Another's server starts with one that the hub asked for.
    """
    with world(product, NOTEBOOKS[0]) as found:
        found.kubectl("delete", "--ignore-not-found", "serviceaccount", "notebook")  # of an earlier attempt
        found.kubectl("create", "serviceaccount", "notebook")
        config = CONFIG.format(node=product.cluster.nodes[0].name, eager=EAGER)
        with hub.running(product.cluster, found.namespace, tmp_path, product.notebook, config) as address:
            alice = Person(address, "alice")
            alice.log_in()
            assert opened(found, "alice") == set()
            tokens = [each for each in container(found, "alice")["env"] if "TOKEN" in each["name"]]
            assert tokens
            assert not [each["name"] for each in tokens if each.get("value")], "Other users could read them."
            mounts = {each["name"] for each in container(found, "alice")["volumeMounts"]}
            assert mounts == {"home", "jupyter-gpu-token"}, "The hub's own volumes stay."
            resize(found, alice, 2)
            resize(found, alice, 1)
            assert alice.run(RESIZE) == "2"
            assert opened(found, "alice") == set(found.has(pod("alice"), 2000).usable)
            eager = Person(address, EAGER)
            eager.log_in()
            assert opened(found, EAGER) == set(found.has(pod(EAGER), 1000).usable)
            alice.stop()
            found.until(lambda: not found.history.pods(pod("alice")), "the server to end")
            until(lambda: "alice" not in found.kubectl("get", "secrets", "-o", "name"), SECONDS, "its Secret to go")


def pod(user: str) -> str:
    """Return the pod's name as KubeSpawner makes it."""
    return f"jupyter-{user}"


def container(found: World, user: str) -> dict[str, Any]:
    """Return the container of a user's server, as any reader of pods sees it."""
    (only,) = json.loads(found.kubectl("get", "pod", pod(user), "-o", "json"))["spec"]["containers"]
    assert isinstance(only, dict)
    return only


def resize(found: World, person: Person, gpus: int) -> None:
    """Resize as the slider does: the attached GPUs open, and the server says so."""
    person.ask("PUT", "request", {"gpus": gpus})
    state = found.has(pod(person.name), 1000 * gpus)
    assert opened(found, person.name) == set(state.usable)
    until(lambda: person.ask("GET", "status")["amounts"]["attached"] == 1000 * gpus, SECONDS, "the server to see it")


def opened(found: World, user: str) -> set[str]:
    """The GPUs of its node that a user's server can open, by uuid."""
    name = pod(user)
    found.until(lambda: found.pod(name).ready, "the server to run")
    return {gpu.uuid for gpu in found.gpus[found.pod(name).node] if found.opens(name, gpu.path)}
