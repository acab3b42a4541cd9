"""Trust in arbiters, and files that no other user can forge: real files, locks and users."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.backends.local.processes.identity import boot, namespace
from jupyter_gpu.backends.local.records import notify
from jupyter_gpu.backends.local.sharing import files, stopped_elsewhere, trust
from jupyter_gpu.backends.local.sharing.clients import Clients
from jupyter_gpu.backends.local.sharing.pod_client import PodClient
from jupyter_gpu.backends.local.sharing.revoker import Revoker
from jupyter_gpu.backends.local.sharing.rules import revocation
from jupyter_gpu.backends.local.sharing.rules.revocation import Revocation
from jupyter_gpu.model import strict
from jupyter_gpu_node.processes.rules.process_id import ProcessId
from jupyter_gpu_node.shares.rules.violations import violation_records
from tests.backends.test_share_files import SHARE

UID = "0123456789abcdef" * 2
GPU = "GPU-1"
ME = os.geteuid()
LOW, HIGH = 77, 4321
LOCKER = """
import fcntl, os, sys
os.setuid(int(sys.argv[2]))
fcntl.lockf(os.open(sys.argv[1], os.O_RDWR), fcntl.LOCK_EX | fcntl.LOCK_NB)
print("locked", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def state(short_tmp: Path) -> Path:
    """An empty state directory that every user may write to."""
    found = short_tmp / "state"
    found.mkdir()
    found.chmod(0o1777)
    return found


@contextlib.contextmanager
def listening(state: Path, user: int) -> Iterator[Path]:
    """Listen in the place of that user's arbiter."""
    own = files.home(state, user) / files.OWN
    own.mkdir(parents=True, exist_ok=True)
    (state / files.ARBITERS).chmod(0o1777)
    for path in (own.parent, own):
        os.chown(path, user, -1)
    with notify.listen(own, files.NOTIFY_SOCKET):
        yield own


@contextlib.contextmanager
def locking(state: Path, user: int) -> Iterator[None]:
    """A process of that user has the lock."""
    made = trust.ServingLock(state)
    assert made.keep()
    made.close()
    command = [sys.executable, "-I", "-S", "-c", LOCKER, str(state / trust.SERVING), str(user)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as locker:
        assert locker.stdout is not None
        assert locker.stdout.readline() == b"locked\n"
        yield
        locker.communicate()


# --- whose ------------------------------------------------------------------------------------------------------------

users = st.sets(st.integers(0, 9))


@given(users, st.lists(st.integers(0, 9)), users)
def test_user_number_alone_gains_no_trust(listens: set[int], above: list[int], serving: Collection[int]) -> None:
    """Only those above all others are trusted, in their order, and after them the holder of the lock."""
    found = trust.choose(listens, above, serving)
    heard = [user for user in above if user in listens]
    if heard:
        assert found == heard[0]
    else:
        assert found in {*(listens & set(serving)), None}
        assert (found is None) == (not listens & set(serving))


@pytest.mark.root
def test_a_lower_number_is_no_claim(state: Path) -> None:
    """An arbiter without the lock counts for nothing; its holder is trusted as long as no better one listens."""
    with listening(state, LOW), listening(state, HIGH):
        assert trust.listening(state) == {LOW, HIGH}
        assert trust.arbiter_user(state) is None
        with locking(state, HIGH):
            assert trust.serving(state) == {HIGH}
            assert trust.arbiter_user(state) == HIGH
            with listening(state, 0):
                assert trust.arbiter_user(state) == 0
            os.chown(state, LOW, -1)
            assert trust.arbiter_user(state) == LOW
            os.chown(state, 0, -1)
            assert trust.arbiter_user(state) == HIGH
        assert trust.arbiter_user(state) is None
    assert trust.listening(state) == frozenset()


@pytest.mark.root
def test_a_lock_alone_is_no_arbiter(state: Path) -> None:
    """It does not help another user either, whose arbiter listens."""
    with listening(state, LOW), locking(state, HIGH):
        assert trust.arbiter_user(state) is None


def test_the_lock_is_had_by_one_and_survives_its_file(state: Path) -> None:
    """A removed file is made anew; one that is no regular file is no lock, and breaks nothing else."""
    serving = trust.ServingLock(state)
    try:
        assert serving.keep()
        assert serving.keep()
        (state / trust.SERVING).unlink()
        assert serving.keep()
        assert (state / trust.SERVING).stat().st_mode & 0o777 == 0o666
        (state / trust.SERVING).unlink()
        (state / trust.SERVING).symlink_to("elsewhere")
        assert not serving.keep()
        assert not (state / "elsewhere").exists()
        (state / trust.SERVING).unlink()
        os.mkfifo(state / trust.SERVING)
        assert not serving.keep()
        assert trust.serving(state) == frozenset()
    finally:
        serving.close()


def test_a_lock_that_another_has_is_not_had(state: Path) -> None:
    """It is ours at the next check after that process ended."""
    serving = trust.ServingLock(state)
    with locking(state, ME):
        assert trust.serving(state) == {ME}
        assert not serving.keep()
    assert serving.keep()
    serving.close()
    assert trust.serving(state) == frozenset()


# --- what is read of it -----------------------------------------------------------------------------------------------

REVOCATIONS = revocation.encode([Revocation("key", GPU, "A reason.")])
VIOLATIONS = violation_records.ViolationRecord(1.0, 5, stopped=frozenset([ProcessId(7, 70)]))


def pod_client(state: Path) -> PodClient:
    """A pod's, which believes our own user's arbiter."""
    found = PodClient(state, UID, lambda _: None, lambda: None)
    found.arbiter_user = ME
    return found


def recalled(state: Path) -> object:
    """By the next arbiter."""
    revoker = Revoker(state, files.home(state), Clients(), lambda: None)
    revoker.recall(UID)
    return revoker.taken


FILES: dict[str, tuple[str, bytes, Callable[[Path], object]]] = {
    "revocations": (f"{UID}/shares/{revocation.NAME}", REVOCATIONS, lambda state: pod_client(state).revocations()),
    "recalled": (f"{UID}/shares/{revocation.NAME}", REVOCATIONS, recalled),
    "use": (
        f"{UID}/shares/{GPU}.json",
        strict.dumps({**SHARE.to_json(), "written": 1}).encode(),
        lambda state: pod_client(state).sample([GPU]),
    ),
    "problem": ("own/problem", b"Words.", lambda state: trust.problem(state, ME)),
    "namespace": ("own/namespace", b"%d" % (namespace() + 1), lambda state: not trust.sees_us(state, ME)),
    "stopped": (
        "own/violations.json",
        strict.dumps(
            {"version": 1, "boot": boot(), "gpus": {GPU: violation_records.to_plain({UID: VIOLATIONS})}},
        ).encode(),
        stopped_elsewhere.stopped,
    ),
}


def other_users(path: Path) -> None:
    """Give the file to another user."""
    os.chown(path, HIGH, -1)


def linked(path: Path) -> None:
    """Replace the file with a link to it."""
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def pipe(path: Path) -> None:
    """Replace the file with a pipe without a writer: opening it would block for ever."""
    path.unlink()
    os.mkfifo(path)


def folder(path: Path) -> None:
    """Replace the file with an empty folder."""
    path.unlink()
    path.mkdir()


def long(path: Path) -> None:
    """Extend the file beyond the limit of what is read."""
    path.write_bytes(path.read_bytes() + b" " * (5 * 2**20))


FORGERIES = [
    pytest.param(other_users, id="of another user", marks=pytest.mark.root),
    pytest.param(lambda path: path.chmod(0o664), id="for a group"),
    pytest.param(lambda path: path.chmod(0o646), id="for all"),
    linked,
    pipe,
    folder,
    long,
]
FORGED_FOLDERS = [
    pytest.param(other_users, id="of another user", marks=pytest.mark.root),
    pytest.param(lambda path: path.chmod(0o775), id="for a group"),
    pytest.param(lambda path: path.chmod(0o1777), id="for all"),
    linked,
]


def written(state: Path, name: str, text: bytes) -> Path:
    """Write the file as an arbiter of ours does; return its path."""
    files.make_home(state)
    path = files.home(state) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text)
    return path


@pytest.mark.parametrize("forge", FORGERIES)
@pytest.mark.parametrize("what", FILES)
def test_a_file_that_others_could_have_written_says_nothing(state: Path, what: str, forge: Callable[..., None]) -> None:
    """Its owner, mode, kind and size are checked when it is read."""
    name, text, reads = FILES[what]
    path = written(state, name, text)
    assert reads(state)
    forge(path)
    assert not reads(state)


@pytest.mark.parametrize("forge", FORGED_FOLDERS)
@pytest.mark.parametrize("above", [0, 1])
@pytest.mark.parametrize("what", FILES)
def test_nor_does_one_in_a_folder_of_others(state: Path, what: str, above: int, forge: Callable[..., None]) -> None:
    """A user that can change a folder can put any file there."""
    name, text, reads = FILES[what]
    path = written(state, name, text)
    assert reads(state)
    if what == "recalled" and path.parents[above] == files.home(state):
        return  # an arbiter has its own folder open, and checked it before
    forge(path.parents[above])
    assert not reads(state)


@pytest.mark.parametrize("what", sorted(set(FILES) - {"recalled"}))
def test_the_folder_of_all_is_no_link(state: Path, what: str) -> None:
    """The user that made the link could lead us anywhere."""
    name, text, reads = FILES[what]
    written(state, name, text)
    assert reads(state)
    linked(state / files.ARBITERS)
    assert not reads(state)


def test_written_file_is_read(state: Path) -> None:
    """A missing file is empty."""
    assert stopped_elsewhere.stopped(state) == frozenset()
    assert trust.silence(state, ME) == float("inf")
    for name, text, _ in FILES.values():
        written(state, name, text)
    assert pod_client(state).revocations() == revocation.decode(REVOCATIONS)
    assert stopped_elsewhere.stopped(state) == {ProcessId(7, 70)}
    assert trust.problem(state, ME) == "Words."
    assert recalled(state) == {(UID, GPU)}
