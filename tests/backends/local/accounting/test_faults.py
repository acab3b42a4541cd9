"""Faults that the process that counts GPU-hours meets: nothing is lost, and it tries again."""

from __future__ import annotations

import os
import pwd
import select
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_gpu.backends.local.accounting import ended_pods
from jupyter_gpu.backends.local.accounting.__main__ import main
from jupyter_gpu.backends.local.accounting.account_files import AccountFiles
from jupyter_gpu.backends.local.accounting.accountant import LOOK, RETRY, Accountant
from jupyter_gpu.backends.local.accounting.machine_gpus import KnownGpus, MachineGpus
from jupyter_gpu.backends.local.processes.identity import boot, identify, namespace
from jupyter_gpu.backends.local.records import notify
from jupyter_gpu.backends.local.records.record import Record
from jupyter_gpu.backends.local.records.store import StateStore
from jupyter_gpu.common import limits_file
from jupyter_gpu.common.hub_users import HubUsers
from jupyter_gpu.model.annotations import Attached
from jupyter_gpu.model.gpu import GpuShare
from jupyter_gpu.model.limits import machine_use
from jupyter_gpu.model.limits.machine_accounts import read_accounts
from jupyter_gpu.model.limits.machine_use import read_use
from jupyter_gpu_node.gpus.simulated import SimulatedGpus
from jupyter_gpu_node.processes import inotify
from tests.backends.local.stage import wait_for

NAMESPACE = 7
"""A pid namespace that has no process."""
UID = "0" * 32


@pytest.fixture
def store(tmp_path: Path) -> StateStore:
    """Return a state directory where a pod of this process holds a GPU."""
    made = StateStore(tmp_path / "state", timeout=0.1)
    server = identify(os.getpid())
    assert server
    with made.locked() as session:
        attached = Attached(0, (GpuShare("GPU-a", 1000),))
        session.write(Record(UID, server, boot(), namespace(), attached=attached))
    return made


@pytest.fixture
def hub(tmp_path: Path) -> HubUsers:
    """Return the users of a hub."""
    (tmp_path / "lasting").mkdir(exist_ok=True)
    made = HubUsers(tmp_path / "lasting")
    made.make_key()
    return made


@pytest.fixture
def files(store: StateStore, tmp_path: Path) -> Iterator[AccountFiles]:
    """Return the files of the accounts."""
    with AccountFiles(store.path, tmp_path / "lasting") as made:
        yield made


def holds(store: StateStore) -> int:
    """Return the milli that all users hold, as servers read it."""
    found = read_accounts((store.path / limits_file.ACCOUNTS).read_bytes())
    return sum(account.used for account in found.accounts.values())


def test_damaged_record_counts_as_what_it_said_last(store: StateStore, files: AccountFiles, hub: HubUsers) -> None:
    """Its server writes it again; once it is gone, its pod has ended."""
    counting = Accountant(store, files, hub)
    assert counting.look() == LOOK
    assert holds(store) == 1000
    (store.pods / f"{UID}.json").write_text("{")
    counting.look()
    assert holds(store) == 1000
    (store.pods / f"{UID}.json").unlink()
    counting.look()
    assert holds(store) == 0


def test_pod_of_a_container_that_ended_is_removed_and_others_hear_of_it(
    store: StateStore, files: AccountFiles, hub: HubUsers
) -> None:
    """No server in another container can see that, and would leave it the GPUs for ever."""
    other = "1" * 32
    with store.locked() as session:
        known = session.read().entries[UID].record
        session.write(known._replace(uid=other, namespace=NAMESPACE))
    with notify.listen(store.pods, f"{UID}.sock") as listened:
        Accountant(store, files, hub).look()
        assert listened.recvfrom(1)[0] == b""
    assert {path.name for path in store.pods.iterdir()} == {f"{UID}.json", f"{UID}.sock"}
    assert holds(store) == 1000


def test_pods_of_other_namespaces_live_where_not_all_can_be_seen(
    store: StateStore, files: AccountFiles, hub: HubUsers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container itself."""
    with store.locked() as session:
        session.write(session.read().entries[UID].record._replace(namespace=NAMESPACE))
    monkeypatch.setattr(ended_pods, "FIRST_NAMESPACE", NAMESPACE)
    Accountant(store, files, hub).look()
    assert holds(store) == 1000


@pytest.mark.root
def test_pod_of_a_container_that_runs_keeps_what_it_has(store: StateStore, files: AccountFiles, hub: HubUsers) -> None:
    """Its namespace has a process."""
    with subprocess.Popen(["unshare", "--pid", "--fork", "sleep", "60"]) as outer:
        try:
            child = Path(f"/proc/{outer.pid}/task/{outer.pid}/children")
            inner = int(wait_for(child.read_text, "the container"))
            number = Path(f"/proc/{inner}/ns/pid").stat().st_ino
            with store.locked() as session:
                session.write(session.read().entries[UID].record._replace(namespace=number))
            counting = Accountant(store, files, hub)
            counting.look()
            assert holds(store) == 1000
            os.kill(inner, signal.SIGKILL)
            outer.wait()
            counting.look()
            assert holds(store) == 0
        finally:
            outer.kill()


def test_accounts_that_cannot_be_written_are_written_later(
    store: StateStore, files: AccountFiles, hub: HubUsers
) -> None:
    """Meanwhile GPU time is counted on."""
    counting, copy = Accountant(store, files, hub), store.path / limits_file.ACCOUNTS
    copy.mkdir()
    assert counting.look() == RETRY
    copy.rmdir()
    assert counting.look() == LOOK
    assert holds(store) == 1000


def test_locked_state_directory_is_looked_at_again(store: StateStore, files: AccountFiles, hub: HubUsers) -> None:
    """Any user can hold the lock for a while."""
    counting = Accountant(store, files, hub)
    with store.locked():
        assert counting.look() == RETRY
    assert counting.look() == LOOK


def test_without_inotify_it_looks_from_time_to_time(
    store: StateStore, files: AccountFiles, hub: HubUsers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As root has too many queues."""
    monkeypatch.setattr(inotify, "open_queue", lambda: None)
    counting, looks = Accountant(store, files, hub), iter([0.01, 0.01])
    monkeypatch.setattr(counting, "look", lambda: next(looks))
    with pytest.raises(StopIteration):
        counting.run()


def test_process_that_servers_would_not_trust_does_not_begin(
    store: StateStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It must be of root, or of the owner of the state directory."""
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert main(["--state-dir", str(store.path), "--folder", str(tmp_path / "lasting")]) == 1
    assert "run it as root" in caplog.text


def test_key_press_ends_it_in_order(store: StateStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where somebody started it in a terminal."""

    def interrupted(counting: Accountant) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Accountant, "run", interrupted)
    assert main(["--state-dir", str(store.path), "--folder", str(tmp_path / "lasting")]) == 0


def test_gpus_and_pods_are_written_for_the_service_of_a_hub(
    store: StateStore, files: AccountFiles, hub: HubUsers, tmp_path: Path
) -> None:
    """Each with its owner; a damaged record is shown as it was, one whose server is gone while it holds something."""
    gpus = MachineGpus(lambda: SimulatedGpus(tmp_path / "gpus", 2), every=0.01)
    counting, path = Accountant(store, files, hub, gpus), store.path / machine_use.NAME
    counting.look()
    assert not path.exists()  # the GPUs are not known yet
    gpus.start()
    assert select.select([gpus.fileno()], [], [], 10)[0]
    counting.look()
    seen = read_use(path.read_bytes())
    assert [gpu.index for gpu in seen.use.gpus] == [0, 1]
    ((pod),) = seen.use.pods
    assert (pod.uid, pod.user, pod.pid, pod.ended) == (UID, pwd.getpwuid(os.geteuid()).pw_name, os.getpid(), False)
    assert pod.attached == Attached(0, (GpuShare("GPU-a", 1000),))
    written = path.stat().st_ino
    counting.look()
    assert path.stat().st_ino == written
    (store.pods / f"{UID}.json").write_text("{")
    counting.look()
    assert read_use(path.read_bytes()).use == seen.use
    (tmp_path / "gpus" / "health" / seen.use.gpus[0].uuid).write_text("it is broken")
    assert select.select([gpus.fileno()], [], [], 10)[0]
    (store.pods / f"{UID}.json").unlink()
    counting.look()
    found = read_use(path.read_bytes()).use
    assert ([gpu.healthy for gpu in found.gpus], found.pods) == ([False, True], ())


def test_gpus_that_cannot_be_looked_up_are_none_with_a_reason(caplog: pytest.LogCaptureFixture) -> None:
    """And they are looked for again."""

    def source() -> SimulatedGpus:
        raise OSError("no driver")

    gpus = MachineGpus(source, every=0.01)
    gpus.start()
    assert select.select([gpus.fileno()], [], [], 10)[0]
    assert gpus.read() == KnownGpus((), "They can't be looked up: no driver")
    assert "no driver" in caplog.text
