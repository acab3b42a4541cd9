"""Faults that the process that counts GPU-hours meets: nothing is lost, and it tries again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_gpu.backends.local.accounting.__main__ import main
from jupyter_gpu.backends.local.accounting.account_files import AccountFiles
from jupyter_gpu.backends.local.accounting.accountant import LOOK, RETRY, Accountant
from jupyter_gpu.backends.local.processes.identity import boot, identify, namespace
from jupyter_gpu.backends.local.records.record import Record
from jupyter_gpu.backends.local.records.store import StateStore
from jupyter_gpu.common import limits_file
from jupyter_gpu.model.annotations import Attached
from jupyter_gpu.model.gpu import GpuShare
from jupyter_gpu.model.limits.machine_accounts import read_accounts
from jupyter_gpu_node.processes import inotify

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
def files(store: StateStore, tmp_path: Path) -> Iterator[AccountFiles]:
    """Return the files of the accounts."""
    with AccountFiles(store.path, tmp_path / "lasting") as made:
        yield made


def holds(store: StateStore) -> int:
    """Return the milli that all users hold, as servers read it."""
    found = read_accounts((store.path / limits_file.ACCOUNTS).read_bytes())
    return sum(account.used for account in found.accounts.values())


def test_damaged_record_counts_as_what_it_said_last(store: StateStore, files: AccountFiles) -> None:
    """Its server writes it again; once it is gone, its pod has ended."""
    counting = Accountant(store, files)
    assert counting.look() == LOOK
    assert holds(store) == 1000
    (store.pods / f"{UID}.json").write_text("{")
    counting.look()
    assert holds(store) == 1000
    (store.pods / f"{UID}.json").unlink()
    counting.look()
    assert holds(store) == 0


def test_accounts_that_cannot_be_written_are_written_later(store: StateStore, files: AccountFiles) -> None:
    """Meanwhile GPU time is counted on."""
    counting, copy = Accountant(store, files), store.path / limits_file.ACCOUNTS
    copy.mkdir()
    assert counting.look() == RETRY
    copy.rmdir()
    assert counting.look() == LOOK
    assert holds(store) == 1000


def test_locked_state_directory_is_looked_at_again(store: StateStore, files: AccountFiles) -> None:
    """Any user can hold the lock for a while."""
    counting = Accountant(store, files)
    with store.locked():
        assert counting.look() == RETRY
    assert counting.look() == LOOK


def test_without_inotify_it_looks_from_time_to_time(
    store: StateStore, files: AccountFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As root has too many queues."""
    monkeypatch.setattr(inotify, "open_queue", lambda: None)
    counting, looks = Accountant(store, files), iter([0.01, 0.01])
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
