"""Names of pods' groups: the kubelet's table, both ways."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu_node.devices.pod_cgroups import PodCgroups
from jupyter_gpu_node.devices.rules import pod_cgroup

UID = "0a1b2c3d-1111-2222-3333-444455556666"
FLAT = UID.replace("-", "_")

TABLE = [
    ("kubepods", f"pod{UID}"),
    ("kubepods", f"burstable/pod{UID}"),
    ("kubepods", f"besteffort/pod{UID}"),
    ("kubepods.slice", f"kubepods-pod{FLAT}.slice"),
    ("kubepods.slice", f"kubepods-burstable.slice/kubepods-burstable-pod{FLAT}.slice"),
    ("kubepods.slice", f"kubepods-besteffort.slice/kubepods-besteffort-pod{FLAT}.slice"),
    ("node1-kubepods.slice", f"node1-kubepods-burstable.slice/node1-kubepods-burstable-pod{FLAT}.slice"),
]
CONTAINERS = ["", "/0123abcd", "/crio-0123abcd", "/cri-containerd-0123abcd.scope", "/crio-0123abcd.scope/container"]


@pytest.mark.parametrize(("top", "path"), TABLE)
def test_every_naming_scheme_is_found(top: str, path: str) -> None:
    """Driver, class of service and cgroup root of the kubelet's table."""
    assert pod_cgroup.is_top(top)
    assert path in [str(candidate) for candidate in pod_cgroup.candidates(top, UID)]


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("prefix", ["", "/node1", "/a/b"])
@pytest.mark.parametrize(("top", "path"), TABLE)
def test_pod_of_a_process_is_read_from_its_path(top: str, path: str, prefix: str, container: str) -> None:
    """Whatever runtime named the container, and wherever the kubelet's top is."""
    assert pod_cgroup.uid_of(f"{prefix}/{top}/{path}{container}") == UID


@pytest.mark.parametrize(
    ("path", "uid"),
    [
        ("/", None),
        ("/user.slice/user-0.slice/session-1.scope", None),
        ("/system.slice/containerd.service", None),
        ("/podman/podabc", None),
        ("/kubepods/burstable", None),
        (f"/../../burstable/pod{UID}/container", UID),  # from inside of a control group namespace
        (f"/../pod{UID}", UID),
        (f"/kubepods/pod{UID}/container/kubepods/podother", UID),  # a pod names groups inside as it likes
        ("/kubepods/pod4f2a9cfd0d6ac8f1f0e1b8a4e1b1d6a3/x", "4f2a9cfd0d6ac8f1f0e1b8a4e1b1d6a3"),  # a static pod
    ],
)
def test_only_names_of_pods_count(path: str, uid: str | None) -> None:
    """The outermost name of a pod counts; everything else is outside."""
    assert pod_cgroup.uid_of(path) == uid


@given(st.text(max_size=60))
def test_name_that_is_no_uid_is_refused(text: str) -> None:
    """So that no path can be made with it."""
    try:
        found = pod_cgroup.candidates("kubepods", text)
    except ValueError:
        assert not pod_cgroup.valid(text)
        return
    assert all(".." not in path.parts and "/" not in path.name for path in found)
    assert all(pod_cgroup.uid_of(f"/kubepods/{path}") == text for path in found)


@pytest.mark.parametrize(("top", "path"), TABLE)
@pytest.mark.parametrize("prefix", ["", "machine", "a/b"])
def test_group_is_found_wherever_the_top_is(tmp_path: Path, prefix: str, top: str, path: str) -> None:
    """Nodes that share a machine have different tops; a new one is found as soon as a pod is there."""
    places = PodCgroups(tmp_path)
    assert places.find(UID) is None
    group = tmp_path / prefix / top / path
    group.mkdir(parents=True)
    assert places.find(UID) is None  # a folder, but no control group
    (group / "cgroup.procs").touch()
    assert places.find(UID) == group
    with pytest.raises(ValueError, match="not the uid"):
        places.find("../../etc")
