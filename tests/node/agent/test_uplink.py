"""The use of a node's uplink."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.annotations import INVENTORY, decode_inventory
from jupyter_gpu.model.gpu import Gpu
from jupyter_gpu.model.network import network_of
from jupyter_gpu_node.agent.inventory.rules import annotation, uplink_rate
from jupyter_gpu_node.agent.inventory.rules.uplink_rate import UplinkCounters
from jupyter_gpu_node.agent.inventory.uplink import Uplink

HEAD = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
DEVICES = """Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier
    lo: 11 1 0 0 0 0 0 0 11 1 0 0 0 0 0 0
  eth0:{received} 9 0 0 0 0 0 0 {sent} 9 0 0 0 0 0 0
"""


def route(name: str, metric: int, destination: str = "00000000") -> str:
    mask = "00000000" if destination == "00000000" else "00FFFFFF"
    return f"{name}\t{destination}\t0100000A\t0003\t0\t0\t{metric}\t{mask}\t0\t0\t0\n"


def test_uplink_is_the_interface_of_the_default_route() -> None:
    """The kernel's preferred route of several; without a route there is none."""
    assert uplink_rate.uplink(HEAD + route("eth1", 200) + route("eth0", 100) + route("lan", 0, "0000000A")) == "eth0"
    assert uplink_rate.uplink(HEAD + route("lan", 0, "0000000A") + "short\n") == ""


def test_counters_are_read() -> None:
    """Bytes both ways, also where the number stands right behind the name."""
    text = DEVICES.format(received=500, sent=70)
    assert uplink_rate.counted(text, "eth0") == (500, 70)
    assert uplink_rate.counted(text, "eth7") is None
    assert uplink_rate.counted("eth0: 1 2", "eth0") is None


@pytest.mark.parametrize(("text", "speed"), [("1000\n", 125e6), ("-1\n", None), ("0", None), ("", None), ("x", None)])
def test_speed_of_an_interface(text: str, speed: float | None) -> None:
    """Virtual interfaces have none."""
    assert uplink_rate.bytes_a_second(text) == speed


def reading(time: float, received: int, sent: int = 0, name: str = "eth0") -> UplinkCounters:
    return UplinkCounters(name, received, sent, 100.0, time)


def test_busier_direction_counts() -> None:
    """A share of what the interface can carry, never above all of it."""
    first = reading(0, 0)
    assert uplink_rate.use(first, reading(10, 300, 500)) == 0.5
    assert uplink_rate.use(first, reading(10, 10**9)) == 1.0


def test_rate_is_unknown_without_comparable_counters() -> None:
    """Another interface, one that came up anew, no time, nothing read."""
    first = reading(5, 100, 100)
    for other in (None, reading(9, 200, name="eth1"), reading(9, 50, 100), reading(9, 200, 50), reading(5, 200, 200)):
        assert uplink_rate.use(first, other) is None
    assert uplink_rate.use(None, first) is None


@given(st.floats(0, 1), st.lists(st.floats(-0.05, 0.05)))
def test_steady_load_is_published_once(middle: float, moves: list[float]) -> None:
    """However it fluctuates; and the published value is never far from the real one."""
    told = middle
    for move in moves:
        told = uplink_rate.published(told, middle + move) or 0.0
        assert told == middle


def test_change_is_published_and_unknown_load_left_out() -> None:
    """The first number of a node that published none is published."""
    assert uplink_rate.published(0.2, 0.4) == 0.4
    assert uplink_rate.published(None, 0.0) == 0.0
    assert uplink_rate.published(0.2, None) is None


def test_inventory_carries_the_load_in_steps() -> None:
    """The same number is no reason to write, nor is one that a next process finds there."""
    gpus = (Gpu("GPU-0", 0, "L4", 2**30),)
    body = annotation.patch({"metadata": {"uid": "u"}}, gpus, 0.33)
    assert body is not None
    node = {"metadata": {"uid": "u", **body["metadata"]}}
    assert annotation.published_uplink(node) == (0.3, None)
    assert annotation.patch(node, gpus, 0.31) is None
    assert annotation.patch(node, gpus, *annotation.published_uplink(node)) is None
    assert annotation.patch(node, gpus, 0.31, 1000) is not None
    assert annotation.patch(node, gpus) is not None
    assert network_of(gpus) is None
    for odd in ({}, {"metadata": {"annotations": {INVENTORY: "nonsense"}}}):
        assert annotation.published_uplink(odd) == (None, None)


def test_inventory_carries_the_speed() -> None:
    """In Mbit/s, until it is not known any more; what makes no sense is not published."""
    gpus, plain = (Gpu("GPU-0", 0, "L4", 2**30),), {"metadata": {"uid": "u"}}
    body = annotation.patch(plain, gpus, None, 25_000)
    assert body is not None
    node = {"metadata": {"uid": "u", **body["metadata"]}}
    assert annotation.published_uplink(node) == (None, 25_000)
    assert annotation.patch(node, gpus, None, 25_000) is None
    assert annotation.patch(node, gpus) is not None
    assert [uplink_rate.megabits(speed) for speed in (1.25e8, 1.25e13, 1.26e13)] == [1000, 10**8, None]


@pytest.mark.parametrize(
    ("spec", "slow"),
    [
        ({}, False),
        ({"unschedulable": True}, True),
        ({"unschedulable": False}, False),
        ({"taints": [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]}, False),
        ({"taints": [{"key": "x"}, {"key": "DeletionCandidateOfClusterAutoscaler"}]}, True),
        ({"taints": [{"key": "karpenter.sh/disrupted"}]}, True),
        ({"taints": ["odd", {}]}, False),
        ({"taints": "odd"}, False),
        (None, False),
    ],
)
def test_gpus_of_a_node_that_is_leaving_are_slow(spec: object, slow: bool) -> None:
    """A node that is cordoned or marked for removal says so of all its GPUs; one that is slow anyway stays it."""
    gpus = (Gpu("GPU-0", 0, "L4", 2**30), Gpu("GPU-1", 1, "L4", 2**30, slow=True))
    node = {"metadata": {"uid": "u"}, "spec": spec}
    assert annotation.is_leaving(node) is slow
    body = annotation.patch(node, gpus)
    assert body is not None
    assert [gpu.slow for gpu in decode_inventory(body["metadata"]["annotations"][INVENTORY])] == [slow, True]
    assert annotation.is_leaving("odd") is False


def test_node_is_measured_from_files(tmp_path: Path) -> None:
    """From the files of one process; where one is missing, nothing is known until it is there again."""
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "route").write_text(HEAD + route("eth0", 0))
    (tmp_path / "net" / "dev").write_text(DEVICES.format(received=0, sent=0))
    uplink = Uplink(tmp_path)
    assert uplink.use() is None
    assert uplink.speed is None
    speed = tmp_path / "root" / "sys" / "class" / "net" / "eth0" / "speed"
    speed.parent.mkdir(parents=True)
    speed.write_text("1\n")
    assert uplink.use() is None, "there is nothing to compare with"
    (tmp_path / "net" / "dev").write_text(DEVICES.format(received=10**12, sent=0))
    assert uplink.use() == 1.0
    assert uplink.speed == 1
    assert uplink.use() == 0.0
    (tmp_path / "net" / "dev").unlink()
    assert uplink.use() is None


def test_this_machine_is_read_without_an_error() -> None:
    """Whatever it has."""
    uplink = Uplink()
    uplink.use()
    assert (found := uplink.use()) is None or 0 <= found <= 1
