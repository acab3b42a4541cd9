"""The backend of a pod against a real API server: what goes wrong between it, the cluster and the node."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpu.backends.base import WithWorkers
from jupyter_gpu.backends.kubernetes import KubernetesBackend, trouble
from jupyter_gpu.backends.kubernetes.identity import Identity
from jupyter_gpu.backends.kubernetes.own_pod import ClusterPod
from jupyter_gpu.backends.kubernetes.writer import RequestWriter
from jupyter_gpu.kube import Forbidden, Kube, in_cluster, kubeconfig
from jupyter_gpu.kube.rules import objects, paths
from jupyter_gpu.model.annotations import REQUESTED, Reason, Requested, Wish, decode_requested, encode
from jupyter_gpu.model.errors import BackendUnavailable, StaleGeneration
from jupyter_gpu.model.gpu import Holder
from jupyter_gpu.model.machine import Machine, Shown, Totals
from jupyter_gpu.model.service import Service, WorkerPart
from jupyter_gpu.model.share import ShareUse
from jupyter_gpu.model.status import Phase
from jupyter_gpu.model.view import GpuState, Mode, View
from tests.backends_kubernetes.stage import SECONDS, Stage
from tests.cluster.testbed import ControlPlane
from tests.contract.backends import reaches, running
from tests.kube.proxy import Proxy

pytestmark = pytest.mark.cluster
by_token = pytest.mark.parametrize("stage", ["token"], indirect=True)
"""For tests of what only servers with a token of their pod do."""

IDLE = ShareUse(
    uuid="GPU-0", allocated=500, effective=400, guaranteed=9, borrowed=8, idle=7, overrun=6, switching=5, waited=4,
    throttled=3, lost=2, balance=100, cap=100, expires=None, sharing=1, period=100_000,
)  # fmt: skip
"""Content of a share's file."""


def said(view: View) -> dict[str, str]:
    """Messages of the conditions by type."""
    return {condition.type: condition.message for condition in view.conditions}


def run(stage: Stage, play: Callable[[KubernetesBackend], Awaitable[None]], **options: Any) -> None:
    """One test with one pod, named ``p``."""

    async def whole() -> None:
        async with running(await asyncio.to_thread(stage.make, "p", **options)) as backend:
            await play(backend)

    asyncio.run(whole())


def test_wish_by_kubectl_is_followed(stage: Stage) -> None:
    """A bare quantity is followed; a client with the view before is refused; the next request is a new generation."""

    async def play(backend: KubernetesBackend) -> None:
        assert (await backend.request(Wish(1000))).generation == 1
        assert (await backend.request(Wish(3000))).generation == 2
        await stage.asking(stage.annotate("p", requested="2"))
        view = await reaches(backend, lambda view: view.status.requested == 2000 and view.status.phase is Phase.READY)
        assert (view.generation, len(view.gpus)) == (0, 2)
        with pytest.raises(StaleGeneration) as caught:
            await backend.request(Wish(3000), generation=2)
        assert caught.value.current == 0
        assert (await backend.request(Wish(3000), generation=0)).generation == 3
        await stage.asking(stage.annotate("p", requested=None))
        assert (await reaches(backend, lambda view: view.requested is None)).generation == 0

    run(stage, play)


def test_workers_of_the_pod_are_followed(stage: Stage) -> None:
    """As the node plugin streams them; what cannot be read counts as none."""

    async def play(backend: KubernetesBackend) -> None:
        assert isinstance(backend, WithWorkers)
        for text, workers in ((encode(Service(1, (WorkerPart("w1", "node2"),))), 1), ("{", 0)):
            await stage.asking(stage.annotate("p", service=text))
            async with asyncio.timeout(SECONDS):
                while len(backend.workers.service.workers if backend.workers.service else ()) != workers:
                    await backend.workers.changed()
        assert backend.workers.known

    run(stage, play)


def test_unreadable_wish_is_shown_and_replaced(stage: Stage) -> None:
    """Nonsense in the annotation changes nothing; the next wish replaces it."""

    async def play(backend: KubernetesBackend) -> None:
        await backend.request(Wish(1000))
        stage.deciding = False  # a scheduler keeps what is there
        await stage.asking(stage.annotate("p", requested="many"))
        view = await reaches(backend, lambda view: "InvalidRequest" in said(view))
        assert len(view.gpus) == 1
        stage.deciding = True
        view = await backend.request(Wish(2000))
        assert (view.status.phase, said(view).keys() & {"InvalidRequest"}) == (Phase.READY, set())
        assert view.generation > 1

    run(stage, play)


def test_other_writers_of_the_pod_lose_nothing(stage: Stage) -> None:
    """Labels, status and other annotations change all the time: each wish is recorded on top of them."""

    async def play(backend: KubernetesBackend) -> None:
        async def disturb() -> None:
            for number in range(10_000):
                body = {"metadata": {"labels": {"n": str(number)}}}
                await stage.kube.patch(paths.pod(stage.namespace, "p"), body)
                if stage.hub:  # a write takes longer that way than from one change to the next without a pause
                    await asyncio.sleep(0.2)

        noise = asyncio.run_coroutine_threadsafe(disturb(), stage.loop)
        try:
            for amount in (1000, 2000, 0, 3000):
                view = await backend.request(Wish(amount))
                assert view.status.attached == amount
            assert view.generation == 4
        finally:
            noise.cancel()

    run(stage, play)


@by_token
def test_unseen_wish_is_not_overwritten(stage: Stage) -> None:
    """Another wish came after the last look: the write is refused, and decided again on top of it."""

    async def whole() -> None:
        _, folder = await stage.asking(stage.pod("p"))
        async with Kube(in_cluster(folder, environment(stage))) as kube:
            own = ClusterPod(kube, Identity(stage.namespace, "p"))
            known: list[Mapping[str, Any]] = [await own.fetch()]
            await stage.asking(stage.annotate("p", requested=encode(Requested(5, Wish(3000)))))
            writer = RequestWriter(own, lambda: known[-1], known.append, patience=SECONDS)
            with pytest.raises(StaleGeneration) as caught:
                await writer.record(lambda _: Wish(1000), 0)
            assert caught.value.current == 5
            del known[1:]
            assert (await writer.record(lambda _: Wish(1000), None)).generation == 6

    asyncio.run(whole())


def test_lost_answer_is_no_second_wish(stage: Stage) -> None:
    """The wish arrives and its answer does not: the server looks, and recognises its own wish."""

    async def whole() -> None:
        uid, folder = await stage.asking(stage.pod("p"))
        async with (
            Proxy(stage.port) as proxy,
            running(stage.backend("p", uid, folder, port=proxy.port)) as (backend),
        ):
            for number in (1, 3, 5):
                await backend.request(Wish(1000))
                proxy.swallowing = True
                asking = asyncio.create_task(backend.request(Wish(2000), generation=number))
                async with asyncio.timeout(SECONDS):
                    while (wish := stage.states[uid].requested) is None or wish.milli != 2000:
                        await asyncio.sleep(0.01)
                proxy.swallowing = False
                view = await asking
                assert (view.generation, view.status.attached) == (number + 1, 2000)

    asyncio.run(whole())


def test_connection_cut_during_a_wish_does_no_harm(stage: Stage) -> None:
    """A wish is recorded once, whether or not it had arrived when the connection was cut."""

    async def whole() -> None:
        uid, folder = await stage.asking(stage.pod("p"))
        async with (
            Proxy(stage.port) as proxy,
            running(stage.backend("p", uid, folder, port=proxy.port)) as (backend),
        ):
            for number in range(1, 13):
                asking = asyncio.create_task(backend.request(Wish(1000 * (number % 3)), generation=number - 1))
                await asyncio.sleep(0.002 * (number % 7))
                proxy.cut()
                view = await asking
                assert (view.generation, view.status.attached) == (number, 1000 * (number % 3))

    asyncio.run(whole())


def test_outage_of_the_api_server_is_shown(stage: Stage) -> None:
    """A request fails in words, the view says so meanwhile, and what the node plugin reports still comes."""

    async def whole() -> None:
        uid, folder = await stage.asking(stage.pod("p"))
        async with Proxy(stage.port) as proxy:
            backend = stage.backend("p", uid, folder, port=proxy.port, patience=1.5)
            async with running(backend):
                await reaches(backend, lambda view: view.status.phase is Phase.IDLE)
                while (await backend.request(Wish(1000))).status.phase is not Phase.READY:
                    await asyncio.sleep(0.1)
                proxy.refusing = True
                proxy.cut()
                with pytest.raises(BackendUnavailable) as caught:
                    await backend.request(Wish(2000))
                assert "can't be asked now" in caught.value.message
                view = await reaches(backend, lambda view: "ClusterUnreachable" in said(view))
                assert (view.status.phase, len(view.gpus)) == (Phase.READY, 1)
                await stage.asking(stage.annotate("p", requested="3"))
                view = await reaches(backend, lambda view: view.status.attached == 3000)
                assert "ClusterUnreachable" in said(view)
                proxy.refusing = False
                await reaches(backend, lambda view: "ClusterUnreachable" not in said(view))

    asyncio.run(whole())


def test_node_plugin_without_the_cluster_is_shown(stage: Stage) -> None:
    """Nothing new is seen then. An outage of a moment is not shown."""

    async def play(backend: KubernetesBackend) -> None:
        seen: list[str] = []
        stop = backend.subscribe(lambda view: seen.extend(said(view)))
        stage.do_soon(lambda: stage.news.trouble("a cut"))
        stage.do_soon(lambda: stage.news.trouble(""))
        await backend.request(Wish(1000))
        await asyncio.sleep(2 * trouble.GRACE)
        stop()
        assert "ClusterUnreachable" not in seen
        stage.do_soon(lambda: stage.news.trouble("it is gone"))
        view = await reaches(backend, lambda view: "ClusterUnreachable" in said(view))
        assert "(it is gone)" in said(view)["ClusterUnreachable"]
        stage.do_soon(lambda: stage.news.trouble(""))
        await reaches(backend, lambda view: "ClusterUnreachable" not in said(view))

    run(stage, play)


@by_token
def test_notebook_may_read_no_pod(stage: Stage) -> None:
    """These tests have the right to patch alone: get, list and watch are refused."""

    async def whole() -> None:
        _, folder = await stage.asking(stage.pod("p"))
        async with Kube(in_cluster(folder, environment(stage))) as kube:
            assert objects.name(await ClusterPod(kube, Identity(stage.namespace, "p")).fetch()) == "p"
            with pytest.raises(Forbidden):
                await kube.get(paths.pod(stage.namespace, "p"))
            with pytest.raises(Forbidden):
                await kube.list(paths.pods(stage.namespace))
            with pytest.raises(Forbidden):
                await anext(aiter(kube.watch(paths.pods(stage.namespace), resource_version="")))

    asyncio.run(whole())


def test_server_starts_during_an_outage(stage: Stage) -> None:
    """Passing trouble is no reason to be without GPUs until the next start."""

    async def whole() -> None:
        uid, folder = await stage.asking(stage.pod("p"))
        async with Proxy(stage.port) as proxy:
            proxy.refusing = True
            backend = stage.backend("p", uid, folder, port=proxy.port)
            await backend.start()
            try:
                await reaches(backend, lambda view: "ClusterUnreachable" in said(view))
                proxy.refusing = False
                assert (await backend.request(Wish(1000))).status.phase is Phase.READY
            finally:
                await backend.stop()

    asyncio.run(whole())


def test_dead_node_plugin_is_noticed_at_once_and_found_again(stage: Stage) -> None:
    """The connection ends, so there is no polling. Loads are missing meanwhile, cards stay."""

    async def play(backend: KubernetesBackend) -> None:
        await backend.request(Wish(1000))
        (socket,) = stage.sockets.values()
        await stage.asking(socket.close())
        view = await reaches(backend, lambda view: "NodePluginUnreachable" in said(view))
        assert len(view.gpus) == 1
        assert "what you see may be old" in said(view)["NodePluginUnreachable"]
        await stage.asking(stage.annotate("p", requested="2"))
        assert (await backend.sample()).loads == {}
        await stage.asking(socket.open())
        await reaches(backend, lambda view: "NodePluginUnreachable" not in said(view))
        await reaches(backend, lambda view: view.status.attached == 2000)
        assert len((await backend.sample()).loads) == 2

    run(stage, play)


def test_pod_sees_the_sums_of_its_node(stage: Stage) -> None:
    """It sees no names, whatever the setting says; while the plugin is away the request says so."""

    async def play(backend: KubernetesBackend) -> None:
        machine = await backend.machine(Shown.EVERYBODY)
        assert machine == Machine(Shown.TOTALS, Totals(len(stage.gpus), 1000, 2000, 3))
        (socket,) = stage.sockets.values()
        await stage.asking(socket.close())
        with pytest.raises(BackendUnavailable, match="Try again"):
            await backend.machine(Shown.EVERYBODY)

    run(stage, play)


def test_holders_and_draining_gpus_are_shown(stage: Stage) -> None:
    """Holders of a sample become users of cards; a shrink that waits for them is answered at once."""

    async def play(backend: KubernetesBackend) -> None:
        view = await backend.request(Wish(1000))
        uid, gpu = next(iter(stage.states)), view.gpus[0].gpu.uuid
        stage.holders[uid] = {gpu: (Holder(42, "python"),)}
        sample = await backend.sample()
        assert sample.loads[gpu].utilisation == 50
        assert [user.pid for card in backend.view().gpus for user in card.users] == [42]
        view = await backend.request(Wish(0))
        assert (view.status.phase, view.gpus[0].state) == (Phase.RELEASING, GpuState.DRAINING)
        assert view.gpus[0].users[0].command == "python"
        stage.holders.clear()
        stage.reconcile()
        assert (await reaches(backend, lambda view: not view.gpus)).status.phase is Phase.IDLE

    run(stage, play)


def test_broken_gpu_is_shown(stage: Stage) -> None:
    """It is reported by the node plugin in `attached`, and by the node's own list."""

    async def play(backend: KubernetesBackend) -> None:
        await backend.request(Wish(1000))
        stage.gpus = tuple(replace(gpu, healthy=False, health="fell off the bus") for gpu in stage.gpus)
        stage.reconcile()
        view = await reaches(
            backend, lambda view: view.status.phase is Phase.DEGRADED and view.gpus[0].state is GpuState.UNHEALTHY
        )
        assert view.gpus[0].gpu.health == "fell off the bus"

    run(stage, play)


def test_silent_scheduler_is_waited_for_within_limits(stage: Stage) -> None:
    """The wish stands, the view says that it is pending, and it is served when the scheduler is back."""

    async def play(backend: KubernetesBackend) -> None:
        stage.deciding = False
        view = await backend.request(Wish(1000))
        assert (view.generation, view.status.phase) == (1, Phase.PENDING)
        stage.deciding = True
        stage.reconcile()
        await reaches(backend, lambda view: view.status.phase is Phase.READY)

    run(stage, play, patience=0.5)


def test_refusal_by_the_scheduler_is_an_answer(stage: Stage) -> None:
    """A wish that only the scheduler can judge, such as one for other nodes, is refused by it, and the view says so."""

    async def play(backend: KubernetesBackend) -> None:
        view = await backend.request(Wish(9000, placement="any"))
        assert (view.status.phase, view.status.reason) == (Phase.REFUSED, Reason.INFEASIBLE)

    run(stage, play)


def test_deleted_pod_is_gone(stage: Stage) -> None:
    """Its server says so while it ends, and does not take the next pod of that name for its own."""

    async def play(backend: KubernetesBackend) -> None:
        pod = paths.pod(stage.namespace, "p")
        await stage.asking(stage.kube.delete(pod, grace=0))
        view = await reaches(backend, lambda view: "PodGone" in said(view))
        await stage.asking(stage.pod("p"))
        with pytest.raises(BackendUnavailable):
            await backend.request(Wish(1000))
        assert view.requested is None

    run(stage, play)


@by_token
def test_events_about_the_pod_are_shown_in_plain_words(stage: Stage) -> None:
    """Events of another pod are left out."""

    async def play(backend: KubernetesBackend) -> None:
        uid = next(iter(stage.states))
        for about, name in ((uid, "mine"), ("other", "theirs")):
            await stage.asking(
                stage.kube.create(
                    paths.events(stage.namespace),
                    {
                        "metadata": {"name": name, "namespace": stage.namespace},
                        "involvedObject": {"kind": "Pod", "namespace": stage.namespace, "name": "p", "uid": about},
                        "reason": "Evicted",
                        "message": f"about {name}",
                        "type": "Warning",
                    },
                )
            )
        message = said(await reaches(backend, lambda view: "Evicted" in said(view)))["Evicted"]
        assert message.startswith("Kubernetes is removing this pod")
        assert message.endswith("Kubernetes says: about mine")

    run(stage, play)


def test_without_the_right_to_read_events_all_else_works(plane: ControlPlane) -> None:
    """Events only help, so their absence is not mentioned."""

    async def play(backend: KubernetesBackend) -> None:
        view = await backend.request(Wish(1000))
        assert (view.status.phase, set(said(view))) == (Phase.READY, {"Simulated"})

    with Stage(plane, events=False) as stage:
        run(stage, play)


def test_priority_limit_and_fractions_are_those_of_the_server(stage: Stage) -> None:
    """The settings work as on one machine."""

    async def play(backend: KubernetesBackend) -> None:
        view = await backend.request(Wish(500))
        assert view.requested is not None
        assert (view.requested.wish.priority, view.limit, view.steps) == (7, 2000, (0, 125, 1000, 2000))
        assert (view.mode, view.simulated, view.total) == (Mode.ENFORCED, True, 3000)
        assert "ShareNotEnforced" not in said(view)
        view = await backend.request(Wish(1000, priority=1))
        assert view.requested is not None
        assert view.requested.wish.priority == 1

    run(stage, play, priority=7, limit=2000, fractions=(125,))


def test_node_that_does_not_enforce_shares_says_why(stage: Stage) -> None:
    """No use of a share is shown then; whole GPUs are not affected."""
    stage.unenforced = "simulated GPUs have no driver"

    async def play(backend: KubernetesBackend) -> None:
        assert "ShareNotEnforced" not in said(await backend.request(Wish(1000)))
        view = await backend.request(Wish(500))
        assert "as simulated GPUs have no driver:" in said(view)["ShareNotEnforced"]
        assert (await backend.sample()).shares == {}

    run(stage, play)


def test_use_of_a_share_is_in_the_sample(stage: Stage) -> None:
    """It comes from the file beside the socket, while the pod has a part of that GPU and not the whole."""

    async def play(backend: KubernetesBackend) -> None:
        view = await backend.request(Wish(500))
        (card,) = view.gpus
        assert (await backend.sample()).shares == {}
        (pod,) = stage.sockets.values()
        file = pod.path.parent / "shares" / f"{card.gpu.uuid}.json"
        file.parent.mkdir()
        use = replace(IDLE, uuid=card.gpu.uuid)
        file.write_text(json.dumps({**use.to_json(), "use": 0.5, "written": int(time.time() * 1000)}))
        assert (await backend.sample()).shares == {card.gpu.uuid: use}
        await backend.request(Wish(1000))
        assert (await backend.sample()).shares == {}

    run(stage, play)


def test_revoked_share_may_be_asked_for_again(stage: Stage) -> None:
    """The reason is shown, and the same wish once more is a new one."""

    async def play(backend: KubernetesBackend) -> None:
        view = await backend.request(Wish(500))
        assert await backend.request(Wish(500)) == view
        ((uid, plugin),), (card,) = stage.sockets.items(), view.gpus
        stage.taken[uid] = {card.gpu.uuid: "It kept the GPU. Ask again."}
        await stage.asking(plugin.close())
        await stage.asking(plugin.open())
        view = await reaches(backend, lambda view: "ShareTaken" in said(view))
        assert said(view)["ShareTaken"].endswith("It kept the GPU. Ask again.")
        again = await backend.request(Wish(500))
        assert again.generation == view.generation + 1

    run(stage, play)


def test_ending_server_asks_for_nothing(stage: Stage) -> None:
    """A server that ends gives its GPUs back, even if its pod stays."""

    async def whole() -> None:
        async with running(await asyncio.to_thread(stage.make, "p")) as backend:
            await backend.request(Wish(2000))
        pod = await stage.asking(stage.kube.get(paths.pod(stage.namespace, "p")))
        requested = decode_requested(objects.annotation(pod, REQUESTED) or "")
        assert (requested.milli, requested.generation) == (0, 2)

    asyncio.run(whole())


@by_token
@pytest.mark.parametrize(
    ("who", "words"),
    [
        ({"name": "nobody"}, "there is none of that name"),
        ({"uid": "another"}, "belongs to another pod"),
        ({"namespace": "default"}, "does not let this pod ask for GPUs"),
    ],
)
def test_wrong_identity_names_the_remedy(stage: Stage, who: dict[str, str], words: str) -> None:
    """Waiting would not help: the message says what to change."""

    async def whole() -> None:
        uid, folder = await stage.asking(stage.pod("p"))
        environ = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(stage.plane.layout.port)}
        identity = Identity(**{"namespace": stage.namespace, "name": "p", "uid": uid, **who})
        backend = KubernetesBackend(
            credentials=in_cluster(folder, environ), identity=identity, socket=folder / "node.sock"
        )
        with pytest.raises(BackendUnavailable, match=words):
            await backend.start()
        with pytest.raises(BackendUnavailable):
            await backend.request(Wish(1000))
        await backend.stop()

    asyncio.run(whole())


@by_token
def test_forbidden_write_says_that_nothing_was_changed(stage: Stage) -> None:
    """A policy or a missing right gives the cluster's own sentence, and no second attempt."""

    async def whole() -> None:
        uid, folder = await stage.asking(stage.pod("p"))
        async with running(stage.backend("p", uid, folder)) as backend:
            await stage.asking(
                stage.kube.delete(f"/apis/rbac.authorization.k8s.io/v1/namespaces/{stage.namespace}/roles/notebook")
            )
            async with Kube(in_cluster(folder, environment(stage))) as kube:
                await until_forbidden(kube, paths.pod(stage.namespace, "p", "status"))
            with pytest.raises(BackendUnavailable) as caught:
                await backend.request(Wish(1000))
            assert "did not accept" in caught.value.message
            assert "cannot patch resource" in caught.value.message
            assert backend.view().requested is None

    asyncio.run(whole())


def environment(stage: Stage) -> dict[str, str]:
    """Set the variables by which a pod finds the API server."""
    return {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(stage.plane.layout.port)}


async def until_forbidden(kube: Kube, path: str) -> None:
    """RBAC changes take a moment to be known."""
    async with asyncio.timeout(SECONDS):
        while True:
            try:
                await kube.patch(path, {})
            except Forbidden:
                return
            await asyncio.sleep(0.05)


def test_container_without_a_slot_names_the_missing_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing socket or service account is named, with what to add to the pod."""
    monkeypatch.delenv("JUPYTER_GPU_NODE_SOCKET", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)

    async def whole() -> None:
        with pytest.raises(BackendUnavailable, match=r"Add jupyter-gpu.io/slot: 1 to its resources.limits"):
            await KubernetesBackend().start()
        with pytest.raises(BackendUnavailable, match="KUBERNETES_SERVICE_HOST is not set"):
            await KubernetesBackend(socket=tmp_path / "s").start()
        broken = tmp_path / "config"
        broken.write_text("{}")
        with pytest.raises(BackendUnavailable, match="can't be used"):
            await KubernetesBackend(
                socket=tmp_path / "s", credentials=kubeconfig(broken), identity=Identity("n", "p")
            ).start()

    asyncio.run(whole())
