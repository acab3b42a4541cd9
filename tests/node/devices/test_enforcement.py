"""Access to devices, decided by the running kernel: programs on v2 groups, the v1 controller, and soft mode."""

import contextlib
import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from jupyter_gpu.model.errors import BackendUnavailable
from jupyter_gpu.model.view import Mode
from jupyter_gpu_node.devices import cgroup, enforcement
from jupyter_gpu_node.devices.enforcement import BpfEnforcement, DevicesV1Enforcement, Enforcement, SoftEnforcement
from jupyter_gpu_node.devices.rules.device_rules import DeviceRules
from tests.node.conftest import CLOSED, DEVICES, MANAGED, Child

Spawn = Callable[..., Child]
Nodes = tuple[Path, ...]
IMPORT = (
    "from jupyter_gpu_node.devices import cgroup, enforcement; from tests.node.conftest import CLOSED, DEVICES, MANAGED"
)
PRIVATE_MOUNTS = "libc.unshare(0x20000) and 1/0; libc.mount(b'none', b'/', None, 0x44000, None) and 1/0"


def allow(*numbers: int) -> DeviceRules:
    return DeviceRules(MANAGED, frozenset(DEVICES[number] for number in numbers))


@pytest.fixture(params=["bpf", "v1"])
def put(request: pytest.FixtureRequest) -> Callable[[str, int], Enforcement]:
    """Puts a process under rules of either kind."""
    attempt = {"bpf": enforcement.with_bpf, "v1": enforcement.with_devices_v1}[request.param]
    return lambda uid, pid: attempt(MANAGED, uid, pid)


Put = Callable[[str, int], Enforcement]


@pytest.mark.root
def test_grant_and_revoke(put: Put, uid: str, spawn: Spawn, nodes: Nodes) -> None:
    """Nothing at first; then what the rules say, in the same running process; other devices all the time."""
    child = spawn()
    assert child.probe(*nodes) == "++++"
    guard = put(uid, child.pid)
    assert guard.mode is Mode.ENFORCED
    assert guard.why == ""
    assert child.probe(*nodes, Path("/dev/null")) == "----+"
    for numbers, expected in [((1,), "-+--"), ((1, 2), "-++-"), ((), "----"), ((0, 1, 2, 3), "++++"), ((3,), "---+")]:
        guard.apply(allow(*numbers))
        assert child.probe(*nodes, Path("/dev/null")) == expected + "+"
        guard.apply(allow(*numbers))
        assert child.probe(*nodes) == expected, "applying again changes nothing"


@pytest.mark.root
@pytest.mark.parametrize("kind", [BpfEnforcement, DevicesV1Enforcement])
def test_group_is_closed_before_the_first_process_enters(
    kind: type[BpfEnforcement] | type[DevicesV1Enforcement],
    uid: str,
    spawn: Spawn,
    nodes: Nodes,
    unified: Path,
    devices_v1: Path,
) -> None:
    """The group has its rules before its first process, so there is no moment without them."""
    guard = kind.create(MANAGED, uid, unified if kind is BpfEnforcement else devices_v1)
    assert guard.processes() == ()
    child = spawn()
    cgroup.enter(guard.group, child.pid)
    assert child.probe(*nodes) == "----"


@pytest.mark.root
def test_every_thread_is_moved(put: Put, uid: str, spawn: Spawn, nodes: Nodes) -> None:
    """A thread that ran before is under the rules as well."""
    child = spawn()
    child.run("go, answers = threading.Event(), []")
    child.run(f"work = threading.Thread(target=lambda: go.wait() and answers.append(probe({str(nodes[0])!r})))")
    child.run("work.start()")
    put(uid, child.pid)
    child.run("go.set(); work.join()")
    assert child.run("answers") == ["-"]


@pytest.mark.root
def test_managed_devices_can_change(put: Put, uid: str, spawn: Spawn, nodes: Nodes) -> None:
    """A GPU that appears later is guarded from the next rules on; one that is given up is guarded no longer."""
    child = spawn()
    guard = put(uid, child.pid)
    guard.apply(DeviceRules(frozenset(DEVICES[:2]), frozenset(DEVICES[:1])))
    assert child.probe(*nodes)[:2] == "+-"
    guard.apply(DeviceRules(MANAGED, frozenset(DEVICES[:1])))
    assert child.probe(*nodes) == "+---"


@pytest.mark.root
def test_kernels_stay_guarded_after_close(put: Put, uid: str, spawn: Spawn, nodes: Nodes) -> None:
    """A server that ends leaves its kernels under the last rules; the group goes when they are gone."""
    child = spawn()
    guard = put(uid, child.pid)
    guard.apply(allow(2))
    assert not guard.close()
    assert child.probe(*nodes) == "--+-"
    again = enforcement.reopen(guard.place, uid)
    assert again is not None
    assert again.processes() == (child.pid,)
    child.end()
    assert again.close()
    assert enforcement.reopen(guard.place, uid) is None


@pytest.mark.root
def test_server_killed(uid: str, spawn: Spawn, nodes: Nodes) -> None:
    """Killed with -9, its kernel keeps exactly its rules; another process finds, changes and ends them."""
    server = spawn()
    server.run(IMPORT)
    server.run(f"guard = enforcement.choose(MANAGED, {uid!r})")
    place = server.run("guard.place")
    kernel = server.run(
        "os.spawnvp(os.P_NOWAIT, sys.executable, [sys.executable, '-c', 'import time; time.sleep(60)'])"
    )
    server.run("from jupyter_gpu_node.devices.rules.device_rules import DeviceRules")
    server.run("guard.apply(DeviceRules(MANAGED, frozenset(DEVICES)))")
    server.end()

    left = enforcement.reopen(place, uid)
    assert left is not None
    assert left.processes() == (kernel,)
    prober = spawn()
    cgroup.enter(Path(place.partition(":")[2]), prober.pid)
    assert prober.probe(*nodes) == "++++"
    left.apply(CLOSED)
    assert prober.probe(*nodes) == "----"
    assert not left.close()
    os.kill(kernel, 9)
    prober.end()
    while cgroup.populated(Path(place.partition(":")[2])):
        os.sched_yield()
    last = enforcement.reopen(place, uid)
    assert last is not None
    assert last.close()


@pytest.mark.root
def test_close_leaves(put: Put, uid: str, spawn: Spawn, nodes: Nodes, request: pytest.FixtureRequest) -> None:
    """The server itself goes back to where it came from, and nothing stays behind."""
    attempt = "with_bpf" if "bpf" in request.node.name else "with_devices_v1"
    child = spawn()
    child.run(IMPORT)
    before = child.run("cgroup.membership()")
    child.run(f"guard = enforcement.{attempt}(MANAGED, {uid!r}, os.getpid())")
    assert child.run("cgroup.membership()") != before
    assert child.run("guard.close()") is True
    assert child.run("cgroup.membership()") == before
    assert child.probe(*nodes) == "++++"


@pytest.mark.root
def test_helper_leaves(put: Put, uid: str, spawn: Spawn, nodes: Nodes) -> None:
    """A helper that was started inside is moved out and sees all GPUs."""
    child = spawn()
    guard = put(uid, child.pid)
    guard.leave(child.pid)
    assert child.probe(*nodes) == "++++"
    assert guard.processes() == ()


@pytest.mark.root
def test_same_uid_again(put: Put, uid: str, spawn: Spawn, nodes: Nodes) -> None:
    """A server that comes back under its old uid finds its group, closes it and goes on."""
    first, second = spawn(), spawn()
    put(uid, first.pid).apply(allow(0, 1, 2, 3))
    guard = put(uid, second.pid)
    assert set(guard.processes()) == {first.pid, second.pid}
    assert first.probe(*nodes) == second.probe(*nodes) == "----"
    guard.apply(allow(1))
    assert first.probe(*nodes) == second.probe(*nodes) == "-+--"


@pytest.mark.root
def test_pod_inside_a_pod(put: Put, uid: str, spawn: Spawn, nodes: Nodes) -> None:
    """A server started in another's terminal can never open more than the outer one, and says so."""
    child = spawn()
    outer = put(uid, child.pid)
    outer.apply(allow(0))
    inner = put(f"{uid}.inner", child.pid)
    assert "inside another" in inner.why
    inner.apply(allow(0))
    assert child.probe(*nodes) == "+---"
    with contextlib.suppress(PermissionError):  # v1 refuses to allow it, v2 asks both programs
        inner.apply(allow(0, 1))
    assert child.probe(*nodes) == "+---"
    inner.leave(child.pid)
    assert inner.close()


@pytest.mark.root
def test_v1_reaches_groups_below(uid: str, spawn: Spawn, nodes: Nodes) -> None:
    """In v1 a group below does not follow grants by itself."""
    child = spawn()
    guard = enforcement.with_devices_v1(MANAGED, uid, child.pid)
    assert isinstance(guard, DevicesV1Enforcement)
    inner = guard.group / "inner"
    inner.mkdir()
    cgroup.enter(inner, child.pid)
    assert child.probe(*nodes) == "----"
    guard.apply(allow(0, 3))
    assert child.probe(*nodes) == "+--+"
    guard.apply(allow(3))
    assert child.probe(*nodes) == "---+"


@pytest.mark.root
def test_replacing_never_opens_a_gap(uid: str, spawn: Spawn, nodes: Nodes) -> None:
    """A device that all rules deny cannot be opened while they are replaced, however often it is tried."""
    child = spawn()
    guard = enforcement.with_bpf(MANAGED, uid, child.pid)
    child.run(f"""
        stop, answers = threading.Event(), []
        def hammer():
            while not stop.is_set():
                answers.append(probe({str(nodes[3])!r}))
        worker = threading.Thread(target=hammer)
        worker.start()
    """)
    for number in range(600):
        guard.apply(allow(number % 3))
    child.run("stop.set(); worker.join()")
    assert child.run("set(answers)") == {"-"}
    assert child.run("len(answers)") > 100


@pytest.mark.root
@pytest.mark.parametrize(
    ("hide", "place"),
    [
        ("umount -l /sys/fs/cgroup/unified", "v1:"),
        ("for m in $(awk '$9==\"cgroup\"{print $5}' /proc/self/mountinfo); do umount -l $m; done", "bpf:"),
        ("mount -o remount,ro,bind /sys/fs/cgroup/unified", "v1:"),
    ],
    ids=["pure v1", "pure v2", "v2 read-only"],
)
def test_choose_on_every_layout(hide: str, place: str, uid: str, spawn: Spawn, nodes: Nodes) -> None:
    """A machine with v1 alone, one with v2 alone, one with v2 that cannot be written: the strongest rules there are."""
    child = spawn()
    child.run(PRIVATE_MOUNTS)
    child.run(f"os.system({hide!r}) and 1/0")
    child.run(IMPORT)
    child.run(f"guard = enforcement.choose(MANAGED, {uid!r}, preference='required')")
    assert child.run("guard.place").startswith(place)
    assert child.probe(*nodes) == "----"
    child.run("guard.apply(type(CLOSED)(MANAGED, frozenset(DEVICES[1:2])))")
    assert child.probe(*nodes) == "-+--"
    assert child.run("guard.close()") is True


@pytest.mark.root
def test_choose_without_writable_groups(uid: str, spawn: Spawn) -> None:
    """Root without control groups that can be written: soft, with the reasons; or refused if rules are required."""
    child = spawn()
    child.run(PRIVATE_MOUNTS)
    child.run(
        "os.system('mount -o remount,ro,bind /sys/fs/cgroup/unified && umount -l /sys/fs/cgroup/devices') and 1/0"
    )
    child.run(IMPORT)
    child.run(f"guard = enforcement.choose(MANAGED, {uid!r})")
    assert child.run("guard.mode.value") == "soft"
    why = child.run("guard.why")
    assert "Read-only file system" in why
    assert "no devices controller" in why
    with pytest.raises(RuntimeError, match=r"BackendUnavailable: .*cannot guard the GPUs.*Read-only file system"):
        child.run(f"enforcement.choose(MANAGED, {uid!r}, preference='required')")


@pytest.mark.root
def test_choose_without_root(uid: str, spawn: Spawn) -> None:
    """An ordinary user gets soft mode and the reason; nothing is left in the control groups."""
    child = spawn()
    child.run(IMPORT)
    child.run("os.setgid(65534) or os.setuid(65534)")
    child.run(f"guard = enforcement.choose(MANAGED, {uid!r})")
    assert child.run("guard.mode.value") == "soft"
    assert "does not run as root" in child.run("guard.why")


@pytest.mark.root
@pytest.mark.parametrize("whose", ["gone", "kernel"])
def test_choose_for_a_process_that_cannot_be_moved(
    whose: str, uid: str, spawn: Spawn, unified: Path, devices_v1: Path
) -> None:
    """One that ended, or a thread of the kernel: no group is left behind for it."""
    child = spawn()
    child.end()
    with pytest.raises(BackendUnavailable):
        enforcement.choose(MANAGED, uid, child.pid if whose == "gone" else 2, "required")
    assert not (unified / cgroup.group_name(uid)).exists()
    assert not (devices_v1 / cgroup.group_name(uid)).exists()


def test_soft(spawn: Spawn, uid: str) -> None:
    """Asked for: it says so, promises nothing, and still knows the pod's processes by their mark."""
    server = spawn()
    kernel, other = spawn(**{enforcement.MARK: uid}), spawn(**{enforcement.MARK: uid + "x"})
    guard = enforcement.choose(MANAGED, uid, server.pid, "soft")
    assert isinstance(guard, SoftEnforcement)
    assert (guard.mode, guard.place) == (Mode.SOFT, "")
    assert "asked for" in guard.why
    guard.apply(CLOSED)
    guard.leave(server.pid)
    assert guard.processes() == tuple(sorted((server.pid, kernel.pid)))
    assert not guard.close()
    server.end()
    assert guard.processes() == (kernel.pid,)
    kernel.end()
    assert guard.close()
    assert other.pid


@pytest.mark.parametrize("preference", ["auto", "soft", "required"])
def test_choose_checks_the_uid(preference: enforcement.Preference) -> None:
    """A uid that is no plain name is refused in every mode."""
    with pytest.raises(ValueError, match="pod uid"):
        enforcement.choose(MANAGED, "../x", preference=preference)


@pytest.mark.parametrize(
    "place",
    [
        "",
        "bpf:",
        "bpf:/",
        "bpf:/etc",
        "bpf:jupyter-gpu-abc",
        "bpf:/tmp/jupyter-gpu-abc",
        "bpf:{mount}/jupyter-gpu-other",
        "bpf:{mount}/../../../tmp/jupyter-gpu-abc",
        "bpf:{mount}/user.slice",
        "other:{mount}/jupyter-gpu-abc",
    ],
)
def test_reopen_touches_only_the_pods_own_group(place: str) -> None:
    """Only a group of that very pod, below the control groups, is ever touched."""
    mount = cgroup.mounts().unified
    with pytest.raises(ValueError, match="is not where"):
        enforcement.reopen(place.format(mount=mount.mount if mount else "/sys/fs/cgroup"), "abc")


def _open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.root
def test_apply_to_a_removed_group_fails(uid: str, unified: Path) -> None:
    """An error that names the group, and no descriptor lost."""
    guard = BpfEnforcement.create(MANAGED, uid, unified)
    guard.group.rmdir()
    before = _open_descriptors()
    with pytest.raises(OSError, match=guard.group.name) as caught:
        guard.apply(allow(1))
    assert caught.value.errno == errno.ENOENT
    assert _open_descriptors() == before
