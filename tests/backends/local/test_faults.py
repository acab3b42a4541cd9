"""Faults around a server: files, disks, users, GPUs, clocks. It reports them and goes on."""

import contextlib
import json
import os
import subprocess
import time
from pathlib import Path

import pytest

from jupyter_gpu.backends.local.processes.identity import boot, identify, namespace
from jupyter_gpu.backends.local.records.record import Record
from jupyter_gpu.model.annotations import Allocated, Attached, Requested, Wish
from jupyter_gpu.model.gpu import GpuShare
from jupyter_gpu_node.gpus import simulated

from .actor import FLAGS
from .stage import Remote, Stage, wait_for

pytestmark = pytest.mark.root

NOBODY = 65534
OTHER = 65533


def conditions(view: dict[str, object]) -> set[str]:
    found = view["conditions"]
    assert isinstance(found, list)
    return {condition["type"] for condition in found}


def fill(path: Path) -> None:
    """Until nothing more fits on the file system."""
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(b"x" * 4096):
            pass


def record_of(stage: Stage, server: Remote) -> Path:
    return stage.state / "pods" / f"{server.ask('view')['instance']}.json"


def claim(stage: Stage, uid: str, pid: int, owner: int, change: tuple[bytes, bytes] = (b"", b"")) -> Path:
    """A record that claims every GPU for the server ``pid``; there at once as a whole, with one text in it changed."""
    server = identify(pid)
    assert server is not None
    shares = tuple(GpuShare(uuid, 1000) for uuid in stage.uuids)
    record = Record(uid, server, boot(), namespace(), allocated=Allocated(1, shares), attached=Attached(1, shares))
    path = stage.state / "pods" / f"{uid}.json"
    aside = stage.state.with_name(path.name)  # servers read whatever appears in their folder
    aside.write_bytes(record.encode().replace(*change))
    os.chown(aside, owner, owner)
    return aside.rename(path)


@pytest.mark.parametrize("text", [b"", b"{", os.urandom(100), b"[1,2,3]"], ids=["empty", "cut", "noise", "list"])
def test_damaged_record_is_written_again_by_its_owner(stage: Stage, text: bytes) -> None:
    """The other server grants nothing of it meanwhile, the owner repairs it when it is notified, and both go on."""
    first, second = stage.server(), stage.server()
    first.ask("request", milli=2000)
    record = record_of(stage, first)
    record.write_bytes(text)
    second.ask("request", milli=3000)
    second.ask("until", phase="Waiting", attached=1000)
    assert json.loads(record.read_bytes())["requested"]["milli"] == 2000
    wait_for(lambda: "StateRepaired" in conditions(first.ask("view")), "the owner to say so")
    opened = [server.ask("tries", paths=stage.paths) for server in (first, second)]
    assert [a + b for a, b in zip(*opened, strict=True)] == [1, 1, 1]


def test_nothing_is_granted_while_a_live_record_is_unreadable(stage: Stage) -> None:
    """A frozen server cannot repair its record: what it holds is not known, so it may be everything."""
    first, second = stage.server(), stage.server()
    first.ask("request", milli=1000)
    record = record_of(stage, first)
    first.tell("freeze")
    wait_for(lambda: " T " in Path(f"/proc/{first.pid}/stat").read_text(), "it to stop")
    record.write_bytes(b"{")
    view = second.ask("request", milli=1000)
    assert view["amounts"]["attached"] == 0
    assert "StateDamaged" in conditions(view)
    os.kill(first.pid, 18)
    first.answer()
    second.ask("until", phase="Ready")
    assert "StateDamaged" not in conditions(second.ask("view"))


def test_damaged_record_of_a_dead_server_is_moved_aside(stage: Stage) -> None:
    """A kernel that may still have a GPU keeps all of them back; without it the GPUs can be had."""
    first, second = stage.server(), stage.server()
    kernel = stage.kernel(first)
    first.ask("request", milli=1000)
    record = record_of(stage, first)
    first.kill()
    record.write_bytes(b"{")
    assert second.ask("request", milli=3000)["amounts"]["attached"] == 0
    kernel.kill()
    second.ask("until", phase="Ready")
    assert "StateRepaired" in conditions(second.ask("view"))
    assert record.with_suffix(".bad").exists()


def test_wiped_directory_is_made_again(stage: Stage) -> None:
    """All records were deleted: no server keeps a GPU that another one got in good faith."""
    first, second = stage.server(), stage.server()
    first.ask("request", milli=3000)
    (stage.state / "pods").rename(stage.state / "gone")
    assert second.ask("request", milli=1000)["phase"] == "Ready"
    view = first.ask("request", milli=3000, priority=0)
    assert view["amounts"]["allocated"] == 2000
    assert "StateRepaired" in conditions(view)
    opened = [server.ask("tries", paths=stage.paths) for server in (first, second)]
    assert [a + b for a, b in zip(*opened, strict=True)] == [1, 1, 1]


def test_a_full_disk_refuses_the_wish_in_plain_words_and_changes_nothing(stage: Stage, full_disk: Path) -> None:
    """BackendUnavailable, the old GPUs stay usable, and with room again the same wish succeeds."""
    stage.state = full_disk / "state"
    server = stage.server()
    server.ask("request", milli=1000)
    opened = server.ask("tries", paths=stage.paths)
    fill(full_disk / "filler")
    with pytest.raises(RuntimeError, match=r"BackendUnavailable: .*No space left.*Make room"):
        server.ask("request", milli=3000)
    view = server.ask("view")
    assert view["amounts"] == {"requested": 1000, "allocated": 1000, "attached": 1000, "draining": 0}
    assert "StateUnavailable" in conditions(view)
    assert server.ask("tries", paths=stage.paths) == opened
    (full_disk / "filler").unlink()
    view = server.ask("request", milli=3000)
    assert view["phase"] == "Ready"
    assert "StateUnavailable" not in conditions(view)


def test_a_directory_that_may_not_be_written_grants_nothing_and_says_so(stage: Stage) -> None:
    """An unprivileged server starts, tells what to do, refuses wishes, and works as soon as it may."""
    folder = stage.state
    folder.mkdir(mode=0o755)
    stage.state = folder / "state"
    server = stage.actor()
    server.ask("become", user=NOBODY)
    view = server.ask("start", state_dir=str(stage.state), simulated_gpus=3, patient=False)
    assert view["total"] == 0
    assert "StateUnavailable" in conditions(view)
    with pytest.raises(RuntimeError, match=r"BackendUnavailable: .*Permission denied"):
        server.ask("request", milli=1000)
    folder.chmod(0o777)
    assert server.ask("request", milli=1000)["phase"] == "Ready"


def test_two_users_never_get_the_same_gpu(stage: Stage) -> None:
    """Root and two other users, one directory: exclusive is exclusive, and what one gives back another gets."""
    servers = [stage.server()]
    for user in (NOBODY, OTHER):
        actor = stage.actor()
        actor.ask("become", user=user)
        servers.append(stage.server(actor))
    views = [server.ask("request", milli=1000) for server in servers]
    assert [view["mode"] for view in views] == ["enforced", "soft", "soft"]
    assert len({gpu["uuid"] for view in views for gpu in view["gpus"]}) == 3
    assert "SoftMode" in conditions(views[1])
    view = servers[1].ask("request", milli=2000)
    assert view["reason"] == "Partial"
    servers[1].tell("until", phase="Ready")
    servers[0].ask("request", milli=0)
    servers[1].answer()
    servers[2].kill()
    servers[0].ask("request", milli=1000)
    servers[0].ask("until", phase="Ready")


def test_dead_pod_of_another_user_is_freed_once_nothing_is_left(stage: Stage) -> None:
    """A user who may neither look into its processes nor delete its record gets its GPUs all the same, not earlier."""
    first, second = stage.actor(), stage.actor()
    for actor, user in ((first, NOBODY), (second, OTHER)):
        actor.ask("become", user=user)
        stage.server(actor)
    first.ask("request", milli=2000)
    outlives = stage.actor()  # what the first server's kernel would be: a younger process of the same user
    outlives.ask("become", user=NOBODY)
    first.kill()
    assert second.ask("request", milli=3000)["amounts"]["attached"] == 1000
    second.tell("until", phase="Ready")
    outlives.kill()
    second.answer()


def test_record_that_names_another_users_server_is_ignored(stage: Stage) -> None:
    """A user who writes that a process of root holds every GPU does not keep a single one."""
    server = stage.server()
    claim(stage, "e" * 32, os.getpid(), NOBODY)
    server.ask("request", milli=3000)
    server.ask("until", phase="Ready")


def test_a_record_of_an_earlier_boot_holds_nothing(stage: Stage) -> None:
    """After a power cut everything is free, whatever pids are running now."""
    server = stage.server()
    path = claim(stage, "e" * 32, os.getpid(), 0, (boot().encode(), b"another-boot"))
    assert server.ask("request", milli=3000)["phase"] == "Ready"
    assert not path.exists()


def test_record_of_another_pid_namespace_counts_as_alive(stage: Stage) -> None:
    """Its pids mean nothing here, so it cannot be known to be dead: it keeps what it has."""
    server = stage.server()
    number = str(namespace()).encode()
    path = claim(stage, "e" * 32, os.getpid(), 0, (b'"namespace":' + number, b'"namespace":1'))
    assert server.ask("request", milli=3000)["amounts"]["attached"] == 0
    path.unlink()


def test_a_false_record_takes_no_gpu_from_a_pod_that_has_it(stage: Stage) -> None:
    """Claims beyond the whole of a GPU are not believed: growing and shrinking go on with what is ours."""
    server, liar = stage.server(), stage.actor()
    server.ask("request", milli=2000)
    liar.ask("become", user=NOBODY)
    claim(stage, "e" * 32, liar.pid, NOBODY)
    view = server.ask("request", milli=3000)
    assert (view["amounts"]["attached"], view["reason"]) == (2000, "Partial")
    assert server.ask("request", milli=2000)["phase"] == "Ready"


def test_promised_gpus_stay_with_a_server_until_it_releases_them(stage: Stage) -> None:
    """A decision may take GPUs from a pod, but only that pod's server carries it out: no other gets them earlier."""
    server = stage.server()
    path = claim(stage, "e" * 32, os.getpid(), 0)
    record = Record.decode(path.read_bytes())
    path.write_bytes(record._replace(requested=Requested(2, Wish(0)), attached=None).encode())
    view = server.ask("request", milli=3000)
    assert (view["amounts"]["attached"], view["reason"]) == (0, "Deferred")
    path.unlink()


def test_control_groups_count_only_in_records_of_root(stage: Stage) -> None:
    """A dead record of a user with root's group in it makes no server remove that group or take it for its own."""
    server = stage.server()
    record = record_of(stage, server)
    place = json.loads(record.read_bytes())["place"]
    path = claim(stage, "e" * 32, os.getpid(), NOBODY)
    path.write_bytes(
        path.read_bytes().replace(b'"place":null', json.dumps({"place": place})[1:-1].replace(" ", "").encode())
    )
    server.ask("request", milli=3000)
    server.ask("until", phase="Ready")
    assert Path(place.partition(":")[2]).is_dir()


def test_unhealthy_gpu_is_shown_and_never_granted(stage: Stage) -> None:
    """Attached it degrades the pod; given back it is not granted again; healed it is."""
    server = stage.server()
    gpu = server.ask("request", milli=1000)["gpus"][0]
    simulated.set_health(stage.state / "simulated", gpu["uuid"], "It overheats.")
    server.ask("notify")
    server.ask("until", phase="Degraded")
    assert server.ask("view")["gpus"][0]["health"] == "It overheats."
    server.ask("request", milli=0)
    view = server.ask("request", milli=3000)
    assert gpu["uuid"] not in {card["uuid"] for card in view["gpus"]}
    assert view["reason"] == "Partial"
    told = {one["type"]: one["message"] for one in view["conditions"]}
    assert told["GpusOutOfOrder"] == (
        "One GPU of this machine does not work and cannot be given to anybody until that is repaired: "
        f"GPU {gpu['index']} (It overheats)."
    )
    simulated.set_health(stage.state / "simulated", gpu["uuid"], None)
    server.ask("notify")
    server.ask("until", phase="Ready", attached=3000)
    assert "GpusOutOfOrder" not in {one["type"] for one in server.ask("view")["conditions"]}


def test_vanished_gpu_drains_and_is_replaced(stage: Stage) -> None:
    """The pod is owed nothing it cannot have, and the lost GPU is shown until the kernel has closed it."""
    server = stage.server()
    kernel = stage.kernel(server)
    gpu = server.ask("request", milli=1000)["gpus"][0]
    assert kernel.ask("open", path=gpu["path"]) == ""
    simulated.unplug(stage.state / "simulated", gpu["uuid"])
    server.ask("notify")
    wait_for(lambda: server.ask("view")["total"] == 2000, "the loss to be seen")
    view = server.ask("view")
    by_uuid = {card["uuid"]: card for card in view["gpus"]}
    assert by_uuid[gpu["uuid"]]["state"] == "draining"
    assert not by_uuid[gpu["uuid"]]["healthy"]
    assert view["amounts"]["attached"] == 1000
    kernel.ask("close", path=gpu["path"])
    server.ask("until", phase="Ready")
    wait_for(lambda: len(server.ask("view")["gpus"]) == 1, "the lost GPU to be given up")


def test_a_clock_that_is_set_back_changes_nothing(stage: Stage) -> None:
    """Neither files from the far future or the past nor a wall clock at 1970 touch the places in line."""
    holder, first, second = stage.server(), stage.server(), stage.server()
    holder.ask("request", milli=3000)
    first.ask("request", milli=1000)
    second.ask("request", milli=1000)
    for server, when in ((holder, 0), (first, 2**32), (second, 1)):
        os.utime(record_of(stage, server), (when, when))
    for server in (holder, first, second):
        server.ask("set_wall_clock", seconds=0)
    first.tell("until", phase="Ready")
    holder.ask("request", milli=2000)
    first.answer()
    assert second.ask("view")["phase"] == "Waiting"
    holder.ask("request", milli=0)
    second.ask("until", phase="Ready")


def test_an_idle_server_sleeps(stage: Stage) -> None:
    """With nothing attached no timer runs and the process is not scheduled once, also beside a dead pod."""
    server, dead = stage.server(), stage.server()
    dead.kill()
    server.ask("request", milli=0)
    wait_for(lambda: " S " in Path(f"/proc/{server.pid}/stat").read_text(), "it to sleep")

    def switches() -> dict[str, int]:
        found = {}
        for task in Path(f"/proc/{server.pid}/task").iterdir():
            with contextlib.suppress(OSError):  # a thread that ends
                lines = (task / "status").read_text().splitlines()
                (line,) = (line for line in lines if line.startswith("voluntary_ctxt_switches"))
                found[task.name] = int(line.split()[1])
        return found

    def sleeps() -> bool:
        """For longer than its slowest timer; on a busy machine what it began goes on for a while."""
        before = switches()
        time.sleep(1.5)
        return switches() == before

    wait_for(sleeps, "a while in which it does nothing")


def test_listed_programs_may_have_gpus_open_for_ever(stage: Stage) -> None:
    """A display server outside every pod is no reason to drain when its name is listed."""
    server = stage.server(system_holders=["python", "python3", "sleep"])
    gpu = server.ask("request", milli=1000)["gpus"][0]
    device = os.open(gpu["path"], FLAGS)
    display = subprocess.Popen(["sleep", "60"], pass_fds=[device])
    os.close(device)
    try:
        assert server.ask("request", milli=0)["phase"] == "Idle"
    finally:
        display.kill()
        display.wait()


@pytest.mark.root
def test_server_that_ends_removes_remains_of_dead_ones(stage: Stage) -> None:
    """A kernel outlived its server, and no pod waits for its GPUs: the record must not lie there for ever."""
    dead = stage.server()
    kernel = stage.kernel(dead)
    dead.kill()
    other = stage.server()
    other.ask("request", milli=0)  # after its first scan
    assert len(stage.groups()) == 2
    kernel.kill()
    other.ask("stop")
    assert stage.groups() == []
    assert list((stage.state / "pods").glob("*.json")) == []
