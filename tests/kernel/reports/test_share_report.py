"""Answers of `gpu.usage()`: figures, words, and the text where there is no share."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from jupyter_gpu.kernel.api import ServerGpus
from jupyter_gpu.kernel.client import Client
from jupyter_gpu.kernel.reports.rules.usage import seconds
from jupyter_gpu.kernel.reports.shares import GpuUsage, ShareReport, usage
from jupyter_gpu.model.errors import GpuError
from jupyter_gpu.model.share import GuestUse, ShareUse
from jupyter_gpu.model.usage import GpuUse, Usage
from jupyter_gpu.model.view import Sample, View
from tests.kernel.builders import gpu, view
from tests.kernel.connection.test_client import Reply, Site, site  # noqa: F401 - a fixture

SHARE = ShareUse(
    uuid=gpu(0).uuid,
    allocated=250,
    effective=400,
    guaranteed=12_000_000,
    borrowed=3_000_000,
    idle=1_500_000,
    overrun=500_000,
    switching=10,
    waited=800_000,
    throttled=250_000,
    lost=0,
    balance=1_200_000,
    cap=2_000_000,
    expires=17_000_000,
    sharing=2,
    period=100_000,
    busy=0.93,
    reason="Another share of this GPU lends it what it does not use.",
    memory_used=2**30,
    memory_limit=20 * 2**30,
)
BARE = replace(SHARE, effective=250, sharing=0, busy=None, expires=None, balance=0, reason="", memory_used=None)


TOTAL = Usage(1.0, 60.0, (GpuUse("GPU-1", 0, "H100", 30.0),))


def sample(*shares: ShareUse) -> Sample:
    """Return a sample with these shares."""
    return Sample(1.0, {}, {share.uuid: share for share in shares})


def test_shares_have_seconds_and_ratios() -> None:
    """An overrun is time of its own."""
    (one,) = usage(view(250), sample(SHARE))
    assert (one.uuid, one.index, one.name) == (SHARE.uuid, 0, "GPU 0")
    assert (one.allocated, one.slice) == (0.25, 0.4)
    assert (one.guaranteed, one.borrowed, one.idle, one.waiting, one.throttled) == (12.5, 3.0, 1.5, 0.8, 0.25)
    assert (one.bank, one.bank_cap, one.expires) == (1.2, 2.0, 17.0)
    assert (one.sharing, one.busy, one.memory, one.memory_limit) == (2, 0.93, 2**30, 20 * 2**30)
    assert one.reason == SHARE.reason


def test_report_is_readable_as_text_and_table() -> None:
    """All of it can be read in a terminal and in a notebook."""
    found = usage(view(250), sample(SHARE))
    assert repr(found).splitlines() == [
        "Your server has one time share.",
        "GPU 0: 0.4 of it now (0.25 allocated), shared with 2 others, 93% busy",
        "  ran       17 s: 12.5 s of its slice, 3 s from its bank, 1.5 s idle time",
        "  waited    800 ms, of it 250 ms with nothing left to spend",
        "  bank      1.2 s of at most 2 s; the next deposit expires in 17 s",
        "  memory    1 GiB of 20 GiB",
        "  reason    Another share of this GPU lends it what it does not use.",
    ]
    html = found._repr_html_()
    assert "<caption>GPU 0: 0.4 of it now (0.25 allocated), shared with 2 others, 93% busy</caption>" in html
    assert '<th scope="row">Waited</th>' in html


def test_unknown_figures_are_left_out() -> None:
    """They are not made up."""
    assert repr(usage(view(250), sample(BARE))[0]).splitlines() == [
        "GPU 0: 0.25 of it, nobody else shares it",
        "  ran       17 s: 12.5 s of its slice, 3 s from its bank, 1.5 s idle time",
        "  waited    800 ms, of it 250 ms with nothing left to spend",
        "  bank      0 s of at most 2 s",
    ]
    assert "shared with 1 other" in repr(usage(view(250), sample(replace(SHARE, sharing=1, busy=None))))
    assert "memory    1 GiB\n" in repr(usage(view(250), sample(replace(SHARE, memory_limit=None))))


def test_guest_is_told() -> None:
    """As text and as JSON; without one nothing is said."""
    found = usage(view(250), sample(replace(SHARE, guest=GuestUse(0.404, 12 * 2**30))))
    assert "  guest     40 % of the time and 12 GiB" in repr(found).splitlines()
    assert found.to_json()["shares"][0]["guest"] == {"busy": 0.404, "memory": 12 * 2**30}
    assert usage(view(250), sample(SHARE)).to_json()["shares"][0].get("guest") is None


def test_reason_is_escaped() -> None:
    """Words of the node are shown as they are."""
    html = usage(view(250), sample(replace(SHARE, reason="<b>")))._repr_html_()
    assert "&lt;b&gt;" in html
    assert "<b>" not in html


@pytest.mark.parametrize(
    ("now", "shares", "length", "sentence"),
    [
        (view(0), (), 0, "Your server has no time share of a GPU: a whole one is shared with nobody"),
        (view(2000), (), 0, "Your server has no time share of a GPU"),
        (view(250), (), 0, "Your server has one time share; there are no figures yet for 1 of them."),
        (view(250), (SHARE,), 1, "Your server has one time share."),
        (view(250), (SHARE, replace(SHARE, uuid="GPU-x")), 2, "Your server has 2 time shares."),
        (view(1500), (SHARE,), 1, "Your server has 2 time shares; there are no figures yet for 1 of them."),
    ],
)
def test_empty_report_gives_the_reason(now: View, shares: tuple[ShareUse, ...], length: int, sentence: str) -> None:
    """It is false."""
    found = usage(now, sample(*shares))
    assert (len(found), bool(found)) == (length, length > 0)
    assert found.sentence.startswith(sentence)
    assert repr(found).startswith(sentence)
    assert found._repr_html_().startswith(f"<p>{sentence}")


def test_shares_are_sorted_by_index() -> None:
    """A GPU that was given back at this moment comes last, under its uuid."""
    shares = [replace(SHARE, uuid=uuid) for uuid in ("gone", gpu(1).uuid, gpu(0).uuid)]
    found = usage(view(1500), sample(*shares))
    assert [one.name for one in found] == ["GPU 0", "GPU 1", "gone"]
    assert found == GpuUsage(tuple(found))
    assert isinstance(found[2], ShareReport)


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (0, "0 s"),
        (0.000012, "0.012 ms"),
        (0.0031, "3.1 ms"),
        (0.9994, "999 ms"),
        (0.9996, "1 s"),
        (17.04, "17 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min 0 s"),
        (200, "3 min 20 s"),
        (3 * 3600 + 61, "3 h 1 min"),
    ],
)
def test_seconds_are_short(amount: float, text: str) -> None:
    """They never fill a longer unit."""
    assert seconds(amount) == text


@pytest.fixture
def answers(site: Site) -> dict[str, object]:  # noqa: F811 - the fixture
    """Set the answers of a real web server, by the end of the path."""
    found: dict[str, object] = {"usage": TOTAL.to_json(), "status": view(250).to_json()}
    found["sample"] = sample(SHARE).to_json()

    def reply() -> Reply:
        return 200, "application/json", json.dumps(found[site.asked[-1][1].rpartition("/")[2]]).encode()

    site.reply = reply
    return found


def test_report_joins_view_and_sample(site: Site, answers: dict[str, object]) -> None:  # noqa: F811 - the fixture
    """Both come from the server."""
    gpus = ServerGpus(Client(site.server_for()))
    assert gpus.usage() == usage(view(250), sample(SHARE), TOTAL)
    assert [path for _, path, _, _ in site.asked] == [f"/base/jupyter-gpu/api/v1/{name}" for name in answers]


def test_unreadable_sample_names_versions_as_cause(site: Site, answers: dict[str, object]) -> None:  # noqa: F811 - the fixture
    """Versions that do not fit are the likely cause."""
    answers["sample"] = {"time": 1.0, "gpus": {}, "shares": {"a": {"uuid": "a"}}}
    with pytest.raises(GpuError, match="different versions"):
        ServerGpus(Client(site.server_for())).usage()
