"""Workers of notebooks on the page: their GPUs, on other nodes, are those of the notebooks' users."""

from __future__ import annotations

import json
from typing import Any

from jupyter_gpu.kube import Credentials, Kube, ObjectChange
from jupyter_gpu.model.annotations import WORKER, encode
from jupyter_gpu.model.limits.owner import HUB as OF_HUB
from jupyter_gpu.model.limits.owner import Owner
from jupyter_gpu.model.service import WorkerIdentity
from jupyter_gpu_hub.settings import HubServiceSettings
from jupyter_gpu_hub.state.copy import Copy
from jupyter_gpu_hub.state.hub_api import HubAddress, HubApi
from jupyter_gpu_hub.state.site import Site

from .rules.builders import HUB, node, pod


def put(copy: Copy[Any], made: dict[str, Any], kind: str = "added") -> None:
    """Have a copy see an object, as a watch brings it."""
    item = json.loads(json.dumps(made))
    copy._take(ObjectChange(kind, copy.reflector._trimmed(item)))  # type: ignore[arg-type]


def test_row_of_a_user_has_the_gpus_of_workers() -> None:
    """They are in the sums of the user and of the cluster, and no namespace seems to use them."""
    site = Site(
        Kube(Credentials("http://nowhere")), HubApi(HubAddress("http://nowhere", "")), HUB, HubServiceSettings()
    )
    put(site.nodes, node("a", "b", "c"))
    ann = pod("ann", wish=3000, shares={"a": 1000}, attached={"a": 1000}, annotations={OF_HUB: HUB})
    put(site.pods, ann)
    far = {"b": 1000, "c": 1000}
    words = {WORKER: encode(WorkerIdentity("uid-ann", "w1"))}
    worker = pod("ann-gpu-w1", user="", shares=far, attached=far, annotations=words)
    assert (site.user("ann").used, site.user("ann").waiting, site.cluster().waiting) == (1000, 2000, 2000)
    put(site.pods, worker)
    row = site.user("ann")
    assert (row.used, row.waiting, [one.name for one in row.pods]) == (3000, 0, ["ann", "ann-gpu-w1"])
    assert (site.cluster().owned, site.cluster().waiting) == (3000, 0)
    assert site.pods_of(Owner("Namespace", HUB)) == []
    put(site.pods, ann, "removed")
    assert (site.user("ann").used, site.cluster().owned) == (0, 2000), "it ends with its notebook"
