"""The holders of a machine's GPUs, and which user may see them."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model import strict
from jupyter_gpu.model.gpu import Gpu
from jupyter_gpu.model.machine import GpuPart, Machine, Server, Shown, Totals
from jupyter_gpu.model.overview import ServerClaim, overview
from jupyter_gpu.model.view import GpuLoad

from . import golden
from .strategies import names

GPUS = tuple(Gpu(f"GPU-{i}", i, "Test", 2**30) for i in (1, 0))
HELD = st.dictionaries(st.sampled_from(["GPU-0", "GPU-1", "GPU-gone"]), st.integers(1, 1000))
CLAIMS = st.lists(
    st.builds(
        ServerClaim,
        uid=names(9),
        user=st.sampled_from(["secret ann", "secret bob"]),
        mine=st.booleans(),
        here=st.booleans(),
        folder=st.just("secret folder") | st.just(""),
        port=st.none() | st.integers(1, 65535),
        ended=st.booleans(),
        held=HELD,
        draining=st.frozensets(st.sampled_from(["GPU-0", "GPU-1"])),
        owed=st.integers(0, 4000),
        position=st.none() | st.integers(1, 30),
    ),
    max_size=5,
    unique_by=lambda claim: claim.uid,
)


@given(CLAIMS, st.sampled_from(list(Shown)))
def test_machine_survives_a_round_trip(claims: list[ServerClaim], shown: Shown) -> None:
    """Nothing is lost, and no GPU has more than one whole, whatever was claimed."""
    machine = overview(GPUS, claims, {"GPU-0": GpuLoad(5, 6)}, shown)
    assert Machine.from_json(json.loads(strict.dumps(machine.to_json()))) == machine
    for gpu in machine.gpus:
        assert sum(part.milli for part in gpu.parts) + gpu.free == 1000
        assert gpu.free == max(0, 1000 - sum(claim.held.get(gpu.uuid, 0) for claim in claims))


@given(CLAIMS)
def test_sums_are_the_same_for_every_user(claims: list[ServerClaim]) -> None:
    """The sums do not depend on what else is shown."""
    everybody, own, totals = (overview(GPUS, claims, {}, shown) for shown in Shown)
    assert everybody.totals == own.totals == totals.totals
    assert everybody.totals.waiting == sum(claim.owed > 0 for claim in claims)
    assert everybody.totals.free + everybody.totals.used == 2000
    assert [gpu.free for gpu in everybody.gpus] == [gpu.free for gpu in own.gpus]


@given(CLAIMS)
def test_other_users_stay_private(claims: list[ServerClaim]) -> None:
    """No folder or port of another user is ever shown, no other user's name where only own servers are; sums have no
    names.
    """
    theirs = [replace(claim, mine=False) for claim in claims]
    for claim in overview(GPUS, theirs, {}, Shown.EVERYBODY).servers:
        assert (claim.folder, claim.port) == ("", None)
    assert "secret" not in str(overview(GPUS, theirs, {}, Shown.OWN).to_json())
    assert "secret" not in str(overview(GPUS, claims, {}, Shown.TOTALS).to_json())
    assert overview(GPUS, claims, {}, Shown.TOTALS).gpus == ()


def claim(uid: str, held: Mapping[str, int] | None = None, **more: Any) -> ServerClaim:
    """Return a claim of another user, unless told otherwise."""
    return ServerClaim(uid, more.pop("user", uid), mine=more.pop("mine", False), held=held or {}, **more)


def test_servers_are_sorted() -> None:
    """The server itself comes first, then its user's others, then waiting ones by place in line, then by name."""
    found = overview(
        GPUS,
        [
            claim("zoe"),
            claim("bob", owed=2000, position=2),
            claim("ann", owed=500, position=1),
            claim("me-too", mine=True, user="me", folder="~/b", port=8889),
            claim("me", mine=True, here=True, folder="~/a"),
        ],
        {},
        Shown.EVERYBODY,
    )
    assert [(one.user, one.folder) for one in found.servers] == [
        *(("me", "~/a"), ("me", "~/b")),
        *(("ann", ""), ("bob", ""), ("zoe", "")),
    ]


def test_parts_of_a_gpu_are_shown_by_holder() -> None:
    """Parts of servers that may be shown come first, then those of others together; what is being given back is shown,
    also of ended servers.
    """
    claims = [
        claim("me", {"GPU-0": 500}, mine=True, here=True, draining=frozenset({"GPU-0"})),
        claim("ann", {"GPU-0": 250, "GPU-1": 1000}),
        claim("bob", {"GPU-0": 100}, ended=True),
        claim("carl", {"GPU-0": 100}),
    ]
    first, second = overview(GPUS, claims, {}, Shown.OWN).gpus
    assert first.parts == (GpuPart(500, 0, draining=True), GpuPart(350), GpuPart(100, draining=True))
    assert (first.free, second.parts, second.free) == (50, (GpuPart(1000),), 0)
    first, second = overview(GPUS, claims, {}, Shown.EVERYBODY).gpus
    assert first.parts == (
        GpuPart(500, 0, draining=True),
        GpuPart(250, 1),
        GpuPart(100, 2, draining=True),
        GpuPart(100, 3),
    )
    broken = tuple(replace(gpu, healthy=False) for gpu in GPUS)
    assert overview(broken, claims, {}, Shown.OWN).totals == Totals(2, 0, 1950, 0)


def test_false_claim_takes_nothing_from_the_own_server() -> None:
    """The server that is asked is shown with what it has."""
    claims = [claim("liar", {"GPU-0": 1000}), claim("me", {"GPU-0": 1000}, mine=True, here=True)]
    (first, _) = overview(GPUS, claims, {}, Shown.EVERYBODY).gpus
    assert first.parts == (GpuPart(1000, 0),)


@pytest.mark.parametrize("case", golden.load("machines"), ids=lambda case: case["name"])
def test_golden_file_is_read(case: dict[str, Any]) -> None:
    """The file that the front end reads, too, says what the model does."""
    assert Machine.from_json(case["machine"]).to_json() == case["machine"]


GOOD = overview(GPUS, [claim("me", {"GPU-0": 500}, mine=True, here=True)], {}, Shown.EVERYBODY).to_json()


@pytest.mark.parametrize(
    "change",
    [
        {"shown": "all"},
        {"totals": {"gpus": 1}},
        {"servers": []},
        {"servers": [{"user": "x", "has": -1}]},
        {"gpus": [{**GOOD["gpus"][0], "parts": [{"milli": 600}, {"milli": 600}]}]},
        {"gpus": [{**GOOD["gpus"][0], "index": "x"}]},
    ],
    ids=str,
)
def test_invalid_machine_is_refused(change: Any) -> None:
    """Values out of range are refused."""
    assert Machine.from_json(GOOD).servers == (Server("me", here=True, has=500),)
    with pytest.raises(strict.FieldError):
        Machine.from_json({**GOOD, **change})
