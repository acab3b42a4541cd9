"""Workers of a notebook: their wishes, what `service` says of them, and how long one without a part is kept."""

from __future__ import annotations

from dataclasses import replace

from jupyter_gpu.model.annotations import Allocated, Attached
from jupyter_gpu.model.gpu import NO_REASON, DrainingShare, GpuShare, Holder
from jupyter_gpu.model.service import Peer, Service, UnhealthyGpu, WorkerPart, WorkerService
from jupyter_gpu_scheduler.rules.limits.claims import claims
from jupyter_gpu_scheduler.rules.pairs.workers import (
    MOST_HEALTH,
    MOST_HOLDERS,
    OTHER_IMAGE,
    WorkerPod,
    accepted,
    as_worker,
    broken,
    ends_at,
    moved,
    own_part,
    promise,
    settled,
)
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from tests.builders import allocated, inventory, new, pod, requested, uuid

KEY, OTHER = "a" * 40, "b" * 40
PART = WorkerPart("w1", "n2", 1000)


def notebook(**fields: object) -> PodState:
    """Return a notebook of ann on n1 that wishes three GPUs."""
    return replace(pod("a", 3, node="n1", priority=4), name="ann", **fields)  # type: ignore[arg-type]


def test_own_part_is_what_is_left() -> None:
    """The same pod where nothing is elsewhere; never less than nothing."""
    me = notebook()
    assert own_part(me, ()) is me
    assert own_part(me, (replace(PART, milli=0),)) is me
    own = own_part(me, (PART, PART)).requested
    assert own
    assert own == replace(requested(3, priority=4), wish=replace(requested(3, priority=4).wish, milli=1000))
    none = own_part(me, (replace(PART, milli=9000),)).requested
    assert none
    assert none.milli == 0
    nothing = pod("b")
    assert own_part(nothing, (PART,)) is nothing
    for wants, size, whole in ((1, 2, 2000), (3, 2, 3000), (0, 1, 1000)):
        starts = own_part(new("c", wants=wants, set=1000 * size), ()).requested
        assert starts
        assert (starts.milli, starts.wish.set) == (whole, None), "before it runs, a set and the rest are one amount"


def test_worker_wishes_its_part_in_the_line_of_its_node() -> None:
    """With the notebook's priority and owner; a ticket of its own stays."""
    asked = requested(3, priority=4)
    made = as_worker(new("w"), notebook(), asked, PART, same_image=True)
    assert made.requested
    assert (made.requested.milli, made.priority, made.nominated, made.notebook) == (1000, 4, "n2", "a")
    assert made.rank < new("late", 1, ticket=1, on="n2", priority=4).rank
    waits = new("w", ticket=7, on="n2")
    assert as_worker(waits, notebook(), asked, PART, same_image=True).ticket == 7
    bound = as_worker(pod("w", node="n2"), notebook(), asked, PART, same_image=True)
    assert bound.allocated is None
    assert promise(notebook(), asked, PART, {}).nominated == "n2"


def test_worker_without_cause_gets_nothing() -> None:
    """No notebook, one that ends, no part, or on another node: it wishes nothing."""
    asked = requested(3)
    bound = pod("w", 1, node="n2")
    for each in (
        as_worker(bound, None, asked, PART, same_image=True),
        as_worker(bound, notebook(gone=True), asked, PART, same_image=True),
        as_worker(bound, notebook(), asked, None, same_image=True),
        as_worker(pod("w", node="n3"), notebook(), asked, PART, same_image=True),
        as_worker(bound, notebook(), None, PART, same_image=True),
    ):
        assert (each.requested, each.fault) == (None, "")
    other = as_worker(bound, notebook(), asked, PART, same_image=False)
    assert (other.requested, other.fault) == (None, OTHER_IMAGE)
    assert as_worker(bound, notebook(fault="odd"), None, PART, same_image=True).fault == "odd"


def test_worker_comes_first_among_the_claims_of_its_owner() -> None:
    """Before its notebook that waits: the part was permitted and promised."""
    waiting = pod("a", 3, (), ticket=1)
    mine, part = claims((waiting, replace(pod("w", 1, ()), notebook="a")))
    assert part.order < mine.order


def test_service_tells_what_is_known_of_the_pod() -> None:
    """Name, address, key and what is attached; each change of the address or the key is counted, also its end."""
    service = Service(1, (PART,))
    known = settled(service, 2, {"w1": WorkerPod("ann-w1", "u")}, (), now=5, grace=60)
    (part,) = known.workers
    assert (known.generation, part.pod, part.uid, part.ready, part.revision) == (2, "ann-w1", "u", False, 0)
    share = GpuShare("g", 1000)
    full = WorkerPod("ann-w1", "u", "10.0.0.1", Peer(KEY, 47100), (share,), holds=True)
    (part,) = settled(known, 2, {"w1": full}, (), now=5, grace=60).workers
    assert (part.ready, part.key, part.attached, part.revision) == (True, KEY, (share,), 1)
    again = settled(Service(2, (part,)), 2, {"w1": full}, (), now=5, grace=60)
    assert again.workers == (part,)
    (gone,) = settled(again, 2, {}, (), now=5, grace=60).workers
    assert (gone.pod, gone.ready, gone.revision) == ("", False, 2)


def test_service_tells_what_programs_of_a_worker_keep_open() -> None:
    """A GPU that is closed in a moment is not worth a write; of many programs the first are named."""
    many = tuple(Holder(pid, "python") for pid in range(1, 20))
    open_ones = (DrainingShare("g", 1000, many, memory=5), DrainingShare("h", 500))
    pods = {"w1": WorkerPod("ann-w1", "u", holds=True, draining=open_ones)}
    (part,) = settled(Service(1, (PART,)), 1, pods, (), now=5, grace=60).workers
    assert part.draining == (DrainingShare("g", 1000, many[:MOST_HOLDERS]),)
    (closed,) = settled(Service(1, (part,)), 1, {"w1": WorkerPod("ann-w1", "u")}, (), now=5, grace=60).workers
    (gone,) = settled(Service(1, (part,)), 1, {}, (), now=5, grace=60).workers
    assert (closed.draining, gone.draining) == ((), ())


def test_service_tells_which_gpus_of_a_worker_stopped_working() -> None:
    """Only those that it can open and is to keep are told; the reason is short, as many stand in one annotation."""
    gpus = inventory(4, unhealthy=(0, 1, 2))
    silent = (replace(gpus[0], health=""), replace(gpus[1], health="x" * 500), *gpus[2:])
    decided, attached = (tuple(GpuShare(uuid(i), 1000) for i in some) for some in ((0, 1, 3), (0, 1, 2, 3)))
    state = replace(pod("w", node="n2"), allocated=Allocated(1, decided), attached=Attached(1, attached))
    found = broken(state, silent)
    assert found == (UnhealthyGpu(uuid(0), NO_REASON), UnhealthyGpu(uuid(1), "x" * MOST_HEALTH))
    assert broken(replace(state, attached=None), silent) == broken(replace(state, allocated=None), silent) == ()
    pods = {"w1": WorkerPod("ann-w1", "u", attached=attached, holds=True, unhealthy=found)}
    (part,) = settled(Service(1, (PART,)), 1, pods, (), now=5, grace=60).workers
    (again,) = settled(Service(1, (part,)), 1, {"w1": WorkerPod("ann-w1", "u")}, (), now=5, grace=60).workers
    (gone,) = settled(Service(1, (part,)), 1, {}, (), now=5, grace=60).workers
    assert (part.unhealthy, again.unhealthy, gone.unhealthy) == (found, (), ())


def test_worker_without_a_part_is_kept_for_the_grace() -> None:
    """It begins when nothing is held any more; a part ends it. What was never there is not kept, unless it failed."""
    idle = Service(1, (replace(PART, milli=0),))
    holds, free = ({"w1": WorkerPod("x", "u", holds=flag)} for flag in (True, False))
    held = settled(idle, 1, holds, (), now=100, grace=60)
    assert held.workers[0].idle_since is None
    assert ends_at(held, 60) is None
    rests = settled(held, 1, free, (), now=100.5, grace=60)
    assert rests.workers[0].idle_since == 100
    assert ends_at(rests, 60) == 160
    assert settled(rests, 1, free, (), now=159, grace=60).workers
    assert not settled(rests, 1, free, (), now=160, grace=60).workers
    busy = replace(rests, workers=(replace(rests.workers[0], milli=1),))
    assert settled(busy, 1, free, (), now=500, grace=60).workers[0].idle_since is None
    assert not settled(idle, 1, {}, (), now=100, grace=60).workers
    assert settled(idle, 1, {}, ("w1",), now=100, grace=60).workers


def test_part_that_left_a_worker_that_failed_is_told() -> None:
    """With the node that gives the GPUs now, and the reason; not what a notebook gave back."""
    before = (WorkerPart("w1", "n1", 2000), WorkerPart("w2", "n2", 0))
    after = (replace(before[0], milli=1000), replace(before[1], milli=1000))
    assert moved({"w1": "No room."}, before, after) == ("n2 gives the GPUs that n1 was to give. No room.",)
    assert moved({"w1": "No room."}, before, (after[0], before[1])) == ()
    assert moved({"w2": "No room."}, before, after) == ()


def test_worker_accepts_one_notebook_by_its_key() -> None:
    """Each other key is a new revision; a key that is not said is none."""
    me = notebook()
    first = accepted(None, me, "w1", None)
    assert first == WorkerService("ann", "a")
    second = accepted(first, me, "w1", Peer(keys=(("w1", KEY), ("w2", OTHER))))
    assert (second.key, second.revision) == (KEY, 1)
    assert accepted(second, me, "w1", Peer(keys=(("w1", KEY),))) == second
    assert accepted(second, me, "w2", Peer(keys=(("w1", KEY),))).key == ""
    assert allocated().shares == ()
