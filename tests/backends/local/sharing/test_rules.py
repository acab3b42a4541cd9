"""The pure parts of time shares on one machine: records and how far they are trusted, revocations, preloading."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.backends.local.records.record import MAX_REVOCATIONS, Record
from jupyter_gpu.backends.local.sharing import supervisor
from jupyter_gpu.backends.local.sharing.rules import revocation
from jupyter_gpu.backends.local.sharing.rules.claims import ShareClaim, claims, parted, served
from jupyter_gpu.backends.local.sharing.rules.revocation import Revocation
from jupyter_gpu.common.rules import search_path
from jupyter_gpu.model import strict
from jupyter_gpu.model.annotations import Allocated, Attached, Requested, Wish
from jupyter_gpu.model.gpu import DrainingShare, GpuShare
from jupyter_gpu.model.strict import FieldError
from jupyter_gpu_node.processes.rules.process_id import ProcessId
from jupyter_gpu_node.shares.rules.turns.terms import Terms

UID = "0" * 32
SERVER = ProcessId(1, 2)
GPU, OTHER = "GPU-1", "GPU-2"


def record(
    shares: tuple[GpuShare, ...] = (), draining: tuple[DrainingShare, ...] = (), memory: int | None = None,
    allocated: tuple[GpuShare, ...] = (), revocations: tuple[str, ...] = (), uid: str = UID,
) -> Record:  # fmt: skip
    """One that has these."""
    return Record(
        uid, SERVER, "boot", 1, requested=Requested(1, Wish(1000, memory=memory)), revocations=revocations,
        allocated=Allocated(1, allocated or shares), attached=Attached(1, shares, draining),
    )  # fmt: skip


# --- claims -----------------------------------------------------------------------------------------------------------


def test_pod_may_use_attached_gpus_and_those_it_has_not_closed_yet() -> None:
    """Programs that still have a GPU open go on in their turns until they end."""
    found = claims(record((GpuShare(GPU, 250),), (DrainingShare(OTHER, 500),)))
    assert set(found) == {ShareClaim(UID, GPU, 250), ShareClaim(UID, OTHER, 500)}


def test_a_gpu_that_is_both_counts_once() -> None:
    """A GPU that is attached and drains is claimed with the larger of both amounts."""
    assert claims(record((GpuShare(GPU, 250),), (DrainingShare(GPU, 500),))) == (ShareClaim(UID, GPU, 500),)


def test_the_memory_of_the_wish_is_a_limit_of_shares_alone() -> None:
    """For a whole GPU that memory says which GPU is wanted."""
    found = claims(record((GpuShare(GPU, 250), GpuShare(OTHER, 1000)), memory=7))
    assert set(found) == {ShareClaim(UID, GPU, 250, 7), ShareClaim(UID, OTHER, 1000)}


def test_a_record_without_gpus_or_wish_claims_nothing() -> None:
    """A server writes such a record when it starts."""
    assert claims(Record(UID, SERVER, "boot", 1)) == ()
    assert claims(Record(UID, SERVER, "boot", 1, attached=Attached(1, (GpuShare(GPU, 1),)))) == (
        ShareClaim(UID, GPU, 1),
    )


def test_names_that_cannot_be_files_claim_nothing() -> None:
    """A record can say anything."""
    assert claims(record((GpuShare("../../etc", 250),))) == ()
    assert claims(record((GpuShare(GPU, 250),), uid="../x")) == ()


names = st.sampled_from("abcd")
wanted = st.lists(
    st.builds(ShareClaim, names, st.sampled_from([GPU, OTHER]), st.integers(1, 1000), st.none()), max_size=8
)


@given(wanted, wanted)
def test_gpu_is_never_apportioned_more_than_once(first: list[ShareClaim], then: list[ShareClaim]) -> None:
    """No pod gets more than it claims, and one that has a GPU keeps it as long as it claims it."""
    before = served(first, {})
    after = served(then, before)
    claimed = {(claim.gpu, claim.pod): claim.milli for claim in then}
    for gpu, pods in after.items():
        assert sum(terms.milli for terms in pods.values()) <= 1000
        for pod, terms in pods.items():
            assert terms.milli <= claimed[gpu, pod]
    for (gpu, pod), milli in claimed.items():
        had = before.get(gpu, {}).get(pod)
        assert had is None or after[gpu][pod].milli >= min(had.milli, milli)


@given(st.lists(st.integers(1, 400), min_size=1, max_size=4).filter(lambda parts: sum(parts) <= 1000))
def test_honest_records_get_their_claims(parts: list[int]) -> None:
    """Together they claim no more than the GPU."""
    found = served((ShareClaim(str(i), GPU, milli, i) for i, milli in enumerate(parts)), {})
    assert found == {GPU: {str(i): Terms(milli, i) for i, milli in enumerate(parts)}}


def test_claim_that_gets_nothing_is_not_served() -> None:
    """A share of nothing is none."""
    before = {GPU: {"b": Terms(1000)}}
    assert served([ShareClaim("a", GPU, 500), ShareClaim("b", GPU, 1000)], before) == before


# --- revocations ------------------------------------------------------------------------------------------------------

FOUND = Revocation("key", GPU, "It kept the GPU.", (ProcessId(5, 6),))


def test_a_revocation_is_read_as_it_was_written() -> None:
    """All of its parts are."""
    assert revocation.decode(revocation.encode([FOUND, Revocation("other", OTHER, "Why.")])) == (
        FOUND,
        Revocation("other", OTHER, "Why."),
    )


@pytest.mark.parametrize(
    "text",
    [b"", b"[]", b"{}", b'{"revocations": 1}', b'{"verdicts": [1]}', b'{"verdicts": [{"key": "k"}]}', b"\xff",
     b'{"revocations": [{"key": "k", "gpu": "g", "reason": "r", "processes": [{"pid": -1, "started": 0}]}]}',
     b" " * (revocation.MAX_BYTES + 1)],
)  # fmt: skip
def test_malformed_revocation_is_refused(text: bytes) -> None:
    """Another user's arbiter may have written it."""
    with pytest.raises(FieldError):
        revocation.decode(text)


def test_a_revocation_names_no_more_processes_than_can_be_read() -> None:
    """The first of thousands are enough: the server finds the others itself."""
    many = Revocation("k", GPU, "r", tuple(ProcessId(pid, 1) for pid in range(1, 1000)))
    assert len(revocation.decode(revocation.encode([many]))[0].processes) == revocation.MAX_PROCESSES


SHARE, LEFT = GpuShare(GPU, 500), DrainingShare(GPU, 500)


@pytest.mark.parametrize(
    ("found", "stands"),
    [
        pytest.param(record((SHARE,)), True, id="not carried out yet"),
        pytest.param(record((SHARE,), allocated=(GpuShare(OTHER, 1),), revocations=("key",)), True, id="decided"),
        pytest.param(record((), (LEFT,), revocations=("key",)), True, id="still open"),
        pytest.param(record(revocations=("key",)), False, id="closed"),
        pytest.param(record((SHARE,), revocations=("key",)), False, id="granted anew"),
        pytest.param(record(), False, id="given back meanwhile"),
        pytest.param(Record(UID, SERVER, "boot", 1, revocations=("key",)), False, id="nothing at all"),
        pytest.param(
            Record(UID, SERVER, "boot", 1, attached=Attached(1, (SHARE,)), revocations=("key",)), True, id="no decision"
        ),
    ],
)
def test_a_revocation_stands_until_its_gpu_is_given_back(found: Record, stands: bool) -> None:
    """It does whatever is killed between two writes."""
    assert revocation.is_in_force(FOUND, found) is stands


def test_a_record_tells_which_revocations_were_carried_out() -> None:
    """Records that do not know of revocations are read, too."""
    revocations = tuple(map(str, range(MAX_REVOCATIONS)))
    assert Record.decode(record(revocations=revocations).encode()).revocations == revocations
    body = record().to_json()
    del body["revocations"]
    assert Record.decode(strict.dumps(body).encode()).revocations == ()


# --- the search path --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, "/gate"), ("", "/gate"), ("/a", "/gate:/a"), ("/a;/b", "/gate:/a:/b"), ("/gate:/a", "/gate:/a"),
        ("/a:/gate", "/gate:/a"), ("/a b", "/gate:/a b"), ("/a:", "/gate:/a:"),
    ],
)  # fmt: skip
def test_a_folder_comes_before_those_of_the_user(before: str | None, after: str) -> None:
    """It is first, and once; the working directory is searched only if the user says so."""
    assert search_path.joined("/gate", before) == after


@pytest.mark.parametrize(
    ("now", "left"), [("/gate", None), ("/gate:/a", "/a"), ("/a;/b", "/a:/b"), (None, None), ("", None)]
)
def test_search_path_of_the_user_stays(now: str | None, left: str | None) -> None:
    """It is as before when our folder is taken out again."""
    assert search_path.without("/gate", now) == left


@pytest.mark.parametrize(
    ("path", "can"),
    [
        ("/opt/gate", True),
        ("/my lib/gate", True),
        ("/a:b", False),
        ("/a;b", False),
        ("/$LIB/x", False),
        ("/a\n", False),
    ],
)
def test_not_every_path_can_be_searched(path: str, can: bool) -> None:
    """The variable has separators, and no way to quote them."""
    assert search_path.can_be_named(path) is can


@given(st.lists(st.text("ab/. ", max_size=3) | st.just(""), max_size=5))
def test_taking_it_out_again_changes_nothing(folders: list[str]) -> None:
    """The folders of the user stay, in the same order."""
    before = ":".join(folders)
    assert (search_path.without("/gate", search_path.joined("/gate", before)) or "") == before


# --- pauses -----------------------------------------------------------------------------------------------------------


def test_pauses_grow_and_end() -> None:
    """An arbiter that was killed is replaced within a second, one that cannot start is tried each half minute."""
    assert [supervisor.pause(n, "") for n in (1, 2, 3, 99)] == [0.1, 0.2, 0.4, supervisor.KILLED_PAUSE]
    assert [supervisor.pause(n, "why") for n in (1, 2, 99)] == [0.1, 0.2, supervisor.LAST_PAUSE]


def test_share_has_no_larger_part_of_memory_than_of_time() -> None:
    """If the GPU's memory is known, a share gets the smaller of its part and its wish; a whole GPU has no limit."""
    shares = {
        "a": {"x": Terms(250, 900), "y": Terms(500), "z": Terms(250, 100)},
        "b": {"x": Terms(1000)},
        "c": {"x": Terms(500)},
    }
    assert parted(shares, {"a": 1000, "b": 1000}) == {
        "a": {"x": Terms(250, 250), "y": Terms(500, 500), "z": Terms(250, 100)},
        "b": {"x": Terms(1000)},
        "c": {"x": Terms(500)},
    }
