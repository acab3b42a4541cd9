"""Control groups: the paths of the three layouts as text, and real groups of the running kernel."""

import os
from collections.abc import Callable
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu_node.devices import cgroup
from jupyter_gpu_node.devices.cgroup import Hierarchy, Layout, parse_membership, parse_mounts
from tests.node.conftest import Child

V2 = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:26 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate
"""
HYBRID = """\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
36 31 0:33 / /sys/fs/cgroup/devices rw,relatime - cgroup cgroup rw,devices
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
"""
V1 = """\
31 23 0:28 / /sys/fs/cgroup ro,nosuid - tmpfs tmpfs ro,mode=755
32 31 0:29 / /sys/fs/cgroup/systemd rw,nosuid - cgroup cgroup rw,xattr,name=systemd
33 31 0:30 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid - cgroup cgroup rw,cpu,cpuacct
34 31 0:31 /docker/f00 /mnt/a\\040b/devices rw,nosuid - cgroup cgroup rw,devices
"""


def path(text: str) -> PurePosixPath:
    return PurePosixPath(text)


@pytest.mark.parametrize(
    ("text", "layout", "unified", "devices"),
    [
        (V2, Layout.V2, Hierarchy(path("/sys/fs/cgroup"), path("/")), None),
        (
            HYBRID,
            Layout.HYBRID,
            Hierarchy(path("/sys/fs/cgroup/unified"), path("/")),
            Hierarchy(path("/sys/fs/cgroup/devices"), path("/")),
        ),
        (V1, Layout.V1, None, Hierarchy(path("/mnt/a b/devices"), path("/docker/f00"))),
        ("", Layout.NONE, None, None),
        ("garbage\n1 2 3 - x\n", Layout.NONE, None, None),
    ],
)
def test_mounts(text: str, layout: Layout, unified: Hierarchy | None, devices: Hierarchy | None) -> None:
    """The three layouts, a container's view, an escaped blank, and nonsense."""
    mounts = parse_mounts(text)
    assert (mounts.layout, mounts.unified, mounts.devices) == (layout, unified, devices)


@given(st.text())
def test_any_text_is_parsed(text: str) -> None:
    """Whatever a future kernel writes there, reading it does not fail."""
    parse_mounts(text)
    parse_membership(text)


def test_membership() -> None:
    """Every controller by name; the v2 group under the empty one; a colon in a group's name is part of it."""
    text = "9:name=systemd:/init\n4:cpu,cpuacct:/a\n5:devices:/docker/f00/x\n0::/user.slice/a:b\n"
    assert parse_membership(text) == {
        "name=systemd": "/init",
        "cpu": "/a",
        "cpuacct": "/a",
        "devices": "/docker/f00/x",
        "": "/user.slice/a:b",
    }


def test_directory() -> None:
    """A group is below the mount, less what the mount leaves out at the top."""
    whole = Hierarchy(path("/sys/fs/cgroup"), path("/"))
    assert whole.directory("/") == Path("/sys/fs/cgroup")
    assert whole.directory("/a/b") == Path("/sys/fs/cgroup/a/b")
    part = Hierarchy(path("/sys/fs/cgroup"), path("/docker/f00"))
    assert part.directory("/docker/f00/x") == Path("/sys/fs/cgroup/x")


@pytest.mark.parametrize("group", ["/other", "/docker/f00/../x", "/../x", "/docker/f00x"])
def test_directory_outside(group: str) -> None:
    """A group that this mount does not show is an error, never another group."""
    with pytest.raises(ValueError, match="outside"):
        Hierarchy(path("/m"), path("/docker/f00")).directory(group)


@pytest.mark.parametrize("uid", ["", ".", "..", "a/b", "../x", "-a", "a b", "a\n", "ä", "x" * 101, "\0"])
def test_group_names_are_checked(uid: str) -> None:
    """A uid that is no plain name never becomes a path."""
    with pytest.raises(ValueError, match="pod uid"):
        cgroup.group_name(uid)


@pytest.mark.parametrize("group", ["/", "/sys/fs/cgroup", "/tmp", "/sys/fs/cgroup/unified/user.slice"])
def test_remove_touches_only_our_own(group: str) -> None:
    """Whatever a record says, a group that is not ours is not removed."""
    with pytest.raises(ValueError, match="not a group"):
        cgroup.remove(Path(group))


@pytest.fixture(params=["unified", "devices_v1"])
def parent(request: pytest.FixtureRequest) -> Path:
    """A real group of either kind."""
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Path)
    return found


@pytest.mark.root
def test_life_of_a_group(parent: Path, uid: str, spawn: Callable[..., Child]) -> None:
    """Create, enter with all threads, list, leave, remove; every step can be repeated."""
    child = spawn()
    child.run("threading.Thread(target=time.sleep, args=(60,), daemon=True).start()")
    group = cgroup.create(parent, uid)
    assert cgroup.create(parent, uid) == group
    assert not cgroup.populated(group)

    cgroup.enter(group, child.pid)
    assert cgroup.processes(group) == (child.pid,)
    assert cgroup.populated(group)
    threads = "cgroup.threads" if (group / "cgroup.threads").exists() else "tasks"
    assert len((group / threads).read_text().split()) == 2
    assert not cgroup.remove(group)

    cgroup.enter(group.parent, child.pid)
    assert cgroup.processes(group) == ()
    assert cgroup.remove(group)
    assert not group.exists()
    assert cgroup.remove(group)
    assert cgroup.processes(group) == ()


@pytest.mark.root
def test_groups_below(parent: Path, uid: str, spawn: Callable[..., Child]) -> None:
    """A program may make groups below ours: its processes count, and the groups go with ours."""
    group = cgroup.create(parent, uid)
    inner = group / "a" / "b"
    inner.mkdir(parents=True)
    child, other = spawn(), spawn()
    cgroup.enter(inner, child.pid)
    cgroup.enter(group / "a", other.pid)
    assert cgroup.processes(group) == tuple(sorted((child.pid, other.pid)))
    assert not cgroup.remove(group)
    child.end()
    assert not cgroup.remove(group)
    assert inner.exists(), "nothing is removed from under a living program"
    other.end()
    assert cgroup.remove(group)
    assert not group.exists()


@pytest.mark.root
def test_processes_born_inside_stay_inside(parent: Path, uid: str, spawn: Callable[..., Child]) -> None:
    """A process that a member of the group starts is a member."""
    group = cgroup.create(parent, uid)
    child = spawn()
    cgroup.enter(group, child.pid)
    grandchild = child.run("os.spawnvp(os.P_NOWAIT, 'sleep', ['sleep', '60'])")
    assert set(cgroup.processes(group)) == {child.pid, grandchild}
    child.run(f"os.kill({grandchild}, 9)")
    child.run(f"os.waitpid({grandchild}, 0)")
    assert cgroup.processes(group) == (child.pid,)


def test_own_membership() -> None:
    """The parsers read what this kernel writes."""
    assert cgroup.membership() == cgroup.membership(os.getpid())
    assert cgroup.mounts().layout in Layout
