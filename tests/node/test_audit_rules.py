"""Rights to have a GPU open, case by case."""

import pytest

from jupyter_gpu_node.holders.rules.rights import Rights, Suspect, Verdict, holders, judge

GPU = "GPU-1"
RIGHTS = Rights({"has": {GPU}, "none": (), "new": None}, {"exporter"}, {"Xorg"})


def suspect(pod: str | None = None, command: str = "python", **more: bool) -> Suspect:
    return Suspect(10, 500, command, pod, **more)


@pytest.mark.parametrize(
    ("who", "verdict"),
    [
        (suspect("has"), Verdict.FINE),
        (suspect("none"), Verdict.INTRUDER),
        (suspect("new"), Verdict.FINE),  # an earlier process guarded it, and it was not looked at yet
        (suspect("without-a-slot"), Verdict.INTRUDER),
        (suspect("exporter"), Verdict.FINE),
        (suspect(command="Xorg"), Verdict.FINE),
        (suspect("none", command="Xorg"), Verdict.INTRUDER),  # in a pod anybody can choose a name
        (suspect(command="Xorg", escaped=True), Verdict.INTRUDER),
        (suspect(escaped=True), Verdict.INTRUDER),
        (suspect(command="nvidia-smi"), Verdict.STRANGE),
        (suspect("none", own_helper=True), Verdict.FINE),
    ],
)
def test_verdicts(who: Suspect, verdict: Verdict) -> None:
    """One line of the table in the module's head."""
    assert judge(who, GPU, RIGHTS) is verdict


@pytest.mark.parametrize(
    ("who", "counts"),
    [
        (suspect("none"), (True, False)),
        (suspect("has"), None),  # it shares the GPU
        (suspect("without-a-slot"), (True, True)),
        (suspect(), (True, True)),
        (suspect(command="Xorg"), None),
        (suspect(own_helper=True), None),
        (suspect(escaped=True), (True, True)),
        (Suspect(10, 99, "daemon"), None),  # it is older than the pod
        (Suspect(10, 99, "daemon", escaped=True), (True, True)),
        (suspect("exporter"), None),
    ],
)
def test_who_keeps_a_pod_from_being_rid_of_a_gpu(who: Suspect, counts: tuple[bool, bool] | None) -> None:
    """Its own processes always; other processes if they have no right to it."""
    found = holders([who], GPU, "none", 100, RIGHTS)
    assert [foreign for _, foreign in found] == ([counts[1]] if counts else [])
