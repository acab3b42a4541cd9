"""The limit of the user, in what `gpu.status()` returns."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from jupyter_gpu.kernel.reports.status import GpuStatus
from jupyter_gpu.model.limits.pod_limit import PodLimit
from jupyter_gpu.model.limits.source import Source, SourceKind
from jupyter_gpu.model.view import LIMIT_LOWERED, Condition
from tests.kernel.builders import view

ODD = Source(SourceKind.GROUP, "<img onerror=alert(1)>", "root", 1777800000)


def test_status_has_the_limit_and_its_source() -> None:
    """The fields are for programs; the text has it in a line of its own, and in a cell it is no markup."""
    status = GpuStatus(view(1000, limit=1000, of_user=PodLimit(1000, 2000, ODD)))
    assert (status.limit, status.maximum, status.give_back_at) == (1, 2, None)
    assert status.limit_source == "set for group <img onerror=alert(1)> by root on 3 May"
    line = "Your limit is 2 GPUs, set for group <img onerror=alert(1)> by root on 3 May. Your other servers have 1."
    assert status.remarks[0] == line
    assert f"\n  {line}\n" in repr(status)
    assert "&lt;img onerror=alert(1)&gt;" in status._repr_html_()
    assert "<img" not in status._repr_html_()


def test_status_without_a_limit_says_nothing_of_it() -> None:
    """Without limits in force, or without one for the user, there is no line and no field is set."""
    for now in (view(1000), view(1000, of_user=PodLimit(None, None, ODD))):
        status = GpuStatus(now)
        assert (status.maximum, status.limit_source, status.give_back_at) == (None, "", None)
        assert not any("limit" in remark for remark in status.remarks)
    assert repr(GpuStatus(view(1000))) == repr(GpuStatus(view(1000, of_user=PodLimit(None, None, ODD))))


def test_status_tells_when_gpus_are_taken_back() -> None:
    """The time is one with a zone; the condition of the server says the rest, and is not repeated."""
    lowered = view(2000, limit=1000, of_user=PodLimit(1000, 1000, ODD, 1795617000))
    status = GpuStatus(replace(lowered, conditions=(Condition(LIMIT_LOWERED, "Lowered: 1 GPU will be taken back."),)))
    assert status.give_back_at == datetime(2026, 11, 25, 14, 30, tzinfo=UTC)
    assert status.sentence == "2 GPUs attached, over your limit of 1: 1 GPU will be taken back soon"
    assert status.remarks == ("Lowered: 1 GPU will be taken back.",)
