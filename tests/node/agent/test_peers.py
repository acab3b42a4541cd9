"""The keys that pods say are their own: which are taken, how often, and what is recorded of them."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.annotations import Allocated, Attached, decode_attached, encode
from jupyter_gpu.model.service import Peer
from jupyter_gpu_node.agent.pod import ManagedPod
from jupyter_gpu_node.agent.rules.peers import BURST, PAUSE, Refused, Said, recorded, say
from tests.model.strategies import peers, public_keys
from tests.model.test_service import KEY
from tests.node.agent.test_advance import member, step

WORKER = Peer(KEY, 47100)
NOTEBOOK = Peer(keys=(("w1", KEY),))


@given(peers)
def test_a_pod_says_the_keys_of_what_it_is(peer: Peer) -> None:
    """A worker one key, a notebook one for each worker; the other kind is refused, whatever was said before."""
    worker = bool(peer.key)
    said = say(None, peer, 5.0, worker=worker)
    assert (said.peer.key, said.peer.port, dict(said.peer.keys)) == (peer.key, peer.port, dict(peer.keys))
    for before in (None, said):
        with pytest.raises(Refused, match=r"This pod is (a|no) worker"):
            say(before, peer, 6.0, worker=not worker)


@given(st.lists(st.tuples(st.floats(0, 20), public_keys), max_size=60))
def test_changes_are_bounded(steps: list[tuple[float, str]]) -> None:
    """However a pod says other keys, in any time at most a burst and one for each pause; the same is no change."""
    said: Said | None = None
    now, begun, changes = 0.0, 0.0, 0
    for pause, key in steps:
        now += pause
        peer = Peer(key, 1)
        try:
            after = say(said, peer, now, worker=True)
        except Refused:
            continue
        assert say(after, peer, now, worker=True) == after
        changes += after != said
        said = after
        assert changes <= BURST + (now - begun) / PAUSE + 1e-6


def test_a_pod_that_waits_may_change_again() -> None:
    """After one pause one change, and not two."""
    said = say(None, WORKER, 0.0, worker=True)
    for number in range(1, BURST):
        said = say(said, Peer(KEY, number), 0.0, worker=True)
    with pytest.raises(Refused):
        say(said, WORKER, PAUSE * 0.9, worker=True)
    said = say(said, WORKER, PAUSE, worker=True)
    with pytest.raises(Refused):
        say(said, Peer(KEY, 2), PAUSE, worker=True)


@given(peers)
def test_what_is_written_is_what_is_read_again(peer: Peer) -> None:
    """In whatever order a notebook names its workers: else the plugin would write it again and again."""
    said = say(None, replace(peer, keys=peer.keys[::-1]), 0.0, worker=bool(peer.key))
    after = Attached(1, peer=said.peer)
    assert decode_attached(encode(after)) == after


def test_another_order_is_no_change() -> None:
    """A notebook names its workers in any order."""
    keys = (("w1", KEY), ("w2", KEY))
    said = say(None, Peer(keys=keys), 0.0, worker=False)
    assert say(said, Peer(keys=keys[::-1]), 9.0, worker=False) == said


def test_what_an_earlier_process_wrote_stays_until_the_pod_says_other_keys() -> None:
    """A plugin that starts knows no key, and connections must go on. A notebook without workers has none."""
    known = Attached(1, peer=WORKER)
    assert recorded(None, known) == WORKER
    assert recorded(None, None) is None
    assert recorded(None, Attached(1)) is None
    assert recorded(Said(NOTEBOOK, 1, 0), known) == NOTEBOOK
    assert recorded(Said(Peer(), 1, 0), known) is None


def test_keys_are_in_what_is_attached() -> None:
    """Also of a pod to which nothing was allocated, as of a worker that waits for its GPU; and beside its GPUs."""
    said = say(None, WORKER, 0.0, worker=True)
    fresh = member(said=said)
    assert step(fresh) == Attached(0, peer=WORKER)
    one = member(("GPU-a",), ("GPU-a",), said=said)
    assert step(one, "GPU-a") == Attached(2, one.attached.shares if one.attached else (), peer=WORKER)
    one.attached, one.said = step(one, "GPU-a"), None  # the next process
    assert step(one, "GPU-a") == one.attached
    assert one.view
    one.view = replace(one.view, allocated=None, problem="it can't be read")
    after = step(one, "GPU-a")
    assert after
    assert after.peer == WORKER


def test_keys_end_with_the_pod() -> None:
    """One that has finished has no peer."""
    one: ManagedPod = member((), (), said=say(None, WORKER, 0.0, worker=True))
    assert one.view
    one.view = replace(one.view, finished=True, allocated=Allocated(2))
    after = step(one)
    assert after
    assert after.peer is None
