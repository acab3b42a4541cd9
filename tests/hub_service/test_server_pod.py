"""Servers read and change their own pods through the service, with a real hub, real tokens and a real API server."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from jupyter_gpu.model.annotations import Requested, Wish, encode
from tests.cluster.testbed import until
from tests.cluster.testbed.ports import free
from tests.hub import SECONDS

from .browser import Answer, Program
from .test_openapi import matches
from .world import HUB, World

pytestmark = pytest.mark.cluster

PODS = "/api/v1/namespaces/default/pods"
USERNAME, SERVERNAME = "hub.jupyter.org/username", "hub.jupyter.org/servername"
REQUESTED = "jupyter-gpu.io/requested"
RATE = {"perSecond": 1000, "burst": 10000}
ENTER = "access:services!service=gpu"


def pod(world: World, name: str, user: str = "ann", server: str = "", **more: Any) -> str:
    """Create the pod of a server as KubeSpawner does; return its uid. ``more``: of its metadata."""
    named = {SERVERNAME: server} if server else {}
    annotations = {USERNAME: user, "jupyter-gpu.io/hub": HUB, **named, **more.pop("annotations", {})}
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": annotations, "labels": {SERVERNAME: server}, **more},
        "spec": {
            "schedulerName": "nobody",
            "containers": [{"name": "c", "image": "none", "resources": {"limits": {"jupyter-gpu.io/slot": "1"}}}],
        },
    }
    return str(world.kube("POST", PODS, body)["metadata"]["uid"])


def remove(world: World, name: str) -> None:
    """Delete a pod at once."""
    world.kube("DELETE", f"{PODS}/{name}?gracePeriodSeconds=0")


def written(world: World, name: str) -> str | None:
    """Return the request in a pod at the API server."""
    found: str | None = world.kube("GET", f"{PODS}/{name}")["metadata"]["annotations"].get(REQUESTED)
    return found


def ask(server: Program, milli: int, version: str, generation: int = 1, **more: Any) -> Answer:
    """Send a request for a version of the pod; ``more``: other fields of the body."""
    body = {"requested": {"generation": generation, "milli": milli}, "version": version, **more}
    return server.gpu("PUT", "server/pod", body)


def read(server: Program) -> Any:
    """Return the pod of a server as soon as the service knows it."""
    until(lambda: server.gpu("GET", "server/pod").status == 200, SECONDS, "the pod")
    return server.gpu("GET", "server/pod").json


@pytest.fixture
def pods(world: World) -> Iterator[World]:
    """Remove all pods afterwards."""
    yield world
    world.plane.kubectl("delete", "pods", "--all", "--grace-period=0", "--force", "--wait=true")


def test_server_reads_and_writes_its_own_pod(pods: World) -> None:
    """The server gets its pod; its request is in the annotation, for the version that it read and for no other."""
    uid, ann = pod(pods, "lab"), pods.server_token("ann")
    found = read(ann)
    assert (found["namespace"], found["name"], found["uid"], found["annotations"]) == ("default", "lab", uid, {})
    answer = ask(ann, 2000, found["version"])
    assert answer.status == 200
    assert answer.json["annotations"] == {REQUESTED: '{"generation":1,"milli":2000}'}
    assert answer.json["version"] != found["version"]
    assert written(pods, "lab") == '{"generation":1,"milli":2000}'
    late = ask(ann, 3000, found["version"], generation=2)
    assert (late.status, late.json["reason"], late.json["details"]) == (409, "Conflict", {})
    assert written(pods, "lab") == '{"generation":1,"milli":2000}'
    assert ask(ann, 0, answer.json["version"], generation=2).status == 200


def test_each_server_has_its_own_pod(pods: World) -> None:
    """Named servers, the unnamed one and those of other users do not meet."""
    tokens = {("ann", ""): "lab", ("ann", "two"): "lab-two", ("bob", ""): "lab-bob"}
    for (user, server), name in tokens.items():
        pod(pods, name, user, server)
    for number, ((user, server), name) in enumerate(tokens.items(), 1):
        program = pods.server_token(user, server)
        found = read(program)
        assert found["name"] == name
        assert ask(program, 1000 * number, found["version"]).status == 200
    assert [json.loads(written(pods, name) or "")["milli"] for name in tokens.values()] == [1000, 2000, 3000]


def test_other_tokens_name_no_server(pods: World) -> None:
    """Tokens of users, administrators, services and several servers are refused, reads included, and a cookie is."""
    pod(pods, "lab")
    read(pods.server_token("ann"))
    one, all_of_ann = "access:servers!server=ann/", "access:servers!user=ann"
    programs = {
        "a user": pods.token("ann"),
        "a group's member": pods.token("bob"),
        "an administrator": pods.token("root"),
        "a service": pods.limits,
        "all servers": pods.token("ann", [ENTER, all_of_ann]),
        "one and all": pods.token("ann", [ENTER, one, all_of_ann]),
        "two": pods.token("ann", [ENTER, one, "access:servers!server=ann/two"]),
        "no server": pods.token("ann", [ENTER]),
        "not the service": pods.token("ann", [one]),
        "nobody": Program(pods.address, "nonsense"),
    }
    for what, program in programs.items():
        answers = [program.gpu("GET", "server/pod"), ask(program, 1000, "1")]
        assert [answer.status for answer in answers] == [403, 403], what
    browser = pods.browser("ann")
    path = "/services/gpu/api/v1/server/pod"
    for answer in (browser.fetch("GET", path), browser.fetch("PUT", path, {"requested": {}, "version": "1"})):
        assert (answer.status, answer.json["reason"]) == (403, "NotPermitted")
        assert "A browser's login names no server" in answer.json["message"]
    assert written(pods, "lab") is None


def test_token_of_a_stopped_server_ends_at_once(pods: World) -> None:
    """Reads ask the hub, too: no answer of a moment ago counts."""
    pod(pods, "lab")
    ann = pods.server_token("ann")
    version = read(ann)["version"]
    pods.stop_server("ann")
    assert ann.gpu("GET", "server/pod").status == 403
    assert ask(ann, 1000, version).status == 403
    assert written(pods, "lab") is None


def test_server_of_a_renamed_user_has_no_pod(pods: World) -> None:
    """Its token still names the server as before, and so none of the user; also when another user has got the name."""
    pods.script.hub_api("POST", "users/zoe")
    pod(pods, "lab", "zoe")
    server = pods.server_token("zoe")
    version = read(server)["version"]
    pods.script.hub_api("PATCH", "users/zoe", {"name": "zed"})
    try:
        assert [server.gpu("GET", "server/pod").status, ask(server, 1000, version).status] == [403, 403]
        pods.script.hub_api("POST", "users/zoe")
        assert ask(server, 1000, version).status == 403
        assert written(pods, "lab") is None
    finally:
        pods.stop_server("zed")
        for name in ("zoe", "zed"):
            pods.script.send("DELETE", f"/hub/api/users/{name}")


def test_body_names_no_pod(pods: World) -> None:
    """Neither does the query: fields that would are refused, and so is a path."""
    pod(pods, "lab")
    pod(pods, "other", "bob")
    ann = pods.server_token("ann")
    version = read(ann)["version"]
    for key in ("pod", "name", "uid", "namespace", "user"):
        more: dict[str, Any] = {key: "other"}
        answer = ask(ann, 1000, version, **more)
        assert (answer.status, answer.json["details"]) == (400, {"field": key})
        assert ann.gpu("GET", f"server/pod?{key}=other").status == 400
    assert ann.gpu("GET", "server/pod/other").status == 404
    assert ask(ann, 1000, version, requested={"generation": 1, "milli": "2"}).status == 400
    assert ask(ann, 1000, version, requested={"generation": 1, "milli": 1, "x": "y" * 5000}).status == 413
    assert written(pods, "lab") is written(pods, "other") is None


def test_two_pods_of_one_server_get_nothing(pods: World) -> None:
    """Once one of them ends, though it is still there, the other is the server."""
    pod(pods, "lab")
    ann = pods.server_token("ann")
    version = read(ann)["version"]
    pod(pods, "twin", finalizers=["example.com/kept"])
    until(lambda: ann.gpu("GET", "server/pod").status == 409, SECONDS, "both pods to be seen")
    answer = ask(ann, 1000, version)
    assert (answer.status, answer.json["details"]) == (409, {"pods": ["default/lab", "default/twin"]})
    remove(pods, "twin")
    try:
        assert pods.kube("GET", f"{PODS}/twin")["metadata"]["deletionTimestamp"]
        assert read(ann)["name"] == "lab"
        assert ask(ann, 1000, version).status == 200
        assert written(pods, "twin") is None
    finally:
        pods.plane.kubectl("patch", "pod", "twin", "--type=merge", "-p", '{"metadata": {"finalizers": null}}')


def test_pod_without_a_slot_or_of_another_hub_is_none(pods: World) -> None:
    """Only where the policies guard whose it is does a pod count."""
    pod(pods, "elsewhere", annotations={"jupyter-gpu.io/hub": "hub-two"})
    plain = {"metadata": {"name": "plain", "annotations": {USERNAME: "ann", "jupyter-gpu.io/hub": HUB}}}
    plain["metadata"]["labels"] = {SERVERNAME: ""}
    pods.kube("POST", PODS, {**plain, "spec": {"containers": [{"name": "c", "image": "none"}]}})
    pod(pods, "lab", "bob")
    ann, bob = pods.server_token("ann"), pods.server_token("bob")
    read(bob)
    answer = ann.gpu("GET", "server/pod")
    assert (answer.status, answer.json["reason"]) == (404, "NotFound")
    assert "hub.jupyter.org/username" in answer.json["message"]
    assert ask(ann, 1000, "1").status == 404


def test_replaced_pod_gets_nothing(pods: World) -> None:
    """The version that was read is that of the pod before; the new one has to be read first."""
    pod(pods, "lab")
    ann = pods.server_token("ann")
    before = read(ann)
    remove(pods, "lab")
    uid = pod(pods, "lab")
    until(lambda: ann.gpu("GET", "server/pod").json.get("uid") == uid, SECONDS, "the new pod")
    assert ask(ann, 1000, before["version"]).status == 409
    assert written(pods, "lab") is None
    assert ask(ann, 1000, read(ann)["version"]).status == 200


def test_request_above_the_limit_is_refused_with_its_source(pods: World) -> None:
    """As the server refuses it; one within the limit is written."""
    limit = {"milli": 2000, "max": 2000, "source": {"kind": "Group", "name": "ml", "by": "root", "at": 1777800000}}
    allocated = {"observedGeneration": 0, "shares": [], "limit": limit}
    pod(pods, "lab", annotations={"jupyter-gpu.io/allocated": json.dumps(allocated)})
    ann = pods.server_token("ann")
    version = read(ann)["version"]
    answer = ask(ann, 3000, version)
    assert (answer.status, answer.json["details"]["error"]["reason"]) == (422, "LimitExceeded")
    assert answer.json["message"].startswith("Your limit is 2 GPUs, set for group ml by root")
    assert answer.json["details"]["error"]["details"]["limit"] == 2000
    assert written(pods, "lab") is None
    assert ask(ann, 2000, version).status == 200


def test_requests_at_once_write_one_of_them(pods: World) -> None:
    """Ten for the same version: one is written, and nine see a conflict."""
    pod(pods, "lab")
    ann = pods.server_token("ann")
    version = read(ann)["version"]
    with ThreadPoolExecutor(10) as pool:
        found = list(pool.map(lambda n: ask(ann, 100 * n, version), range(1, 11)))
    assert sorted(answer.status for answer in found) == [200, *[409] * 9]
    won = next(answer for answer in found if answer.status == 200)
    assert written(pods, "lab") == won.json["annotations"][REQUESTED]


def test_rate_is_limited_for_each_server(pods: World) -> None:
    """Five at once and one a second, reads included; another server of the same user does not notice."""
    pod(pods, "lab")
    pod(pods, "lab-two", server="two")
    ann, two = pods.server_token("ann"), pods.server_token("ann", "two")
    version = read(ann)["version"]
    pods.service.restart(serverRate={"perSecond": 1, "burst": 5})
    try:
        answers = [ask(ann, 1000, version if n == 0 else "1") for n in range(7)]
        assert [answer.status for answer in answers[:5]] == [200, *[409] * 4]
        refused = answers[-1]
        assert (refused.status, refused.json["reason"]) == (429, "TooMany")
        assert read(two)["name"] == "lab-two"
        time.sleep(int(refused.headers["Retry-After"]))
        assert ann.gpu("GET", "server/pod").status == 200
        assert pods.token("ann").gpu("GET", "me").status == 200
    finally:
        pods.service.restart(serverRate=RATE)


def test_service_writes_only_where_it_may(pods: World) -> None:
    """By default it writes no request and tells no pod."""
    pod(pods, "lab")
    ann = pods.server_token("ann")
    version = read(ann)["version"]
    pods.service.restart(write=False)
    try:
        for answer in (ann.gpu("GET", "server/pod"), ask(ann, 1000, version)):
            assert answer.status == 403
            assert "hub.write" in answer.json["message"]
    finally:
        pods.service.restart(write=True)
    assert written(pods, "lab") is None
    assert ask(ann, 1000, version).status == 200


def test_away_hub_is_no_reason_to_write(pods: World) -> None:
    """Without the hub nobody is known: nothing is written, and the answer does not leave that open."""
    pod(pods, "lab")
    ann = pods.server_token("ann")
    version = read(ann)["version"]
    before, (nowhere,) = pods.service.api_url, free(1)
    pods.service.api_url = f"http://127.0.0.1:{nowhere}/hub/api"
    pods.service.restart()
    try:
        answer = ask(ann, 1000, version)
        assert (answer.status, answer.json["details"].get("unknown")) == (503, None)
    finally:
        pods.service.api_url = before
        pods.service.restart()
    assert written(pods, "lab") is None


def test_killed_service_keeps_nothing(pods: World) -> None:
    """Killed at any moment of a request it has written all of it, or nothing; the next process goes on."""
    pod(pods, "lab")
    ann = pods.server_token("ann")
    before: str | None = None
    for number in range(1, 7):
        version, wanted = read(ann)["version"], encode(Requested(number, Wish(100 * number)))
        with ThreadPoolExecutor(1) as pool:
            asking = pool.submit(ask, ann, 100 * number, version, number)
            time.sleep(0.004 * number)
            pods.service.kill()
            pods.service.start()
            status = asking.result().status
        assert written(pods, "lab") in ((wanted,) if status == 200 else (wanted, before))
        if written(pods, "lab") == before:
            assert ask(ann, 100 * number, read(ann)["version"], number).status == 200
        before = wanted
        assert written(pods, "lab") == wanted


def test_answers_match_the_description(pods: World) -> None:
    """Each answer of both verbs is described."""
    pod(pods, "lab")
    ann, path = pods.server_token("ann"), "/server/pod"
    version = read(ann)["version"]
    matches(ann.gpu("GET", "server/pod"), path, "get")
    for status, answer in (
        (200, ask(ann, 1000, version)),
        (409, ask(ann, 1000, version)),
        (400, ask(ann, -1, version)),
        (403, ask(pods.token("ann"), 1000, version)),
    ):
        assert answer.status == status
        matches(answer, path, "put")
    remove(pods, "lab")
    until(lambda: ann.gpu("GET", "server/pod").status == 404, SECONDS, "its end")
    matches(ann.gpu("GET", "server/pod"), path, "get")
