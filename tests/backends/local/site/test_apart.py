"""A state directory that other servers of the machine do not see: reported wherever it can be known from inside."""

from __future__ import annotations

import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.backends.local.processes.identity import FIRST_NAMESPACE, namespace
from jupyter_gpu.backends.local.rules import views
from jupyter_gpu.backends.local.site import surroundings
from jupyter_gpu.backends.local.site.rules.apart import Apart, MountEntry, Surroundings, apart, behind, parts, table
from jupyter_gpu.common import state_dir
from jupyter_gpu_node.devices import cgroup
from tests.backends.local.stage import Remote, Stage
from tests.builders import gpu

HOST = """22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 27 0:25 / /run rw,nosuid,nodev shared:2 - tmpfs tmpfs rw
31 30 0:26 / /run/lock rw,nosuid,nodev,noexec shared:3 - tmpfs tmpfs rw
"""
PRIVATE_TMP = HOST + "90 27 8:1 /tmp/systemd-private-5f1e-jupyter.service-x/tmp /tmp rw - ext4 /dev/sda1 rw\n"
DOCKER = """500 400 0:50 / / rw,relatime - overlay overlay rw,lowerdir=/a
501 500 0:51 / /proc rw - proc proc rw
502 500 0:52 / /dev rw - tmpfs tmpfs rw
"""
MOUNTED = DOCKER + "510 500 0:26 /jupyter-gpu /gpus rw - tmpfs tmpfs rw\n"
ALONE = "c.GpuExtension.state_dir"


def around(mounts: str, path: str, **more: Any) -> Surroundings:
    usual = Surroundings(path=path, chosen=False, mounts=mounts, first=HOST, contained=False)
    return usual._replace(**more)


@pytest.mark.parametrize(
    ("here", "expected"),
    [
        pytest.param(around(HOST, "/run/lock/jupyter-gpu"), None, id="on the machine"),
        pytest.param(around(HOST, "/run/lock/jupyter-gpu", chosen=True), None, id="on the machine, chosen"),
        pytest.param(around(PRIVATE_TMP, "/run/lock/jupyter-gpu"), None, id="PrivateTmp has the machine's /run/lock"),
        pytest.param(around(HOST, "/run/lock/jupyter-gpu", first=None), None, id="the first process is hidden"),
        pytest.param(around(PRIVATE_TMP, "/tmp/jupyter-gpu"), Apart.PRIVATE, id="PrivateTmp"),
        pytest.param(around(PRIVATE_TMP, "/tmp/gpus", chosen=True), Apart.PRIVATE, id="PrivateTmp, chosen there"),
        pytest.param(around(PRIVATE_TMP, "/tmp/jupyter-gpu", first=None), Apart.PRIVATE, id="PrivateTmp, hidden"),
        pytest.param(around(DOCKER, "/run/lock/jupyter-gpu"), Apart.MOUNTS, id="a container with --pid=host"),
        pytest.param(around(DOCKER, "/gpus", chosen=True), Apart.MOUNTS, id="… its own folder, chosen"),
        pytest.param(around(MOUNTED, "/gpus", chosen=True), None, id="… the machine's folder, chosen"),
        pytest.param(around(MOUNTED, "/gpus"), Apart.MOUNTS, id="… which nobody else calls so"),
        pytest.param(around(DOCKER, "/run/lock/jupyter-gpu", contained=True, first=None), Apart.CONTAINER, id="docker"),
        pytest.param(around(MOUNTED, "/gpus", contained=True, first=None), None, id="docker with the machine's folder"),
        pytest.param(around(DOCKER, "/gpus", contained=True, first=None, chosen=True), None, id="docker, chosen"),
        pytest.param(
            around(PRIVATE_TMP, "/tmp/x", contained=True, first=None),
            Apart.CONTAINER,
            id="a container of a private /tmp",
        ),
        pytest.param(around("", "/tmp/x"), None, id="nothing can be read"),
        pytest.param(around(HOST, "/run/lock/jupyter-gpu", first=""), Apart.MOUNTS, id="the first process has nothing"),
    ],
)
def test_separate_directory_is_recognised_from_inside(here: Surroundings, expected: Apart | None) -> None:
    """A server that shares the machine's directory shows nothing; one with a directory of its own says why."""
    assert apart(here) is expected


def test_table_of_mounts() -> None:
    """Names with blanks are read; of two mounts on one point the later hides the earlier."""
    text = (
        "1 0 8:1 / / rw - x x x\n"
        "2 1 8:2 /a\\040b /mnt/c\\040d rw - x x x\n"
        "not a mount\n"
        "3 1 8:3 / /mnt/c\\040d rw - x x x\n"
    )
    mounts = table(text)
    assert mounts[1] == MountEntry("8:2", parts("/a b"), parts("/mnt/c d"))
    found = behind(mounts, parts("/mnt/c d/e"))
    assert found == mounts[2]
    assert mounts[1].inner(parts("/mnt/c d/e")) == parts("/a b/e")
    assert behind(mounts[1:], parts("/var")) is None


@given(st.text(), st.text(), st.booleans(), st.booleans())
def test_any_table_of_mounts_gives_an_answer(mounts: str, first: str, chosen: bool, contained: bool) -> None:
    """Whatever stands in it; and a server that sees what the first process sees is not apart."""
    assert apart(Surroundings("/run/lock/jupyter-gpu", chosen, mounts, first, contained)) in {None, *Apart}
    assert apart(Surroundings("/run/lock/jupyter-gpu", chosen, mounts + HOST, mounts + HOST, contained=False)) is None


def test_pod_of_a_process(stage: Stage) -> None:
    """Its innermost group, else its mark; most have neither."""
    server = stage.server(enforcement="soft")
    assert surroundings.pod_of(stage.kernel(server).pid) == server.uid
    assert surroundings.pod_of(server.pid) is None, "the environment with which it was started"
    assert surroundings.pod_of(1) is None


def test_default_directory_is_one_that_services_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A place that each user may write, and that a private /tmp leaves alone, comes first."""
    places = [tmp_path / "lock", tmp_path / "shm"]
    monkeypatch.setattr(state_dir, "PLACES", tuple(places))
    monkeypatch.setattr(state_dir, "LAST_PLACE", tmp_path / "tmp")
    assert state_dir.default_path() == tmp_path / "tmp/jupyter-gpu"
    for place in reversed(places):
        place.mkdir(mode=0o755)
    assert state_dir.default_path() == tmp_path / "tmp/jupyter-gpu"
    for place in reversed(places):
        place.chmod(0o777 | stat.S_ISVTX)
        assert state_dir.default_path() == place / "jupyter-gpu"


# -- real namespaces --------------------------------------------------------------------------------------------------


def said(view: dict[str, Any]) -> list[str]:
    """Return what the view says about where the server runs."""
    return [one["message"] for one in view["conditions"] if one["type"] in ("StateApart", "Contained")]


@pytest.fixture
def machine(stage: Stage) -> Stage:
    """One on whose records this process sees what process 1 sees."""
    if namespace() != FIRST_NAMESPACE:
        pytest.skip("not run: needs the machine's own pid namespace")
    return stage


@pytest.mark.root
def test_server_with_a_private_mount_says_so(machine: Stage) -> None:
    """A server whose directory is another one than that of the same name outside says so; the others need not."""
    hidden = machine.actor()
    machine.paths  # noqa: B018 - the devices must be there before
    hidden.ask("own_mounts", commands=[["mount", "-t", "tmpfs", "tmpfs", str(machine.state.parent)]])
    view = machine.start(hidden)
    (text,) = said(view)
    assert Apart.MOUNTS.value in text
    assert ALONE in text
    assert said(machine.server().ask("view")) == []


@pytest.mark.root
def test_shared_directory_mounted_elsewhere_is_not_apart(machine: Stage, tmp_path: Path) -> None:
    """The mount that the message recommends removes the condition, and GPUs are shared out together."""
    outside = machine.server()
    outside.ask("request", milli=1000 * machine.gpus)
    inside = machine.actor()
    place = tmp_path / "gpus"
    place.mkdir()
    inside.ask("own_mounts", commands=[["mount", "--bind", str(machine.state), str(place)]])
    view = inside.ask("start", state_dir=str(place), simulated_gpus=machine.gpus)
    machine.know(view["instance"])
    assert said(view) == []
    assert inside.ask("request", milli=1000)["reason"] == "Deferred"


@pytest.mark.root
@pytest.mark.parametrize("enforcement", ["soft", "auto"])
def test_servers_with_two_directories_report_each_other(machine: Stage, tmp_path: Path, enforcement: str) -> None:
    """Each sees the other's kernel use its GPU, which no record here names: both say it, and where to look."""
    one = machine.server(enforcement=enforcement)
    other = machine.actor()
    view = other.ask("start", state_dir=str(tmp_path / "state"), simulated_gpus=machine.gpus, enforcement=enforcement)
    machine.know(view["instance"])
    for server in (one, other):
        (card,) = server.ask("request", milli=1000)["gpus"]
        assert machine.kernel(server).ask("open", path=card["path"]) == ""
    for server in (one, other):
        server.ask("sample")
        (text,) = said(server.ask("view"))
        assert "in another place" in text
        assert f"GPU {card['index']} is in use" in text


@pytest.fixture
def contained(stage: Stage) -> Iterator[Remote]:
    """A process in a pid namespace of its own, as in a container."""
    ours, theirs = socket.socketpair()
    command = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", sys.executable, "-m"]
    with theirs:
        number = theirs.fileno()
        outer = subprocess.Popen([*command, "tests.backends.local.actor", "server", str(number)], pass_fds=[number])
    remote = Remote(ours)
    stage.actors.append(remote)
    try:
        yield remote
    finally:
        outer.kill()
        outer.wait()


@pytest.mark.root
def test_other_pid_namespace_is_reported(machine: Stage, contained: Remote) -> None:
    """With real GPUs the view says that no process outside is seen; sharing the records is the administrator's task."""
    contained.ask("real_gpus", count=machine.gpus)
    view = contained.ask("start", state_dir=str(machine.state), simulated_gpus=0, enforcement="soft")
    (text,) = said(view)
    assert "--pid=host" in text
    assert "records" not in text


@pytest.mark.root
def test_container_with_a_private_directory_is_apart(machine: Stage, contained: Remote) -> None:
    """The directory is the default, and not one of the machine: others would hand out the same GPUs."""
    lock = "/run/lock"
    contained.ask("own_mounts", commands=[["mount", "-t", "tmpfs", "-o", "mode=1777", "tmpfs", lock]])
    contained.ask("real_gpus", count=machine.gpus)
    view = contained.ask("start", state_dir="", simulated_gpus=0, enforcement="soft")
    (text,) = said(view)
    assert Apart.CONTAINER.value in text
    assert f"{lock}/jupyter-gpu" in text
    assert ALONE in text


def test_plain_files_are_never_apart() -> None:
    """Simulated GPUs without devices lie beside the records: no other server can hand them out."""
    visibility = views.Visibility(around=around(DOCKER, "/run/lock/jupyter-gpu"))
    for simulated, device, count in ((True, None, 0), (True, gpu(0).device, 1), (False, None, 1)):
        found = replace(gpu(0), simulated=simulated, device=device)
        registry: Any = SimpleNamespace(gpus=(found,), seen={found.uuid: found})
        assert len(list(views.visibility_conditions(registry, visibility))) == count


def test_partial_uids_are_no_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a whole uid counts, and the innermost group counts more than a mark."""
    one, two = "1" * 32, "2" * 32
    texts: dict[str, str] = {}
    monkeypatch.setattr(surroundings, "read_text", lambda path: texts.get(path.rpartition("/")[2]))
    assert surroundings.pod_of(7) is None
    texts["environ"] = f"A=1\0JUPYTER_GPU_POD={one}\0B=2"
    assert surroundings.pod_of(7) == one
    texts["cgroup"] = f"0::/a/{cgroup.PREFIX}{one}/{cgroup.PREFIX}{two}"
    assert surroundings.pod_of(7) == two
    texts.update(cgroup=f"0::/{cgroup.PREFIX}{two}0", environ=f"XJUPYTER_GPU_POD={one}")
    assert surroundings.pod_of(7) is None
