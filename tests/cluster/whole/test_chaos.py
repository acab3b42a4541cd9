"""Two nodes, five pods, random resizes, and everything is killed by and by: the rules hold, and all converges."""

import json
import os
import random
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from jupyter_gpu.kube.rules import objects
from jupyter_gpu.model.annotations import REQUESTED
from tests.cluster.testbed import until
from tests.cluster.testbed.commands import CommandFailed
from tests.cluster.whole import agent_steps, pods
from tests.cluster.whole.faults import FAULTS
from tests.cluster.whole.judge import spans, within
from tests.cluster.whole.states import unsettled
from tests.cluster.whole.world import SECONDS, World

pytestmark = [pytest.mark.root, pytest.mark.cluster, pytest.mark.timeout(900)]  # the first of all installs the product

LENGTH = float(os.environ.get("JUPYTER_GPU_CHAOS_SECONDS", "60"))
SEED = int(os.environ.get("JUPYTER_GPU_CHAOS_SEED") or random.SystemRandom().randrange(10**6))
PROBED = {"a1": "node1", "b1": "node1", "a2": "node2", "b2": "node2"}
"""With whole GPUs and a prober each."""
SHARING = {"c1": "node1"}
"""With shares of a GPU."""
AMOUNTS: dict[str, Sequence[object]] = {
    **dict.fromkeys(PROBED, (0, 1, 2, 3, 4)),
    **dict.fromkeys(SHARING, (0, "500m", "250m", 1)),
}


@contextmanager
def resizing(corner: World, chance: random.Random) -> Iterator[list[str]]:
    """Run two writers that know nothing of each other, until the end of the block; the list holds their wishes."""
    ended = threading.Event()
    said: list[str] = []

    def write(own: random.Random) -> None:
        while not ended.wait(own.uniform(0.1, 1.5)):
            name = own.choice(tuple(AMOUNTS))
            amount = own.choice(AMOUNTS[name])
            try:
                corner.ask(name, amount)
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


def converge(corner: World, what: str) -> None:
    """Wait until nothing is left to do, and the node plugins and slots are there again."""

    wanted = until(lambda: wishes(corner), SECONDS, "the API server to answer")

    def done() -> bool:
        found = corner.history.pods()
        heard = {pod.name: pod.annotations.get(REQUESTED) for pod in found}
        return heard == wanted and not unsettled(found, corner.gpus)

    try:
        corner.until(done, f"all to converge after: {what}")
    except AssertionError as error:
        raise AssertionError(f"{unsettled(corner.history.pods(), corner.gpus)}\n{error}") from error


@pytest.mark.timeout(LENGTH + 900)
def test_wishes_converge_while_everything_is_killed(corner: World) -> None:
    """After each fault the wishes are served; no GPU ever had two owners, by the API and by the devices."""
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
    with agent_steps.mortal(corner.product):
        seen = kill_by_and_by(corner, chance)
    assert seen == set(FAULTS)
    converge(corner, "the node plugins' last update")
    started = [pod.name for pod in corner.history.pods() if pod.name.startswith("new-")]
    assert started, "No pod was started while its node plugin died."
    for name in started:
        corner.until(lambda name=name: corner.satisfied(name), f"{name} to run after all")  # type: ignore[misc]
    look_at_probers(corner)


def kill_by_and_by(corner: World, chance: random.Random) -> set[str]:
    """Every fault once, in any order, and again while there is time; those that were."""
    started = time.monotonic()
    seen: set[str] = set()
    todo: list[str] = []
    while len(seen) < len(FAULTS) or time.monotonic() < started + LENGTH:
        todo = todo or chance.sample(tuple(FAULTS), len(FAULTS))
        name = todo.pop(0)
        begun = time.monotonic()
        with resizing(corner, chance) as said:
            time.sleep(chance.uniform(0.2, 0.8))  # at any moment of what goes on
            FAULTS[name](corner, chance)
            time.sleep(chance.uniform(0.2, 1))
        harmed = time.monotonic()
        converge(corner, name)
        now = time.monotonic()
        print(f"{now - begun:5.1f} s  {name}: converged after {now - harmed:.1f} s; {' '.join(said)}", flush=True)
        assert not corner.history.broken, corner.history.broken[:5]
        seen.add(name)
    return seen


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
