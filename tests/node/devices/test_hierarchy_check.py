"""Whether the processes of pods are in the tree in which device rules hold."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jupyter_gpu_node.devices import cgroup
from jupyter_gpu_node.devices.cgroup import parse_membership
from jupyter_gpu_node.devices.hierarchy_check import HierarchyCheck
from jupyter_gpu_node.devices.rules.pod_cgroup import astray

UID = "0a1b2c3d-0000-4000-8000-000000000001"
POD = f"/kubepods/burstable/pod{UID}/0123"
SLICE = f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID.replace('-', '_')}.slice/cri-x.scope"


@pytest.mark.parametrize(
    ("text", "uid"),
    [
        (f"4:devices:{POD}\n1:name=systemd:{POD}\n0::{POD}\n", None),
        (f"4:devices:{POD}\n0::/\n", UID),
        (f"4:devices:{POD}\n0::/system.slice/containerd.service\n", UID),
        (f"4:devices:{POD}\n", UID),  # v2 is not there at all
        (f"4:devices:{SLICE}\n0::/\n", UID),
        (f"4:devices:{POD}\n0::{SLICE}\n", None),  # the same pod, differently named
        (f"4:devices:{POD}\n0::/kubepods/pod{UID[:-1]}2\n", UID),
        ("4:devices:/\n0::/\n", None),
        (f"0::{POD}\n", None),
        ("", None),
    ],
)
def test_process_in_v1_alone_is_astray(text: str, uid: str | None) -> None:
    """A process that a v1 controller has in a pod, and v2 not in the same."""
    assert astray(parse_membership(text)) == uid


def test_nothing_is_astray_without_v1(tmp_path: Path) -> None:
    """On a node with v2 alone, or where v1 has no group of that pod."""
    HierarchyCheck(None).check([UID])
    HierarchyCheck(tmp_path).check_pod(UID)


def test_v1_tree_is_found_where_the_host_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process in it that is in no pod of v2 is reported in words."""
    group = tmp_path / "devices" / POD[1:]
    group.mkdir(parents=True)
    for directory in (tmp_path / "devices", group.parent, group):
        (directory / "cgroup.procs").write_text("")
    (group / "cgroup.procs").write_text(f"0\n{os.getpid()}\n{2**30}\n")
    found = HierarchyCheck.of_this_machine(tmp_path)
    found.check_pod(UID)
    monkeypatch.setattr(cgroup, "membership", lambda *_: parse_membership(f"4:devices:{POD}\n0::/\n"))
    with pytest.raises(OSError, match=f"keeps the processes of pod {UID} out of the cgroup v2 tree"):
        found.check_pod(UID)
    with pytest.raises(OSError, match="of the node plugin's own pod"):
        found.check([])
