"""Two nodes, five pods and a notebook with a worker, random resizes, and everything is killed by and by.

The rules hold, and all converges.
"""

import json
import os
import random
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from jupyter_gpu.kube.rules import objects
from jupyter_gpu.model.annotations import REQUESTED
from tests.cluster.testbed import until
from tests.cluster.testbed.commands import CommandFailed
from tests.cluster.whole import agent_steps, pods
from tests.cluster.whole.faults import FAULTS
from tests.cluster.whole.judge import spans, within
from tests.cluster.whole.notebooks import NotebookKernel, group_of, openers
from tests.cluster.whole.states import PodState, broken_rules, unsettled, with_parts
from tests.cluster.whole.world import REMOTE, SECONDS, Product, World, world
from tests.deploy import product as chart

pytestmark = [pytest.mark.root, pytest.mark.cluster, pytest.mark.timeout(900)]  # the first of all installs the product

LENGTH = float(os.environ.get("JUPYTER_GPU_CHAOS_SECONDS", "60"))
SEED = int(os.environ.get("JUPYTER_GPU_CHAOS_SEED") or random.SystemRandom().randrange(10**6))
PROBED = {"a1": "node1", "b1": "node1", "a2": "node2", "b2": "node2"}
"""With whole GPUs and a prober each."""
SHARING = {"c1": "node1"}
"""With shares of a GPU."""
NOTEBOOK = "ann"
"""On the first node, in the namespace whose notebooks may have workers."""
KEPT = "kept by the notebook"
AMOUNTS: dict[str, Sequence[object]] = {
    **dict.fromkeys(PROBED, (0, 1, 2, 3, 4)),
    **dict.fromkeys(SHARING, (0, "500m", "250m", 1)),
    NOTEBOOK: (0, 1, 2, 3),
}


@dataclass(frozen=True)
class Stage:
    """All pods: those with probers and shares, and those of the notebook."""

    corner: World
    remote: World

    def of(self, name: str) -> World:
        """Return the corner of a pod."""
        return self.remote if name == NOTEBOOK else self.corner

    @property
    def pods(self) -> tuple[PodState, ...]:
        """Return all pods, each with the wish that it is to be given itself."""
        return (*self.corner.history.pods(), *with_parts(self.remote.history.pods()))

    @property
    def broken(self) -> list[str]:
        """Return the rules that did not hold in a namespace, or that do not now in both together."""
        both = (*self.corner.history.pods(), *self.remote.history.pods())
        return [*self.corner.history.broken, *self.remote.history.broken, *broken_rules(both)]


@pytest.fixture
def stage(product: Product, corner: World) -> Iterator[Stage]:
    """Start the notebook."""
    chart.load(product.cluster, "notebook")
    with world(product, REMOTE) as remote:
        remote.run(pods.notebook(NOTEBOOK, product.notebook, node=remote.one))
        yield Stage(corner, remote)


@contextmanager
def resizing(stage: Stage, chance: random.Random) -> Iterator[list[str]]:
    """Run two writers that know nothing of each other, until the end of the block; the list holds their wishes."""
    ended = threading.Event()
    said: list[str] = []

    def write(own: random.Random) -> None:
        while not ended.wait(own.uniform(0.1, 1.5)):
            name = own.choice(tuple(AMOUNTS))
            amount = own.choice(AMOUNTS[name])
            try:
                stage.of(name).ask(name, amount)
            except CommandFailed:  # the API server is away
                continue
            said.append(f"{name}={amount}")

    writers = [threading.Thread(target=write, args=(random.Random(chance.random()),), daemon=True) for _ in range(2)]
    for writer in writers:
        writer.start()
    try:
        yield said
    finally:
        ended.set()
        for writer in writers:
            writer.join(SECONDS)


def wishes(corner: World) -> dict[str, str | None]:
    """Return the wishes that the API server has now."""
    found = json.loads(corner.kubectl("get", "pods", "--output", "json"))["items"]
    return {objects.name(pod): objects.annotation(pod, REQUESTED) for pod in found}


def converge(stage: Stage, what: str) -> None:
    """Wait until nothing is left to do, and the node plugins and slots are there again."""
    corner, both = stage.corner, (stage.corner, stage.remote)
    wanted = [until(lambda one=one: wishes(one), SECONDS, "the API server to answer") for one in both]  # type: ignore[misc]

    def done() -> bool:
        heard = [{pod.name: pod.annotations.get(REQUESTED) for pod in one.history.pods()} for one in both]
        known = all(heard[0].get(name) == wish for name, wish in (wanted[0] or {}).items())
        known = known and heard[1].get(NOTEBOOK) == (wanted[1] or {}).get(NOTEBOOK)
        return known and len(heard[0]) == len(wanted[0] or {}) and not unsettled(stage.pods, corner.gpus)

    try:
        until(done, SECONDS, f"all to converge after: {what}", every=0.2)
    except Exception as error:
        why = unsettled(stage.pods, corner.gpus)
        raise AssertionError(f"{why}\n{error}\n{corner.report()}\n{stage.remote.report()}") from error


@pytest.mark.timeout(LENGTH + 900)
def test_wishes_converge_while_everything_is_killed(stage: Stage) -> None:
    """After each fault the wishes are served; no GPU ever had two owners, by the API and by the devices."""
    corner = stage.corner
    print(f"\nseed {SEED}")
    chance = random.Random(SEED)
    image = corner.product.component("node")[0]["spec"]["containers"][0]["image"]  # it has Python, and is there already
    corner.programs()
    files = {pods.PROGRAMS: "programs"}
    probed = [
        pods.pod(name, pods.probing(corner.devices(node)), image=image, node=node, files=files)
        for name, node in PROBED.items()
    ]
    corner.run(*probed, *(pods.pod(name, node=node) for name, node in SHARING.items()))
    kernel = NotebookKernel(stage.remote.pod(NOTEBOOK).address)
    kernel.run(f"from jupyter_gpu import gpu\nkept = {KEPT!r}\ngpu.release()")
    has_worker(stage)
    with agent_steps.mortal(corner.product):
        seen = kill_by_and_by(stage, chance)
    assert seen == set(FAULTS)
    converge(stage, "the node plugins' last update")
    started = [pod.name for pod in corner.history.pods() if pod.name.startswith("new-")]
    assert started, "No pod was started while its node plugin died."
    for name in started:
        corner.until(lambda name=name: corner.satisfied(name), f"{name} to run after all")  # type: ignore[misc]
    look_at_probers(corner)
    look_at_notebook(stage, kernel)


def kill_by_and_by(stage: Stage, chance: random.Random) -> set[str]:
    """Every fault once, in any order, and again while there is time; those that were."""
    started = time.monotonic()
    seen: set[str] = set()
    todo: list[str] = []
    while len(seen) < len(FAULTS) or time.monotonic() < started + LENGTH:
        todo = todo or chance.sample(tuple(FAULTS), len(FAULTS))
        name = todo.pop(0)
        begun = time.monotonic()
        with resizing(stage, chance) as said:
            time.sleep(chance.uniform(0.2, 0.8))  # at any moment of what goes on
            FAULTS[name](stage.corner, chance)
            time.sleep(chance.uniform(0.2, 1))
        harmed = time.monotonic()
        converge(stage, name)
        now = time.monotonic()
        print(f"{now - begun:5.1f} s  {name}: converged after {now - harmed:.1f} s; {' '.join(said)}", flush=True)
        assert not stage.broken, stage.broken[:5]
        seen.add(name)
    return seen


def has_worker(stage: Stage) -> None:
    """Give the notebook a GPU of the other node, once: its worker is kept warm afterwards."""
    stage.corner.ask("a1", 4)
    stage.corner.has("a1", 4000)
    stage.remote.ask(NOTEBOOK, 1)
    stage.remote.until(lambda: parts_of(stage.remote) == 1000, "the notebook to have a GPU of the other node")


def parts_of(remote: World) -> int:
    """Return the milli that workers have attached."""
    return sum(sum(pod.usable.values()) for pod in remote.history.pods() if pod.name != NOTEBOOK)


def look_at_notebook(stage: Stage, kernel: NotebookKernel) -> None:
    """Its kernel kept its variables and computes on the other node; then none of its processes has a GPU open."""
    for name in AMOUNTS:
        stage.of(name).ask(name, 0)
    converge(stage, "wishes for nothing")
    has_worker(stage)
    said = kernel.run("import socket\nprint(kept, gpu.run(socket.gethostname))")
    ours = [pod for pod in stage.remote.history.pods() if pod.name != NOTEBOOK and pod.usable]
    assert said == f"{KEPT} {ours[0].name}"
    kernel.run("gpu.release(timeout=80)")
    converge(stage, "the notebook's release")
    uids = {pod.uid for pod in stage.remote.history.pods()}
    devices = [gpu.device for gpus in stage.corner.gpus.values() for gpu in gpus if gpu.device]
    groups = [group_of(pid) for device in devices for pid in openers(device)]
    assert not [group for group in groups if any(uid in group for uid in uids)]


def look_at_probers(corner: World) -> None:
    """Nothing opened that was not granted, all that was attached opened, and no device opened in two pods at once."""
    attempts = 0
    for name in PROBED:
        verdict = corner.probed(name)
        attempts += verdict.attempts
        told = [line for line in corner.probe_log(corner.pod(name)) if "device" in line or "started" in line]
        assert not verdict.wrong, f"{name}: {verdict.wrong[:10]}\n{told[-100:]}\n{corner.report()}"
    print(f"{attempts} attempts to open a device, none wrong")
    for one, other in (("a1", "b1"), ("a2", "b2")):
        mine, theirs = (spans(corner.probe_log(corner.pod(name))) for name in (one, other))
        for path in mine.keys() & theirs.keys():
            both = within(mine[path], theirs[path])
            assert not both, f"{path} opened in {one} and {other} at once: {both[:5]}"
