"""GPU-hours as one server knows them."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from jupyter_gpu.backends.local.limits.rules.meters import Moment
from jupyter_gpu.backends.local.limits.user_accounts import UserAccounts
from jupyter_gpu.common import limits_file
from jupyter_gpu.model.limits.account import Account
from jupyter_gpu.model.limits.machine_accounts import STALE, MachineAccounts
from jupyter_gpu.model.limits.machine_file import HUB
from jupyter_gpu.model.limits.owner import Owner

ANN = Owner("User", "ann", HUB)
NOON = datetime(2026, 5, 4, 12, tzinfo=UTC).timestamp()


def moment(at: float, boot: str = "b") -> Moment:
    """Return a moment so many seconds after noon, when the machine was started."""
    return Moment(boot, at, NOON + at, UTC)


def put(known: UserAccounts, counted: float, milli: int) -> None:
    """Write accounts of ann, who holds ``milli``."""
    limits_file.replace(known.path, MachineAccounts("b", counted, {ANN: Account(ANN, used=milli)}).encode())


def test_use_goes_on_since_it_was_written(tmp_path: Path) -> None:
    """So that a server foresees the end of a budget, and asks nobody."""
    known = UserAccounts(tmp_path, hub=False)
    put(known, 100, 2000)
    found = known.meters(moment(110))
    assert found
    assert found[ANN].used == {date(2026, 5, 4): 20_000}
    assert known.until(moment(110)) == NOON + 100 + STALE
    assert known.counted
    assert not known.is_awaited()


@pytest.mark.parametrize("spoil", ["absent", "old", "boot", "damaged"])
def test_hours_that_are_not_counted_are_awaited(tmp_path: Path, spoil: str, caplog: pytest.LogCaptureFixture) -> None:
    """The change of the file is seen without a look at its content."""
    known, now = UserAccounts(tmp_path, hub=False), moment(1000, boot="other" if spoil == "boot" else "b")
    if spoil != "absent":
        put(known, 999 if spoil == "boot" else 1, 1000)
    if spoil == "damaged":
        known.path.write_text("{")
    assert known.meters(now) is None
    assert (known.counted, known.is_awaited()) == (False, False)
    assert "GPU-hours of this machine's users are not being counted" in caplog.text
    put(known, 999, 1000)
    assert known.is_awaited()
    assert known.meters(moment(1000)) is not None
    assert not known.is_awaited()
