"""The slots of a node's pods, and what they show of shares."""

from pathlib import Path

import pytest

from jupyter_gpu_node.agent.sharing.pod_slots import PodSlots, SlotView

A, B = "GPU-a", "GPU-b"


def slots(**pods: tuple[str, ...]) -> PodSlots:
    """Slots by pod."""
    made = PodSlots(lambda slot: Path("/slots", slot))
    for uid, names in pods.items():
        for name in names:
            made.assign(name, uid)
    return made


def test_server_works_in_the_first_slot() -> None:
    """The others show the same; a pod without slots has no directory."""
    found = slots(pod=("1", "2", "3", "2"))
    assert found.first("pod") == Path("/slots/1")
    assert found.others("pod") == [Path("/slots/2"), Path("/slots/3")]
    assert found.others("other") == []
    with pytest.raises(IndexError):
        found.first("other")


def test_slot_is_one_pods() -> None:
    """If another pod has it now, the one before has it no more."""
    found = slots(old=("1", "2"), new=("1",))
    assert (found.slots("old"), found.slots("new")) == (("2",), ("1",))
    found.forget("new")
    assert found.by_pod() == {"old": ("2",)}


def test_view_is_outdated_until_it_is_shown() -> None:
    """Each change of a pod's GPUs or slots is shown once."""
    found = slots(pod=("1",), empty=("2",), new=("2",))
    view = SlotView(("1",), frozenset({A}))
    assert found.outdated({A: {"pod"}, B: ()}, found.by_pod()) == {"pod": view, "new": SlotView(("2",), frozenset())}
    found.shows("pod", view)
    found.shows("new", SlotView(("2",), frozenset()))
    assert found.outdated({A: {"pod"}}, found.by_pod()) == {}
    assert found.outdated({}, found.by_pod()) == {"pod": SlotView(("1",), frozenset())}
    found.shows("pod", None)
    assert found.outdated({A: {"pod"}}, found.by_pod()) == {"pod": view}


def test_view_only_grows_in_the_same_slots() -> None:
    """Whatever else changes must first be withdrawn; so must everything where nothing is known."""
    found = slots(pod=("1",))
    assert not found.only_grows("pod", SlotView(("1",), frozenset({A})))
    found.shows("pod", SlotView(("1",), frozenset({A})))
    assert found.only_grows("pod", SlotView(("1",), frozenset({A, B})))
    assert not found.only_grows("pod", SlotView(("1",), frozenset({B})))
    assert not found.only_grows("pod", SlotView(("1", "2"), frozenset({A})))
