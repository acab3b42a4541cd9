"""The hub's key and the groups of its users, in a folder of its administrator."""

from __future__ import annotations

import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_gpu.common.hub_users import GROUPS, KEY, HubUsers
from jupyter_gpu.model.limits.hub_user import prove
from jupyter_gpu.model.strict import FieldError

UID = "a" * 32


@pytest.fixture
def hub(tmp_path: Path) -> HubUsers:
    """Return the users of a hub that has a key."""
    made = HubUsers(tmp_path)
    made.make_key()
    return made


def spawner(name: str, *groups: str) -> Any:
    """Return what a hub passes to its configuration, as far as it is asked for."""
    return SimpleNamespace(user=SimpleNamespace(name=name, groups=[SimpleNamespace(name=group) for group in groups]))


def test_server_that_a_hub_starts_gets_a_credential(hub: HubUsers) -> None:
    """And the groups count as they are at that start."""
    proof = prove(hub(spawner("ann", "ml", "gpu", "bad\nname")), UID)
    assert proof
    assert proof.name == "ann"
    assert proof.is_valid(hub.key(), UID)
    assert hub.groups("ann") == {"ml", "gpu"}
    assert hub.groups("bob") == frozenset()
    hub(spawner("ann"))
    assert hub.groups("ann") == frozenset()


def test_groups_that_something_else_writes_are_not_noted(hub: HubUsers, tmp_path: Path) -> None:
    """Else a user who leaves one would have its limit until the next start of a server."""
    hub(spawner("ann", "ml"))
    assert HubUsers(tmp_path, groups=False)(spawner("ann", "ml")) == hub(spawner("ann")) != ""
    assert HubUsers(tmp_path, groups=False)(spawner("ann", "ml"))
    assert hub.groups("ann") == frozenset()


def test_key_is_made_once_and_only_its_owner_may_read_it(hub: HubUsers, tmp_path: Path) -> None:
    """Another one would make the credentials of running servers worthless."""
    before = hub.key()
    hub.make_key()
    assert hub.key() == before
    assert stat.S_IMODE((tmp_path / KEY).stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == [KEY]


@pytest.mark.parametrize("spoil", ["mode", "text", "short", "absent"])
def test_key_that_others_may_know_or_that_is_none_is_not_used(
    hub: HubUsers, tmp_path: Path, spoil: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The server starts all the same, with the limits of the machine's user."""
    path = tmp_path / KEY
    if spoil == "mode":
        path.chmod(0o644)
    elif spoil == "absent":
        path.unlink()
    else:
        path.write_text("no key" if spoil == "text" else "00ff")
    with pytest.raises((FieldError, FileNotFoundError)):
        hub.key()
    assert hub(spawner("ann")) == ""
    assert "those of the machine's user" in caplog.text


def test_groups_that_cannot_be_read_are_none(hub: HubUsers, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The next start of a server notes them anew."""
    hub.note("ann", ["ml"])
    (file,) = (tmp_path / GROUPS).iterdir()
    before = file.stat().st_ino
    hub.note("ann", ["ml"])
    assert file.stat().st_ino == before
    file.write_text("{")
    assert hub.groups("ann") == frozenset()
    assert "Groups of ann" in caplog.text
    hub.note("ann", ["ml"])
    assert hub.groups("ann") == {"ml"}
