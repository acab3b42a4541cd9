"""Owners whose limit says ``remote: false``: their pods have GPUs of their own nodes alone."""

from __future__ import annotations

import pytest

from jupyter_gpu.kube import ObjectChange
from jupyter_gpu.model.annotations import Reason
from jupyter_gpu.model.limits.read_limit import read_limit
from jupyter_gpu_scheduler.cluster_cache import ClusterCache
from tests.scheduler_process.notebook_stage import NODES, Cluster


def test_limit_keeps_notebooks_on_their_own_nodes() -> None:
    """Nothing is asked of others or said of them; what is there is given back, and had again once it is permitted."""
    world = Cluster()
    world.limited(remote=False)
    world.notebook("a", 3)
    world.settle()
    assert (world.has("a"), world.parts("a"), world.elsewhere("a")) == (0, (), 0)
    assert world.allocated("a").reason is Reason.INFEASIBLE, "as without workers: its node has one GPU"
    for permitted, whole, elsewhere in [(True, 3000, 3), (False, 1000, 0), (None, 3000, 3)]:
        world.limited(**({} if permitted is None else {"remote": permitted}))
        world.settle()
        assert (world.whole("a"), world.elsewhere("a")) == (whole, elsewhere)
        world.restart()
        assert world.reconcile() == 0, "another leader changes nothing"
    world.limited(remote=False)
    world.notebook("a", 1)
    world.settle()
    assert (world.has("a"), world.whole("a")) == (1000, 1000)


@pytest.mark.parametrize("permitted", [True, False])
def test_limits_that_are_known_last_say_who_may_leave(permitted: bool) -> None:
    """A process that begins may hear of pods before it hears of limits, and of a wider limit before a narrower one."""
    world = Cluster()
    default = {"metadata": {"name": "default"}, "spec": {"subject": {"kind": "Default"}, "remote": not permitted}}
    world.limited(remote=permitted)
    world.cache = ClusterCache(lambda: None, world._settings, complete=False)
    world.cache.limit_changed(read_limit(default))
    world.notebook("a", 3)
    for name, gpus in NODES.items():
        world.cache.node_changed(ObjectChange("added", world.node(name, gpus)))
    world.cache.limit_changed(read_limit(world.limit or {}))
    world.cache.begin()
    world.cache.mark_all_changed()
    world.settle()
    assert world.whole("a") == (3000 if permitted else 0)
