"""Users of a hub whose servers all run as one user of the machine: whose a pod is, a process of root finds out."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from jupyter_gpu.common.hub_users import HubUsers
from jupyter_gpu.model.limits.hub_user import VARIABLE, credential
from tests.backends.local.limits.test_users import put, until_limit, view
from tests.backends.local.stage import Remote, Stage, wait_for
from tests.model.limits.test_machine_file import limit

from .test_accountant import Counting, counting

pytestmark = pytest.mark.root

__all__ = ["counting"]  # a fixture

ALL = 12003
"""The user that all servers of the hub run as."""


@pytest.fixture
def hub(stage: Stage, counting: Counting) -> HubUsers:
    """Return the users of a hub, where ann may have two GPUs, the group ml three, and everybody else one."""
    counting.start()
    counting.counts()
    put(stage, limit("Default", max=1), limit("User", "ann", max=2), limit("Group", "ml", max=3))
    return HubUsers(counting.lasting.parent)


def server(stage: Stage, text: str) -> Remote:
    """Start a server with that credential."""
    actor = stage.actor()
    actor.ask("become", user=ALL, reads=True)
    actor.ask("put", **{VARIABLE: text, "JUPYTERHUB_USER": "ann"})
    made = stage.server(actor)
    wait_for(lambda: view(made)["allocated"], "the limit")
    return made


def test_servers_of_one_unix_user_have_the_limits_of_their_users_in_the_hub(stage: Stage, hub: HubUsers) -> None:
    """Two servers of a person count together, and other people's don't; groups are those of the hub."""
    hub.note("bob", ["ml"])
    first, second = (server(stage, credential(hub.key(), "ann")) for _ in range(2))
    bob = server(stage, credential(hub.key(), "bob"))
    until_limit(first, 2000)
    until_limit(bob, 3000)
    assert first.ask("request", milli=1500)["amounts"]["attached"] == 1500
    until_limit(second, 500)
    until_limit(bob, 3000)
    with pytest.raises(RuntimeError, match=r"^LimitExceeded: Your limit is 2 GPUs, set for you by root on"):
        second.ask("request", milli=1000)
    hub.note("bob", [])
    bob.ask("request", milli=500)  # groups are looked at with each change of a pod, and from time to time
    until_limit(bob, 1000)


@pytest.mark.parametrize("text", ["", "ann", "0" * 64 + ":ann"])
def test_server_without_a_credential_counts_for_the_unix_user(stage: Stage, hub: HubUsers, text: str) -> None:
    """Whatever its environment says; all such servers share one limit."""
    first, second = server(stage, text), server(stage, text)
    until_limit(first, 1000)
    first.ask("request", milli=1000)
    until_limit(second, 0)


def test_record_that_copies_a_proof_is_of_nobody_in_the_hub(stage: Stage, hub: HubUsers, counting: Counting) -> None:
    """Everybody can read ann's record, and everybody's server can write one of the same user of the machine."""
    ann = server(stage, credential(hub.key(), "ann"))
    until_limit(ann, 2000)
    ann.ask("request", milli=1000)
    uid = "f" * 32
    record = json.loads((stage.state / "pods" / f"{ann.uid}.json").read_text())
    copy = stage.state / "pods" / f"{uid}.json"
    copy.write_text(json.dumps({**record, "uid": uid}))
    os.chown(copy, ALL, ALL)
    stage.know(uid)
    wait_for(lambda: _pods(counting).get(ann.uid) == "ann", "the proof")
    wait_for(lambda: counting.holds(ALL) == 1000, "the copy to be seen")
    assert uid not in _pods(counting)
    until_limit(ann, 2000)


def _pods(counting: Counting) -> Any:
    return json.loads(counting.copy.read_text())["pods"]
