"""Notes where the kernels of a server run on another one."""

from __future__ import annotations

from types import SimpleNamespace

from jupyter_gpu.server.rules.gateway import ELSEWHERE, noted, notes
from tests.kernel.builders import view


def test_note_appears_only_behind_a_gateway() -> None:
    """A server with kernels of its own has no note."""
    assert notes(SimpleNamespace(gateway_config=SimpleNamespace(gateway_enabled=True))) == (ELSEWHERE,)
    assert notes(SimpleNamespace(gateway_config=SimpleNamespace(gateway_enabled=False))) == ()
    assert notes(SimpleNamespace()) == ()


def test_note_comes_first() -> None:
    """It comes before the backend's conditions; without a note the view is unchanged."""
    now = view()
    assert noted(now, ()) is now
    assert noted(now, (ELSEWHERE,)).conditions == (ELSEWHERE, *now.conditions)
