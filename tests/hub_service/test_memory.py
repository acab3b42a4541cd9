"""The memory of the service: what it keeps of each object, and what it imports."""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
import tracemalloc
from typing import Any

import pytest

from jupyter_gpu.kube import Credentials, Kube, ObjectChange
from jupyter_gpu.model.limits.account import Account
from jupyter_gpu.model.limits.owner import Owner, object_name
from jupyter_gpu_hub.rules import accounts
from jupyter_gpu_hub.rules.known import KnownLimit
from jupyter_gpu_hub.rules.paging import PageQuery
from jupyter_gpu_hub.settings import HubServiceSettings
from jupyter_gpu_hub.state.copy import Copy
from jupyter_gpu_hub.state.hub_api import HubAddress, HubApi
from jupyter_gpu_hub.state.site import Site

from .rules.builders import limit_object

COUNT = 1000
SETTINGS = HubServiceSettings()
KILOBYTES = 1.5
"""Most that one limit, and one account, may take."""


def limit(number: int) -> dict[str, Any]:
    """Return a limit with two changes, and what the API server adds."""
    changes = [{"by": "root", "at": "2026-05-03T10:00:00Z", "to": {"max": str(i)}} for i in range(2)]
    subject = {"kind": "User", "name": f"user-{number}", "hub": "jhub"}
    made = limit_object(subject, name=object_name("User", f"user-{number}", "jhub"), changes=changes, max=number % 8)
    return whole(made, number)


def account(number: int) -> dict[str, Any]:
    """Return an account with the hours of 35 days."""
    owner = Owner("User", f"user-{number}", "jhub")
    found = Account(owner)
    days = {f"2026-{5 + day // 30:02}-{1 + day % 30:02}": "12.5" for day in range(35)}
    return whole({"metadata": {}, "spec": found.spec(), "status": {**found.status(), "hours": days}}, number)


def whole(made: dict[str, Any], number: int) -> dict[str, Any]:
    """Return an object as it comes from the API server: texts of its own, and the fields of managers."""
    more: dict[str, Any] = {"uid": f"6f1ed002-ab5f-4c6d-8a35-{number:012}", "resourceVersion": str(10**6 + number)}
    fields = {"f:spec": {f"f:{key}": {} for key in made["spec"]}, "f:metadata": {"f:annotations": {".": {}}}}
    more["managedFields"] = [{"manager": "jupyter-gpu-hub", "operation": "Update", "fieldsV1": fields}]
    found: dict[str, Any] = json.loads(json.dumps({**made, "metadata": {**made["metadata"], **more}}))
    return found


@pytest.mark.parametrize(("make", "read"), [(limit, KnownLimit.of), (account, accounts.read)])
def test_object_takes_little_memory(make: Any, read: Any) -> None:
    """The API server's text of it is twice as long at least, and would take ten times as much once it is read."""
    copy: Copy[Any] = Copy(Kube(Credentials("http://nowhere")), "/", read, lambda _before, _after: None)
    kept: dict[str, Any] = {}
    tracemalloc.start(1)
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number in range(COUNT):
            item = copy.reflector._trimmed(make(number))  # as it does with each object that comes
            kept[item["metadata"]["uid"]] = item
            copy._take(ObjectChange("added", item))
        del item
        gc.collect()
        size = (tracemalloc.get_traced_memory()[0] - before) / COUNT
    finally:
        tracemalloc.stop()
    assert len(list(copy)) == COUNT
    assert size < KILOBYTES * 1024


def site_of(count: int) -> Site:
    """Return the service's knowledge of as many users, each with a limit and an account."""
    site = Site(Kube(Credentials("http://nowhere")), HubApi(HubAddress("http://nowhere", "")), "jhub", SETTINGS)
    for copy, make in ((site.limits, limit), (site.accounts, account)):
        for number in range(count):
            copy._take(ObjectChange("added", copy.reflector._trimmed(make(number))))
    return site


def test_table_and_preview_keep_next_to_nothing() -> None:
    """Only the rows of a page are made of thousands; a preview goes through the accounts one after another."""

    async def work(site: Site) -> None:
        site.refresh_users = nothing  # type: ignore[method-assign] # there is no hub
        for sort in ("kind", "-used", "name"):
            query = PageQuery(sort=sort.removeprefix("-"), descending=sort != "name")
            found = await site.subjects(query)
            assert (found.total, len(found.rows)) == (COUNT + 2, 50)
            assert (await site.users(PageQuery(search="user-7"))).total == 111
        assert (await site.preview(site.plain_limits()))["losers"] == []

    async def nothing() -> None:
        """Read no users."""

    site = site_of(COUNT)
    site.index, site.known, site.accounts_by_owner  # noqa: B018 - what is kept in any case
    tracemalloc.start(1)
    try:
        before = tracemalloc.get_traced_memory()[0]
        asyncio.run(work(site))
        gc.collect()
        now, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (now - before) / COUNT < 250
    assert (most - before) / COUNT < 1000


def imported(code: str) -> set[str]:
    """Return the modules that a new interpreter has after ``code``."""
    words = [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules)"]
    return set(subprocess.run(words, capture_output=True, text=True, check=True, timeout=120).stdout.split())


def test_service_imports_no_database_and_no_client_of_kubernetes() -> None:
    """They would take half of its memory."""
    found = imported("import jupyter_gpu_hub.process")
    assert "jupyterhub.services.auth" in found
    assert not found & {"sqlalchemy", "sqlalchemy.orm", "alembic", "jupyterhub.orm", "kubernetes", "pydantic"}


def test_module_that_was_put_off_is_there_when_it_is_used() -> None:
    """Through the name that the hub's library has for it, and by an import of its own."""
    found = imported(
        "import jupyter_gpu_hub.login, jupyterhub.scopes as scopes\n"
        "assert scopes.orm.User.__tablename__ == 'users'\n"
        "import jupyterhub.orm, sqlalchemy\n"
        "assert scopes.orm.User is jupyterhub.orm.User and scopes.sa.inspect is sqlalchemy.inspect\n"
        "from jupyterhub.app import JupyterHub"
    )
    assert {"jupyterhub.orm", "jupyterhub.roles", "alembic"} <= found


def test_login_that_needs_the_database_at_once_has_it() -> None:
    """Another version of the hub's library may; nothing of the first attempt stays."""
    imported(
        "from jupyter_gpu_hub import login_stand_ins as ins\n"
        "import sys\n"
        "ins.PUT_OFF = (*ins.PUT_OFF, 'tornado.web')\n"
        "auth = ins.import_login()\n"
        "import tornado.web, jupyterhub.services.auth\n"
        "assert auth is jupyterhub.services.auth\n"
        "assert issubclass(auth.HubOAuthCallbackHandler, tornado.web.RequestHandler)"
    )
