"""Pods, the node and accounts of a machine as objects, read as those of a cluster are."""

from __future__ import annotations

from datetime import UTC, date

from jupyter_gpu.model.annotations import Allocated, Attached, Requested, Wish
from jupyter_gpu.model.gpu import Gpu, GpuShare
from jupyter_gpu.model.limits.account import Account
from jupyter_gpu.model.limits.amount import UNLIMITED
from jupyter_gpu.model.limits.index import LimitIndex
from jupyter_gpu.model.limits.machine_accounts import MachineAccounts
from jupyter_gpu.model.limits.machine_use import MachinePod, MachineUse
from jupyter_gpu.model.limits.owner import Owner
from jupyter_gpu.model.limits.pod_limit import PodLimit
from jupyter_gpu_hub.rules import accounts, usage
from jupyter_gpu_hub.rules.machine.use_objects import account_objects, node_objects, pod_objects
from tests.hub_service.rules.builders import HUB, limit

ONE, HALF = GpuShare("g0", 1000), GpuShare("g1", 500)
GPUS = tuple(Gpu(f"g{i}", i, "A100", 2**30, healthy=True) for i in range(3))
ANN, BOB = (Owner("User", name, HUB) for name in ("ann", "bob"))
DAY = date(2026, 5, 4)
NOW = 1777888800.0
"""On that day."""


def machine() -> MachineUse:
    """Return a machine where ann has one GPU of two, and what bob's server had is still open."""
    told = PodLimit(1000, 1000, give_back_at=NOW + 60)
    ann = MachinePod("a" * 32, "ann", 7, False, Requested(1, Wish(2000)), Allocated(1, (ONE,), limit=told))
    bob = MachinePod("b" * 32, "bob", 8, True, Requested(1, Wish(500)), None, Attached(1, (HALF,)))
    return MachineUse(GPUS, "", (ann, bob, MachinePod("c" * 32, "eve", 9)))


def test_pods_and_gpus_are_read_as_in_a_cluster() -> None:
    """Each pod with its owner; one that has ended is closing."""
    pods = {pod["metadata"]["uid"][0]: usage.read_pod(pod) for pod in pod_objects(machine(), HUB).values()}
    ann, bob, eve = (pods[key] for key in "abc")
    assert ann
    assert bob
    assert eve
    assert (ann.owner, ann.held, ann.waiting, ann.server) == (ANN, {"g0": 1000}, 1000, None)
    assert (bob.owner, bob.held, bob.draining, bob.waiting) == (BOB, {"g1": 500}, 500, 0)
    assert (eve.milli, eve.waiting) == (0, 0)
    assert ann.name != bob.name
    nodes = [usage.read_node(node) for node in node_objects(machine()).values()]
    found = usage.cluster(nodes, [ann, bob, eve])
    assert (found.total, found.owned, found.draining, found.free, found.waiting) == (3000, 1000, 500, 1500, 1000)


def test_gpus_are_idle_as_in_a_cluster() -> None:
    """As the record of the pod says which are open, and which of these rest."""
    shares = (ONE, HALF, GpuShare("g2", 250))
    attached = Attached(1, shares, open=("g1", "g2"), rests=("g1",))
    pod = MachinePod("a" * 32, "ann", 7, False, Requested(1, Wish(1750)), Allocated(1, shares), attached)
    (found,) = map(usage.read_pod, pod_objects(MachineUse(GPUS, "", (pod,)), HUB).values())
    assert found
    assert (found.milli, found.idle) == (1750, 1500)


def test_accounts_say_what_is_in_force() -> None:
    """From limits, hours and use; with the notice that pods have, and of users without hours, too."""
    written = MachineAccounts(
        "b", 1, {Owner("User", name, "local"): Account(Owner("User", name, "local"), hours={DAY: 2 * 3_600_000_000})
                 for name in ("ann", "zoe")}
    )  # fmt: skip
    limits = LimitIndex(
        [
            limit({"kind": "Default"}, name="d", max=3),
            limit(
                {"kind": "User", "name": "ann", "hub": HUB}, name="a", max=2, budget={"gpuHours": 1, "window": "Day"}
            ),
        ]
    )
    made = account_objects(written, machine(), limits, HUB, NOW, UTC)
    found = {account.owner.name: account for account in filter(None, map(accounts.read, made.values()))}
    assert found.keys() == {"ann", "bob", "eve", "zoe"}
    ann, bob = found["ann"], found["bob"]
    assert (ann.max.value, ann.used, ann.waiting, ann.give_back_at) == (0, 1000, 1000, int(NOW + 60))
    assert ann.until
    assert ann.until > NOW
    assert (bob.max.value, bob.used, bob.waiting, bob.give_back_at) == (3000, 500, 0, None)
    assert dict(found["zoe"].hours) == {DAY: 2 * 3_600_000_000}
    assert {item["metadata"]["name"] for item in made.values()} == made.keys()
    free = account_objects(MachineAccounts("b", 1, {}), MachineUse(()), LimitIndex(), HUB, NOW, UTC)
    assert free == {}
    assert found["bob"].max.value != UNLIMITED
