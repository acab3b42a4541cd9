"""Whether slots are offered, and where the reason is published if not."""

from __future__ import annotations

from jupyter_gpu_node.kubelet.offer import Kind, Offer, Topic


class Listener:
    """Messages to the kubelet, and Events of the node."""

    def __init__(self) -> None:
        self.reachable = True
        self.said: list[str] = []
        self.events: list[tuple[str, str, Kind]] = []
        self.offer = Offer(self.said.append, self.event)

    def event(self, reason: str, message: str, kind: Kind) -> bool:
        """Record an event, as the recorder does."""
        if self.reachable:
            self.events.append((reason, message, kind))
        return self.reachable


def test_every_reason_withholds_slots_and_is_reported_once() -> None:
    """And the end of each by itself."""
    told = Listener()
    assert told.offer.set_problem(Topic.GUARD, "")
    assert (told.events, told.said) == ([], [""])
    assert told.offer.set_problem(Topic.GPUS, "None.")
    assert told.offer.set_problem(Topic.GPUS, "None.")
    assert told.offer.set_problem(Topic.GUARD, "No BPF.")
    assert told.said[-1] == told.offer.problem == "No BPF. None."
    assert told.offer.set_problem(Topic.GPUS, "")
    assert told.said[-1] == "No BPF."
    assert [(reason, kind) for reason, _, kind in told.events] == [
        ("NoGpus", "Warning"),
        ("GpusNotGuarded", "Warning"),
        ("GpusFound", "Normal"),
    ]
    assert told.events[0][1].startswith("None. No pod gets a slot")


def test_failed_report_is_repeated() -> None:
    """The node is not known in the first moments."""
    told = Listener()
    told.reachable = False
    assert not told.offer.set_problem(Topic.GPUS, "None.")
    told.reachable = True
    assert told.offer.set_problem(Topic.GPUS, "None.")
    assert [reason for reason, *_ in told.events] == ["NoGpus"]


def test_node_without_gpus_is_no_fault_of_its_plugin() -> None:
    """It is ready, so that an installation on all nodes ends; one that cannot guard is not."""
    told = Listener()
    told.offer.set_problem(Topic.GPUS, "None.")
    assert told.offer.fault == ""
    told.offer.set_problem(Topic.GUARD, "No BPF.")
    assert told.offer.fault == "No BPF."
