"""Parts on other nodes under limits that count kinds of GPUs: of models, and of memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from jupyter_gpu.model.gpu import Gpu
from jupyter_gpu.model.limits.owner import Owner
from jupyter_gpu_scheduler.rules.limits.owner_limits import Maximum, OwnerLimits
from jupyter_gpu_scheduler.rules.limits.terms import terms
from jupyter_gpu_scheduler.rules.pairs.permits import oldest
from jupyter_gpu_scheduler.rules.pairs.split import Splitter
from jupyter_gpu_scheduler.rules.state.pod_state import NO_OWNER
from tests.builders import GIB, inventory, pod, shares
from tests.scheduler.pairs.test_split import RULES, World


@dataclass
class LimitedWorld(World):
    """A world whose notebooks and workers are all of one owner, who has limits."""

    limits: OwnerLimits = field(default_factory=OwnerLimits)

    def __post_init__(self) -> None:
        """Have the limits asked."""
        super().__post_init__()
        self.splitter = Splitter(
            self.snapshot, RULES, self.most, lambda owner: self.limits if owner == NO_OWNER else None
        )

    def put(self, uid: str) -> None:
        """Put a notebook and its workers into the snapshot, under their terms."""
        super().put(uid)
        self.apply_terms()

    def settle(self) -> None:
        """Decide under the terms of the moment, until nothing changes."""
        for _ in range(3):
            self.apply_terms()
            super().settle()

    def bind(self) -> None:
        """Do the same, and put all under the terms that follow from that, and from what was given and closed before."""
        super().bind()
        self.apply_terms()

    def apply_terms(self) -> None:
        """Put all pods of the owner under their terms."""
        pods = self.snapshot.owned(NO_OWNER)
        found = terms(self.snapshot, pods, self.limits, stored=None, now=0).pods
        for each in pods:
            self.snapshot.put_pod(found[each.uid].applied(each))

    def taken(self, index: int, node: str = "n1") -> None:
        """Another user has a GPU."""
        other = pod("other", wants=1, has=[index], node=node)
        self.snapshot.put_pod(replace(other, owner=Owner("User", "bob")))


def memory(gib: int) -> OwnerLimits:
    """Return a limit of memory."""
    return OwnerLimits(memory=Maximum(gib * GIB))


def model(word: str, gpus: int) -> OwnerLimits:
    """Return a limit of a model."""
    return OwnerLimits(models={word: Maximum(gpus * 1000)})


def test_part_is_as_large_as_permitted_on_its_node() -> None:
    """GPUs there have twice the memory of those here: one here and one there are all that the limit permits."""
    world = LimitedWorld({"n1": inventory(1, memory=[40]), "n2": 2}, limits=memory(120))
    world.notebook("a", 3)
    world.settle()
    assert world.shape("a") == {"n1": 1000, "n2": 1000}
    assert world.state("a-w1").has == 1000
    assert world.splitter.waits(world.state("a"), world.workers("a"))
    world.limits = memory(200)
    world.settle()
    assert world.shape("a") == {"n1": 1000, "n2": 2000}


def test_other_model_is_permitted_elsewhere() -> None:
    """The own node has GPUs of the limited model alone, and the other node some of both."""
    nodes = {"n1": inventory(2, models=["A100"]), "n2": inventory(3, models=["A100", "L4", "L4"])}
    world = LimitedWorld(nodes, limits=model("A100", 1))
    world.notebook("a", 2)
    world.settle()
    assert world.shape("a") == {"n1": 1000, "n2": 1000}
    assert [share.uuid for share in world.state("a-w1").allocated.shares] in (["GPU-11"], ["GPU-12"])  # type: ignore[union-attr]
    world.notebook("a", 4)
    world.settle()
    assert world.shape("a") == {"n1": 1000, "n2": 2000}, "its worker grows by what is permitted beside what it has"
    world.limits = model("A100", 2)
    world.settle()
    assert sum(world.shape("a").values()) == 4000


def test_worker_grows_by_what_is_permitted_on_its_node() -> None:
    """A whole GPU is permitted on the other node alone, which has none left; of models, what is left of the limit."""
    world = LimitedWorld(
        {"n1": inventory(1, memory=[40]), "n2": 2, "n3": inventory(1, memory=[40])}, limits=memory(160)
    )
    world.taken(20, "n3")
    world.notebook("a", 2)
    world.settle()
    world.notebook("a", 4)
    world.settle()
    assert world.shape("a") == {"n1": 1000, "n2": 1500}
    assert world.state("a-w1").has == 1500
    nodes = {"n1": inventory(1, models=["L4"]), "n2": inventory(3, models=["A100", "L4"])}
    world = LimitedWorld(nodes, limits=model("A100", 2))
    world.taken(11, "n2")
    for wants in (2, 3):
        world.notebook("a", wants)
        world.settle()
        assert world.shape("a") == {"n1": 1000, "n2": (wants - 1) * 1000}
        assert world.state("a-w1").has == (wants - 1) * 1000


def test_part_moves_only_where_it_is_permitted() -> None:
    """The node that has larger GPUs is not asked, though it has room; what the part had does not count twice."""
    large = inventory(1, memory=[160])
    world = LimitedWorld({"n1": 0, "n2": 1, "n3": large, "n4": 1}, limits=memory(80))
    world.notebook("a", 1)
    world.divide("a")
    (first,) = world.parts["a"]
    world.failed.add("a-w1")
    world.divide("a")
    assert {part.node: part.milli for part in world.parts["a"]} == {"n2": 0, "n4": 0} | {
        ({"n2", "n4"} - {first.node}).pop(): 1000
    }
    world.failed.add("a-w2")
    assert world.divide("a") == 0
    world.limits = memory(160)
    world.apply_terms()
    world.divide("a")
    assert world.shape("a") == {"n1": 0, "n3": 1000}


def test_set_goes_where_all_of_it_is_permitted() -> None:
    """Not to larger GPUs of which the limit permits one."""
    nodes: dict[str, int | Sequence[Gpu]] = {"n1": 1, "n2": inventory(2, memory=[160]), "n3": 2}
    world = LimitedWorld(nodes, limits=memory(160))
    world.notebook("a", 0, set=2000)
    world.divide("a")
    assert world.shape("a") == {"n1": 0, "n3": 2000}
    world = LimitedWorld(nodes, limits=memory(159))
    world.notebook("a", 0, set=2000)
    world.divide("a")
    assert world.shape("a") == {"n1": 0}


def test_part_comes_home_only_where_it_is_permitted() -> None:
    """The GPU that became free at home has as much memory as both of the part together."""
    world = LimitedWorld({"n1": 1, "n2": inventory(2, memory=[40])}, limits=memory(80))
    world.taken(0)
    world.notebook("a", 2)
    world.settle()
    assert world.shape("a") == {"n1": 0, "n2": 2000}
    world.snapshot.remove_pod("other")
    world.settle()
    assert world.shape("a") == {"n1": 0, "n2": 2000}
    world.limits = memory(120)
    world.settle()
    assert world.shape("a") == {"n1": 1000, "n2": 1000}


def test_part_that_comes_home_goes_nowhere_else_meanwhile() -> None:
    """Until its worker has closed it, the limit permits nothing here; a GPU of another model would be permitted."""
    nodes = {name: inventory(1, models=["A100"]) for name in ("n1", "n2")}
    world = LimitedWorld({**nodes, "n3": inventory(1, models=["L4"])}, limits=model("A100", 1))
    world.taken(0)
    other = replace(world.state("other"), uid="last", node="n3", allocated=pod("x", has=[20]).allocated)
    world.snapshot.put_pod(other)
    world.notebook("a", 1)
    world.settle()
    assert world.shape("a") == {"n1": 0, "n2": 1000}
    for uid in ("other", "last"):
        world.snapshot.remove_pod(uid)
    assert world.divide("a") == 1
    assert [part.milli for part in world.parts["a"]] == [0]
    assert world.shape("a") == {"n1": 0}
    world.settle()
    assert world.shape("a") == {"n1": 1000}


def test_part_stays_where_the_own_share_may_not_grow() -> None:
    """The own GPU has room for the other half of it; the limit of memory permits that half on a smaller GPU alone."""
    small = {"n2": inventory(1, memory=[40]), "n3": inventory(1, memory=[24])}
    world = LimitedWorld({"n1": 2, **small}, limits=memory(100))
    world.notebook("a", 0.5)
    world.settle()
    world.notebook("a", 2)
    world.settle()
    assert world.shape("a") == {"n1": 500, "n2": 1000, "n3": 500}
    assert (world.state("a-w1").has, world.state("a-w2").has) == (1000, 500)


def test_pod_that_gives_gpus_back_for_others_gets_none_elsewhere() -> None:
    """Its owner's limit would permit them."""
    world = LimitedWorld({"n1": 1, "n2": 1}, limits=replace(memory(500), reclaimed={"a": 0}))
    world.notebook("a", 2)
    world.divide("a")
    assert world.shape("a") == {"n1": 0}


def test_oldest_shares_are_kept() -> None:
    """Only a part of the last one is taken, and nothing of those after it."""
    assert oldest(shares({0: 1000, 1: 500, 2: 500}), 1200) == shares({0: 1000, 1: 200})
    assert oldest(shares([0]), 0) == ()
