"""Errors of the driver that make a GPU unfit, and for how long."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu_node.gpus.rules import xids
from jupyter_gpu_node.gpus.rules.xids import CALM, GpuErrors

APPLICATION = (13, 31, 43, 45, 68, 109)
"""Numbers that a device plugin has to ignore: faults of programs."""
GPUS = ("GPU-a", "GPU-b")

numbers = st.integers(0, 200)
looks = st.dictionaries(st.sampled_from(GPUS), st.one_of(st.none(), st.just(0)))


def test_lists_of_errors_are_disjoint() -> None:
    """Errors that programs cause are listed, and no error is on both lists."""
    assert set(APPLICATION) <= xids.HARMLESS.keys()
    assert not xids.HARMLESS.keys() & xids.FATAL.keys()


@pytest.mark.parametrize(
    ("xid", "fatal"), [(13, False), (31, False), (48, True), (79, True), (94, False), (4711, True)]
)
def test_unlisted_error_is_a_fault(xid: int, fatal: bool) -> None:
    """A fault of a program is harmless; an error that is not listed is not."""
    assert bool(xids.problem_of(xid)) is fatal


@given(st.lists(st.one_of(st.tuples(st.sampled_from(GPUS), st.sampled_from(APPLICATION)), looks)))
def test_program_faults_never_make_a_gpu_unhealthy(steps: list[tuple[str, int] | dict[str, int | None]]) -> None:
    """However often, in whatever order, and whatever a driver that asks for nothing says meanwhile."""
    errors = GpuErrors()
    for step in steps:
        if isinstance(step, dict):
            errors.update(step)
        else:
            errors.record_error(*step)
        assert [errors.problem(uuid) for uuid in GPUS] == ["", ""]


@given(numbers.filter(lambda xid: xid not in xids.HARMLESS), st.lists(st.one_of(numbers, looks)))
def test_unhealthy_gpu_recovers_only_after_calm_checks(xid: int, steps: list[int | dict[str, int | None]]) -> None:
    """It stays unhealthy until the driver, or a reset, and then enough checks in a row without an error clear it."""
    errors, calm, away = GpuErrors(), 0, False
    errors.record_error("GPU-a", xid)
    for step in steps:
        if isinstance(step, int):
            errors.record_error("GPU-a", step)
            if step not in xids.HARMLESS:
                calm, away = 0, False
        else:
            errors.update(step)
            away = away or "GPU-a" not in step
            said = "GPU-a" in step and (step["GPU-a"] == 0 or away)
            calm = calm + 1 if said else 0
        if calm > CALM:
            assert errors.problem("GPU-a") == ""
            return
        assert errors.problem("GPU-a")
        assert not errors.problem("GPU-b")


def test_skipped_gpu_does_not_count_as_reset() -> None:
    """A GPU that was skipped because it hung has not been away."""
    errors = GpuErrors()
    errors.record_error("GPU-a", 48)
    errors.update({}, unasked=["GPU-a"])
    for _ in range(3 * CALM):
        errors.update({"GPU-a": None})
    assert "Reset the GPU" in errors.problem("GPU-a")
    errors.update({})
    for _ in range(CALM + 1):
        assert errors.problem("GPU-a")
        errors.update({"GPU-a": None})
    assert errors.problem("GPU-a") == ""


def test_recovery_action_is_reported() -> None:
    """Beside the error, and alone; an action that is not known is reported as its number."""
    errors = GpuErrors()
    errors.update({"GPU-a": 2, "GPU-b": 99})
    assert errors.problem("GPU-a") == "The driver says what it needs: Restart the machine."
    assert "action 99" in errors.problem("GPU-b")
    errors.record_error("GPU-a", 62)
    assert "Xid 62: its internal controller halted. The driver says" in errors.problem("GPU-a")
    for _ in range(2 * CALM):
        errors.update({"GPU-a": 2})
    assert errors.problem("GPU-a")
