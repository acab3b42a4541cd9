"""The holders of a device: real processes that hold real devices in every way there is."""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from jupyter_gpu.model.gpu import Device, Gpu
from jupyter_gpu_node.processes import device_scan, proc, syscalls
from jupyter_gpu_node.processes.device_scan import Target
from jupyter_gpu_node.processes.proc import ProcessInfo
from jupyter_gpu_node.processes.rules.scan_budget import ScanBudget
from tests.node.conftest import DEVICES, Child
from tests.shares.world import until

Spawn = Callable[..., Child]
Nodes = tuple[Path, ...]
COMMAND = Path(sys.executable).name[:15]
TARGETS = {device: Target(device=device) for device in DEVICES}


def holders(number: int = 0) -> set[int]:
    """Pids that hold one of the test's devices."""
    return {process.pid for process in device_scan.scan(TARGETS).holders[DEVICES[number]]}


def file_target(path: Path) -> dict[str, Target]:
    found = path.stat()
    return {"file": Target(file=(found.st_dev, found.st_ino))}


@pytest.mark.root
def test_open_and_closed(spawn: Spawn, nodes: Nodes) -> None:
    """Seen as long as it is open, with start time and name; only for the device that it is."""
    child = spawn()
    assert holders() == set()
    descriptor = child.run(f"open_device({str(nodes[0])!r})")
    (process,) = device_scan.scan(TARGETS).holders[DEVICES[0]]
    assert process == ProcessInfo(child.pid, proc.process_start_time(child.pid) or -1, COMMAND, 0)
    assert holders(1) == set()
    child.run(f"os.close({descriptor})")
    assert holders() == set()


@pytest.mark.root
def test_node_of_another_path(spawn: Spawn, nodes: Nodes) -> None:
    """A container has its own node elsewhere: the numbers count."""
    child = spawn()
    other = nodes[0].with_name("elsewhere")
    child.run(f"os.mknod({str(other)!r}, stat.S_IFCHR | 0o600, os.makedev(4, {DEVICES[0].minor}))")
    child.run(f"open_device({str(other)!r}); os.unlink({str(other)!r})")
    assert holders() == {child.pid}


@pytest.mark.root
def test_passed_over_a_socket(spawn: Spawn, nodes: Nodes, tmp_path: Path) -> None:
    """A process that never opened it and runs elsewhere holds it all the same."""
    giver, taker = spawn(), spawn()
    taker.run(f"server = socket.socket(socket.AF_UNIX); server.bind({str(tmp_path / 's')!r}); server.listen()")
    giver.run(f"wire = socket.socket(socket.AF_UNIX); wire.connect({str(tmp_path / 's')!r})")
    giver.run(f"device = open_device({str(nodes[0])!r}); socket.send_fds(wire, [b'x'], [device]); os.close(device)")
    taker.run("wire, _ = server.accept(); received = socket.recv_fds(wire, 1, 1)")
    assert holders() == {taker.pid}


@pytest.mark.root
def test_inherited(spawn: Spawn, nodes: Nodes) -> None:
    """A child that inherited it holds it after its parent closed it."""
    child = spawn()
    grandchild = child.run(f"""
        device = open_device({str(nodes[0])!r})
        os.set_inheritable(device, True)
        heir = os.posix_spawnp('sleep', ['sleep', '60'], os.environ)
        os.close(device)
    """) or child.run("heir")
    try:
        assert holders() == {grandchild}
    finally:
        child.run("os.kill(heir, 9); os.waitpid(heir, 0)")


@pytest.mark.root
def test_device_mapped_and_closed(spawn: Spawn) -> None:
    """A mapping keeps a device though no descriptor does; it is found by numbers, wherever the node lies."""
    target = {"zero": Target(device=Device(1, 5))}
    child = spawn()
    node = Path(f"/dev/jupyter-gpu-test-zero-{child.pid}")
    child.run(f"os.mknod({str(node)!r}, stat.S_IFCHR | 0o600, os.makedev(1, 5))")
    child.run(f"""
        address = map_and_close({str(node)!r}, mmap.MAP_PRIVATE)
        os.unlink({str(node)!r})
    """)

    def found(*, mappings: bool) -> bool:
        return child.pid in {p.pid for p in device_scan.scan(target, [child.pid], mappings=mappings).holders["zero"]}

    assert found(mappings=True)
    assert not found(mappings=False)
    child.run("libc.munmap(address, 4096)")
    assert not found(mappings=True)


def test_plain_file(spawn: Spawn, tmp_path: Path) -> None:
    """The stand-in of a simulated GPU where there is no root: open, then only mapped, then let go."""
    path = tmp_path / "gpu0"
    path.write_bytes(bytes(4096))
    (tmp_path / "gpu1").write_bytes(bytes(4096))
    target = file_target(path)
    child = spawn()
    child.run(f"file = open({str(path)!r}, 'r+b')")
    assert [p.pid for p in device_scan.scan(target).holders["file"]] == [child.pid]
    assert device_scan.scan(file_target(tmp_path / "gpu1")).holders == {"file": ()}
    child.run(f"file.close(); address = map_and_close({str(path)!r}, mmap.MAP_SHARED)")
    assert device_scan.scan(target, mappings=False).holders == {"file": ()}
    assert [p.pid for p in device_scan.scan(target).holders["file"]] == [child.pid]
    child.run("libc.munmap(address, 4096)")
    assert device_scan.scan(target).holders == {"file": ()}


@pytest.mark.root
def test_thread_with_descriptors_of_its_own(spawn: Spawn, nodes: Nodes) -> None:
    """A thread that unshared its descriptors holds what the process does not show."""
    child = spawn()
    child.run(f"""
        opened, done = threading.Event(), threading.Event()
        def hide():
            assert libc.unshare(0x400) == 0  # CLONE_FILES
            open_device({str(nodes[0])!r})
            opened.set()
            done.wait()
        thread = threading.Thread(target=hide)
        thread.start()
        opened.wait()
    """)
    assert not child.run("[n for n in os.listdir('/proc/self/fd') if 'gpu' in os.path.realpath(f'/proc/self/fd/{n}')]")
    assert holders() == {child.pid}
    child.run("done.set(); thread.join()")
    assert holders() == set()


@pytest.mark.root
def test_main_thread_ended(spawn: Spawn, nodes: Nodes, tmp_path: Path) -> None:
    """A process whose first thread ended looks like a zombie; its other threads hold the device, and map files."""
    path = tmp_path / "gpu0"
    path.write_bytes(bytes(4096))
    child = spawn()
    start = proc.process_start_time(child.pid)
    assert start is not None
    child.run(f"device = open_device({str(nodes[0])!r}); address = map_and_close({str(path)!r}, mmap.MAP_SHARED)")
    child.run("threading.Thread(target=time.sleep, args=(60,)).start()")
    assert child.process.stdin is not None
    # exit(2) of the calling thread alone; the answer never comes
    child.process.stdin.write("\"libc.syscall(60 if os.uname().machine == 'x86_64' else 93, 0)\"\n")
    child.process.stdin.flush()
    until(lambda: proc.read_stat(child.pid).state == "Z", "its first thread to end")
    assert proc.alive(child.pid, start)
    assert holders() == {child.pid}
    assert [process.pid for process in device_scan.scan(file_target(path)).holders["file"]] == [child.pid]


@pytest.mark.root
def test_stashed_in_a_socket(spawn: Spawn, nodes: Nodes) -> None:
    """Sent to itself, closed and not received: /proc shows no such file, but that something is in flight."""
    child = spawn()
    child.run("near, far = socket.socketpair()")
    assert device_scan.scan(TARGETS, pod=[child.pid]).holders[DEVICES[0]] == ()
    child.run(f"device = open_device({str(nodes[0])!r}); socket.send_fds(near, [b'x'], [device]); os.close(device)")
    assert holders() == set(), "why the pod is searched for it"
    found = device_scan.scan(TARGETS, pod=[child.pid]).holders
    assert [[process.pid for process in found[device]] for device in DEVICES] == [[child.pid]] * 4, "it may be any"
    child.run("_, (device,), _, _ = socket.recv_fds(far, 1, 1)")
    found = device_scan.scan(TARGETS, pod=[child.pid]).holders
    assert [len(found[device]) for device in DEVICES] == [1, 0, 0, 0]


@pytest.mark.root
def test_stashed_in_io_uring(spawn: Spawn, nodes: Nodes) -> None:
    """Registered and closed: named by io_uring, and only that device."""
    child = spawn()
    child.run("ring = libc.syscall(425, 4, ctypes.create_string_buffer(120))")
    if child.run("ring") < 0:
        pytest.skip("this kernel lets nobody use io_uring, so nobody hides anything there")
    child.run(f"""
        device = open_device({str(nodes[0])!r})
        other, pipe = os.open('/dev/null', os.O_RDWR), os.pipe()[0]
        assert libc.syscall(427, ring, 2, (ctypes.c_int * 3)(device, other, pipe), 3) == 0
        os.close(device)
    """)
    assert holders() == set(), "why the pod is searched for it"
    found = device_scan.scan(TARGETS, pod=[child.pid]).holders
    assert [len(found[device]) for device in DEVICES] == [1, 0, 0, 0]
    nodes[0].unlink()
    found = device_scan.scan(TARGETS, pod=[child.pid]).holders
    assert [len(found[device]) for device in DEVICES] == [1, 1, 1, 1], "a name that leads nowhere may be any"


@pytest.mark.root
def test_process_born_during_the_scan_is_found(nodes: Nodes, spawn: Spawn) -> None:
    """A process forked while others are scanned, whose parent then closed the device."""
    child = spawn()
    child.run(f"device = open_device({str(nodes[0])!r})")
    pids = device_scan.every_pid()
    for pid in pids:
        if pid == child.pid:
            break
    child.run("""
        heir = os.fork()
        if not heir:
            time.sleep(60)
        os.close(device)
    """)
    assert child.run("heir") in set(pids)
    child.run("os.kill(heir, 9); os.waitpid(heir, 0)")


@pytest.mark.root
def test_zombie_holds_nothing(spawn: Spawn, nodes: Nodes) -> None:
    """A process that ended but was not waited for has closed everything: neither alive, nor holding, nor suspicious."""
    child = spawn()
    zombie = child.run(f"""
        device = open_device({str(nodes[0])!r})
        ready, go = os.pipe(), os.pipe()
        dead = os.fork()
        if not dead:
            os._exit(0)
        os.close(device)
    """) or child.run("dead")
    until(lambda: proc.read_stat(zombie).state == "Z", "the zombie")
    scan = device_scan.scan(TARGETS)
    assert scan.holders[DEVICES[0]] == ()
    assert zombie not in {process.pid for process in scan.uninspectable}
    assert not proc.alive(zombie, proc.process_start_time(zombie) or -1)


@pytest.mark.root
def test_processes_of_others_are_reported(spawn: Spawn, nodes: Nodes) -> None:
    """Without root, those that may not be inspected are named: they could hold anything. Kernel threads cannot."""
    child, other = spawn(), spawn()
    other.run(f"open_device({str(nodes[0])!r})")
    child.run("from jupyter_gpu_node.processes import device_scan")
    child.run("from tests.node.processes.test_device_scan import TARGETS, DEVICES")
    child.run("os.setgid(65534) or os.setuid(65534)")
    child.run("scan = device_scan.scan(TARGETS)")
    assert child.run("scan.holders[DEVICES[0]]") == ()
    hidden = {
        pid: (command, user)
        for pid, command, user in child.run("[(p.pid, p.command, p.user) for p in scan.uninspectable]")
    }
    assert hidden[other.pid] == (COMMAND, 0)
    assert 2 not in hidden, "kthreadd"


@pytest.mark.root
def test_a_link_that_may_not_be_followed_is_no_closed_file(spawn: Spawn) -> None:
    """A directory that can be listed but whose links cannot be followed proves nothing: that is an error."""
    child, other = spawn(), spawn()
    child.run("from jupyter_gpu_node.processes import syscalls")
    child.run("os.setgid(65534) or os.setuid(65534)")
    with pytest.raises(PermissionError):
        child.run(f"syscalls.status_at(syscalls.AT_FDCWD, b'/proc/{other.pid}/fd/0')")


@pytest.mark.root
def test_hung_file_system_does_not_hang_the_scan() -> None:
    """Asking for a file's kind takes what is known: a FUSE server that never answers is not asked."""
    fuse = os.open("/dev/fuse", os.O_RDWR)
    try:
        assert syscalls.status_at(syscalls.AT_FDCWD, b"/dev/fuse") is not None
        assert syscalls.status_at(syscalls.AT_FDCWD, b"/nowhere") is None
    finally:
        os.close(fuse)


def test_scan_without_targets() -> None:
    """No targets, no work."""
    assert device_scan.scan({}).holders == {}


def test_scan_can_be_limited_to_processes(spawn: Spawn, tmp_path: Path) -> None:
    """A process that is gone holds nothing."""
    path = tmp_path / "gpu0"
    path.touch()
    child, other, gone = spawn(), spawn(), spawn()
    for process in (child, other):
        process.run(f"file = open({str(path)!r})")
    gone.end()
    found = device_scan.scan(file_target(path), [child.pid, gone.pid])
    assert [p.pid for p in found.holders["file"]] == [child.pid]
    assert found.uninspectable == ()


def test_same_device_twice(spawn: Spawn, tmp_path: Path) -> None:
    """Two names for one target are both answered."""
    path = tmp_path / "gpu0"
    path.touch()
    child = spawn()
    child.run(f"file = open({str(path)!r})")
    (target,) = file_target(path).values()
    found = device_scan.scan({"a": target, "b": target}).holders
    assert [p.pid for p in found["a"]] == [p.pid for p in found["b"]] == [child.pid]


def test_targets(tmp_path: Path) -> None:
    """A GPU is searched by its device, else by its file; never through a link; not at all if neither exists."""
    path = tmp_path / "gpu0"
    path.touch()
    link = tmp_path / "gpu1"
    link.symlink_to(path)
    gpus = [
        Gpu("a", 0, "m", 1, device=Device(195, 0), path="/dev/nvidia0"),
        Gpu("b", 1, "m", 1, path=str(path)),
        Gpu("c", 2, "m", 1, path=str(link)),
        Gpu("d", 3, "m", 1, path=str(tmp_path / "none")),
        Gpu("e", 4, "m", 1, path="\0"),
    ]
    found = path.stat()
    assert device_scan.targets(gpus) == {"a": Target(Device(195, 0)), "b": Target(file=(found.st_dev, found.st_ino))}


def test_start_time_tells_processes_apart(spawn: Spawn) -> None:
    """The same pid with another start time is another process."""
    child = spawn()
    start = proc.process_start_time(child.pid)
    assert start is not None
    assert proc.alive(child.pid, start)
    assert not proc.alive(child.pid, start + 1)
    child.end()
    assert not proc.alive(child.pid, start)
    assert proc.process_start_time(child.pid) is None
    assert proc.describe(child.pid) is None


def test_odd_names(spawn: Spawn) -> None:
    """A program may call itself anything, brackets and blanks as well, and is read rightly."""
    child = spawn()
    start = proc.process_start_time(child.pid)
    child.run("libc.prctl(15, b'a) R 1 (b\\xff', 0, 0, 0)")
    found = proc.describe(child.pid)
    assert found is not None
    assert found.start == start
    assert found.command.startswith("a) R 1 (b")


def test_processes_are_found_by_their_mark(spawn: Spawn) -> None:
    """By the whole variable: no part of a value, no other name, and children too."""
    mine, other = spawn(PODMARK="abc"), spawn(PODMARK="abcd", XPODMARK="abc")
    heir = mine.run("os.spawnvp(os.P_NOWAIT, 'sleep', ['sleep', '60'])")
    try:
        assert {process.pid for process in proc.with_environment("PODMARK", "abc")} == {mine.pid, heir}
        assert {process.pid for process in proc.with_environment("PODMARK", "abc", [other.pid, heir])} == {heir}
        assert proc.with_environment("PODMARK", "ab") == ()
    finally:
        mine.run(f"os.kill({heir}, 9); os.waitpid({heir}, 0)")


# --- what a scan may cost ---------------------------------------------------------------------------------------------

MANY = 15_000
HOARD = f"""
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, ({MANY} + 100,) * 2)
null = os.open('/dev/null', os.O_RDONLY)
hoard = [os.dup(null) for _ in range({MANY})]
"""


def budgeted(left: float) -> tuple[ScanBudget, Callable[[int], ScanBudget]]:
    """One budget for all, and how a scan asks for it."""
    budget = ScanBudget(left)
    return budget, lambda _: budget


@pytest.mark.root
def test_scan_ends_at_its_budget(spawn: Spawn, nodes: Nodes) -> None:
    """It names the process; what was found before stays, and with enough it finds what comes last."""
    first, hoarder = spawn(), spawn()
    first.run(f"device = open_device({str(nodes[0])!r})")
    hoarder.run(HOARD)
    hoarder.run(f"device = open_device({str(nodes[1])!r})")
    budget, budgets = budgeted(10_000)
    found = device_scan.scan(TARGETS, [first.pid, hoarder.pid], pod=[first.pid, hoarder.pid], budgets=budgets)
    assert [process.pid for process in found.over] == [hoarder.pid]
    assert budget.over
    assert [process.pid for process in found.holders[DEVICES[0]]] == [first.pid]
    assert found.holders[DEVICES[1]] == ()
    _, budgets = budgeted(4 * MANY)
    found = device_scan.scan(TARGETS, [first.pid, hoarder.pid], pod=[first.pid, hoarder.pid], budgets=budgets)
    assert not found.over
    assert [process.pid for process in found.holders[DEVICES[1]]] == [hoarder.pid]
    assert device_scan.has_open(first.pid, TARGETS)
    assert not device_scan.has_open(spawn().pid, TARGETS)


@pytest.mark.root
def test_process_beyond_the_budget_costs_next_to_nothing(spawn: Spawn) -> None:
    """The kernel reports how many descriptors there are before one of them is read."""
    child = spawn()
    child.run(HOARD)
    if Path(f"/proc/{child.pid}/fd").stat().st_size < MANY:
        pytest.skip("this kernel does not tell: Linux 6.2 does")
    spent = {}
    for left in (10_000, float("inf")):
        begin = time.thread_time()
        device_scan.scan(TARGETS, [child.pid], budgets=budgeted(left)[1])
        spent[left] = time.thread_time() - begin
    assert spent[10_000] < spent[float("inf")] / 5


@pytest.mark.root
@pytest.mark.parametrize("kind", ["mappings", "threads"])
def test_budget_counts_everything_that_is_read(spawn: Spawn, kind: str) -> None:
    """Not descriptors alone."""
    child = spawn()
    if kind == "mappings":
        child.run("kept = [mmap.mmap(-1, 4096, prot=1 + number % 2 * 2) for number in range(4000)]")
    else:
        child.run("done = threading.Event(); [threading.Thread(target=done.wait).start() for _ in range(400)] and None")
    _, budgets = budgeted(300)
    assert device_scan.scan(TARGETS, [child.pid], budgets=budgets).over
    if kind == "threads":
        child.run("done.set()")


@pytest.mark.root
def test_pod_that_forks_without_end_does_not_delay_the_scan(spawn: Spawn, nodes: Nodes) -> None:
    """Its budget ends, and others are scanned."""
    forker, other = spawn(), spawn()
    forker.run("""
        def fork():
            while True:
                if os.fork() == 0:
                    if os.fork() == 0:
                        time.sleep(0.02)
                    os._exit(0)
                os.wait()
        threading.Thread(target=fork, daemon=True).start()
    """)
    other.run(f"device = open_device({str(nodes[0])!r})")
    budget = ScanBudget(2000)
    own = {os.getpid(), other.pid}
    found = device_scan.scan(TARGETS, budgets=lambda pid: budget if pid >= forker.pid and pid not in own else None)
    assert [process.pid for process in found.holders[DEVICES[0]]] == [other.pid]


@pytest.mark.root
def test_evidence_ends_with_the_descriptor(spawn: Spawn, nodes: Nodes, tmp_path: Path) -> None:
    """A descriptor, a mapping: as long as it is there; and a number that was given to another file is not it."""
    child = spawn()
    child.run(f"device = open_device({str(nodes[0])!r})")
    (path,) = device_scan.scan(TARGETS, [child.pid]).evidence.values()
    assert device_scan.still_shows(path, TARGETS[DEVICES[0]])
    assert not device_scan.still_shows(path, TARGETS[DEVICES[1]])
    child.run("os.dup2(os.open('/dev/null', os.O_RDONLY), device)")
    assert not device_scan.still_shows(path, TARGETS[DEVICES[0]])
    file = tmp_path / "gpu0"
    file.write_bytes(bytes(4096))
    child.run(f"address = map_and_close({str(file)!r}, mmap.MAP_SHARED)")
    (path,) = device_scan.scan(file_target(file), [child.pid]).evidence.values()
    assert device_scan.still_shows(path, file_target(file)["file"])
    child.run("libc.munmap(address, 4096)")
    assert not device_scan.still_shows(path, file_target(file)["file"])
