"""The state of a managed pod, and what others may rely on."""

from jupyter_gpu.model.annotations import Attached
from jupyter_gpu.model.gpu import GpuShare
from jupyter_gpu_node.agent.next_state import lacking
from jupyter_gpu_node.agent.pod import ManagedPod
from jupyter_gpu_node.agent.rules import holdings
from jupyter_gpu_node.holders.rules.rights import HolderKind, Rights, Suspect, classify
from tests.builders import gpu


def test_rights_of_an_unguarded_pod_are_unknown() -> None:
    """The grants of an earlier process may be unrecorded: no process of the pod is ended for them."""
    pod = ManagedPod("uid", attached=Attached(1, (GpuShare("GPU-0", 1000),)))
    assert pod.guard is None
    assert pod.rights is None
    rights = Rights({"uid": pod.rights})
    assert classify(Suspect(10, 1, "python", "uid"), "GPU-3", rights) is HolderKind.RIGHTFUL


def test_nothing_is_granted_while_a_pod_cannot_be_closed() -> None:
    """It may open anything; as soon as it is closed, the others get what they were granted."""
    other, failed = ManagedPod("a"), ManagedPod("b", holdings_known=True, guard_failed=True)
    shares = (GpuShare("GPU-0", 1000),)
    assert holdings.permitted(shares, other.holding, [failed.holding], {"GPU-0"}) == ()
    failed.guard_failed = False
    assert holdings.permitted(shares, other.holding, [failed.holding], {"GPU-0"}) == shares


def test_container_lacks_gpus_without_a_device() -> None:
    """Nothing is said of a container whose devices are not known."""
    gpus = [gpu(0, path="/dev/nvidia0"), gpu(1, path="/dev/nvidia1")]
    assert lacking({"/dev/nvidia0"}, gpus) == {"GPU-1"}
    assert lacking(frozenset(), gpus) == {"GPU-0", "GPU-1"}
    assert lacking(None, gpus) == frozenset()
