"""The machine's time zone."""

from __future__ import annotations

from datetime import UTC
from pathlib import Path

import pytest

from jupyter_gpu.common import machine_zone


def test_zone_is_that_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And UTC where it has none, or one that can't be read."""
    zone = tmp_path / "localtime"
    monkeypatch.setattr(machine_zone, "LOCALTIME", zone)
    assert machine_zone.machine_zone() is UTC
    zone.write_text("no zone")
    assert machine_zone.machine_zone() is UTC


def test_name_is_that_of_the_link_or_of_the_file_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And UTC where neither is the name of a zone."""
    zone, name = tmp_path / "localtime", tmp_path / "timezone"
    monkeypatch.setattr(machine_zone, "LOCALTIME", zone)
    monkeypatch.setattr(machine_zone, "NAME", name)
    assert machine_zone.zone_name() == "UTC"
    zone.write_text("a copy")
    assert machine_zone.zone_name() == "UTC"
    name.write_text("Asia/Tokyo\n")
    assert machine_zone.zone_name() == "Asia/Tokyo"
    name.write_text("../Nowhere")
    assert machine_zone.zone_name() == "UTC"
    (tmp_path / "zoneinfo" / "Europe").mkdir(parents=True)
    (target := tmp_path / "zoneinfo" / "Europe" / "Berlin").write_text("")
    zone.unlink()
    zone.symlink_to(target)
    assert machine_zone.zone_name() == "Europe/Berlin"
