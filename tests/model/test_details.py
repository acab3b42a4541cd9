"""Details of a GPU beside its load, and which user sees them."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model import strict
from jupyter_gpu.model.details import (
    MAX_BYTES,
    Details,
    GpuDetails,
    LinkRates,
    NamedProcessUse,
    OtherProcesses,
    ProcessUse,
    Reading,
    named,
    read_all,
)
from jupyter_gpu.model.gpu import Holder

from . import golden
from .strategies import names

SIZES = st.integers(0, MAX_BYTES)
RATES = st.none() | st.builds(LinkRates, SIZES, SIZES)
USES = st.builds(ProcessUse, st.integers(0, 9), st.none() | SIZES)
READINGS = st.builds(
    Reading,
    st.none() | st.integers(0, 1000),
    st.none() | st.floats(0, 100_000),
    RATES,
    RATES,
    st.none() | st.lists(USES, max_size=6, unique_by=lambda use: use.pid).map(tuple),
)
DETAILS = st.builds(
    GpuDetails,
    st.none() | st.integers(0, 1000),
    st.none() | st.floats(0, 100_000),
    RATES,
    RATES,
    st.none()
    | st.lists(st.builds(NamedProcessUse, st.integers(0, 9), names(256), st.none() | SIZES), max_size=3).map(tuple),
    st.none() | st.builds(OtherProcesses, st.integers(1, 1024), st.none() | SIZES),
)
HOLDERS = st.dictionaries(st.integers(1, 9), st.builds(Holder, st.integers(0, 9), names(256)))


@given(READINGS)
def test_reading_survives_a_round_trip(reading: Reading) -> None:
    """Nothing is lost, and unknown fields are not in the text."""
    text = strict.dumps(reading.to_json())
    assert Reading.from_json(json.loads(text)) == reading
    assert "null" not in text


@given(DETAILS)
def test_details_survive_a_round_trip(details: GpuDetails) -> None:
    """Nothing is lost, and unknown fields are not in the text."""
    text = strict.dumps({"GPU-1": details.to_json()})
    assert read_all(json.loads(text)) == {"GPU-1": details}
    assert "null" not in text


@given(READINGS, HOLDERS)
def test_unknown_process_is_counted_without_a_name(reading: Reading, known: dict[int, Holder]) -> None:
    """Every process is counted once, by name only where its user may know it; no byte is lost or invented."""
    found = named(reading, known)
    if reading.processes is None:
        assert (found.processes, found.others) == (None, None)
        return
    assert found.processes is not None
    theirs = [use for use in reading.processes if use.pid not in known]
    assert len(found.processes) + len(theirs) == len(reading.processes)
    assert {use.command for use in found.processes} <= {holder.command for holder in known.values()}
    assert (found.others.processes if found.others else 0) == len(theirs)
    if found.others and found.others.memory is not None:
        assert found.others.memory == min(MAX_BYTES, sum(use.memory or 0 for use in theirs))
        assert all(use.memory is not None for use in theirs)


def test_limits_and_rates_are_the_same_for_every_user() -> None:
    """Limits and rates do not depend on the pod; a pid is the one that the pod sees."""
    reading = Reading(
        90, 400.0, LinkRates(1, 2), LinkRates(3, 4), (ProcessUse(11, 5), ProcessUse(12, 6), ProcessUse(13))
    )
    found = named(reading, {11: Holder(1, "python")})
    others = OtherProcesses(2)
    assert found == GpuDetails(90, 400.0, LinkRates(1, 2), LinkRates(3, 4), (NamedProcessUse(1, "python", 5),), others)
    assert named(Reading(processes=(ProcessUse(12, 6), ProcessUse(13, 7))), {}).others == OtherProcesses(2, 13)
    assert Details(1.5, {"GPU-1": GpuDetails(90)}).to_json() == {"time": 1.5, "gpus": {"GPU-1": {"slowdown": 90}}}


@pytest.mark.parametrize("case", golden.load("details"), ids=lambda case: case["name"])
def test_golden_file_is_read(case: dict[str, Any]) -> None:
    """The file that the front end reads, too, says what the model does."""
    gpus = read_all(case["details"]["gpus"])
    assert Details(case["details"]["time"], gpus).to_json() == case["details"]


@pytest.mark.parametrize(
    "body",
    [
        {"slowdown": -1},
        {"slowdown": 90.5},
        {"power_limit": "much"},
        {"pcie": {"received": 1}},
        {"nvlink": {"received": -1, "sent": 0}},
        {"processes": [{"pid": 1}]},
        {"others": {"processes": 0}},
        [],
    ],
    ids=str,
)
def test_invalid_details_are_refused(body: Any) -> None:
    """Values out of range are refused."""
    with pytest.raises(strict.FieldError):
        read_all({"GPU-1": body})
