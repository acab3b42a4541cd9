"""Users of the machine: their names and groups, looked up again after a while, and kept while no database answers."""

from __future__ import annotations

import grp
import os
import pwd

import pytest

from jupyter_gpu.common import machine_users
from jupyter_gpu.common.machine_users import User, Users, groups_of

UNKNOWN = 4242424
ME = os.geteuid()


def unknown(_: object) -> None:
    """Answer as a database that is away."""
    raise KeyError


def test_user_has_the_name_and_groups_of_the_databases() -> None:
    """A user that none of them knows is named by the number, and in no group."""
    users = Users()
    assert users.get(ME) == User(str(ME))
    assert users.learn([ME, UNKNOWN])
    name = pwd.getpwuid(ME).pw_name
    assert users.get(ME).name == name
    assert grp.getgrgid(pwd.getpwuid(ME).pw_gid).gr_name in users.get(ME).groups
    assert users.get(UNKNOWN) == User(str(UNKNOWN))
    assert groups_of(name) == users.get(ME).groups
    assert groups_of("no such user") == frozenset()


def test_user_is_looked_up_again_and_kept_while_no_database_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A network that is away for a while takes no user out of the groups; a group that is gone does."""
    users = Users()
    users.learn([ME])
    known = users.get(ME)
    with monkeypatch.context() as away:
        away.setattr(pwd, "getpwuid", unknown)
        assert not users.learn([ME])  # not asked again yet
        away.setattr(machine_users, "AGAIN", 0.0)
        assert not users.learn([ME])
        assert users.get(ME) == known
    monkeypatch.setattr(machine_users, "AGAIN", 0.0)
    monkeypatch.setattr(grp, "getgrgid", unknown)
    assert users.learn([ME])
    assert users.get(ME) == User(known.name)
