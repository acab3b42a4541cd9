"""The file with the limits of a machine: which one counts, who may have written it, and what holds if it is bad."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from jupyter_gpu.backends.local.limits import machine_limits
from jupyter_gpu.backends.local.limits.machine_limits import MachineLimits
from jupyter_gpu.backends.local.limits.watch import LimitsFileWatch
from jupyter_gpu.backends.local.processes.identity import boot, identify, since_boot
from jupyter_gpu.backends.local.records.record import Record
from jupyter_gpu.common import limits_file
from jupyter_gpu.common.machine_users import Users
from jupyter_gpu.model.limits.calendar import in_force
from jupyter_gpu.model.limits.machine_accounts import MachineAccounts
from jupyter_gpu_node.processes import inotify
from tests.backends.local.stage import wait_for
from tests.model.limits.test_machine_file import limit, text

NOBODY = 65534


@pytest.fixture
def known(tmp_path: Path) -> MachineLimits:
    """Return the limits of a machine without a file."""
    (tmp_path / "state").mkdir()
    return MachineLimits(tmp_path / "state", tmp_path / "etc" / "machine.json")


def put(path: Path, most: object, mode: int = 0o644) -> None:
    """Write a file that limits everyone to ``most``."""
    path.parent.mkdir(exist_ok=True)
    limits_file.replace(path, text(limit("Default", max=most)).decode())
    path.chmod(mode)


def most(known: MachineLimits) -> object:
    """Return the maximum of this process's user; ``None``: there are no limits."""
    server = identify(os.getpid())
    assert server
    known.learn(())
    found = known.of(Record("0" * 32, server, "boot", 1), ())
    if found is None:
        return None
    (owner,) = found.owners.values()
    return found.limits.effective(owner).max.value


def test_machine_file_counts_before_the_one_in_the_state_directory(known: MachineLimits) -> None:
    """Users may choose another state directory; the machine's file holds all the same."""
    machine, state = known.paths
    assert not known.reload()
    assert most(known) is None
    put(state, 1)
    assert known.is_changed()
    assert known.reload()
    assert not known.is_changed()
    assert most(known) == 1000
    put(machine, 2)
    assert known.reload()
    assert most(known) == 2000
    assert not known.reload()


@pytest.mark.root
@pytest.mark.parametrize("spoil", ["mode", "owner", "link", "text", "folder"])
def test_bad_file_leaves_the_last_limits_in_force(known: MachineLimits, spoil: str) -> None:
    """It says why; a server that has read none hands out nothing; corrected, the file is read by itself."""
    machine, state = known.paths
    put(machine, 2)
    known.reload()
    machine.unlink()
    put(machine, 3)
    if spoil == "mode":
        machine.chmod(0o666)
    elif spoil == "owner":
        os.chown(machine, NOBODY, 0)
    elif spoil == "text":
        machine.write_text("{")
    else:
        machine.rename(machine.parent / "other")
        machine.mkdir() if spoil == "folder" else machine.symlink_to(machine.parent / "other")
    assert not known.reload()
    assert most(known) == 2000
    assert "The limits that were read last hold until it is corrected" in known.problem
    fresh = MachineLimits(state.parent, machine)
    fresh.reload()
    assert most(fresh) == 0
    assert "No GPUs are handed out until it is corrected" in fresh.problem
    if spoil == "folder":
        machine.rmdir()
    put(machine, 4)
    for one in (known, fresh):
        assert one.reload()
        assert (most(one), one.problem) == (4000, "")


def test_removed_file_lifts_the_limits_after_a_while(known: MachineLimits, monkeypatch: pytest.MonkeyPatch) -> None:
    """An editor may remove it before it writes the new one; until it is clear, the old limits hold."""
    monkeypatch.setattr(machine_limits, "ABSENT", 0.2)
    machine, _ = known.paths
    put(machine, 2)
    known.reload()
    machine.unlink()
    assert not known.reload()
    assert most(known) == 2000
    assert known.recheck is not None
    put(machine, 1)
    assert known.reload()
    assert known.recheck is None
    machine.unlink()
    known.reload()
    time.sleep(known.recheck or 0)
    assert known.reload()
    assert most(known) is None
    assert known.recheck is None


def test_limits_of_groups_follow_the_machine(known: MachineLimits) -> None:
    """The groups of the user that runs this process count, by the group database."""
    machine, _ = known.paths
    known.learn(())
    names = Users()
    names.learn({os.geteuid()})
    group = min(names.get(os.geteuid()).groups)
    machine.parent.mkdir()
    machine.write_bytes(text(limit("Default", max=1), limit("Group", group, max=5)))
    known.reload()
    assert most(known) == 5000


def test_watch_hears_of_a_file_in_a_folder_that_was_made_later(known: MachineLimits) -> None:
    """And of its change and removal."""
    machine, _ = known.paths
    watch = LimitsFileWatch(known.paths)
    queue = watch.fileno()
    assert queue is not None
    try:
        machine.parent.mkdir()
        _hear(watch, queue)
        put(machine, 1)
        _hear(watch, queue)
        assert known.reload()
        machine.unlink()
        _hear(watch, queue)
    finally:
        watch.close()
        watch.close()
    watch.drain()


def _hear(watch: LimitsFileWatch, queue: int) -> None:
    def heard() -> bool:
        try:
            return bool(os.read(queue, 65536))
        except BlockingIOError:
            return False

    wait_for(heard, "an event", 5)
    watch.drain()


def test_without_inotify_there_is_no_watch(known: MachineLimits, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user may have too many queues: changes are noticed with the next decision then."""
    monkeypatch.setattr(inotify, "open_queue", lambda: None)
    watch = LimitsFileWatch(known.paths)
    assert watch.fileno() is None
    watch.drain()
    watch.close()


def test_budget_is_used_up_while_nothing_counts_it(known: MachineLimits) -> None:
    """Limits without budgets need nothing that counts; removed limits need it no more."""
    machine, state = known.paths
    budget = {"gpuHours": 10, "window": "Day"}
    machine.parent.mkdir()
    machine.write_bytes(text(limit("Default", max=2, guaranteed=0.5, budget=budget)))
    known.reload()
    assert most_in_force(known) == 500
    assert "GPU-hours of this machine's users are not being counted" in known.problem
    limits_file.replace(state.with_name(limits_file.ACCOUNTS), MachineAccounts(boot(), since_boot(), {}).encode())
    assert known.is_changed()
    assert most_in_force(known) == 2000
    assert not known.problem
    state.with_name(limits_file.ACCOUNTS).unlink()
    assert most_in_force(known) == 500
    machine.write_bytes(text(limit("Default", max=3)))
    known.reload()
    assert most_in_force(known) == 3000
    assert not known.problem


def most_in_force(known: MachineLimits) -> object:
    """Return the maximum that is in force for this process's user now."""
    server = identify(os.getpid())
    assert server
    known.learn(())
    found = known.of(Record("0" * 32, server, "boot", 1), ())
    assert found
    (owner,) = found.owners.values()
    return in_force(found.limits.effective(owner), found.now, found.zone, found.used.get(owner, {})).max.value
