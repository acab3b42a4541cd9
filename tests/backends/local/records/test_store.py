"""The state directory: what is written is read again, and whatever else lies there does no harm."""

import fcntl
import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jupyter_gpu.backends.local.records.record import MAX_BYTES, Record
from jupyter_gpu.backends.local.records.store import Contents, StateStore
from jupyter_gpu.common.state_dir import default_path
from jupyter_gpu.model import quantity
from jupyter_gpu.model.annotations import Allocated, Attached, Reason, Requested, Wish
from jupyter_gpu.model.errors import BackendUnavailable
from jupyter_gpu.model.gpu import DrainingShare, GpuShare, Holder
from jupyter_gpu.model.limits.hub_user import HubUserProof
from jupyter_gpu.model.strict import FieldError
from jupyter_gpu_node.processes.rules.process_id import ProcessId

UID = "0123456789abcdef0123456789abcdef"
OTHER = "f" * 32

words = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Zl", "Zp"]), min_size=1, max_size=20)
numbers = st.integers(0, 2**53 - 1)
memories = st.integers(0, quantity.MAX_BYTES)
shares = st.builds(GpuShare, words, st.integers(1, 1000), memories)
holders = st.builds(Holder, st.integers(0, 2**31 - 1), words, st.booleans())
draining = st.builds(
    DrainingShare, words, st.integers(1, 1000), st.lists(holders, max_size=3).map(tuple), memory=memories
)
reasons = st.none() | st.sampled_from(Reason)
processes = st.builds(ProcessId, st.integers(1, 2**31 - 1), numbers)


def distinct(items: st.SearchStrategy) -> st.SearchStrategy:
    return st.lists(items, max_size=4, unique_by=lambda item: item.uuid).map(tuple)


records = st.builds(
    Record,
    uid=st.just(UID),
    server=processes,
    boot=words,
    namespace=numbers,
    place=st.none() | words,
    ended=st.booleans(),
    limit=st.none() | st.integers(0, 1_000_000),
    requested=st.none() | st.builds(Requested, numbers, st.builds(Wish, st.integers(0, 256).map(lambda n: n * 1000))),
    allocated=st.none()
    | st.builds(
        Allocated, numbers, distinct(shares), reasons, words, st.none() | numbers, st.none() | st.integers(1, 9)
    ),
    attached=st.none() | st.builds(Attached, numbers, distinct(shares), distinct(draining), reasons),
    outside=st.lists(processes, max_size=3).map(tuple),
    revocations=st.just(()),
    hub_user=st.none() | st.builds(HubUserProof, words, st.text("0123456789abcdef", min_size=64, max_size=64)),
)


def record(uid: str = UID, **fields: object) -> Record:
    return Record(uid, ProcessId(1, 1), "boot", 1, **fields)  # type: ignore[arg-type] # each test names its own


@contextmanager
def contents(store: StateStore) -> Iterator[Contents]:
    with store.locked() as session:
        yield session.read()


def read(store: StateStore) -> Contents:
    with contents(store) as found:
        return found


@given(records)
def test_a_record_that_is_written_is_read_again(given_record: Record) -> None:
    """Encoding and decoding give the same record for every record there can be."""
    assert Record.decode(given_record.encode()) == given_record


@given(
    st.binary(max_size=200)
    | st.text(max_size=200).map(str.encode)
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5), lambda inner: st.lists(inner, max_size=3)
    ).map(lambda value: repr(value).encode())
)
def test_any_bytes_raise_only_field_errors(text: bytes) -> None:
    """Bytes that are no record raise FieldError and nothing else."""
    with pytest.raises(FieldError):
        Record.decode(text)


@given(records, st.data())
def test_a_record_with_a_wrong_piece_is_refused_or_is_a_record(given_record: Record, data: st.DataObject) -> None:
    """Changing, cutting or doubling bytes of a record gives a valid record or FieldError, never another exception."""
    text = bytearray(given_record.encode())
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    text[start:end] = data.draw(st.binary(max_size=8))
    with suppress(FieldError):
        assert isinstance(Record.decode(bytes(text)), Record)


def test_writing_then_reading_finds_it_with_its_owner(tmp_path: Path) -> None:
    """The owner of the file is reported, as it decides what the claims are worth."""
    store = StateStore(tmp_path / "state")
    with store.locked() as session:
        session.write(record(limit=2000))
    found = read(store)
    assert found.entries[UID].record == record(limit=2000)
    assert found.entries[UID].owner == os.geteuid()
    assert not found.damaged


def test_the_directories_are_shared_and_sticky_whatever_the_umask_is(tmp_path: Path) -> None:
    """Mode 1777 for folders and 644 for records, so that servers of all users can work together."""
    old = os.umask(0o077)
    try:
        store = StateStore(tmp_path / "state")
        with store.locked() as session:
            session.write(record())
    finally:
        os.umask(old)
    for folder in (store.path, store.pods):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o1777
    assert stat.S_IMODE((store.pods / f"{UID}.json").stat().st_mode) == 0o644


def _truncated(path: Path) -> None:
    path.write_bytes(record().encode()[:40])


def _garbage(path: Path) -> None:
    path.write_bytes(os.urandom(300))


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(MAX_BYTES * 1000)


def _link(path: Path) -> None:
    target = path.with_name("target")
    target.write_bytes(record().encode())
    path.symlink_to(target)


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _folder(path: Path) -> None:
    path.mkdir()


def _of_another_pod(path: Path) -> None:
    path.write_bytes(record(OTHER).encode())


def _of_the_future(path: Path) -> None:
    path.write_bytes(record().encode().replace(b'"format":1', b'"format":99'))


BAD = [_truncated, _garbage, _empty, _huge, _link, _fifo, _folder, _of_another_pod, _of_the_future]


@pytest.mark.parametrize("spoil", BAD, ids=lambda spoil: spoil.__name__.strip("_"))
def test_invalid_file_is_reported_and_moved_aside(tmp_path: Path, spoil: object) -> None:
    """Nothing that can lie under a record's name stops a server, hangs it, or hides the other records."""
    assert callable(spoil)
    store = StateStore(tmp_path / "state")
    with store.locked() as session:
        session.write(record(OTHER))
        spoil(store.pods / f"{UID}.json")
        found = session.read()
        assert found.damaged.keys() == {UID}
        assert found.damaged[UID]
        assert found.entries.keys() == {OTHER}
        assert session.set_aside(UID)
        assert not session.read().damaged
        session.write(record())
    assert read(store).entries.keys() == {UID, OTHER}


def test_a_link_in_place_of_the_directory_is_not_followed(tmp_path: Path) -> None:
    """A planted link gets no files written where it points."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "state").symlink_to(elsewhere)
    with pytest.raises(BackendUnavailable) as caught, StateStore(tmp_path / "state").locked():
        pytest.fail("it was followed")
    assert str(tmp_path / "state") in caught.value.message
    assert not list(elsewhere.iterdir())


def test_a_directory_that_was_wiped_is_made_again(tmp_path: Path) -> None:
    """A cleaner of temporary files costs the records, not the server."""
    store = StateStore(tmp_path / "state")
    with store.locked() as session:
        session.write(record())
    store.path.rename(tmp_path / "old")
    with store.locked() as session:
        assert not session.read().entries
        session.write(record())
    assert (tmp_path / "state" / "pods" / f"{UID}.json").exists()


def test_lock_is_exclusive(tmp_path: Path) -> None:
    """Increments under the lock by several threads with their own stores lose none."""
    rounds, writers = 50, 4

    def count() -> None:
        store = StateStore(tmp_path / "state", timeout=30)
        for _ in range(rounds):
            with store.locked() as session:
                entry = session.read().entries.get(UID)
                session.write(record(limit=(entry.record.limit or 0) + 1 if entry else 1))

    threads = [threading.Thread(target=count) for _ in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert read(StateStore(tmp_path / "state")).entries[UID].record.limit == rounds * writers


def test_the_wait_for_the_lock_has_an_end(tmp_path: Path) -> None:
    """A stopped process that holds the lock costs an error that says so, not a hanging server."""
    store = StateStore(tmp_path / "state", timeout=0.05)
    read(store)
    holder = os.open(store.pods, os.O_RDONLY)
    fcntl.flock(holder, fcntl.LOCK_EX)
    try:
        with pytest.raises(BackendUnavailable, match="locked by another process"):
            read(store)
    finally:
        os.close(holder)
    assert read(store).entries == {}


@pytest.mark.root
def test_a_failed_write_leaves_the_old_record_and_no_litter(tmp_path: Path, full_disk: Path) -> None:
    """On a full disk the write fails in plain words; what was there before stays whole."""
    store = StateStore(full_disk / "state")
    with store.locked() as session:
        session.write(record(limit=1))
    filler = full_disk / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while file.write(b"x" * 4096):
                pass
        except OSError:
            pass
    with pytest.raises(BackendUnavailable, match="No space left"), store.locked() as session:
        session.write(record(limit=2))
    found = read(store)
    assert found.entries[UID].record.limit == 1
    assert not found.leftovers
    filler.unlink()
    with store.locked() as session:
        session.write(record(limit=2))
    assert read(store).entries[UID].record.limit == 2


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=50, deadline=None
)
@given(st.text(st.characters(exclude_characters="/\0"), min_size=1, max_size=40))
def test_names_that_are_no_records_are_left_alone(tmp_path: Path, name: str) -> None:
    """Files of other names are neither read nor removed."""
    store = StateStore(tmp_path / "state")
    read(store)
    try:
        (store.pods / name).write_text("mine")
    except (OSError, UnicodeError):
        return
    found = read(store)
    assert not found.entries
    assert not found.damaged
    (store.pods / name).unlink()


def test_default_directory_is_the_same_for_every_user() -> None:
    """It depends on the machine alone, never on the user."""
    assert default_path() == default_path()
    assert default_path().name == "jupyter-gpu"
    assert "HOME" not in str(default_path())
