"""The account of a server's use: its sums, its sentences, and its way through the server."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.kernel.reports.rules.usage import facts, html, lines, sentence
from jupyter_gpu.model.gpu import GpuShare
from jupyter_gpu.model.gpu_kind import GpuKind
from jupyter_gpu.model.pod_worker import PodWorker, Stage
from jupyter_gpu.model.service import Relation
from jupyter_gpu.model.share import ShareUse
from jupyter_gpu.model.strict import FieldError
from jupyter_gpu.model.usage import GpuUse, Usage
from jupyter_gpu.model.view import GpuLoad, GpuState, PodGpu, Sample, View
from jupyter_gpu.server.rules.accounting import HoldingAccount, advanced, sampled, seen
from tests.kernel.servers import Server
from tests.model.test_share import ONE as SHARE

from .test_watch_view import BARE, ONE, TWO


def view(*gpus: tuple[int, GpuState]) -> View:
    """Return a view with GPU 0 and 1 of these amounts and states."""
    known = zip((ONE, TWO), gpus, strict=False)
    return replace(BARE, gpus=tuple(PodGpu(gpu, milli, state) for gpu, (milli, state) in known if milli))


WHOLE = view((1000, GpuState.ATTACHED))
HALF = view((500, GpuState.ATTACHED))


def load(percent: float | None) -> Sample:
    """Return a sample with the load of one GPU."""
    return Sample(0.0, {"GPU-1": GpuLoad(percent, 0)})


def share(**fields: int) -> Sample:
    """Return a sample with the account of a share of GPU 0."""
    nothing = dict.fromkeys(("guaranteed", "borrowed", "idle", "overrun", "waited"), 0)
    return Sample(0.0, {}, {"GPU-1": ShareUse.from_json({**SHARE.to_json(), **nothing, **fields})})


def test_held_time_is_counted() -> None:
    """Whole GPUs and parts are counted apart, from one change to the next; a draining GPU is still held."""
    account = seen(HoldingAccount(0.0), WHOLE, 10.0)
    account = seen(account, view((1000, GpuState.DRAINING), (250, GpuState.ATTACHED)), 30.0)
    account = seen(account, BARE, 70.0)
    first, second = advanced(account, 500.0).usage(1.0, 500.0).gpus
    assert (first.whole, first.held, first.gpu_time) == (60.0, 60.0, 60.0)
    assert (second.shared, second.worth, second.held, second.gpu_time) == (40.0, 10.0, 40.0, 10.0)


def test_attaching_gpu_is_not_held() -> None:
    """A GPU that cannot be opened yet is not counted."""
    assert seen(HoldingAccount(0.0), view((1000, GpuState.ATTACHING)), 1.0).holding == {}


def test_busy_time_is_known_only_while_a_viewer_looks() -> None:
    """A sample covers the time since the previous one, but no pause, and no time before the GPU came."""
    account = seen(HoldingAccount(0.0), WHOLE, 100.0)
    account = sampled(account, load(50.0), 100.25, 1.0)
    assert account.uses["GPU-1"].watched == 0.25
    account = sampled(account, load(50.0), 102.0, 1.0)
    account = sampled(account, load(100.0), 602.0, 1.0)
    account = sampled(account, load(None), 603.0, 1.0)
    use = advanced(account, 700.0).uses["GPU-1"]
    assert (use.whole, use.watched, use.busy) == (600.0, 0.25 + 1.75 + 1.0, 0.125 + 0.875 + 1.0)


def test_share_time_follows_the_account_of_the_node() -> None:
    """Time run between two samples counts however far apart they are; the node's totals may start anew."""
    account = seen(HoldingAccount(0.0), HALF, 0.0)
    account = sampled(account, share(guaranteed=2_000_000, idle=1_000_000, waited=500_000), 5.0, 1.0)
    account = sampled(account, share(guaranteed=9_000_000, idle=1_000_000, waited=500_000), 900.0, 1.0)
    assert (account.uses["GPU-1"].ran, account.uses["GPU-1"].waited) == (10.0, 0.5)
    account = sampled(account, share(borrowed=1_000_000), 901.0, 1.0)  # the node's totals began anew
    assert account.uses["GPU-1"].ran == 11.0
    account = sampled(seen(seen(account, BARE, 950.0), HALF, 960.0), share(guaranteed=3_000_000), 970.0, 1.0)
    assert account.uses["GPU-1"].ran == 14.0
    account = sampled(account, share(guaranteed=2_999_000), 971.0, 1.0)  # a refund
    assert account.uses["GPU-1"].ran == 14.0
    whole = sampled(seen(account, WHOLE, 980.0), share(guaranteed=99_000_000), 981.0, 1.0)
    assert whole.uses["GPU-1"].ran == 14.0  # its file may be older than the change


def test_gpus_of_other_nodes_are_counted() -> None:
    """From the view that shows them on, with the model once it is known; a worker that has none counts for nothing."""
    share, half = GpuShare("GPU-far", 1000), GpuShare("GPU-half", 500)
    there = PodWorker("w1", "node2", Relation.SWITCH, Stage.READY, 1500, (share, half))
    account = seen(HoldingAccount(0.0), replace(WHOLE, workers=(there,)), 0.0)
    kinds = (GpuKind("H200", 2**30), GpuKind("H100", 2**30))
    account = seen(account, replace(WHOLE, workers=(there._replace(kinds=kinds),)), 10.0)
    account = seen(account, replace(BARE, workers=(there._replace(milli=0, gpus=(), kinds=()),)), 30.0)
    own, far, part = account.usage(0.0, 60.0).gpus
    assert (own.node, own.whole) == ("", 30.0)
    assert (far.node, far.index, far.model, far.whole) == ("node2", 0, "H200", 30.0)
    assert (part.node, part.index, part.model, part.shared, part.worth) == ("node2", 1, "H100", 30.0, 15.0)
    usage = Usage(0.0, 60.0, (far, part))
    assert lines(usage) == [
        "This server held 45 s of GPU time since it started 1 min 0 s ago.",
        "  GPU 0 on node2 30 s whole · not watched, so its load is not known",
        "  GPU 1 on node2 30 s shared, worth 15 s",
    ]
    assert "GPU 1 on node2</th>" in html(usage)


def test_account_in_words() -> None:
    """Each GPU has what is known of it, and says what is not."""
    assert sentence(Usage(0.0, 90.0)) == "This server has held no GPU since it started 1 min 30 s ago."
    assert facts(GpuUse("a", 0, "m")) == ["just taken"]
    unseen = GpuUse("a", 0, "m", whole=60.0)
    assert facts(unseen) == ["1 min 0 s whole", "not watched, so its load is not known"]
    both = replace(unseen, watched=30.0, busy=15.0, shared=20.0, worth=10.0, ran=5.0, waited=2.0)
    usage = Usage(0.0, 3600.0, (both,))
    assert lines(usage) == [
        "This server held 1 min 10 s of GPU time since it started 1 h 0 min ago.",
        "  GPU 0   1 min 0 s whole · busy 50% of the 30 s watched · 20 s shared, worth 10 s · ran 5 s, waited 2 s",
    ]
    assert "<table>" in html(usage)
    assert "<table>" not in html(Usage(0.0, 1.0))


Steps = st.lists(
    st.tuples(
        st.floats(0.0, 100.0),
        st.sampled_from(["view", "sample", "back"]),
        st.integers(0, 1000),
        st.sampled_from(GpuState),
        st.floats(0.0, 100.0),
    ),
    max_size=20,
)


@given(Steps)
def test_nothing_is_counted_twice(steps: list[tuple[float, str, int, GpuState, float]]) -> None:
    """No GPU is held longer than it was, watched longer than held, or busy longer than watched."""
    account, now = HoldingAccount(0.0), 0.0
    for passed, what, milli, state, percent in steps:
        now += passed
        if what == "view":
            account = seen(account, view((milli, state)), now)
        elif what == "sample":
            account = sampled(account, load(percent), now, 1.0)
        else:
            account = advanced(account, now - passed)
    for use in advanced(account, now).usage(0.0, now).gpus:
        assert use.held <= now + 1e-6
        assert -1e-9 <= use.busy <= use.watched + 1e-9 <= use.whole + 2e-9
        assert use.worth <= use.shared + 1e-9


uses = st.builds(
    GpuUse,
    st.sampled_from(["GPU-1", "GPU-2"]),
    st.integers(0, 4095),
    st.just("H100"),
    *[st.floats(0, 1e9)] * 7,
    st.sampled_from(["", "node2"]),
)


@given(st.builds(Usage, st.floats(0, 1e9), st.floats(0, 1e9), st.lists(uses, max_size=3).map(tuple)))
def test_account_round_trips(usage: Usage) -> None:
    """An account is read as it was sent."""
    assert Usage.from_json(json.loads(json.dumps(usage.to_json()))) == usage


@pytest.mark.parametrize("bad", [{}, {"since": -1.0}, {"since": True}, {"since": "1"}, {"gpus": [{}]}, {"gpus": 7}])
def test_other_json_is_refused(bad: dict[str, object]) -> None:
    """It is not read as an account."""
    body = {"since": 1.0, "seconds": 1.0, "gpus": []}
    with pytest.raises(FieldError):
        Usage.from_json({**body, **bad} if bad else {})


def test_usage_of_a_real_server(server: Server) -> None:
    """`jupyter gpu usage` tells what was held, also of a GPU that was given back, and how busy it was while watched."""
    assert server.cli("usage").stdout.startswith("This server has held no GPU since it started ")
    with server.kernel() as kernel:
        kernel.run("from jupyter_gpu import gpu, simulate; gpu.resize(1); held = simulate.hold(); held.__enter__()")
        for _ in range(2):
            kernel.run("import time; time.sleep(1.2)")
            server.rest("GET", "jupyter-gpu/api/v1/sample")
        kernel.run("held.__exit__(None, None, None); gpu.release()")
    body = json.loads(server.cli("usage", "--json").stdout)
    (use,) = body["gpus"]
    assert 2.0 < use["whole"] < body["seconds"]
    assert 1.0 < use["watched"] <= use["whole"]
    assert body["shares"] == []
    again = json.loads(server.cli("usage", "--json").stdout)
    assert again["gpus"] == body["gpus"]
    shown = server.cli("usage").stdout
    assert " whole · busy " in shown
    assert "Your server has no time share of a GPU" in shown
