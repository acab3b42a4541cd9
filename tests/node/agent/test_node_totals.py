"""The totals of a node that a pod may know: sums that identify no other pod."""

from jupyter_gpu.model.annotations import Allocated, Attached
from jupyter_gpu.model.gpu import DrainingShare, Gpu, GpuShare
from jupyter_gpu.model.machine import Totals
from jupyter_gpu_node.agent.pod import ManagedPod
from jupyter_gpu_node.agent.rules.node_totals import totals
from jupyter_gpu_node.agent.rules.pod_view import PodView
from jupyter_gpu_node.kubelet.rules.slots import PodRef

GPUS = tuple(Gpu(f"GPU-{i}", i, "Test", 1) for i in range(4))


def member(uid: str, *shares: GpuShare, draining: str = "", waits: bool = False, finished: bool = False) -> ManagedPod:
    """A pod that has these, gives one back, and waits for more or not."""
    drains = (DrainingShare(draining, 1000),) if draining else ()
    allocated = Allocated(1, shares, ticket=7 if waits else None)
    view = PodView(PodRef(uid, "secret", "secret"), allocated=allocated, finished=finished)
    return ManagedPod(uid, view, attached=Attached(1, shares, drains))


def test_unused_node() -> None:
    """Without pods nothing is used."""
    assert totals(GPUS, ()) == Totals(4, 4000, 0, 0)


def test_totals_of_used_and_waiting() -> None:
    """Shares that a pod has or has not closed are used; a pod that has finished, or is not known yet, does not wait."""
    managed = [
        member("a", GpuShare("GPU-0", 1000)),
        member("b", GpuShare("GPU-1", 250), draining="GPU-2", waits=True),
        member("c", waits=True, finished=True),
        ManagedPod("d"),
    ]
    assert totals(GPUS, managed) == Totals(4, 1750, 2250, 1)
    assert "secret" not in str(totals(GPUS, managed))
