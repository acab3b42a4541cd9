"""Versions of packages at both ends."""

from __future__ import annotations

import cloudpickle
import pytest

from jupyter_gpu.remote import versions
from jupyter_gpu.remote.rules.packages import refusal


@pytest.mark.parametrize(
    ("here", "there"),
    [
        ({}, {"numpy": "2.0"}),
        ({"numpy": "2.0"}, {}),
        ({"numpy": "2.0", "torch": "2.5+cu124"}, {"numpy": "2.0", "torch": "2.5"}),
    ],
)
def test_versions_that_go_together(here: dict[str, str], there: dict[str, str]) -> None:
    """The same ones, whatever the build, and packages of one end alone."""
    assert refusal(here, there) == ""


def test_versions_that_do_not() -> None:
    """The first is named, with both versions and what to do."""
    why = refusal({"numpy": "1.26", "torch": "2.5"}, {"numpy": "2.0", "torch": "2.6"})
    assert why.startswith("The worker has numpy 2.0 and this process 1.26")
    assert "Restart the kernel" in why


def test_own_versions() -> None:
    """Those of what is loaded, and of what is installed, are the same here."""
    assert versions.loaded()["cloudpickle"] == cloudpickle.__version__
    assert refusal(versions.loaded(), versions.installed()) == ""
