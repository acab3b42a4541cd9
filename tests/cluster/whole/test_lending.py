"""Lending in the whole cluster: a GPU that its owner leaves unused serves another pod, its guest, and comes back."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from jupyter_gpu.model.demand import booked
from jupyter_gpu.model.gpu import Gpu, GpuShare
from jupyter_gpu.model.limits.owner import USERNAME
from tests.cluster.testbed.commands import CommandFailed
from tests.cluster.whole import pods
from tests.cluster.whole.states import PodState
from tests.cluster.whole.test_limits import of_user, set_limit
from tests.cluster.whole.test_sharing import WORK, board, goes_on, prepare, worker
from tests.cluster.whole.world import World

pytestmark = [pytest.mark.root, pytest.mark.cluster, pytest.mark.timeout(900)]  # the first of all installs the product

GIB = 2**30
PAUSE = f"{pods.LOGS}/pause"
HALF = {"generation": 1, "milli": 500, "memory": 11 * GIB}
"""A request that leaves some of a shared GPU's memory."""
WISH = {"milli": 500, "memory": 4 * GIB, "preemptible": True}
"""The request of the guest: half a GPU, and as much memory as an owner leaves of a lendable one."""


@pytest.fixture
def lending(corner: World) -> Iterator[World]:
    """Return a corner of the cluster with the programs of its pods, and remove the limit of its user at the end."""
    prepare(corner)
    yield corner
    with contextlib.suppress(CommandFailed):
        corner.kubectl("delete", "gpulimits", "ann-limits", "--ignore-not-found")


def working(corner: World, name: str, wants: object, *, first: str = "true") -> dict[str, Any]:
    """Return a pod whose program uses its GPU for as long as it may open it; then the next one waits for a GPU."""
    made = worker(corner, name, "0")
    made["metadata"]["annotations"] = pods.pod(name, wants=wants)["metadata"]["annotations"]
    made["spec"]["containers"][0]["command"] = ["sh", "-c", f"{first}; while :; do {WORK}; done"]
    return made


def is_lent(corner: World, owner: Gpu) -> bool:
    """Return whether the guest has what the owner's GPU has for guests, and nothing else."""
    return _shares(corner, "guest") == (GpuShare(owner.uuid, 0, 4 * GIB),)


def has_nothing(corner: World, name: str) -> bool:
    """Return whether a pod has nothing and closed what it had."""
    state = corner.pod(name)
    return state.settled and not state.held


def overbooked(corner: World) -> list[str]:
    """Return the moments at which pods had more of a GPU's memory than there is."""
    memory = {gpu.uuid: gpu.memory for gpu in corner.gpus[corner.one]}
    now: dict[str, dict[str, int]] = {}
    found = []
    for moment in corner.history.moments:
        now[moment.state.uid] = {} if moment.kind == "removed" else _booked(moment.state, memory)
        for uuid, most in memory.items():
            if sum(of.get(uuid, 0) for of in now.values()) > most:
                found.append(f"{moment.number}: {now}")
    return found


def _booked(state: PodState, memory: dict[str, int]) -> dict[str, int]:
    given, there = state.allocated, state.attached
    found: dict[str, int] = {}
    for share in (
        *((*given.shares, *given.pending(there)) if given else ()),
        *((*there.shares, *(each.share for each in there.draining)) if there else ()),
    ):
        found[share.uuid] = max(found.get(share.uuid, 0), booked(memory[share.uuid], share.milli, share.memory))
    return found


def test_whole_gpu_is_lent_while_it_rests(lending: World) -> None:
    """Only a lendable one; its guest goes when the owner works, and when the owner or the limit does not lend it.

    What two shares leave is lent as well. A new pod begins as a guest. A guest counts for nothing, and nobody has more
    memory than there is.
    """
    corner = lending
    lent = {"generation": 1, "milli": 1000, "lendable": True}
    guest = of_user(working(corner, "guest", None))
    guest["metadata"]["annotations"][USERNAME] = "bob.guest"
    corner.run(
        pods.pod("holder", wants=2, node=corner.one),
        *(pods.pod(name, wants=HALF, node=corner.one) for name in ("left", "right")),
        pods.pod("other", node=corner.one),
        of_user(working(corner, "owner", lent, first=f"touch {PAUSE}")),
        guest,
    )
    (uuid,) = corner.pod("owner").usable
    gpu = next(gpu for gpu in corner.gpus[corner.one] if gpu.uuid == uuid)
    corner.until(lambda: _rests(corner), "the owner to rest")
    corner.ask("guest", {"generation": 1, **WISH})
    corner.until(lambda: is_lent(corner, gpu), "the owner's GPU to be lent")
    goes_on(corner, "guest")
    assert _account(corner, "bob.guest")[:2] == ["0", "500m"]
    corner.ask("other", {"generation": 1, **WISH, "memory": 2 * GIB})
    (shared,) = corner.pod("left").usable
    beside = GpuShare(shared, 0, 2 * GIB)
    corner.until(lambda: beside in _shares(corner, "other"), "what two shares leave to be lent")
    assert corner.opens("other", corner.path_of(shared))
    assert not corner.opens("other", gpu.path)

    corner.exec("owner", "rm", PAUSE)
    goes_on(corner, "owner")
    corner.until(lambda: has_nothing(corner, "guest"), "the guest to go")
    assert not _rests(corner)
    corner.exec("owner", "touch", PAUSE)
    corner.until(lambda: is_lent(corner, gpu), "it to be lent again")
    goes_on(corner, "guest")
    assert board(corner, "owner").sums().overlaps == 0

    corner.ask("owner", {"generation": 2, "milli": 1000})
    corner.until(lambda: _is_whole(corner, gpu), "the owner to have all of its memory")
    assert has_nothing(corner, "guest")
    set_limit(corner, lendable=True)
    corner.until(lambda: is_lent(corner, gpu), "it to be lent, as the limit says")
    corner.kubectl("delete", "pod", "guest", "--grace-period=1", "--wait=false")
    corner.until(lambda: not corner.history.pods("guest"), "the guest to be gone")
    corner.create(working(corner, "new", {"generation": 1, **WISH}))
    corner.until(lambda: GpuShare(gpu.uuid, 0, 4 * GIB) in _shares(corner, "new"), "a new pod to start as its guest")
    goes_on(corner, "new")
    set_limit(corner, lendable=False)
    corner.until(lambda: _is_whole(corner, gpu), "the owner to have all of it")
    assert not overbooked(corner)


def _rests(corner: World) -> bool:
    state = corner.pod("owner")
    return bool(state.attached and state.attached.rests == tuple(state.usable))


def _is_whole(corner: World, gpu: Gpu) -> bool:
    return _shares(corner, "owner") == (GpuShare(gpu.uuid, 1000),)


def _shares(corner: World, name: str) -> tuple[GpuShare, ...]:
    attached = corner.pod(name).attached
    return attached.shares if attached else ()


def _account(corner: World, user: str) -> list[str]:
    rows = [line.split() for line in corner.kubectl("get", "gpuaccounts").splitlines()]
    return next((row[4:] for row in rows if user in row), [])
