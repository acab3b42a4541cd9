"""The view of a pod on one machine: each trouble has a condition, in words for its user."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_gpu.backends.local.records.record import Record
from jupyter_gpu.backends.local.rules import conditions
from jupyter_gpu.backends.local.rules.views import MAX_REPAIRS, KnownState, ShareTroubles, Troubles, Visibility, compose
from jupyter_gpu.backends.local.scans.scan_result import ScanResult
from jupyter_gpu.backends.local.settings import Settings
from jupyter_gpu.backends.local.site.rules.apart import Surroundings
from jupyter_gpu.backends.local.site.rules.site_limit import SiteLimit
from jupyter_gpu.model.annotations import Reason
from jupyter_gpu.model.gpu import AMD, Gpu, Holder
from jupyter_gpu.model.gpu_kind import gpu_kinds
from jupyter_gpu.model.limits.pod_limit import PodLimit
from jupyter_gpu.model.limits.source import UNSET
from jupyter_gpu.model.view import Mode, View
from jupyter_gpu_node.processes.rules.process_id import ProcessId
from tests.builders import allocated, attached, inventory

SERVER = ProcessId(7, 1)
REAL = inventory(2)
SIMULATED = tuple(Gpu(gpu.uuid, gpu.index, gpu.model, gpu.memory, simulated=True) for gpu in inventory(2))
PLACE = Surroundings(path="/gpus", chosen=False, mounts="", first=None, contained=False)
CONTAINER = "500 400 0:50 / / rw,relatime - overlay overlay rw\n"


def registry(gpus: tuple[Gpu, ...] = REAL, **fields: Any) -> Any:
    """Return a registry with ``gpus``, which has been asked."""
    usual = {"known": True, "failed": False, "note": "", "all": gpus, "seen": {gpu.uuid: gpu for gpu in gpus}}
    return SimpleNamespace(**{"gpus": gpus, **usual, **fields})


def guard(mode: Mode = Mode.ENFORCED, why: str = "", problem: str = "") -> Any:
    """Return a guard in force."""
    return SimpleNamespace(mode=mode, why=why, problem=problem)


def test_kinds_of_the_machine_say_which_amounts_there_are() -> None:
    """The slider offers whole GPUs alone where none has time shares."""
    kinds = gpu_kinds(replace(gpu, vendor=AMD) for gpu in REAL)
    shown = compose(1, state(record(), registry(), guard())._replace(kinds=kinds), Settings())
    assert (shown.kinds, shown.steps) == (kinds, (0, 1000, 2000))
    assert view().steps[:2] == (0, 250)


def record(**fields: Any) -> Record:
    """Return the record of a pod."""
    return Record("u", SERVER, "boot", 1, **fields)


def view(
    pod: Record | None = None,
    gpus: Any = None,
    enforced: Any = None,
    settings: Settings | None = None,
    **troubles: Any,
) -> View:
    """Return the view of a pod on a machine without any trouble but those."""
    return compose(
        1, state(pod or record(), gpus or registry(), enforced or guard(), **troubles), settings or Settings()
    )


def state(pod: Record, gpus: Any, enforced: Any, **troubles: Any) -> KnownState:
    """Return what is known of a pod; each of the troubles goes where it belongs."""
    of_shares, seen = (
        {name: troubles.pop(name) for name in kind._fields if name in troubles} for kind in (ShareTroubles, Visibility)
    )
    known = Troubles(**troubles, shares=ShareTroubles(**of_shares))
    return KnownState(pod, gpus, enforced, ScanResult(), {}, known, Visibility(**seen))


def words(found: View) -> list[tuple[str, str]]:
    """Return type and message of each condition."""
    return [(condition.type, condition.message) for condition in found.conditions]


def test_view_without_trouble_has_no_condition() -> None:
    """Amounts and steps come from the GPUs and the limit; before the start the mode is soft."""
    found = view(settings=Settings(limit=1500))
    assert (found.total, found.limit, found.steps) == (2000, 1500, (0, 250, 500, 1000, 1500))
    assert (found.backend, found.mode, words(found)) == ("local", Mode.ENFORCED, [])
    before = compose(0, state(record(), registry(), None), Settings())
    assert (before.mode, words(before)) == (Mode.SOFT, [])


@pytest.mark.parametrize(
    ("fields", "kind", "text"),
    [
        pytest.param({"enforced": guard(Mode.SOFT, "No rights.")}, "SoftMode", "CUDA_VISIBLE_DEVICES", id="soft"),
        pytest.param({"enforced": guard(why="In a pod.")}, "Nested", "In a pod.", id="nested"),
        pytest.param({"enforced": guard(problem="no memory")}, "RulesNotApplied", "(no memory)", id="rules"),
        pytest.param({"gpus": registry((), known=False)}, "LookingForGpus", "Looking", id="looking"),
        pytest.param({"gpus": registry(failed=True, note="It hangs.")}, "GpusNotReadable", "It hangs.", id="failed"),
        pytest.param({"gpus": registry((), note="No driver.")}, "NoGpu", "No driver.", id="no GPU"),
        pytest.param({"unknown_users": (1,)}, "UsersUnknown", "use GPU 1:", id="users of one unknown"),
        pytest.param({"unknown_users": (1, 0)}, "UsersUnknown", "use GPUs 0, 1:", id="users unknown"),
        pytest.param({"site": SiteLimit("1")}, "SiteLimit", "CUDA_VISIBLE_DEVICES='1'", id="limit of the site"),
        pytest.param(
            {
                "pod": record(allocated=allocated([0], reason=Reason.PARTIAL)),
                "gpus": registry(inventory(3, unhealthy=[2])),
            },
            "GpusOutOfOrder",
            "One GPU of this machine does not work and cannot be given to anybody until that is repaired: "
            "GPU 2 (broken by a test).",
            id="one broken",
        ),
        pytest.param(
            {
                "pod": record(allocated=allocated(reason=Reason.DEFERRED)),
                "gpus": registry(inventory(2, unhealthy=[0, 1])),
            },
            "GpusOutOfOrder",
            "2 GPUs of this machine do",
            id="two broken",
        ),
        pytest.param(
            {"around": PLACE, "elsewhere": frozenset({"GPU-1"})}, "StateApart", "GPU 1 is in use", id="one elsewhere"
        ),
        pytest.param(
            {"around": PLACE, "elsewhere": frozenset({"GPU-0", "GPU-1", "GPU-9"})},
            "StateApart",
            "GPUs 0, 1 are in use",
            id="two elsewhere",
        ),
        pytest.param(
            {"around": PLACE._replace(mounts=CONTAINER, first="")}, "StateApart", "mounts of its own", id="apart"
        ),
        pytest.param({"around": PLACE._replace(contained=True)}, "Contained", "--pid=host", id="contained"),
        pytest.param(
            {"pod": record(allocated=allocated({0: 500})), "not_enforced": "no arbiter"},
            "ShareNotEnforced",
            "(no arbiter)",
            id="not enforced",
        ),
        pytest.param({"not_served": "It died."}, "ShareServerMissing", "It died.", id="arbiter missing"),
        pytest.param({"notice": "They are damaged."}, "ShareNotice", "They are damaged.", id="rules of shares"),
        pytest.param({"revoked": (("GPU 1", "It kept it."),)}, "ShareTakenAway", "of GPU 1 is lost", id="revoked"),
        pytest.param(
            {"pod": record(attached=attached(draining=[1], holders=[Holder(7, "jupyter")]))},
            "HeldByServer",
            "GPU 1 is given back, but not free: this Jupyter server itself has it open (jupyter, process 7)",
            id="one held by the server",
        ),
        pytest.param(
            {"pod": record(attached=attached(draining=[0, 1], holders=[Holder(7, "jupyter")]))},
            "HeldByServer",
            "GPUs 0 and 1 are given back",
            id="two held by the server",
        ),
        pytest.param({"problem": "The disk is full."}, "StateUnavailable", "The disk is full.", id="no state"),
        pytest.param({"unreadable": 1}, "StateDamaged", "A record of other servers", id="one damaged"),
        pytest.param({"unreadable": 2}, "StateDamaged", "2 records of other servers", id="two damaged"),
        pytest.param({"repairs": ("It was cut.",)}, "StateRepaired", "It was cut.", id="repaired"),
        pytest.param({"limits": "Line 3 is bad."}, "LimitsUnusable", "Line 3 is bad.", id="limits of users"),
        pytest.param(
            {"pod": record(allocated=allocated([0], limit=PodLimit(0, 0, UNSET, 60.0)))},
            "LimitLowered",
            "will be taken back at 00:01 UTC",
            id="lowered",
        ),
    ],
)
def test_each_trouble_has_one_condition(fields: dict[str, Any], kind: str, text: str) -> None:
    """The condition has its type and says what is wrong; no other one comes with it."""
    ((found, message),) = words(view(**fields))
    assert found == kind
    assert text in message


@pytest.mark.parametrize(("count", "text"), [(1, "The GPU is simulated"), (2, "All 2 GPUs are simulated")])
def test_simulated_gpus_are_named_as_such(count: int, text: str) -> None:
    """Simulated GPUs are no files that other servers could hand out, and soft mode says nothing of CUDA for them."""
    found = view(
        gpus=registry(SIMULATED[:count]),
        enforced=guard(Mode.SOFT),
        settings=Settings(simulated_gpus=count),
        around=PLACE._replace(contained=True),
    )
    (_, soft), (kind, message) = words(found)
    assert kind == "Simulated"
    assert text in message
    assert "CUDA" not in soft


def test_harmless_states_have_no_condition() -> None:
    """Limits that hide or take nothing, own broken GPUs, whole GPUs without an arbiter, and other holders are fine."""
    site = SiteLimit("0,1")
    site.choose(REAL)
    limit = PodLimit(2000, 2000, UNSET)
    mine = record(
        allocated=allocated([0], reason=Reason.PARTIAL, limit=limit),
        attached=attached(draining=[1], holders=[Holder(8, "python")]),
    )
    found = view(mine, registry(inventory(2, unhealthy=[0])), site=site, not_enforced="no arbiter")
    assert words(found) == []


def test_latest_repairs_are_shown() -> None:
    """A view shows so many repairs at most, the latest."""
    found = view(repairs=tuple(f"Repair {number}." for number in range(MAX_REPAIRS + 2)))
    assert [message for _, message in words(found)] == [f"Repair {number}." for number in range(2, MAX_REPAIRS + 2)]


def test_long_message_is_cut() -> None:
    """A message has a limit, and the cut is visible."""
    ((_, message),) = words(view(problem="x" * 5000))
    assert len(message) == conditions.MAX_MESSAGE
    assert message.endswith("x…")
