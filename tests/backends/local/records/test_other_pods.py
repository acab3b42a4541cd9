"""Trust in other pods' records; pure."""

from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.backends.local.pod_states import states
from jupyter_gpu.backends.local.records.other_pods import NODE, OtherPod
from jupyter_gpu.backends.local.records.record import Record
from jupyter_gpu.model.annotations import Allocated, Attached
from jupyter_gpu.model.gpu import GpuShare
from jupyter_gpu_node.processes.rules.process_id import ProcessId
from jupyter_gpu_scheduler.rules.state.pod_state import PodState

claims = st.dictionaries(st.sampled_from(["a", "b", "c"]), st.integers(1, 1000)).map(
    lambda found: tuple(GpuShare(uuid, milli) for uuid, milli in found.items())
)
other_pods = st.lists(st.tuples(claims, claims, st.booleans()), max_size=5).map(
    lambda found: [
        OtherPod(
            Record(
                f"{number:032x}", ProcessId(1, 1), "boot", 1, allocated=Allocated(1, one), attached=Attached(1, two)
            ),
            owner=0,
            dead=dead,
        )
        for number, (one, two, dead) in enumerate(found)
    ]
)
own = st.dictionaries(st.sampled_from(["a", "b", "c"]), st.integers(1, 1000))


@given(other_pods, own)
def test_claims_count_up_to_a_whole_gpu(others: list[OtherPod], mine: dict[str, int]) -> None:
    """With what we hold all claims together are at most one GPU, and true claims are believed wholly."""
    decided = PodState("me", NODE, allocated=Allocated(1, tuple(GpuShare(*share) for share in mine.items())))
    believed = states(others, decided, [], lambda allocated: False)
    for uuid in "abc":
        claimed = sum(other.held.get(uuid, 0) for other in others)
        found = sum(state.held.get(uuid, 0) for state in believed)
        assert found == min(claimed, 1000 - mine.get(uuid, 0))
    assert all(state.gone == other.dead for state, other in zip(believed, others, strict=True))
    assert all(state.requested is None for state in believed if state.gone)
