"""The client against a real API server, and against answers that one gives seldom."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpu.kube import (
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    Kube,
    KubeError,
    NotFound,
    TooMany,
    Unauthorized,
    Unavailable,
    WatchEvent,
    kubeconfig,
)
from jupyter_gpu.kube.credentials import Credentials
from jupyter_gpu.kube.rules import objects, paths
from tests.cluster.testbed import ControlPlane, ports
from tests.kube.answers import answering, http
from tests.kube.conftest import MAPS, Through


def run(config: Path, play: Callable[[Kube], Awaitable[None]]) -> None:
    """One client, opened and closed."""

    async def whole() -> None:
        async with Kube(kubeconfig(config)) as kube:
            await play(kube)

    asyncio.run(whole())


@pytest.mark.cluster
def test_object_is_created_read_changed_and_removed(plane: ControlPlane) -> None:
    """UID and version hold as preconditions through the whole life of an object."""

    async def play(kube: Kube) -> None:
        made = await kube.create(MAPS, {"metadata": {"name": "one"}, "data": {"a": "1"}})
        path = f"{MAPS}/one"
        assert (await kube.get(path))["data"] == {"a": "1"}
        precondition = {"uid": objects.uid(made), "resourceVersion": objects.resource_version(made)}
        changed = await kube.patch(path, {"metadata": precondition, "data": {"a": None, "b": "2"}})
        assert changed["data"] == {"b": "2"}
        with pytest.raises(Conflict):
            await kube.delete(path, uid="another")
        with pytest.raises(Conflict):
            await kube.delete(path, uid=objects.uid(made), resource_version="1")
        await kube.delete(path, uid=objects.uid(made))
        await kube.delete(path)
        with pytest.raises(NotFound):
            await kube.get(path)

    run(plane.kubeconfig, play)


@pytest.mark.cluster
def test_failed_precondition_is_a_conflict(plane: ControlPlane) -> None:
    """Another version, another uid, and a name that is taken: three conflicts, nothing changed."""

    async def play(kube: Kube) -> None:
        made = await kube.create(MAPS, {"metadata": {"name": "two"}})
        path = f"{MAPS}/two"
        await kube.patch(path, {"data": {"a": "1"}})
        for precondition in ({"resourceVersion": objects.resource_version(made)}, {"uid": "no such uid"}):
            with pytest.raises(Conflict) as caught:
                await kube.patch(path, {"metadata": precondition, "data": {"a": "2"}})
            assert not caught.value.exists
        with pytest.raises(Conflict) as caught:
            await kube.create(MAPS, {"metadata": {"name": "two"}})
        assert caught.value.exists
        assert (await kube.get(path))["data"] == {"a": "1"}
        await kube.delete(path)

    run(plane.kubeconfig, play)


@pytest.mark.cluster
def test_each_refusal_is_its_own_error(plane: ControlPlane) -> None:
    """401, 403, 404, 422 and a mistake of ours, with the server's own sentence."""

    async def admin(kube: Kube) -> None:
        with pytest.raises(Invalid) as caught:
            await kube.create(MAPS, {"metadata": {"name": "Not A Name"}})
        assert "Not A Name" in caught.value.message
        with pytest.raises(NotFound):
            await kube.get(paths.pod("default", "nobody"))
        with pytest.raises(KubeError) as refused:
            await kube.list(MAPS, labels="((")
        assert refused.value.status == 400

    async def nobody(kube: Kube) -> None:
        with pytest.raises(Forbidden) as caught:
            await kube.get(f"{MAPS}/x")
        assert 'User "nobody"' in caught.value.message

    async def stranger() -> None:
        authority = plane.authority.identity.certificate
        token = plane.folder / "bad-token"
        token.write_text("not.a.token")
        async with Kube(Credentials(plane.url, authority, token)) as kube:
            with pytest.raises(Unauthorized):
                await kube.get(f"{MAPS}/x")

    run(plane.kubeconfig, admin)
    run(plane.kubeconfig_for("nobody"), nobody)
    asyncio.run(stranger())


@pytest.mark.cluster
def test_replaced_token_is_used_at_once(plane: ControlPlane, tmp_path: Path) -> None:
    """Projected tokens rotate: the next call has the new one, and no call fails meanwhile."""
    token = tmp_path / "token"

    async def play() -> None:
        async with Kube(kubeconfig(plane.kubeconfig)) as admin:
            account = "/api/v1/namespaces/default/serviceaccounts"
            await admin.create(account, {"metadata": {"name": "rotating"}})

            async def fresh() -> str:
                answer = await admin.create(f"{account}/rotating/token", {"spec": {"expirationSeconds": 600}})
                return str(answer["status"]["token"])

            token.write_text(await fresh())
            review = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
            async with Kube(Credentials(plane.url, plane.authority.identity.certificate, token)) as kube:
                for text in (await fresh(), "expired", await fresh()):
                    new = tmp_path / "new"
                    new.write_text(text)
                    new.replace(token)
                    if text == "expired":
                        with pytest.raises(Unauthorized):
                            await kube.create(review, {})
                        continue
                    who = await kube.create(review, {})
                    assert who["status"]["userInfo"]["username"] == "system:serviceaccount:default:rotating"

    asyncio.run(play())


@pytest.mark.cluster
def test_long_list_comes_page_by_page_and_whole(plane: ControlPlane) -> None:
    """Three pages are one list, each object once, with a version to watch from."""

    async def play(kube: Kube) -> None:
        names = [f"page-{number}" for number in range(8)]
        for name in names:
            await kube.create(MAPS, {"metadata": {"name": name, "labels": {"page": "yes"}}})
        found = await kube.list(MAPS, labels="page=yes", size=3)
        assert [objects.name(item) for item in found.items] == names
        assert found.resource_version.isdigit()
        assert (await kube.list(MAPS, labels="page=no")).items == []
        assert len((await kube.list(MAPS, labels="page=yes", resource_version="0")).items) == 8
        for name in names:
            await kube.delete(f"{MAPS}/{name}")

    run(plane.kubeconfig, play)


def _binding(node: str, uid: str, annotations: dict[str, str] | None = None) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "bound", "uid": uid, "annotations": annotations or {}},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }


@pytest.mark.cluster
def test_binding_writes_node_and_annotations_at_once(plane: ControlPlane) -> None:
    """A second binding, or one for another uid, is refused."""

    async def play(kube: Kube) -> None:
        body = {"metadata": {"name": "bound"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        pod = await kube.create(paths.pods("default"), body)
        path = paths.pod("default", "bound", "binding")
        with pytest.raises(Conflict):
            await kube.create(path, _binding("n1", "another"))
        await kube.create(path, _binding("n1", objects.uid(pod), {"a.b/c": "d"}))
        bound = await kube.get(paths.pod("default", "bound"))
        assert (objects.node_name(bound), objects.annotation(bound, "a.b/c")) == ("n1", "d")
        with pytest.raises(Conflict):
            await kube.create(path, _binding("n2", objects.uid(pod)))
        await kube.delete(paths.pod("default", "bound"))

    run(plane.kubeconfig, play)


@pytest.mark.cluster
def test_watch_yields_changes_in_order(plane: ControlPlane) -> None:
    """Changes come in order, from the version that was listed."""

    async def play(kube: Kube) -> None:
        start = (await kube.list(MAPS)).resource_version
        await kube.create(MAPS, {"metadata": {"name": "seen"}})
        await kube.patch(f"{MAPS}/seen", {"data": {"a": "1"}})
        await kube.delete(f"{MAPS}/seen")
        seen: list[WatchEvent] = []
        opened: list[bool] = []
        async for event in kube.watch(MAPS, resource_version=start, opened=lambda: opened.append(True)):
            seen.append(event)
            if event.type == "DELETED":
                break
        assert [event.type for event in seen] == ["ADDED", "MODIFIED", "DELETED"]
        assert opened == [True]

    run(plane.kubeconfig, play)


@pytest.mark.cluster
def test_silent_server_is_given_up_in_time(through: Through) -> None:
    """A call has its deadline; a watch ends by itself when it is silent for too long."""

    async def play() -> None:
        async with through() as (kube, proxy):
            version = (await kube.list(MAPS)).resource_version
            heard = [event async for event in kube.watch(MAPS, resource_version=version, silence=0.3)]
            assert heard == []
        async with through(deadline=0.3) as (slow, proxy):
            proxy.stall()
            with pytest.raises(Unavailable) as caught:
                await slow.get(MAPS)
            assert "can't be reached" in caught.value.message

    asyncio.run(play())


def test_refused_connection_is_unavailable_and_nothing_was_sent() -> None:
    """After a refused connection a write may be tried again without reading first."""
    (port,) = ports.free(1)

    async def play() -> None:
        async with Kube(Credentials(f"http://127.0.0.1:{port}")) as kube:
            with pytest.raises(Unavailable) as caught:
                await kube.get("/x")
        assert not caught.value.sent
        with pytest.raises(Unavailable):
            await kube.get("/x")

    asyncio.run(play())


def test_429_is_repeated_after_the_time_asked_for() -> None:
    """A 429 says that nothing was done: even a write is repeated, but not beyond the deadline."""

    async def play() -> None:
        busy = http(429, "{}", "Retry-After: 0")
        async with answering([busy, busy, http(200, '{"a": 1}')]) as (kube, asked):
            assert await kube.patch("/x", {}) == {"a": 1}
            assert len(asked) == 3
        async with answering([http(429, "{}", "Retry-After: 30")]) as (kube, asked):
            with pytest.raises(TooMany) as caught:
                await kube.get("/x")
            assert (caught.value.retry_after, len(asked)) == (30, 1)

    asyncio.run(play())


@pytest.mark.parametrize("answer", [http(503, "<html>busy"), http(500), http(200, "not json"), http(200, "[]"), b""])
def test_broken_answer_is_unavailable(answer: bytes) -> None:
    """An API server that starts, a proxy's page, nonsense, an end in the middle: each says to try again later."""

    async def play() -> None:
        async with answering([answer]) as (kube, _):
            with pytest.raises(Unavailable) as caught:
                await kube.patch("/x", {})
            assert caught.value.sent
            assert caught.value.message

    asyncio.run(play())


@pytest.mark.parametrize(
    ("lines", "error"),
    [
        ([{"type": "ERROR", "object": {"code": 410, "message": "too old"}}], Gone),
        ([{"type": "ERROR", "object": {"code": 500}}], Unavailable),
        ([{"type": "ERROR", "object": {}}], Unavailable),
        ([{"type": 7, "object": {}}], Unavailable),
        (["no event"], Unavailable),
    ],
)
def test_error_inside_a_watch_is_raised(lines: list[object], error: type[KubeError]) -> None:
    """A watch that was accepted can fail later, in its stream."""
    text = "".join(json.dumps(line) + "\n" for line in lines)

    async def play() -> None:
        async with answering([http(200, text)]) as (kube, _):
            with pytest.raises(error):
                async for _ in kube.watch("/x", resource_version="5"):
                    pass

    asyncio.run(play())


def test_half_a_line_is_no_event() -> None:
    """Events before a cut are reported, the half event after it is not."""
    line = json.dumps({"type": "ADDED", "object": {"a": "b"}})

    async def play() -> None:
        async with answering([http(200, f"{line}\n\n{line[:20]}")]) as (kube, asked):
            events = kube.watch("/x", resource_version="5", labels="a=b", fields="c=d")
            assert (await anext(events)).object == {"a": "b"}
            with pytest.raises(Unavailable):
                await anext(events)
        assert "labelSelector=a%3Db&fieldSelector=c%3Dd&watch=true" in asked[0]

    asyncio.run(play())


def test_answer_that_is_no_list_is_unavailable() -> None:
    """It is never taken for an empty cluster."""

    async def play() -> None:
        for body in ("{}", '{"items": 7, "metadata": {"resourceVersion": "1"}}'):
            async with answering([http(200, body)]) as (kube, _):
                with pytest.raises(Unavailable):
                    await kube.list("/x")

    asyncio.run(play())


def test_forgotten_pages_are_read_all_at_once() -> None:
    """A list so slow that its snapshot is compacted is begun again, in one piece."""

    async def play() -> None:
        page = {"items": [{"a": 1}], "metadata": {"resourceVersion": "5", "continue": "more"}}
        whole = {"items": [{"a": 1}, {"a": 2}], "metadata": {"resourceVersion": "9"}}
        async with answering([http(200, json.dumps(page)), http(410), http(200, json.dumps(whole))]) as (kube, asked):
            found = await kube.list("/x")
        assert (len(found.items), found.resource_version) == (2, "9")
        assert "limit" not in asked[2].splitlines()[0]

    asyncio.run(play())
