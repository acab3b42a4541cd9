"""The copy of what the API server has: whole and in order, whatever happens to connections and server."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from jupyter_gpu.kube import Kube, NotFound, ObjectChange, Reflector, Selection, WatchEvent, client, kubeconfig
from jupyter_gpu.kube.rules import objects
from tests.cluster.testbed import ControlPlane
from tests.kube.answers import answering, http
from tests.kube.conftest import MAPS, Through

pytestmark = pytest.mark.cluster

PATIENCE = 60.0


class Follower:
    """The changes that a reflector reports, checked as they come: never the same twice, never an impossible one."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []
        self.troubles: list[str] = []
        self.there: dict[str, dict[str, Any]] = {}
        self.news = asyncio.Event()

    def change(self, change: ObjectChange) -> None:
        """The reflector's on_change."""
        uid, name = objects.uid(change.object), objects.name(change.object)
        self.told.append((change.kind, name))
        if change.kind == "added":
            assert uid not in self.there
        else:
            before = self.there[uid]
            if change.kind == "changed":
                assert int(objects.resource_version(change.object)) > int(objects.resource_version(before))
        if change.kind == "removed":
            del self.there[uid]
        else:
            self.there[uid] = change.object
        self.news.set()

    def trouble(self, message: str) -> None:
        """The reflector's on_trouble."""
        self.troubles.append(message)
        self.news.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for it, hearing of each change."""
        async with asyncio.timeout(PATIENCE):
            while not condition():
                self.news.clear()
                await self.news.wait()


@asynccontextmanager
async def following(
    kube: Kube, label: str, trim: client.Trim | None = None, **options: Any
) -> AsyncIterator[tuple[Reflector, Follower]]:
    """A reflector of config maps with the label, running and synced."""
    follower = Follower()
    reflector = Reflector(
        kube,
        Selection(MAPS, labels=f"t={label}", trim=trim),
        on_change=follower.change,
        on_trouble=follower.trouble,
        **options,
    )
    assert reflector.fresh_seconds == float("inf")
    task = asyncio.create_task(reflector.run())
    try:
        await asyncio.wait_for(reflector.synced.wait(), PATIENCE)
        yield reflector, follower
        assert not task.done()
        assert reflector.objects == follower.there
    finally:
        task.cancel()
        await asyncio.wait((task,))


async def write(kube: Kube, label: str, name: str, value: str) -> None:
    """Make or change a config map."""
    try:
        await kube.patch(f"{MAPS}/{name}", {"data": {"v": value}})
    except NotFound:
        await kube.create(MAPS, {"metadata": {"name": name, "labels": {"t": label}}, "data": {"v": value}})


def run(plane: ControlPlane, play: Callable[[Kube], Awaitable[None]]) -> None:
    """Run a test with a client that is not disturbed."""

    async def whole() -> None:
        async with Kube(kubeconfig(plane.kubeconfig)) as kube:
            await play(kube)

    asyncio.run(whole())


@pytest.mark.parametrize("newest", [False, True])
def test_objects_and_changes_come_in_order(plane: ControlPlane, newest: bool) -> None:
    """Existing objects come first, then each change; objects that do not match are left out."""

    async def play(kube: Kube) -> None:
        label = f"order-{newest}".lower()
        await write(kube, label, f"{label}-a", "1")
        await kube.list(MAPS)
        async with following(kube, label, newest=newest) as (reflector, follower):
            await follower.until(lambda: len(follower.there) == 1)
            await write(kube, "other", f"{label}-x", "1")
            await write(kube, label, f"{label}-b", "1")
            await write(kube, label, f"{label}-a", "2")
            await kube.delete(f"{MAPS}/{label}-a")
            await kube.patch(f"{MAPS}/{label}-b", {"metadata": {"labels": {"t": "other"}}})
            await follower.until(lambda: not follower.there)
            assert [kind for kind, _ in follower.told] == ["added", "added", "changed", "removed", "removed"]
            assert reflector.fresh_seconds < PATIENCE
            assert reflector.trouble == ""

    run(plane, play)


def test_cut_connections_lose_nothing(plane: ControlPlane, through: Through) -> None:
    """Each connection ends after some thousand bytes: 150 changes arrive, each at most once and in order."""

    async def play(kube: Kube) -> None:
        async with through() as (shaky, proxy), following(shaky, "cut") as (_, follower):
            proxy.chop = 16_000
            proxy.cut()
            for number in range(150):
                name = f"cut-{random.randrange(10)}"
                if number % 7 == 6:
                    await kube.delete(f"{MAPS}/{name}")
                else:
                    await write(kube, "cut", name, str(number))
            truth = {objects.uid(item): item for item in (await kube.list(MAPS, labels="t=cut")).items}
            await follower.until(lambda: follower.there == truth)
            assert proxy.connections > 2

    run(plane, play)


def test_silent_watch_is_renewed(plane: ControlPlane, through: Through) -> None:
    """After a connection that died without a word, the changes meanwhile arrive."""

    async def play(kube: Kube) -> None:
        async with through() as (shaky, proxy), following(shaky, "silent", silence=1.2) as (_, follower):
            proxy.stall()
            await write(kube, "silent", "silent-a", "1")
            before = proxy.connections
            while proxy.connections == before:  # the stalled one is given up
                await asyncio.sleep(0.05)
            proxy.flow()
            await follower.until(lambda: len(follower.there) == 1)

    run(plane, play)


def test_restarted_server_is_listed_again(plane: ControlPlane, through: Through) -> None:
    """The API server is killed; each object that was added, changed or removed meanwhile is reported once."""

    async def play(kube: Kube) -> None:
        for name in ("keep", "change", "remove", "again"):
            await write(kube, "away", f"away-{name}", "1")
        async with through() as (shaky, proxy), following(shaky, "away") as (reflector, follower):
            await follower.until(lambda: len(follower.there) == 4)
            follower.told.clear()
            proxy.refusing = True
            proxy.cut()
            await follower.until(lambda: bool(follower.troubles))
            assert reflector.trouble
            await write(kube, "away", "away-change", "2")
            await kube.delete(f"{MAPS}/away-remove")
            await kube.delete(f"{MAPS}/away-again")
            await write(kube, "away", "away-again", "2")
            await write(kube, "away", "away-new", "1")
            # The cache of a new API server begins now: it knows nothing of the versions before.
            await asyncio.to_thread(plane.kill, "apiserver")
            await asyncio.sleep(0.5)
            await asyncio.to_thread(plane.start, "apiserver")
            proxy.refusing = False
            truth = {objects.uid(item): item for item in (await kube.list(MAPS, labels="t=away")).items}
            await follower.until(lambda: follower.there == truth)
            assert sorted(follower.told) == [
                ("added", "away-again"),
                ("added", "away-new"),
                ("changed", "away-change"),
                ("removed", "away-again"),
                ("removed", "away-remove"),
            ]
            assert follower.told.index(("removed", "away-again")) < follower.told.index(("added", "away-again"))
            assert (reflector.trouble, follower.troubles[-1]) == ("", "")

    run(plane, play)


def test_list_is_kept_whole_before_it_is_reported() -> None:
    """A GPU that moved from one pod to another while no watch ran is never seen as held by both."""
    item = '{"metadata": {"uid": "%s", "name": "%s", "resourceVersion": "%d", "labels": {"has": "%s"}}}'
    listing = '{"metadata": {"resourceVersion": "%d"}, "items": [%s]}'
    before = ", ".join((item % ("a", "a", 1, "no"), item % ("b", "b", 2, "yes"), item % ("c", "c", 3, "no")))
    after = ", ".join((item % ("a", "a", 8, "yes"), item % ("b", "b", 7, "no")))
    answers = [http(200, listing % (5, before)), http(410), http(200, listing % (9, after))]

    async def play() -> None:
        seen: list[tuple[str, dict[str, str]]] = []
        async with answering(answers) as (kube, _):

            def look(change: ObjectChange) -> None:
                now = {uid: each["metadata"]["labels"]["has"] for uid, each in reflector.objects.items()}
                seen.append((f"{objects.name(change.object)} {change.kind}", now))

            reflector = Reflector(kube, Selection("/x"), on_change=look)
            task = asyncio.create_task(reflector.run())
            async with asyncio.timeout(PATIENCE):
                while len(seen) < 6:
                    await asyncio.sleep(0.02)
            task.cancel()
            await asyncio.wait((task,))
        first, second = {"a": "no", "b": "yes", "c": "no"}, {"a": "yes", "b": "no"}
        assert seen == [
            *((f"{name} added", first) for name in "abc"),
            ("c removed", second),
            ("a changed", second),
            ("b changed", second),
        ]

    asyncio.run(play())


class Recording(Kube):
    """Remembers from which versions it was asked to watch."""

    begun: tuple[int, ...] = ()

    def watch(self, path: str, *, resource_version: str, **options: Any) -> AsyncIterator[WatchEvent]:
        """Watch as usual."""
        self.begun += (int(resource_version),)
        return super().watch(path, resource_version=resource_version, **options)


def test_idle_watch_stays_current(plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    """Much changes elsewhere and nothing of its own: bookmarks let the next watch begin with a recent version."""
    monkeypatch.setattr(client, "WATCH_SECONDS", (4, 4))  # the server sends one before it ends a watch

    async def play(kube: Kube) -> None:
        recording = Recording(kubeconfig(plane.kubeconfig))
        async with recording, following(recording, "idle") as (_, follower):
            for number in range(5):
                await write(kube, "busy", "idle-other", str(number))
            newest = int(objects.resource_version(await kube.get(f"{MAPS}/idle-other")))
            async with asyncio.timeout(PATIENCE):
                while recording.begun[-1] < newest:
                    await asyncio.sleep(0.1)
            assert not follower.told

    run(plane, play)


def test_trimmed_objects_are_reported_and_kept(plane: ControlPlane) -> None:
    """A trimmed object is reported and kept, from the list and from the watch."""

    def trim(item: dict[str, Any]) -> dict[str, Any]:
        return {"metadata": {key: item["metadata"][key] for key in ("uid", "name", "resourceVersion")}}

    async def play(kube: Kube) -> None:
        await write(kube, "trim", "trim-a", "1")
        await kube.list(MAPS)
        async with following(kube, "trim", trim=trim) as (_, follower):
            await write(kube, "trim", "trim-b", "1")
            await kube.delete(f"{MAPS}/trim-a")
            await follower.until(lambda: len(follower.told) == 3)
            assert all(item.keys() == {"metadata"} for item in follower.there.values())

    run(plane, play)


def test_failure_of_the_listener_ends_the_reflector(plane: ControlPlane) -> None:
    """A copy that missed a change is worth nothing: the reflector ends with the exception."""

    async def play(kube: Kube) -> None:
        await write(kube, "mistake", "mistake-a", "1")

        def bad(_: ObjectChange) -> None:
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await asyncio.wait_for(Reflector(kube, Selection(MAPS, labels="t=mistake"), on_change=bad).run(), PATIENCE)

    run(plane, play)


CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
THINGS = "/apis/test.jupyter-gpu.io/v1/things"
THING_CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "things.test.jupyter-gpu.io"},
    "spec": {
        "group": "test.jupyter-gpu.io",
        "scope": "Cluster",
        "names": {"plural": "things", "kind": "Thing"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object"}},
            }
        ],
    },
}


async def create_thing(kube: Kube, name: str) -> None:
    """Create an object of the kind as soon as the API server has it."""
    body = {"apiVersion": "test.jupyter-gpu.io/v1", "kind": "Thing", "metadata": {"name": name}}
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                await kube.create(THINGS, body)
            except NotFound:
                await asyncio.sleep(0.1)
            else:
                return


def test_optional_kind_may_be_absent_come_and_go(plane: ControlPlane) -> None:
    """Without the kind there are no objects; they are reported once it is there, and again when it comes back."""

    async def play(kube: Kube) -> None:
        follower = Follower()
        reflector = Reflector(
            kube, Selection(THINGS, optional=True), on_change=follower.change, on_trouble=follower.trouble
        )
        task = asyncio.create_task(reflector.run())
        await asyncio.wait_for(reflector.synced.wait(), PATIENCE)
        assert reflector.absent
        assert not reflector.objects
        await kube.create(CRDS, THING_CRD)
        await create_thing(kube, "one")
        await follower.until(lambda: ("added", "one") in follower.told)
        assert not reflector.absent
        await kube.delete(f"{CRDS}/things.test.jupyter-gpu.io")
        await follower.until(lambda: reflector.absent)
        assert follower.told == [("added", "one"), ("removed", "one")]
        await kube.create(CRDS, THING_CRD)
        await create_thing(kube, "two")
        await follower.until(lambda: ("added", "two") in follower.told)
        assert not reflector.absent
        assert reflector.objects == follower.there
        await kube.delete(f"{CRDS}/things.test.jupyter-gpu.io")
        task.cancel()
        await asyncio.wait((task,))

    run(plane, play)


def test_trouble_never_ends_the_reflector(caplog: pytest.LogCaptureFixture) -> None:
    """Refused, broken, gone, another cluster's version, ended at once: it tries again until it works, and reports each
    once.
    """
    item = '{"metadata": {"uid": "u", "name": "n", "resourceVersion": "%d"}}'
    listing = '{"metadata": {"resourceVersion": "%d"}, "items": [%s]}'
    answers = [
        http(403),
        http(200, "nonsense"),
        http(200, listing % (5, item % 4)),
        http(200, '{"type": "ERROR", "object": {"code": 410}}\n'),
        http(410),
        http(200, listing % (9, item % 4)),
        http(400),
        http(200, listing % (9, "")),
        http(200, '{"type": "ADDED", "object": %s}\n' % (item % 12)),
    ]

    async def play() -> None:
        follower = Follower()
        async with answering(answers) as (kube, asked):
            reflector = Reflector(kube, Selection("/x"), on_change=follower.change)
            task = asyncio.create_task(reflector.run())
            await follower.until(lambda: len(follower.told) == 3)
            while len(asked) < 10:
                await asyncio.sleep(0.02)
            task.cancel()
            await asyncio.wait((task,))
        assert [kind for kind, _ in follower.told] == ["added", "removed", "added"]
        targets = [line.split()[1] for line in asked]
        assert [("watch" in target) for target in targets] == [False] * 3 + [True] + [False] * 2 + [
            True,
            False,
            True,
            True,
        ]
        assert ["resourceVersion=0" in target for target in targets[:3]] == [True] * 3
        assert "resourceVersion" not in targets[4]
        assert "resourceVersion=12" in targets[-1]

    asyncio.run(play())
    assert "can't be followed" in caplog.text
