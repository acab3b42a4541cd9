"""Stands in for an API server and a hub, with as many users, limits and accounts as wanted, for the hub's service.

    python -m benchmarks.programs.hub_stand_in COUNT

Prints its port once it answers. Whatever the token is, it is that of a user who may change limits.
"""

import asyncio
import json
import sys
import uuid
from collections.abc import Callable
from typing import Any

from tornado import netutil, web
from tornado.httpserver import HTTPServer

HUB = "hub-one"
GROUP = "jupyter-gpu.io/v1alpha1"
AT = "2026-05-03T10:00:00Z"
EDITOR = {
    "kind": "user",
    "name": "root",
    "admin": True,
    "groups": [],
    "scopes": ["access:services!service=gpu", "custom:gpu:limits"],
}


def limit(number: int) -> dict[str, Any]:
    """Return the limit of a user, with two changes."""
    changes = [
        {"by": "root", "at": AT, "to": {"max": "3"}},
        {"by": "root", "at": AT, "from": {"max": "3"}, "to": {"max": str(number % 8)}},
    ]
    annotations = {"jupyter-gpu.io/changes": json.dumps(changes)}
    labels = {"app.kubernetes.io/managed-by": "jupyter-gpu-hub"}
    subject = {"kind": "User", "name": name(number), "hub": HUB}
    spec = {"subject": subject, "max": str(number % 8), "guaranteed": "0"}
    metadata = {**_metadata(number, number), "labels": labels, "annotations": annotations}
    return {"metadata": metadata, "spec": spec, "status": {"used": "0", "waiting": "0", "conditions": []}}


def account(number: int) -> dict[str, Any]:
    """Return the account of a user, with the hours of 35 days."""
    source = {"kind": "User", "name": name(number), "by": "root", "at": 1777802400, "object": _object(number)}
    days = [f"2026-{month:02}-{day:02}" for month, last in ((4, 30), (5, 5)) for day in range(1, last + 1)]
    status = {
        "max": str(number % 8),
        "source": source,
        "used": "0",
        "waiting": "0",
        "limits": {"max": {"value": str(number % 8), "source": source}, "guaranteed": {"value": "0", "source": source}},
        "hours": dict.fromkeys(days, "12.5"),
        "countedUntil": "2026-05-05T15:00:00Z",
    }
    owner = {"kind": "User", "name": name(number), "hub": HUB}
    return {"metadata": _metadata(number, number + 10**6), "spec": {"owner": owner}, "status": status}


def name(number: int) -> str:
    """Return the name of a user."""
    return f"user-{number:05}"


def _object(number: int) -> str:
    return f"user-{name(number)}-{number:08x}"


def _metadata(number: int, unique: int) -> dict[str, Any]:
    return {
        "name": _object(number),
        "uid": str(uuid.UUID(int=unique * 7919 + 12345)),
        "resourceVersion": str(100_000 + unique),
        "generation": 2,
        "creationTimestamp": AT,
        "managedFields": [{"manager": "jupyter-gpu-hub", "operation": "Update", "fieldsV1": {"f:spec": {"f:max": {}}}}],
    }


class Objects(web.RequestHandler):
    """The lists of the API server; a watch has no news."""

    async def get(self, kind: str) -> None:
        """Answer with one page."""
        self.set_header("Content-Type", "application/json")
        if self.get_argument("watch", ""):
            await self.flush()
            await asyncio.sleep(3600)
            return
        make: Callable[[int], dict[str, Any]] | None = {"gpulimits": limit, "gpuaccounts": account}.get(kind)
        count = self.settings["count"] if make else 0
        first, size = int(self.get_argument("continue", "0") or 0), int(self.get_argument("limit", "0")) or count
        last = min(count, first + size)
        metadata = {"resourceVersion": "999999", **({"continue": str(last)} if last < count else {})}
        items = [make(number) for number in range(first, last)] if make else []
        self.finish(json.dumps({"kind": "List", "apiVersion": GROUP, "metadata": metadata, "items": items}))


class Hub(web.RequestHandler):
    """The hub's users and groups, and the owner of any token."""

    def get(self, what: str) -> None:
        """Answer with one page."""
        self.set_header("Content-Type", "application/json")
        if what == "user":
            self.finish(json.dumps(EDITOR))
            return
        count = self.settings["count"] if what == "users" else 1
        first, size = int(self.get_argument("offset", "0")), int(self.get_argument("limit", "200"))
        last = min(count, first + size)
        members = [name(number) for number in range(0, self.settings["count"], 10)]
        items = (
            [{"name": name(number)} for number in range(first, last)]
            if what == "users"
            else [{"name": "ml", "users": members, "properties": {}}]
        )
        after = {"offset": last} if last < count else None
        self.finish(json.dumps({"items": items, "_pagination": {"next": after}}))


async def main() -> None:
    """Answer until killed."""
    routes = [(r"/(?:api/v1|apis/jupyter-gpu.io/v1alpha1)/(\w+)", Objects), (r"/hub/api/(\w+)", Hub)]
    server = HTTPServer(web.Application(routes, count=int(sys.argv[1])))
    sockets = netutil.bind_sockets(0, "127.0.0.1")
    server.add_sockets(sockets)
    print(sockets[0].getsockname()[1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
