"""The extender as a process, asked directly: repeated questions, crashes, clients, and renewed certificates."""

import http.client
import json
import socket
import ssl
import urllib.error
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpu.common import faults
from jupyter_gpu.kube.rules import objects
from jupyter_gpu.model.annotations import Allocated
from tests.cluster.testbed import until
from tests.cluster.testbed.commands import CommandFailed
from tests.cluster.testbed.pki import Authority, Identity
from tests.kube.mount import Mount
from tests.scheduler_process.extender_client import ExtenderClient
from tests.scheduler_process.stage import Scheduler, Stage

pytestmark = pytest.mark.cluster

LOST = (urllib.error.URLError, ConnectionError, http.client.HTTPException, ssl.SSLError)
"""No answer."""


def _client(scheduler: Scheduler) -> ExtenderClient:
    return ExtenderClient(scheduler.extender_port)


def test_same_question_has_the_same_answer(stage: Stage) -> None:
    """A pod that fits fits whenever it is asked for; one that does not has one position in line."""
    nodes = [stage.node("n1", gpus=2), stage.node("n2", gpus=2)]
    client = _client(stage.scheduler())
    stage.pod("fits", requested=1)
    stage.pod("much", requested=2)
    stage.pod("both", nodes[0], 2)
    stage.pod("also", nodes[1], 1)
    for name, count in (("both", 2), ("also", 1)):
        stage.until_count(name, count)
    fits, much = stage.get("fits"), stage.get("much")
    answers = [(client.filter(fits, nodes), client.prioritize(fits, nodes)) for _ in range(3)]
    assert answers[0][0]["NodeNames"] == [nodes[1]]
    assert answers[0] == answers[1] == answers[2]
    assert client.bind(fits, nodes[1]) == ""
    stage.until_count("fits", 1)
    refusals = [client.filter(much, nodes) for _ in range(3)]
    assert not refusals[0]["NodeNames"]
    assert refusals[0] == refusals[1] == refusals[2]
    ticket = stage.until_reason("much", "Deferred").ticket
    again = stage.get("much")  # kube-scheduler asks with what our write made of the pod
    assert [client.filter(again, nodes) for _ in range(3)] == refusals
    assert (stage.allocated("much") or Allocated(0)).ticket == ticket
    assert len(stage.decisions("much")) == 1


def test_pods_with_slow_bindings_are_spread(stage: Stage) -> None:
    """All are asked for before the first is bound, as each needs a volume: still as many on a node as it has GPUs."""
    nodes = {stage.node(f"n{number}", gpus=count, slots=20): count for number, count in enumerate((7, 4, 4, 1))}
    client = _client(stage.scheduler())
    pods = []
    for number in range(16):
        stage.pod(f"note{number}")
        pods.append(stage.get(f"note{number}"))
    chosen: list[str] = []
    for pod in pods:
        fitting = client.filter(pod, list(nodes))["NodeNames"]
        scores = {item["Host"]: item["Score"] for item in client.prioritize(pod, fitting)}
        most = [node for node in fitting if scores[node] == max(scores.values())]
        chosen.append(min(most, key=lambda node: (chosen.count(node), node)))  # kube-scheduler's plugins spread equals
    assert {node: chosen.count(node) for node in nodes} == nodes
    for pod, node in zip(pods, chosen, strict=True):
        assert client.bind(pod, node) == ""
    stage.request("note0", 1)
    stage.until_count("note0", 1)


def test_only_pods_whose_end_frees_gpus_are_victims(stage: Stage) -> None:
    """Only pods whose end frees its GPUs; pods without a slot are not our business; nonsense ends no pod."""
    node = stage.node(gpus=1)
    client = _client(stage.scheduler())
    rich, poor = stage.pod("rich", node, 1), stage.pod("poor", node)
    stage.until_count("rich", 1)
    stage.pod("vital", requested=1)
    vital = stage.get("vital")
    assert client.preempt(vital, {node: [poor]}) == {}
    assert client.preempt(vital, {node: [rich]}) == {node: [rich]}
    assert client.preempt(vital, {node: [rich, poor], "unknown": [poor]}) == {node: [rich, poor]}
    assert client.preempt(vital, {}) == client.preempt(vital, {node: []}) == {}
    stage.pod("stranger", slots=0)
    assert client.preempt(stage.get("stranger"), {node: [poor], "empty": []}) == {node: [poor]}
    assert client.ask("preempt", {"Pod": vital, "NodeNameToVictims": {node: {"Pods": []}}}) is None


def test_deleted_pod_is_not_bound(stage: Stage) -> None:
    """Gone, going, or another of the same name: an error, nothing written, and no GPU is lost by it."""
    node = stage.node(gpus=2)
    client = _client(stage.scheduler())
    stage.pod("a", requested=1)
    first = stage.get("a")
    stage.delete("a")
    assert "gone" in client.bind(first, node)
    stage.pod("a", requested=1)
    second = stage.get("a")
    assert "gone" in client.bind(first, node)
    assert stage.get("a") == second
    stage.pod("leaving", requested=1)
    stage.plane.kubectl("patch", "pod", "leaving", "-n", stage.namespace, "-p", _finalizers("test.example/wait"))
    leaving = stage.get("leaving")
    stage.plane.kubectl("delete", "pod", "leaving", "-n", stage.namespace, "--wait=false")
    assert "gone" in client.bind(leaving, node)
    assert not objects.node_name(stage.get("leaving"))
    stage.plane.kubectl("patch", "pod", "leaving", "-n", stage.namespace, "--type=merge", "-p", _finalizers())
    stage.pod("b", requested=1)
    for name in ("a", "b"):
        assert client.bind(stage.get(name), node) == ""
        stage.until_count(name, 1)
    assert not stage.watcher.decided_twice


def _finalizers(*names: str) -> str:
    return json.dumps({"metadata": {"finalizers": names}})


@pytest.mark.parametrize("point", ["scheduler:reserved", "scheduler:bound"])
def test_bind_is_completed_after_a_crash(stage: Stage, point: str) -> None:
    """Between the Binding and its answer, or just before: the next one has it bound, and writes at most once."""
    node = stage.node(gpus=2)
    first = stage.scheduler(environ={faults.VARIABLE: point})
    stage.pod("a", requested=1)
    pod = stage.get("a")
    with pytest.raises(LOST):
        _client(first).bind(pod, node)
    assert bool(objects.node_name(stage.get("a"))) is (point == "scheduler:bound")
    client = _client(stage.scheduler())
    assert client.bind(pod, node) == client.bind(pod, node) == ""
    stage.until_count("a", 1)
    assert len(stage.decisions("a")) == 1
    assert "bound" in client.filter(pod, [node])["Error"]
    stage.pod("b", requested=1)
    assert client.bind(stage.get("b"), node) == ""
    assert not stage.watcher.decided_twice


def test_replica_that_does_not_lead_does_not_answer(stage: Stage) -> None:
    """Neither a replica that waits to lead nor one that lost its lease: kube-scheduler has to try again."""
    node = stage.node(gpus=1)
    leader = stage.scheduler()
    waits = stage.scheduler(lead=False)
    stage.pod("a", requested=1)
    pod = stage.get("a")
    until(lambda: waits.get("/readyz")[0] == 200, what="the second to know the cluster")
    _says_no(_client(waits), pod, node)
    assert _client(leader).filter(pod, [node])["NodeNames"] == [node]
    theft = {"spec": {"holderIdentity": "thief", "leaseDurationSeconds": 600}}
    stage.plane.kubectl("patch", "lease", stage.prefix, "--type=merge", "-p", json.dumps(theft))
    until(lambda: not leader.leads(), what="the leader to notice")
    _says_no(_client(leader), pod, node)
    assert not objects.node_name(stage.get("a"))
    assert stage.allocated("a") is None


def _says_no(client: ExtenderClient, pod: dict[str, Any], node: str) -> None:
    filtered = client.filter(pod, [node])
    assert "does not lead" in filtered["Error"]
    assert not filtered["NodeNames"]
    assert client.prioritize(pod, [node]) is None
    assert client.preempt(pod, {node: ["victim"]}) is None
    assert "does not lead" in client.bind(pod, node)


class Slice:
    """The EndpointSlice of a stage, which our Service's clients follow."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def serve(self) -> str:
        """Make the Service, as the chart does; its uid."""
        body = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "extender", "namespace": self._stage.namespace},
            "spec": {"ports": [{"name": "extender", "port": 443, "targetPort": 8443}]},
        }
        said = self._stage.plane.kubectl("create", "-o", "json", "-f", "-", stdin=json.dumps(body))
        return str(json.loads(said)["metadata"]["uid"])

    @property
    def body(self) -> dict[str, Any]:
        """The whole object."""
        found: dict[str, Any] = json.loads(self.kubectl("get", "-o", "json"))
        return found

    def kubectl(self, verb: str, *words: str) -> str:
        """About it."""
        return self._stage.plane.kubectl(verb, "endpointslice", "extender", "-n", self._stage.namespace, *words)

    @property
    def addresses(self) -> list[str]:
        """Return all addresses in it."""
        return [text for each in self.body["endpoints"] for text in each["addresses"]]

    def until(self, address: str) -> None:
        """Wait until that address is in it, and no other."""

        def alone() -> bool:
            with suppress(CommandFailed):
                return self.addresses == [address]
            return False

        until(alone, what=f"{address} alone in the EndpointSlice")


def test_service_leads_to_the_leader(stage: Stage) -> None:
    """The next leader's address takes the place of one that was killed; a late write of the old one is put right."""
    there = Slice(stage)
    uid = there.serve()

    def start(number: int, lead: bool) -> Scheduler:
        environ = {"POD_NAMESPACE": stage.namespace, "POD_NAME": f"s{number}", "POD_IP": f"192.0.2.{number}"}
        return stage.scheduler(
            lead=lead, settings={"extender": {"port": 0, "endpointSlice": "extender"}}, environ=environ
        )

    first = start(1, True)
    there.until("192.0.2.1")
    made = there.body
    (owner,) = made["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("Service", "extender", uid)  # and goes with it
    assert made["metadata"]["labels"]["kubernetes.io/service-name"] == "extender"
    assert made["metadata"]["labels"]["endpointslice.kubernetes.io/managed-by"] == "jupyter-gpu-scheduler"
    assert [(each["name"], each["port"]) for each in made["ports"]] == [("extender", first.extender_port)]
    assert made["addressType"] == "IPv4"
    second = start(2, False)
    until(lambda: second.get("/readyz")[0] == 200, what="the second to know the cluster")
    assert there.addresses == ["192.0.2.1"]
    first.kill()
    there.until("192.0.2.2")
    second.until_leading()
    late = {"endpoints": [{"addresses": ["192.0.2.1"], "conditions": {"ready": True}}]}
    there.kubectl("patch", "--type=merge", "-p", json.dumps(late))
    there.until("192.0.2.2")
    there.kubectl("delete")
    there.until("192.0.2.2")


def test_leader_without_its_service_says_so_and_finds_it_later(stage: Stage) -> None:
    """It leads all the same: running pods need no Service."""
    there = Slice(stage)
    environ = {"POD_NAMESPACE": stage.namespace, "POD_NAME": "s1", "POD_IP": "2001:db8::1"}
    settings = {"extender": {"port": 0, "endpointSlice": "extender"}}
    scheduler = stage.scheduler(settings=settings, environ=environ).until_leading()
    until(lambda: "kube-scheduler may not find us" in scheduler.log, what="the trouble in the log")
    there.serve()
    there.until("2001:db8::1")
    assert there.body["addressType"] == "IPv6"


class Side:
    """An authority, a server's certificate of it, and a client's."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder)
        self.authority.make()
        self.server = self.authority.issue("server", "extender", addresses=["127.0.0.1"])
        self.client = self.authority.issue("client", "kube-scheduler")

    def put(self, mount: Mount, key: Identity) -> None:
        """Its files where the extender reads them."""
        crt = self.server.certificate.read_bytes()
        ca = self.authority.identity.certificate.read_bytes()
        mount.put(tls_crt=crt, tls_key=key.key.read_bytes(), ca_crt=ca)

    def extender_client(self, port: int, server: "Side") -> ExtenderClient:
        """Return a client with our client certificate that trusts that side's authority."""
        context = ssl.create_default_context(cafile=str(server.authority.identity.certificate))
        context.load_cert_chain(self.client.certificate, self.client.key)
        return ExtenderClient(port, context)


def test_certificates_and_authority_are_renewed(stage: Stage, tmp_path: Path) -> None:
    """No restart: half of a pair changes nothing, the whole is taken, and clients of the old authority are refused."""
    old, new = Side(tmp_path / "old"), Side(tmp_path / "new")
    mount = Mount(tmp_path / "mount")
    old.put(mount, old.server)
    files = {"certificate": "tls.crt", "key": "tls.key", "clientCa": "ca.crt"}
    extender = {"port": 0, **{key: str(mount.folder / name) for key, name in files.items()}}
    scheduler = stage.scheduler(lead=False, settings={"extender": {**extender, "clientNames": ["kube-scheduler"]}})
    port = scheduler.extender_port
    assert "Pod" in old.extender_client(port, old).ask("filter", {})["Error"]
    with pytest.raises(LOST):
        new.extender_client(port, old).ask("filter", {})
    new.put(mount, old.server)
    until(lambda: "can't be used (yet)" in scheduler.log, what="the half to be noticed")
    assert "Pod" in old.extender_client(port, old).ask("filter", {})["Error"]
    new.put(mount, new.server)
    until(lambda: "Pod" in new.extender_client(port, new).ask("filter", {})["Error"], what="the new certificate")
    with pytest.raises(LOST):
        old.extender_client(port, new).ask("filter", {})
    assert scheduler.process.poll() is None


def test_no_connection_stays_with_a_replica_that_does_not_lead(
    stage: Stage, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """The leader keeps connections; any other answers and closes; one that loses the lease closes all at once."""
    side, mount = Side(tmp_path / "side"), Mount(tmp_path / "mount")
    side.put(mount, side.server)
    files = {"certificate": "tls.crt", "key": "tls.key", "clientCa": "ca.crt"}
    settings = {"extender": {"port": 0, **{key: str(mount.folder / name) for key, name in files.items()}}}
    node = stage.node(gpus=1)
    leader = stage.scheduler(settings=settings)
    waits = stage.scheduler(lead=False, settings=settings)
    until(lambda: waits.get("/readyz")[0] == 200, what="the second to know the cluster")
    stage.pod("a", requested=1)
    question = json.dumps({"Pod": stage.get("a"), "NodeNames": [node]})

    def connection(scheduler: Scheduler) -> http.client.HTTPSConnection:
        context = ssl.create_default_context(cafile=str(side.authority.identity.certificate))
        context.load_cert_chain(side.client.certificate, side.client.key)
        made = http.client.HTTPSConnection("127.0.0.1", scheduler.extender_port, timeout=30, context=context)
        request.addfinalizer(made.close)
        made.connect()
        return made

    def ask(there: http.client.HTTPSConnection, verb: str) -> tuple[Any, bool]:
        there.request("POST", f"/{verb}", question)
        answer = there.getresponse()
        return json.load(answer), answer.will_close

    idle, busy, untouched = (connection(leader) for _ in range(3))
    for there in (idle, busy, busy):
        found, closes = ask(there, "filter")
        assert (found["NodeNames"], closes) == ([node], False)
    for verb in ("filter", "prioritize", "bind"):
        found, closes = ask(connection(waits), verb)
        assert closes, f"{verb} keeps the connection to who does not lead: {found}"
    raw = connection(waits)
    assert raw.sock
    raw.sock.sendall(f"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: {len(question)}\r\n\r\n{question}".encode())
    assert b"does not lead" in _until_closed(raw.sock), "our side must close, whatever the client makes of the header"
    theft = {"spec": {"holderIdentity": "thief", "leaseDurationSeconds": 600}}
    stage.plane.kubectl("patch", "lease", stage.prefix, "--type=merge", "-p", json.dumps(theft))
    for there in (idle, busy, untouched):
        assert there.sock
        assert _until_closed(there.sock) == b""
    until(lambda: not leader.leads(), what="the leader to notice")
    assert leader.process.poll() is None


def _until_closed(line: socket.socket) -> bytes:
    """All that comes until the other side closes; its time limit is the test's."""
    found = b""
    while part := line.recv(65536):
        found += part
    return found
