"""REST about users and the cluster: the table, one user, the visitor, the cluster's bar, the list of changes."""

from __future__ import annotations

from typing import Any

from jupyter_gpu.model import strict
from jupyter_gpu.model.limits.explain import ATTRIBUTES, explain
from jupyter_gpu.model.limits.limit import MAX_SUBJECT, SubjectKind
from jupyter_gpu.model.limits.owner import Owner
from jupyter_gpu.model.limits.times import format_gpu_hours
from jupyter_gpu.model.message import sentences
from jupyter_gpu_hub.rules import audit, people, subjects, words
from jupyter_gpu_hub.rules.paging import page, read_query
from jupyter_gpu_hub.rules.people import UserRow
from jupyter_gpu_hub.rules.usage import PodUse

from .api import ApiHandler
from .base import EDITS


class UsersHandler(ApiHandler):
    """The table of users."""

    async def get(self) -> None:
        """Answer with one page of the table."""
        self.need_reader()
        query = read_query(self.query(), people.SORTS)
        found = await self.site.users(query)
        problem = self.site.problem()
        self.answer({**found.to_json([row.to_json() for row in found.rows]), "problem": problem or None})


class SubjectsHandler(ApiHandler):
    """The one table of users, groups, the default and the cap."""

    async def get(self) -> None:
        """Answer with one page of the table; ``kind``: only subjects of that kind."""
        self.need_reader()
        fields = self.query()
        kind = fields.pop("kind", None)
        only = None if kind is None else SubjectKind(strict.one_of(*SubjectKind)(kind, "kind"))
        query = read_query({"sort": "kind", **fields}, subjects.SORTS)
        found = await self.site.subjects(query, only)
        problem = self.site.problem()
        self.answer({**found.to_json([row.to_json() for row in found.rows]), "problem": problem or None})


class ExplainHandler(ApiHandler):
    """One user: the limit in words, and the limits that it comes from."""

    async def get(self, name: str) -> None:
        """Answer for any name; a limit of a user who does not exist yet is explained as well. ``field``: of a limit."""
        self.need_reader()
        query = self.query()
        strict.no_unknown(query, ("field",))
        field = strict.one_of(*ATTRIBUTES)(query.get("field", "max"), "field")
        await self.site.refresh_users()
        self.answer(self._explained(strict.text(MAX_SUBJECT)(name, "user"), field))

    def _explained(self, name: str, field: str) -> dict[str, Any]:
        row, owner = self.site.user(name), Owner("User", name, self.site.hub)
        index = self.site.index
        return {
            **row.to_json(),
            "sentence": sentences(words.may_have(row.limit, name=name), words.use(row, name=name)),
            "limits": [step.to_json() for step in explain(owner, index.of(owner), field)],
            **more_json(row),
        }


class MeHandler(ApiHandler):
    """The visitor's own limit, use and place in line."""

    async def get(self) -> None:
        """Answer for the user whose cookie or token it is."""
        strict.no_unknown(self.query(), ())
        row = self.site.user(self.user())
        self.answer(
            {
                **own_json(row),
                "sentence": sentences(words.may_have(row.limit), words.use(row)),
                "hub": self.site.hub,
                "machine": self.site.place.is_machine,
                "mayRead": self.visitor.may_read,
                "mayEdit": self.visitor.may_edit and self.settings[EDITS],
                "problem": self.site.problem() or None,
            }
        )


class ClusterHandler(ApiHandler):
    """The GPUs of the cluster."""

    async def get(self) -> None:
        """Answer with the amounts by state, in milli."""
        self.need_reader()
        strict.no_unknown(self.query(), ())
        self.answer({**self.site.cluster().to_json(), "problem": self.site.problem() or None})


class AuditHandler(ApiHandler):
    """The changes of limits."""

    async def get(self) -> None:
        """Answer with one page of the list, newest first unless another order is asked for."""
        self.need_reader()
        query = read_query({"sort": "-at", **self.query()}, audit.SORTS)
        found = page(await self.site.audit(), query, audit.SORTS[query.sort], lambda row: row.text)
        self.answer(found.to_json([row.to_json() for row in found.rows]))


def own_json(row: UserRow) -> dict[str, Any]:
    """Return the JSON of a user for that user: with the pods, and in words for the reader."""
    body = row.to_json()
    for key, value in (("limit", row.limit), ("guaranteed", row.guaranteed)):
        body[key]["sentence"] = value.source.sentence()
    del body["known"]
    return {**body, **more_json(row)}


def more_json(row: UserRow) -> dict[str, Any]:
    """Return what is shown of one user only: pods, and GPU-hours by day."""
    hours = row.account.hours if row.account else {}
    return {
        "pods": [pod_json(pod) for pod in row.pods],
        "hours": {day.isoformat(): str(format_gpu_hours(hours[day])) for day in sorted(hours)},
    }


def pod_json(pod: PodUse) -> dict[str, Any]:
    """Return the JSON of one pod's use."""
    return {
        "namespace": pod.namespace,
        "name": pod.name,
        "server": pod.server,
        "used": pod.milli,
        "draining": pod.draining,
        "idle": pod.idle,
        "waiting": pod.waiting,
        "position": pod.position,
    }
