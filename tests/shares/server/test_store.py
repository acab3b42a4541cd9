"""The files of shares on a real disk: written whole, never through a link, and what is bad costs a bank at most."""

import json
import logging
import os
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu_node.shares.rules.share_file import MAX_BYTES, Savings, ShareFile, encode, restored
from jupyter_gpu_node.shares.rules.turns.bank import Deposit
from jupyter_gpu_node.shares.server import paths
from jupyter_gpu_node.shares.server.store import ShareEntry, ShareStore
from tests.shares.test_share_file import SHARE

GPU, POD = "GPU-1", "pod-1"
FILE = ShareFile(replace(SHARE, balance=700), 0.5, written=1000)
OWES = replace(FILE, owes=(8_900_000, 250), deposits=((700, 60),))


def entry(tmp_path: Path, **changes: object) -> ShareEntry:
    fields: dict[str, object] = {
        "gpu": GPU, "pod": POD, "directory": tmp_path / "slot",
        "file": FILE, "deposits": (Deposit(700, 40),), "now": 100,
    }  # fmt: skip
    return ShareEntry(**(fields | changes))  # type: ignore[arg-type]


def own(tmp_path: Path) -> Path:
    return tmp_path / "state" / "shares" / GPU / f"{POD}.json"


def seen(tmp_path: Path) -> Path:
    return tmp_path / "slot" / "shares" / f"{GPU}.json"


def test_two_copies(tmp_path: Path) -> None:
    """The own one has the bank; the pod's can be read by every user of the pod, and tells its balance only."""
    store = ShareStore(tmp_path / "state")
    assert store.load(GPU, POD) is None
    assert store.write([entry(tmp_path)])
    found = store.load(GPU, POD)
    assert found is not None
    assert found.deposits == ((700, 60),)
    body = json.loads(seen(tmp_path).read_bytes())
    assert (body["balance"], body["effective"], "deposits" in body) == (700, 400, False)
    assert seen(tmp_path).stat().st_mode & 0o777 == 0o644
    assert [path.name for path in seen(tmp_path).parent.iterdir()] == [f"{GPU}.json"]


def test_only_the_copies_that_are_wanted(tmp_path: Path) -> None:
    """The own one is on a disk, and is written more seldom."""
    store = ShareStore(tmp_path / "state")
    assert store.write([entry(tmp_path, own=False)])
    assert seen(tmp_path).exists()
    assert not own(tmp_path).exists()
    assert store.write([entry(tmp_path, public=False, file=replace(FILE, written=2000))])
    assert json.loads(own(tmp_path).read_bytes())["written"] == 2000
    assert json.loads(seen(tmp_path).read_bytes())["written"] == 1000


def test_changed_copy_of_the_pod_has_no_effect(tmp_path: Path) -> None:
    """The own copy counts, and the next writing puts the other right."""
    store = ShareStore(tmp_path / "state")
    store.write([entry(tmp_path)])
    for text in (b"", b"{}", b'{"allocated": 1000}'):
        seen(tmp_path).write_bytes(text)
        found = store.load(GPU, POD)
        assert found is not None
        assert found.deposits == ((700, 60),)
        store.write([entry(tmp_path)])
        assert json.loads(seen(tmp_path).read_bytes())["allocated"] == 250


@pytest.mark.parametrize(
    "text", [b"", b"{", b"\xff\x00", b"[]", b"{}", b"x" * (MAX_BYTES + 1), b'{"deposits": [[1, 2]]}']
)
def test_a_bad_own_copy_is_an_empty_bank(tmp_path: Path, caplog: pytest.LogCaptureFixture, text: bytes) -> None:
    """It is logged once, and the next writing makes it good again."""
    store = ShareStore(tmp_path / "state")
    store.write([entry(tmp_path)])
    own(tmp_path).write_bytes(text)
    with caplog.at_level(logging.WARNING):
        assert store.load(GPU, POD) is None
    assert ["begins empty" in record.message for record in caplog.records] == [True]
    store.write([entry(tmp_path)])
    assert store.load(GPU, POD) is not None


@given(
    st.binary(max_size=400)
    | st.integers(0, 400).map(lambda cut: encode(OWES, public=False)[:cut])
    | st.tuples(st.integers(0, 400), st.binary(max_size=4)).map(
        lambda change: encode(OWES, public=False)[: change[0]] + change[1] + encode(OWES, public=False)[change[0] :]
    )
)
def test_any_own_copy_is_read_without_an_error(text: bytes) -> None:
    """It is by each way; and what was read is taken over as it is read alone."""
    with TemporaryDirectory() as folder:
        store = ShareStore(Path(folder) / "state")
        store.write([entry(Path(folder))])
        own(Path(folder)).write_bytes(text)
        found = store.load(GPU, POD)
        assert store.begin([(GPU, POD)]) == ({(GPU, POD): found} if found else {})
        store.begin([])


def test_a_debt_outlives_a_bank_that_cannot_be_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A loss of its savings is the share's, and a loss of its debt the others': it is said, and owed all the same."""
    store = ShareStore(tmp_path / "state")
    store.write([entry(tmp_path)])
    own(tmp_path).write_bytes(b'{"written":50000,"owes":[8900000,100],"deposits":[[1]]}')
    with caplog.at_level(logging.WARNING):
        assert store.load(GPU, POD) == Savings(50_000, (), None, (8_900_000, 100))
    assert ["begins empty" in record.message for record in caplog.records] == [True]


def test_half_an_own_copy_is_an_empty_bank(tmp_path: Path) -> None:
    """This holds wherever a power cut ended it."""
    store = ShareStore(tmp_path / "state")
    store.write([entry(tmp_path)])
    text = own(tmp_path).read_bytes()
    for cut in range(0, len(text), 10):
        own(tmp_path).write_bytes(text[:cut])
        assert store.load(GPU, POD) is None


@pytest.mark.parametrize("kind", ["link", "directory", "pipe"])
def test_only_regular_files_are_read(tmp_path: Path, kind: str) -> None:
    """Others are neither waited for, nor followed."""
    store = ShareStore(tmp_path / "state")
    store.write([entry(tmp_path)])
    path = own(tmp_path)
    elsewhere = path.rename(tmp_path / "elsewhere.json")
    if kind == "link":
        path.symlink_to(elsewhere)
    elif kind == "directory":
        path.mkdir()
    else:
        os.mkfifo(path)
    assert store.load(GPU, POD) is None


def test_no_link_is_followed_when_writing(tmp_path: Path) -> None:
    """A link in the place of the file is replaced, and one in the place of the folder is refused."""
    store = ShareStore(tmp_path / "state")
    victim = tmp_path / "victim"
    victim.write_text("mine")
    store.write([entry(tmp_path)])
    for name in (seen(tmp_path).name, f".{seen(tmp_path).name}.new"):
        (seen(tmp_path).parent / name).unlink(missing_ok=True)
        (seen(tmp_path).parent / name).symlink_to(victim)
        assert store.write([entry(tmp_path)])
        assert victim.read_text() == "mine"
        assert not seen(tmp_path).is_symlink()
    other = tmp_path / "other"
    other.mkdir()
    (other / "shares").symlink_to(tmp_path)
    assert not store.write([entry(tmp_path, directory=other)])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "slot", "state", "victim"]


def test_a_folder_that_others_can_change_is_refused(tmp_path: Path) -> None:
    """Files there could be replaced by others."""
    (tmp_path / "slot" / "shares").mkdir(parents=True)
    (tmp_path / "slot" / "shares").chmod(0o777)
    assert not ShareStore(tmp_path / "state").write([entry(tmp_path)])
    with pytest.raises(PermissionError, match="changed by others"):
        paths.listen(tmp_path / "slot", GPU)


@pytest.mark.parametrize("name", ["", "..", "a/b", ".hidden", "x" * 65, "a\n", "ä"])
def test_a_name_cannot_lead_elsewhere(tmp_path: Path, name: str) -> None:
    """Names with separators are refused, even by mistake."""
    store = ShareStore(tmp_path)
    for gpu, pod in ((name, POD), (GPU, name)):
        with pytest.raises(ValueError, match="no uuid"):
            store.write([entry(tmp_path, gpu=gpu, pod=pod)])


def test_one_that_cannot_be_written_keeps_no_other_from_it(tmp_path: Path) -> None:
    """The failure is reported, so that it can be tried again."""
    store = ShareStore(tmp_path / "state")
    (tmp_path / "file").write_text("")
    bad, good = entry(tmp_path, directory=tmp_path / "file"), entry(tmp_path, pod="other", directory=tmp_path / "b")
    assert not store.write([bad, good])
    assert store.load(GPU, "other") is not None


def test_copies_of_an_earlier_server_are_found(tmp_path: Path) -> None:
    """All own copies are, but of no known share those that are so old that nothing in them can be spent: they go."""
    store = ShareStore(tmp_path / "state")
    for gpu, pod in (("GPU-1", "a"), ("GPU-1", "b"), ("GPU-2", "a")):
        store.write([entry(tmp_path, gpu=gpu, pod=pod)])
    for pod in "ab":
        os.utime(tmp_path / "state" / "shares" / "GPU-1" / f"{pod}.json", (1, 1))
    for odd in ("GPU-1/.a.json.new", "GPU-1/a.txt", "GPU-1/a b.json", "GPU 3/a.json", "GPU-4"):
        (tmp_path / "state" / "shares" / odd).parent.mkdir(exist_ok=True)
        (tmp_path / "state" / "shares" / odd).touch()
    left = {("GPU-1", "b"), ("GPU-2", "a")}
    assert store.begin([("GPU-1", "b")]).keys() == left
    assert [store.load(gpu, "a") is not None for gpu in ("GPU-1", "GPU-2")] == [False, True]
    (tmp_path / "state" / "shares" / "GPU-2").chmod(0o777)
    assert store.begin([("GPU-1", "b")]).keys() == {("GPU-1", "b")}, "One that cannot be read costs no other."


def test_a_share_that_ended_leaves_nothing(tmp_path: Path) -> None:
    """Neither copy is left, nor the socket; ending it again changes nothing."""
    store = ShareStore(tmp_path / "state")
    store.write([entry(tmp_path)])
    with paths.listen(tmp_path / "slot", GPU):
        assert (tmp_path / "slot" / "shares" / f"{GPU}.sock").is_socket()
        store.write([entry(tmp_path)])
        for _ in range(2):
            store.withdraw(GPU, POD, tmp_path / "slot")
            store.forget(GPU, POD)
    assert list((tmp_path / "slot" / "shares").iterdir()) == []
    assert not own(tmp_path).exists()
    store.withdraw(GPU, POD, tmp_path / "gone")
    assert not (tmp_path / "gone").exists()


def test_a_share_begins_without_the_file_of_an_earlier_one(tmp_path: Path) -> None:
    """A directory that another pod had shows nothing of that one."""
    ShareStore(tmp_path / "state").write([entry(tmp_path)])
    with paths.listen(tmp_path / "slot", GPU):
        assert [path.name for path in (tmp_path / "slot" / "shares").iterdir()] == [f"{GPU}.sock"]


def test_a_socket_in_a_place_with_a_long_path(tmp_path: Path) -> None:
    """Its path may be longer than an address, and an old socket may be there."""
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    for _ in range(2):
        with paths.listen(deep, GPU):
            assert (deep / "shares" / f"{GPU}.sock").stat().st_mode & 0o777 == 0o666


def test_a_bank_survives_on_disk(tmp_path: Path) -> None:
    """It is read with the age of its deposits."""
    store = ShareStore(tmp_path / "state")
    store.write([entry(tmp_path)])
    found = store.load(GPU, POD)
    assert found is not None
    assert restored(found, 5_000, 1003) == (Deposit(700, 5_000 - 60 - 3_000),)
