"""All parks of a node: places, host memory, and whose process it is."""

from __future__ import annotations

from jupyter_gpu.model.parking import Obstacle, ParkCause
from jupyter_gpu_node.parking.rules.budget import BESIDE, FIRST_CONTEXT, GroupMemory, NodeMemory
from jupyter_gpu_node.parking.rules.bundles import Bundle
from jupyter_gpu_node.parking.rules.checks import Refusal
from jupyter_gpu_node.parking.rules.members import Send
from jupyter_gpu_node.parking.rules.messages import Can, Cannot, Check, Need, Park, Parked, ProcessState, State
from jupyter_gpu_node.parking.rules.node import Key, NodeParking
from jupyter_gpu_node.parking.rules.parking import Phase
from jupyter_gpu_node.processes.rules.process_id import ProcessId

GIB = 2**30
PLENTY = NodeMemory(1 << 50, 1 << 50)
ONE, TWO = ProcessId(1, 1), ProcessId(2, 2)


def _order(node: NodeParking, *processes: ProcessId, now: float = 0) -> Key:
    return node.order("pod", Bundle(processes, ("a",)), ParkCause.LINE, now)


def test_orders_are_numbered_from_the_first_number() -> None:
    """So an answer to an earlier node side is never taken for one to this."""
    node = NodeParking(100)
    _order(node, ONE)
    assert node.admit(0) == [Send(ONE, Check(100))]
    _order(node, TWO)
    assert node.admit(0) == [Send(TWO, Check(101))]
    assert _order(node, TWO) == Key("pod", "2-2")
    assert node.admit(0) == []


def test_places_go_to_those_that_were_ordered_first() -> None:
    """One that ends makes room for the next."""
    node = NodeParking(1, places=1)
    _order(node, TWO, now=1)
    _order(node, ONE, now=2)
    assert [send.process for send in node.admit(2)] == [TWO]
    assert node.admit(3) == []
    assert node.due == 7
    node.heard(TWO, Cannot(1, 3), 3)
    assert [send.process for send in node.admit(3)] == [ONE]
    node.tick(8)
    assert node.bundles[Key("pod", "1-1")].failure == Refusal(Obstacle.HANGS)
    assert not [bundle for bundle in node.bundles.values() if bundle.due]


def test_host_memory_is_booked_from_the_park_on() -> None:
    """By what the driver reports, or what the gate counts; one that is parked needs no room a second time."""
    node, gib = NodeParking(1), GIB
    keys = [_order(node, ONE), _order(node, TWO)]
    node.admit(0)
    assert node.reserve(keys[0], [], PLENTY, 0) == [], "not asked yet"
    node.heard(ONE, Can(1, gib, 1), 0)
    node.heard(TWO, Can(2, gib, 1), 0)
    small = NodeMemory(1 << 50, gib + BESIDE)
    assert node.reserve(keys[0], [], small, 0) == []
    assert node.bundles[keys[0]].failure == Refusal(Obstacle.HOST_MEMORY, FIRST_CONTEXT - BESIDE)
    _order(node, ONE)
    node.admit(0)
    node.heard(ONE, Can(3, gib, 1), 0)
    assert node.reserve(keys[0], [], small, 0, {ONE: gib}) == [Send(ONE, Park(3, 2000))]
    group = GroupMemory(3 * gib, 0, 0)
    assert node.reserve(keys[1], [group], small, 0, {TWO: gib}) == []
    assert node.bundles[keys[1]].failure == Refusal(Obstacle.HOST_MEMORY, gib + BESIDE)
    _order(node, TWO)
    node.admit(0)
    node.heard(ONE, Parked(3, gib, 1, 2), 0)
    node.heard(TWO, Can(4, gib, 1), 0)
    assert node.reserve(keys[1], [group], PLENTY, 0, {TWO: gib}) == [Send(TWO, Park(4, 2000))]


def test_process_is_in_one_bundle() -> None:
    """One that is under way is not ordered again with others; after its end it may be."""
    node = NodeParking(1)
    key = _order(node, ONE)
    assert _order(node, TWO, ONE) == key
    assert node.of(TWO) is None
    node.admit(0)
    node.heard(ONE, Cannot(1, 3), 0)
    assert _order(node, TWO, ONE) == Key("pod", "2-2")
    assert list(node.bundles) == [Key("pod", "2-2")]


def test_bundle_ends_with_its_last_process() -> None:
    """Events of processes without an order are of no interest."""
    node = NodeParking(1)
    key = _order(node, ONE, TWO)
    assert node.ended(ONE, 0) == []
    assert list(node.bundles) == [key]
    assert node.ended(TWO, 0) == []
    assert not node.bundles
    assert node.ended(TWO, 0) == node.heard(TWO, Need(True), 0) == []


def test_parks_of_an_earlier_node_side_are_found() -> None:
    """By the record's name, or by their own; what they take is booked."""
    node = NodeParking(10)
    told = {ONE: ProcessState(State.PARKED, 7, GIB)}
    key = node.found("pod", told, 0, recorded="9-9")
    assert (key, node.bundles[key].phase) == (Key("pod", "9-9"), Phase.PARKED)
    assert node.of(ONE) == key
    other = node.found("pod", {TWO: ProcessState(State.PARKED, 8, GIB)}, 0, recorded=None)
    assert (other, node.bundles[other].phase) == (Key("pod", "2-2"), Phase.CLOSING)
    third = ProcessId(3, 3)
    new = _order(node, third)
    node.admit(0)
    node.heard(third, Can(10, 0, 1), 0)
    node.reserve(new, [], NodeMemory(1 << 50, 2 * (GIB + FIRST_CONTEXT)), 0)
    assert node.bundles[new].failure == Refusal(Obstacle.HOST_MEMORY, FIRST_CONTEXT)
