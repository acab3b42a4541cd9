"""A JupyterHub with KubeSpawner, configured as the example says: people log in, and their servers have a slider."""

import base64
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpu.model.annotations import REQUESTED
from jupyter_gpu.model.limits.owner import HUB
from tests.cluster.testbed import until
from tests.cluster.whole import hub
from tests.cluster.whole.faults import end, processes
from tests.cluster.whole.limits_page import LimitsPage
from tests.cluster.whole.world import NOTEBOOKS, PEOPLE, SECONDS, Product, World, world
from tests.deploy import product as chart
from tests.hub import Hub, Person

pytestmark = [pytest.mark.root, pytest.mark.cluster, pytest.mark.timeout(900)]  # the first of all installs the product

EAGER = "eager"
"""This user's server starts with more GPUs than the user's limit allows."""
PINNED = """
c.KubeSpawner.node_selector = {{"kubernetes.io/hostname": {node!r}}}
"""
"""Servers start on the node that has their image."""
PROFILES = """
c.Authenticator.admin_users = {{"root"}}
c.KubeSpawner.profile_list = {profiles!r}
"""
THREE: dict[str, Any] = {
    "display_name": "Three GPUs",
    "slug": "three",
    "kubespawner_override": {"extra_annotations": {REQUESTED: "3"}},
}
"""A profile beside those of the example."""
OWN_NAMESPACES = """
c.KubeSpawner.enable_user_namespaces = True
c.KubeSpawner.user_namespace_template = "{hub}-{{username}}"
c.KubeSpawner.extra_annotations = {annotations!r}
"""
SECRET = "jsonpath={.data.JUPYTERHUB_API_TOKEN}"
RESIZE = "from jupyter_gpu import gpu; print(gpu.resize(2).attached)"
"""Code of a notebook."""


ROUTE = "api/v1/server/pod"
INTRUDE = """
import json, os, urllib.error, urllib.request
from pathlib import Path

def ask(token, body=None):
    headers = {{"Authorization": f"token {{token}}", "Content-Type": "application/json"}}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(URL, data, headers, method="PUT" if body else "GET")
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code

URL = os.environ["JUPYTER_GPU_HUB_SERVICE"] + {route!r}
own, foreign, user = os.environ["JUPYTERHUB_API_TOKEN"], {foreign!r}, {user!r}
mine = ask(own)
change = {{"requested": {{"generation": 99, "milli": 1000}}, "version": mine["version"]}}
mounted = Path("/var/run/secrets/kubernetes.io").exists()
print(json.dumps([mine["name"], ask(foreign)["name"], ask(foreign, change), ask(user), ask(user, change), mounted]))
"""
"""Code of a notebook that tries tokens which are not those of its pod, and looks for one of the cluster."""


def test_users_of_a_hub_change_their_gpus(product: Product, tmp_path: Path) -> None:
    """Through the hub's proxy from 0 to 2 and down to 1, and by code in a kernel to 2 again."""
    with world(product, NOTEBOOKS[0]) as found:
        found.kubectl("delete", "--ignore-not-found", "serviceaccount", "notebook")  # of an earlier attempt
        found.kubectl("create", "serviceaccount", "notebook")
        with hub.running(product.cluster, found.namespace, tmp_path, product.notebook, pinned(found)) as address:
            alice = Person(address, "alice")
            alice.log_in()
            changes(found, alice)
            tokens = [each for each in container(found, "alice")["env"] if "TOKEN" in each["name"]]
            assert tokens
            assert not [each["name"] for each in tokens if each.get("value")], "Other users could read them."
            assert mounts(found, "alice") == {"home", "jupyter-gpu-token"}, "The hub's own volumes stay."
            alice.stop()
            found.until(lambda: not found.history.pods(pod("alice")), "the server to end")
            until(lambda: "alice" not in found.kubectl("get", "secrets", "-o", "name"), SECONDS, "its Secret to go")


def test_servers_without_a_token_of_the_cluster_change_their_gpus(product: Product, tmp_path: Path) -> None:
    """The same by the hub's service. While it is away nothing changes; other tokens than the pod's do not change it.

    Another's server starts by a profile with more GPUs than its user's limit allows. It gets the rest as soon as it is
    allowed to, and both servers go on while the hub is killed, and the service during a request.
    """
    with world(product, NOTEBOOKS[0]) as found, service(found) as planned:
        config = pinned(found) + PROFILES.format(profiles=[*hub.profiles(), THREE])
        with hub.started_without_tokens(planned, tmp_path, product.notebook, config) as made:
            alice, eager = Person(made.address, "alice"), Person(made.address, EAGER)
            alice.log_in(profile="none")
            changes(found, alice)
            assert mounts(found, "alice") == {"home"}
            limit = LimitsPage(made.address, "root", found.namespace).limit(EAGER, 1)
            eager.log_in(profile=THREE["slug"])
            waits_for_its_limit(found, eager, 1)
            foreign = base64.b64decode(found.kubectl("get", "secret", f"{pod(EAGER)}-token", "-o", SECRET)).decode()
            code = INTRUDE.format(route=ROUTE, foreign=foreign, user=alice.token())
            assert json.loads(alice.run(code)) == [pod("alice"), pod(EAGER), 409, 403, 403, False]
            scale(found, 0)
            with pytest.raises(AssertionError, match=r"503.*service of GPU limits"):
                alice.ask("PUT", "request", {"gpus": 1})
            assert len(opened(found, "alice")) == 2, "What it has, it keeps."
            scale(found, 1)
            resize(found, alice, 1)
            made.kill()
            assert [len(opened(found, name)) for name in ("alice", EAGER)] == [1, 1]
            made.start()
            resize(found, alice, 2)
            waits_for_its_limit(found, eager, 1)
            limit.change(2)
            waits_for_its_limit(found, eager, 2)
            with pytest.raises(AssertionError, match="Your limit is 2 GPUs"):
                eager.ask("PUT", "request", {"gpus": 4})
            request_while_the_service_is_killed(found, made, alice)


def test_server_in_a_namespace_of_its_user_s_own_has_a_slider(product: Product, tmp_path: Path) -> None:
    """KubeSpawner makes the namespace; limits count the server for its user of the hub, which has a name."""
    with world(product, PEOPLE) as found, service(found) as planned, hub.rights_everywhere(product.cluster, PEOPLE):
        config = pinned(found) + OWN_NAMESPACES.format(hub=PEOPLE, annotations={HUB: PEOPLE})
        config += PROFILES.format(profiles=[])
        with hub.started_without_tokens(planned, tmp_path, product.notebook, config) as made:
            carol = Person(made.address, "carol")
            LimitsPage(made.address, "root", PEOPLE).limit("carol", 2)
            carol.log_in()
            with world(product, f"{PEOPLE}-carol") as own:
                changes(own, carol)
                with pytest.raises(AssertionError, match="Your limit is 2 GPUs"):
                    carol.ask("PUT", "request", {"gpus": 3})
                own.ask(pod("carol"), 3)
                waits_for_its_limit(own, carol, 2)
                assert not found.history.pods(), "None is in the hub's own namespace."


def pinned(found: World) -> str:
    """Return the configuration of servers on the node that has their image."""
    return PINNED.format(node=found.one)


def waits_for_its_limit(found: World, person: Person, gpus: int) -> None:
    """A server that wants three GPUs has those that its user may have, and says why it has no more."""
    name, milli = pod(person.name), 1000 * gpus

    def decided() -> bool:
        state = found.pod(name)
        return state.wanted == 3000 and state.allocated is not None and state.allocated.reason == "LimitExceeded"

    def seen() -> bool:
        view = person.ask("GET", "status")
        attached, shown = view["amounts"]["attached"], (view["phase"], view["reason"], view["limit"])
        return bool(attached == milli and shown == ("Waiting", "LimitExceeded", milli))

    found.until(decided, "the limit to be the reason")
    assert opened(found, person.name) == set(found.has(name, milli).usable)
    until(seen, SECONDS, "the server to see it")


def request_while_the_service_is_killed(found: World, made: Hub, person: Person) -> None:
    """The service dies while it asks the hub whose request it is: in the end that is written once, and so are GPUs."""
    before = found.pod(pod(person.name))
    assert before.requested
    (service_pod,) = found.product.component("hub")
    address, killed = service_pod["status"]["podIP"], processes(found.cluster, "jupyter_gpu_hub", first=True)
    assert len(killed) == 1
    with ThreadPoolExecutor(1) as pool, made.paused():
        asking = pool.submit(person.ask, "PUT", "request", {"gpus": 1})
        until(lambda: made.is_asked_by(address), SECONDS, "the service to ask the hub")
        assert not asking.done()
        end(killed)
    refused = asking.exception(SECONDS)
    if refused:  # the kubelet took longer to start it again than the server is patient
        assert "can't be asked now" in str(refused)
        assert found.pod(pod(person.name)).requested == before.requested
        until(lambda: person.ask("PUT", "request", {"gpus": 1}), SECONDS, "the service to be back")
    state = found.has(pod(person.name), 1000)
    assert opened(found, person.name) == set(state.usable)
    written = {moment.state.requested for moment in found.history.of(before.uid)}
    later = [each.milli for each in written if each and each.generation > before.requested.generation]
    assert later == [1000], "It is written once."


def changes(found: World, person: Person) -> None:
    """Change the GPUs of a server as the slider does, and then as code does, to two in the end."""
    assert opened(found, person.name) == set()
    resize(found, person, 2)
    resize(found, person, 1)
    assert person.run(RESIZE) == "2"
    assert opened(found, person.name) == set(found.has(pod(person.name), 2000).usable)


@contextmanager
def service(found: World) -> Iterator[hub.ServicePlan]:
    """Add the hub's service to the installed product, with the right to write requests; afterwards it does not run.

    Limits are removed before (of an earlier attempt) and after.
    """
    planned = hub.plan(found.cluster, found.namespace)
    remove_limits(found)
    image = {"hub": chart.load(found.cluster, "hub")["hub"].reference}
    values = {"hub": {**planned.values, "write": True}, "image": image}
    words = ("upgrade", chart.RELEASE, str(chart.CHART), "--namespace", chart.NAMESPACE, "--reuse-values")
    found.cluster.helm(*words, "--wait", "--timeout", "3m", "--values", "-", stdin=json.dumps(values))
    try:
        yield planned
    finally:
        scale(found, 0)
        remove_limits(found)


def remove_limits(found: World) -> None:
    """Remove all limits of users, and the record of those that were removed."""
    found.kubectl("delete", "gpulimits.jupyter-gpu.io", "--all")


def scale(found: World, replicas: int) -> None:
    """End the hub's service, or start it and wait until it is ready."""
    words = ("--namespace", chart.NAMESPACE, f"deployment/{hub.SERVICE}")
    found.cluster.kubectl("scale", *words, f"--replicas={replicas}")
    until(lambda: len(found.product.component("hub")) == replicas, SECONDS, "the service to end or start")
    found.cluster.kubectl("rollout", "status", *words, f"--timeout={SECONDS:.0f}s", seconds=SECONDS + 10)


def pod(user: str) -> str:
    """Return the pod's name as KubeSpawner makes it."""
    return f"jupyter-{user}"


def container(found: World, user: str) -> dict[str, Any]:
    """Return the container of a user's server, as any reader of pods sees it."""
    (only,) = json.loads(found.kubectl("get", "pod", pod(user), "-o", "json"))["spec"]["containers"]
    assert isinstance(only, dict)
    return only


def mounts(found: World, user: str) -> set[str]:
    """Return the names of the volumes that a user's server has."""
    return {each["name"] for each in container(found, user)["volumeMounts"]}


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
