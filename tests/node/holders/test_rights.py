"""Rights to have a GPU open, case by case."""

import pytest

from jupyter_gpu_node.holders.rules.rights import HolderKind, ReleasingPod, Rights, Suspect, classify, holders
from jupyter_gpu_node.processes.rules.process_id import ProcessId

GPU = "GPU-1"
RIGHTS = Rights({"has": {GPU}, "none": (), "new": None}, {"exporter"}, {"Xorg"})


def suspect(pod: str | None = None, command: str = "python", **more: bool) -> Suspect:
    return Suspect(10, 500, command, pod, **more)


@pytest.mark.parametrize(
    ("who", "kind"),
    [
        (suspect("has"), HolderKind.RIGHTFUL),
        (suspect("none"), HolderKind.INTRUDER),
        (suspect("new"), HolderKind.RIGHTFUL),  # an earlier process guarded it, and it was not scanned yet
        (suspect("without-a-slot"), HolderKind.INTRUDER),
        (suspect("exporter"), HolderKind.RIGHTFUL),
        (suspect(command="Xorg"), HolderKind.RIGHTFUL),
        (suspect("none", command="Xorg"), HolderKind.INTRUDER),  # in a pod anybody can choose a name
        (suspect(command="Xorg", escaped=True), HolderKind.INTRUDER),
        (suspect(escaped=True), HolderKind.INTRUDER),
        (suspect(command="nvidia-smi"), HolderKind.STRANGER),
        (suspect("none", exempt=True), HolderKind.RIGHTFUL),
    ],
)
def test_kinds_of_holders(who: Suspect, kind: HolderKind) -> None:
    """One line of the table in the module's head."""
    assert classify(who, GPU, RIGHTS) is kind


@pytest.mark.parametrize(
    ("who", "counts"),
    [
        (suspect("none"), (True, False)),
        (suspect("has"), None),  # it shares the GPU
        (suspect("without-a-slot"), (True, True)),
        (suspect(), (True, True)),
        (suspect(command="Xorg"), None),
        (suspect(exempt=True), None),
        (suspect(escaped=True), (True, True)),
        (Suspect(10, 99, "daemon"), None),  # it is older than the pod
        (Suspect(10, 99, "daemon", escaped=True), (True, True)),
        (suspect("exporter"), None),
    ],
)
def test_holders_that_block_a_release(who: Suspect, counts: tuple[bool, bool] | None) -> None:
    """Its own processes always; other processes if they have no right to it."""
    found = holders([who], GPU, ReleasingPod("none", 100), RIGHTS)
    assert [foreign for _, foreign in found] == ([counts[1]] if counts else [])


def test_process_that_had_the_gpu_before_the_grant_does_not_count() -> None:
    """On one machine it is known by its identity, wherever it runs now; another process with its pid is not excused."""
    pod = ReleasingPod("none", outside={ProcessId(10, 500)})
    assert holders([suspect(), suspect("without-a-slot")], GPU, pod, RIGHTS) == ()
    later = Suspect(10, 501, "python")
    assert holders([later], GPU, pod, RIGHTS) == ((later, True),)
