"""Trust in the state directory, in which every user of the machine may make files."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_gpu.backends.local.processes.identity import boot, identify, namespace
from jupyter_gpu.backends.local.records import notify
from jupyter_gpu.backends.local.sharing import ending, files, records, stopped_elsewhere, trust
from jupyter_gpu_node.processes.rules.process_id import ProcessId
from jupyter_gpu_node.shares.enforcement import stopped_processes
from jupyter_gpu_node.shares.rules.violations import violation_records

UID = "0123456789abcdef" * 2
ME = os.geteuid()


@pytest.fixture
def state(short_tmp: Path) -> Path:
    """An empty one."""
    found = short_tmp / "state"
    found.mkdir()
    return found


@contextlib.contextmanager
def serving(state: Path, user: int = ME) -> Iterator[None]:
    """An arbiter of that user runs: any process that listens is one."""
    own = files.home(state, user) / files.OWN
    own.mkdir(parents=True, exist_ok=True)
    with notify.listen(own, files.NOTIFY_SOCKET):
        yield


def test_lock_file_cannot_be_written(state: Path) -> None:
    """It is made once, and the same for all; not the same after it was removed."""
    first, second = files.open_lock(state), files.open_lock(state)
    try:
        assert os.path.samestat(os.fstat(first), os.fstat(second))
        assert files.is_current(state, first)
        (state / files.LOCK).unlink()
        assert not files.is_current(state, first)
        third = files.open_lock(state)
        assert not files.is_current(state, first)
        assert files.is_current(state, third)
        os.close(third)
    finally:
        os.close(first)
        os.close(second)


@pytest.mark.parametrize("kind", ["link", "folder", "pipe"])
def test_only_a_regular_file_is_a_lock(state: Path, kind: str) -> None:
    """The first user here may have made anything."""
    path = state / files.LOCK
    if kind == "link":
        path.symlink_to(state / "elsewhere")
    elif kind == "folder":
        path.mkdir()
    else:
        os.mkfifo(path)
    with pytest.raises(OSError, match=r"regular|symbolic"):
        os.close(files.open_lock(state))
    assert not (state / "elsewhere").exists()


def test_a_home_belongs_to_its_user(state: Path) -> None:
    """It is made once; one that others can change is not used."""
    files.make_home(state)
    files.make_home(state)
    os.close(files.open_home(state))
    os.close(files.open_log(state))
    assert (state / files.GATES).stat().st_mode & 0o1777 == 0o1777
    files.home(state).chmod(0o777)
    for opens in (files.open_home, files.open_log):
        with pytest.raises(PermissionError):
            opens(state)


def test_a_home_that_is_a_link_is_not_used(state: Path) -> None:
    """A link could have us write elsewhere."""
    elsewhere = state / "elsewhere"
    elsewhere.mkdir()
    (state / files.ARBITERS).mkdir()
    files.home(state).symlink_to(elsewhere)
    with pytest.raises(OSError, match=r"Not a directory|symbolic"):
        files.make_home(state)
    assert list(elsewhere.iterdir()) == []


def test_a_state_directory_is_never_made_anew(state: Path) -> None:
    """It is gone: so nothing of it is wanted."""
    state.rmdir()
    with pytest.raises(FileNotFoundError):
        files.make_home(state)
    with pytest.raises(FileNotFoundError):
        files.open_lock(state)


def test_a_long_log_begins_anew(state: Path) -> None:
    """A short one goes on."""
    files.make_home(state)
    log = files.home(state) / files.LOG
    log.write_bytes(b"x")
    os.close(files.open_log(state))
    assert log.stat().st_size == 1
    log.write_bytes(b"x" * (files.MAX_LOG + 1))
    os.close(files.open_log(state))
    assert log.stat().st_size == 0


def test_an_arbiter_lives_while_it_listens(state: Path) -> None:
    """Its socket alone is no sign of life."""
    assert trust.arbiter_user(state) is None
    with serving(state):
        assert trust.arbiter_user(state) == ME
    assert trust.arbiter_user(state) is None
    assert trust.silence(state, ME + 1) == float("inf")


@pytest.mark.root
def test_folder_of_an_arbiter_belongs_to_its_user(state: Path) -> None:
    """A folder must belong to the user whose number it has, wholly."""
    os.chown(state, 4321, -1)
    with serving(state, 4321):
        assert trust.arbiter_user(state) is None
        os.chown(files.home(state, 4321), 4321, -1)
        assert trust.arbiter_user(state) == 4321
        files.home(state, 4321).chmod(0o1777)
        assert trust.arbiter_user(state) is None


def test_sign_of_life_is_by_the_monotonic_clock(state: Path) -> None:
    """The wall clock does not count."""
    own = files.home(state) / files.OWN
    with serving(state):
        files.beat(own)
        assert trust.silence(state, ME) < 60
        old = time.monotonic_ns() - 1000 * 10**9
        os.utime(own / files.NOTIFY_SOCKET, ns=(old, old))
        assert 999 < trust.silence(state, ME) < 1060


def test_an_arbiter_says_whose_pids_it_sees(state: Path) -> None:
    """An arbiter that has not said it yet is believed to see ours."""
    assert trust.sees_us(state, ME)
    files.make_home(state)
    said = files.home(state) / files.OWN / files.NAMESPACE
    for number, sees in ((namespace(), True), (namespace() + 1, False)):
        said.write_text(str(number))
        assert trust.sees_us(state, ME) is sees


@pytest.mark.parametrize("length", [0, 8, 20, 60, 200])
def test_a_gates_path_fits_into_an_address(length: int) -> None:
    """It does however long that of the state directory is."""
    state = Path("/" + "s" * length)
    found = files.gate(state, UID)
    assert len(f"{found}/GPU-00000000-0000-0000-0000-000000000000.sock") <= 107
    assert found.is_relative_to(state) == (length <= 38)
    assert UID[:16] in found.name


def test_a_long_folder_for_temporary_files_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is one with a short name on every machine."""
    monkeypatch.setattr("tempfile.tempdir", "/" + "t" * 60)
    assert files.gate(Path("/" + "s" * 60), UID) == Path(f"/tmp/jupyter-gpu-{UID[:16]}")


def test_a_link_leads_where_it_should(state: Path) -> None:
    """It is set in one step, as often as needed; a file that is no link stays."""
    link, plain = state / "link", state / "plain"
    for target in ("a", "b", "b"):
        files.link_to(link, Path(target))
        assert link.readlink() == Path(target)
    assert [path.name for path in state.iterdir()] == ["link"]
    files.remove_link(link)
    files.remove_link(link)
    plain.write_text("")
    files.remove_link(plain)
    assert [path.name for path in state.iterdir()] == ["plain"]
    folder = state / "folder"
    (folder / "full").mkdir(parents=True)
    with pytest.raises(IsADirectoryError):
        files.link_to(folder, Path("a"))
    assert sorted(path.name for path in state.iterdir()) == ["folder", "plain"]


def test_files_of_unknown_pods_are_removed(state: Path) -> None:
    """Known ones keep theirs, and other files are not touched."""
    files.make_home(state)
    home, gates = files.home(state), state / files.GATES
    known, gone = "1" * 32, "2" * 32
    for pod in (known, gone):
        (home / pod / "shares").mkdir(parents=True)
        files.link_to(gates / pod[: files.SHORT], home / pod)
    (gates / ("3" * 16)).mkdir()
    traces = records.traces(state, home)
    records.tidy(state, home, traces, [known])
    assert {path.name for path in home.iterdir()} == {files.OWN, known}
    assert {path.name for path in gates.iterdir()} == {known[: files.SHORT], "3" * 16}


def test_nothing_is_removed_through_a_link(state: Path) -> None:
    """The user that made the folder of the links can put anything in its place."""
    files.make_home(state)
    elsewhere = state / "elsewhere"
    (elsewhere / ("4" * 16)).mkdir(parents=True)
    (elsewhere / ("5" * 16)).symlink_to("nowhere")
    (state / files.GATES).rmdir()
    (state / files.GATES).symlink_to(elsewhere)
    found = records.Traces(links=frozenset({"4" * 16, "5" * 16}))
    assert records.traces(state, files.home(state)) == records.Traces()
    records.tidy(state, files.home(state), found, [])
    assert len(list(elsewhere.iterdir())) == 2


def test_sockets_of_unserved_shares_are_removed(state: Path) -> None:
    """No other files are removed, nor sockets of shares that are served."""
    files.make_home(state)
    shares = files.sockets(state, ME, UID)
    shares.mkdir(parents=True)
    for name in ("GPU-1.sock", "GPU-2.sock", "GPU-2.json"):
        (shares / name).write_text("")
    records.sweep(files.home(state), [(UID, "GPU-1")])
    assert {path.name for path in shares.iterdir()} == {"GPU-1.sock", "GPU-2.json"}


def test_stopped_processes_are_read_from_their_own_arbiter(state: Path) -> None:
    """Processes of this boot count, from files that can be read and belong to the user that they name."""
    files.make_home(state)
    file = files.home(state) / files.OWN / stopped_elsewhere.VIOLATIONS
    stopped_processes.save(
        file, {"GPU-1": {UID: violation_records.ViolationRecord(1.0, 5, stopped=frozenset([ProcessId(7, 70)]))}}
    )
    (state / files.ARBITERS / "12345678").mkdir()
    assert stopped_elsewhere.stopped(state) == {ProcessId(7, 70)}
    body = file.read_text()
    for text in ("", "[]", body.replace(boot(), "another"), body.replace("70", '"x"')):
        file.write_text(text)
        assert stopped_elsewhere.stopped(state) == frozenset()
    file.write_text(body)
    moved = files.home(state, 12345679)
    files.home(state).rename(moved)
    assert stopped_elsewhere.stopped(state) == frozenset()


def test_missing_records_are_distinguished_from_empty_ones(state: Path) -> None:
    """The arbiter ends if the records are gone."""
    assert records.read_pods(state / "pods", {}) is None
    (state / "pods").mkdir()
    assert records.read_pods(state / "pods", {}) == {}


def test_ending_a_process_ends_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither this one is ended, nor one with a reused pid, nor one that is not there."""
    me = identify(os.getpid())
    assert me is not None
    ending.end([me, type(me)(os.getppid(), 1), type(me)(2**22 + 1, 1)])
