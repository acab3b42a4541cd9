"""Trust in other pods' records; pure."""

from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.backends.local.pod_states import states, unknown
from jupyter_gpu.backends.local.records.other_pods import NODE, OtherPod
from jupyter_gpu.backends.local.records.record import Record
from jupyter_gpu.model.annotations import Allocated, Attached
from jupyter_gpu.model.gpu import GpuShare
from jupyter_gpu_node.processes.rules.process_id import ProcessId
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from tests.builders import GIB, gpu

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


def _other(number: int, *shares: GpuShare) -> OtherPod:
    record = Record(f"{number:032x}", ProcessId(1, 1), "boot", 1, allocated=Allocated(1, shares))
    return OtherPod(record, 0, dead=False)


def test_claims_of_memory_count_up_to_all_of_it() -> None:
    """Another server's record does not count beyond that; a record that can't be read has the rest."""
    whole = gpu(0, uuid="a", gate=True)
    mine = PodState("me", NODE, allocated=Allocated(1, (GpuShare("a", 100, 30 * GIB),)))
    others = [_other(1, GpuShare("a", 100, 40 * GIB)), _other(2, GpuShare("a", 100, 40 * GIB), GpuShare("b", 1, GIB))]
    believed = states(others, mine, [whole], lambda allocated: False)
    assert [state.memory_held(whole) for state in believed] == [40 * GIB, 10 * GIB]
    assert believed[1].held_memory["b"].recorded == GIB, "a GPU that is not known"
    assert [state.allocated.shares[0].memory for state in believed if state.allocated] == [40 * GIB, 10 * GIB]
    rest = unknown([whole, gpu(1)], believed[:1], mine)
    assert rest.held == {"a": 800, "GPU-1": 1000}
    assert rest.memory_held(whole) == 10 * GIB
    assert unknown([whole], (), PodState("me", NODE, allocated=Allocated(1, (GpuShare("a", 1000),)))).held == {}
