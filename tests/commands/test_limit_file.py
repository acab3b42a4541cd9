"""``jupyter gpu limits --machine``: the file with the limits of this machine's users."""

from __future__ import annotations

import io
import json
import os
import pwd
import re
import shlex
import stat
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest

from jupyter_gpu.common import limits_file
from jupyter_gpu.model.limits.account import Account
from jupyter_gpu.model.limits.machine_accounts import MachineAccounts
from jupyter_gpu.model.limits.machine_file import HUB, limits_of, reclaims
from jupyter_gpu.model.limits.owner import Owner

from .limits_shell import LimitsShell


class Shell(LimitsShell):
    """The command for the limits in a file."""

    def __init__(self, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
        super().__init__(capsys, "--limits-file", str(file))
        self.file = file


@pytest.fixture
def shell(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shell:
    """Return the command, for a machine without limits."""
    monkeypatch.delenv("SUDO_USER", raising=False)
    return Shell(tmp_path / "etc" / "limits.json", capsys)


def test_limit_is_set_shown_explained_and_removed(shell: Shell) -> None:
    """A field that is not named stays; the file says who changed it, and everybody may read it."""
    me = pwd.getpwuid(os.geteuid()).pw_name
    assert shell("set", "user:ann", "max=2", "weight=3") == "user:ann: created.\n"
    assert shell("set", "user:ann", "max=1", "weight=inherit") == "user:ann: changed.\n"
    assert shell("set", "user:ann", "max=1") == "user:ann: unchanged.\n"
    assert shell("set", "default", "max=0.5") == "default: created.\n"
    assert stat.S_IMODE(shell.file.stat().st_mode) == 0o644
    ann, everyone = limits_of(shell.file.read_bytes(), "other", 0)
    assert (ann.max, ann.weight, ann.source.by) == (1000, None, me)
    assert shell("explain", "ann").startswith(f"ann may have 1 GPU, set for user ann by {me} on ")
    assert shell("explain", "nobody").startswith("nobody may have 0.5 GPU, the default for everyone")
    assert everyone.max == 500
    listed = {tuple(row["subject"].values()): row["fields"] for row in shell.json("list")["limits"]}
    assert listed == {("User", "ann"): {"max": "1"}, ("Default",): {"max": "500m"}}
    assert "user:ann" in shell("list")
    assert shell("remove", "user:ann") == "user:ann: removed.\n"
    assert shell("remove", "user:ann") == "user:ann: unchanged.\n"
    assert shell.json("explain", "ann")["limit"]["value"] == "500m"
    assert shell("remove", "default") == "default: removed.\n"
    assert shell("explain", "ann") == "ann may have any number of GPUs, as no limit is set.\n"


def test_cap_and_groups_of_the_machine(shell: Shell) -> None:
    """Root sets the cap; a user's groups are those of the group database."""
    user = pwd.getpwuid(0).pw_name
    shell("set", "group:root", "max=8")
    shell("set", "cap", "max=4")
    found = shell.json("explain", user)
    assert found["limit"]["value"] == "4"
    assert [step["holds"] for step in found["limits"]].count(True) == 1


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("user:ann", "max=many"), "many"),
        (("namespace:jobs", "max=1"), "no namespaces"),
        (("ann", "max=1"), "is no subject"),
    ],
)
def test_what_cannot_hold_is_refused_and_nothing_is_written(shell: Shell, words: tuple[str, ...], why: str) -> None:
    """With a sentence that says why."""
    shell("set", *words, status=2)
    assert why in shell.error
    assert not shell.file.exists()


def test_hours_are_those_of_the_process_that_counts_them(shell: Shell) -> None:
    """By user and by group, of the machine or a hub; without the process, none would look as if nothing was used."""
    shell("usage", "--month", "2026-05", status=2)
    assert "must keep python -m jupyter_gpu.backends.local.accounting running" in shell.error
    root, ann = (Owner("User", name, HUB) for name in (pwd.getpwuid(0).pw_name, "ann"))
    hours = {date(2026, 5, 4): 1800 * 1000}
    known = MachineAccounts(
        "b", 0, {owner: Account(owner, hours=hours) for owner in (root, ann)}, groups={"ann": frozenset({"ml"})}
    )
    shell("set", "group:root", "max=8")
    shell("set", "group:ml", "max=3")
    assert shell("explain", "ann").startswith("ann may have any number of GPUs")
    file = limits_file.accounts_of(shell.file)
    limits_file.replace(file, known.encode())
    rows = shell.json("usage", "--month", "2026-05")["usage"]
    assert [(row["kind"], row["name"], row["gpuHours"]) for row in rows] == [
        ("User", "ann", "0.5"),
        ("User", "root", "0.5"),
        ("Group", "ml", "0.5"),
        ("Group", "root", "0.5"),
    ]
    assert shell("explain", "ann").startswith("ann may have 3 GPUs, set for group ml by ")
    file.write_text("{")
    shell("usage", "--month", "2026-05", status=1)
    assert "can't be used" in shell.error


def test_setting_of_the_file_stays(shell: Shell) -> None:
    """Commands change limits, and leave alone whether guaranteed GPUs are reclaimed."""
    shell.file.parent.mkdir()
    shell.file.write_text('{"limits": [], "reclaim": true}')
    shell("set", "user:ann", "max=1")
    assert reclaims(shell.file.read_bytes())
    shell.file.write_text('{"limits": [], "reclaim": "yes"}')
    shell("list", status=1)
    assert "reclaim" in shell.error


def test_budget_is_set(shell: Shell) -> None:
    """It is counted by a process of its own."""
    shell("set", "user:ann", "budget=10 per Month")
    assert shell.json("list")["limits"][0]["fields"] == {"budget": {"gpuHours": 10, "window": "Month"}}
    assert limits_file.accounts_of(limits_file.MACHINE) == limits_file.LASTING / limits_file.ACCOUNTS


def test_file_is_exported_and_applied(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its export is a file of limits itself; a dry run writes nothing, and a refused line keeps the others back."""
    shell("set", "user:ann", "max=2")
    table = shell("export", "--format", "csv")
    assert json.loads(shell("export"))["limits"] == [{"subject": {"kind": "User", "name": "ann"}, "max": "2"}]
    more = tmp_path / "more.csv"
    more.write_text(table + '"Default","","","1"\r\n')
    before = shell.file.read_bytes()
    assert "1 added" in shell("apply", "--dry-run", str(more))
    assert shell.file.read_bytes() == before
    assert "1 added" in shell("apply", str(more))
    assert len(limits_of(shell.file.read_bytes(), "root", 0)) == 2
    wrong = tmp_path / "wrong.json"
    wrong.write_text('{"limits": [{"subject": {"kind": "Cap"}, "max": 1}, {"subject": {"kind": "Usr"}}]}')
    before = shell.file.read_bytes()
    shell("apply", str(wrong), status=1)
    assert shell.file.read_bytes() == before
    monkeypatch.setattr(sys, "stdin", io.StringIO('{"limits": []}'))
    assert "2 removed" in shell("apply", "--replace", "-")
    assert limits_of(shell.file.read_bytes(), "root", 0) == ()


def test_file_that_cannot_be_used_is_left_alone(shell: Shell) -> None:
    """A person must put it right: to write it anew would drop what it was meant to say."""
    shell.file.parent.mkdir()
    shell.file.write_text("{")
    shell("set", "user:ann", "max=1", status=1)
    assert "not valid JSON" in shell.error
    assert shell.file.read_text() == "{"
    same = {"subject": {"kind": "User", "name": "ann"}, "max": 1}
    shell.file.write_text(json.dumps([same, {**same, "max": 2}]))
    shell("set", "user:ann", "max=1", status=2)
    assert "keep one of them" in shell.error


@pytest.mark.root
def test_only_root_may_write_it(shell: Shell) -> None:
    """Every user may read limits; a change by sudo is recorded under the name of the user who ran it."""
    command = [sys.executable, "-m", "jupyter_gpu.cli", "limits", "set", "--limits-file", str(shell.file), "default"]
    environment = {**os.environ, "SUDO_USER": "eve"}
    subprocess.run([*command, "max=1"], check=True, env=environment)
    (found,) = limits_of(shell.file.read_bytes(), "root", 0)
    assert found.source.by == "eve"


def test_killed_writer_leaves_the_old_file_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The new text is complete before it gets the name, and a failed write leaves nothing behind."""
    path = tmp_path / "limits.json"
    limits_file.replace(path, "old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with limits_file.locked(path), pytest.raises(OSError, match="No space"):
        limits_file.replace(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


GUIDE = (Path(__file__).parents[2] / "docs" / "admin-guide.md").read_text(encoding="utf-8")
RECIPES = [
    [shlex.split(command) for command in re.findall(r"`([^`]+)`", line.split("|")[2])]
    for line in re.findall(r"### Recipes\n\n.*?\n\|---.*?\n(.*?)\n\n", GUIDE, re.DOTALL)[0].splitlines()
]


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: " ".join(recipe[0]))
def test_recipe_of_the_guide_is_accepted(shell: Shell, recipe: list[list[str]]) -> None:
    """Each command that administrators copy does something."""
    for words in recipe:
        assert shell("set", *words) == f"{words[0]}: created.\n"
    assert all(not limit.problem for limit in limits_of(shell.file.read_bytes(), "root", 0))
    assert len(limits_of(shell.file.read_bytes(), "root", 0)) == len(recipe)


def test_file_of_the_guide_is_understood() -> None:
    """As it stands there."""
    (example,) = re.findall(r"```json\n(\{\"limits\".*?)```", GUIDE, re.DOTALL)
    found = limits_of(example.encode(), "root", 0)
    assert len(found) == 4
    assert not any(limit.problem for limit in found)
