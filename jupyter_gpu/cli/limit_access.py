"""Access to limits for ``jupyter gpu limits``: through the REST of the hub's service, or through the API server."""

from __future__ import annotations

import asyncio
import json
import os
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

from jupyter_gpu.cli.limit_way import LimitAccess
from jupyter_gpu.cli.rules import limit_words
from jupyter_gpu.kube import Kube, KubeError, credentials
from jupyter_gpu.kube.credentials import NoCredentials
from jupyter_gpu.kube.rules import paths
from jupyter_gpu.model import strict
from jupyter_gpu.model.errors import GpuError, InvalidRequest, NotPermitted, ServerUnreachable
from jupyter_gpu.model.limits.account import read_account
from jupyter_gpu.model.limits.explain import explain
from jupyter_gpu.model.limits.index import LimitIndex
from jupyter_gpu.model.limits.owner import Owner
from jupyter_gpu.model.limits.transfer.document import write_document
from jupyter_gpu.model.limits.transfer.table import write_table
from jupyter_gpu.model.limits.transfer.usage import Month, UsageRow, usage
from jupyter_gpu_hub.rules import documents, limit_rows, people, words
from jupyter_gpu_hub.rules.edits import Edit
from jupyter_gpu_hub.rules.known import KnownLimit
from jupyter_gpu_hub.rules.removed import is_record
from jupyter_gpu_hub.state.results import REFUSED, done, refused
from jupyter_gpu_hub.state.writer import LimitWriter

T = TypeVar("T")

TOKEN = "JUPYTERHUB_API_TOKEN"  # noqa: S105 - the name of a variable
SECONDS = 60.0
PAGE = 500
_REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


def access(service: str | None, hub: str) -> LimitAccess:
    """Return the access through the service at a URL, or through the API server. Raises `GpuError`."""
    if not service:
        return OverKubernetes(hub)
    token = os.environ.get(TOKEN, "")
    if not token:
        raise NotPermitted(f"Set {TOKEN} to a token of the hub, which you get on its page 'Token'.")
    return OverService(service, token, hub)


class OverService:
    """Access through the REST of the hub's service."""

    def __init__(self, url: str, token: str, hub: str) -> None:
        if not url.startswith(("http://", "https://")):
            raise InvalidRequest(f"{url!r} is no address; it begins with https:// or http://.")
        self._base = f"{url.rstrip('/')}/api/v1/"
        self._token = token
        self._hub = hub

    def rows(self) -> list[dict[str, Any]]:
        """Return the table of limits, page by page."""
        found: list[dict[str, Any]] = []
        number = 1
        while True:
            page = self._json("GET", f"limits?{urlencode({'page': number, 'size': PAGE})}")
            found += page["items"]
            if number * PAGE >= page["total"]:
                return found
            number += 1

    def set(self, subject: str, fields: Sequence[str] | None) -> Mapping[str, Any]:
        """Set the fields of a limit; ``None`` removes it."""
        edit = _edit(subject, self._hub, fields)
        body = {"edits": [{"subject": edit.subject.to_json(), "set": edit.fields}]}
        (result,) = self._json("POST", "limits/bulk", body)["results"]
        return _told(result)

    def explain(self, user: str) -> Mapping[str, Any]:
        """Return a user's limit, with a sentence."""
        found: Mapping[str, Any] = self._json("GET", f"explain/{quote(user, safe='')}")
        return found

    def export(self, kind: str) -> str:
        """Return all limits as ``csv`` or ``json``."""
        return self._send("GET", f"limits/export?format={kind}")

    def apply(self, text: str, kind: str, *, replace: bool, dry_run: bool) -> Mapping[str, Any]:
        """Apply a document: write what differs, and return the difference."""
        body = {"format": kind, "text": text, "replace": replace, "dryRun": True}
        found: Mapping[str, Any] = self._json("POST", "limits/import", body)
        if dry_run or found["refused"]:
            return found
        written: Mapping[str, Any] = self._json("POST", "limits/import", {**body, "dryRun": False})
        return written

    def usage(self, month: Month) -> Sequence[UsageRow]:
        """Return the GPU-hours of a month by user, namespace and group."""
        try:
            return [UsageRow.from_json(item) for item in self._json("GET", f"usage?month={month}")["items"]]
        except (strict.FieldError, LookupError, TypeError):
            raise self._other_service() from None

    def _json(self, method: str, path: str, body: Any = None) -> Any:
        try:
            return json.loads(self._send(method, path, body))
        except ValueError:
            raise self._other_service() from None

    def _other_service(self) -> GpuError:
        return ServerUnreachable(f"What answers at {self._base} is not the hub's service of GPU limits.")

    def _send(self, method: str, path: str, body: Any = None) -> str:
        headers = {"Authorization": f"token {self._token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._base + path, data, headers, method=method)  # noqa: S310 - checked above
        try:
            with urllib.request.urlopen(request, timeout=SECONDS) as answer:  # noqa: S310
                text: str = answer.read().decode()
                return text
        except urllib.error.HTTPError as error:
            with error:
                raise _of_answer(error.code, error.read()) from None
        except OSError as error:  # URLError is one
            raise ServerUnreachable(f"The hub's service at {self._base} does not answer: {error}") from None


class OverKubernetes:
    """Access through the API server, with the rights of a kubeconfig."""

    def __init__(self, hub: str) -> None:
        self._hub = hub

    def rows(self) -> list[dict[str, Any]]:
        """Return the table of limits."""
        return [row.to_json() for row in limit_rows.rows(self._run(_listed), (), self._hub)]

    def set(self, subject: str, fields: Sequence[str] | None) -> Mapping[str, Any]:
        """Set the fields of a limit; ``None`` removes it."""
        edit = _edit(subject, self._hub, fields)

        async def write(kube: Kube) -> dict[str, Any]:
            return await _written(kube, await _writer(kube), edit)

        return _told(self._run(write))

    def explain(self, user: str) -> Mapping[str, Any]:
        """Return a user's limit, with a sentence."""
        if not self._hub:
            raise InvalidRequest("Say which hub the user belongs to: --hub NAME.")
        limits = LimitIndex([item.limit for item in self._run(_listed)])
        owner = Owner("User", user, self._hub)
        found = limits.effective(owner)
        return {
            "name": user,
            "limit": people.sourced_json(found.max),
            "sentence": words.may_have(found.max, name=user),
            "limits": [step.to_json() for step in explain(owner, limits.of(owner))],
        }

    def export(self, kind: str) -> str:
        """Return all limits as ``csv`` or ``json``."""
        limits = [item.limit for item in self._run(_listed)]
        return write_table(limits) if kind == "csv" else write_document(limits)

    def apply(self, text: str, kind: str, *, replace: bool, dry_run: bool) -> Mapping[str, Any]:
        """Apply a document: write what differs, and return the difference."""
        wanted = documents.Import(text, table=kind == "csv", replace=replace)

        async def write(kube: Kube) -> dict[str, Any]:
            found = wanted.difference([item.limit for item in await _listed(kube)])
            if dry_run or found.refused:
                return {**found.to_json(), "results": None}
            writer = await _writer(kube)
            return {**found.to_json(), "results": [await _written(kube, writer, e) for e in documents.edits_of(found)]}

        return self._run(write)

    def usage(self, month: Month) -> Sequence[UsageRow]:
        """Return the GPU-hours of a month by user, namespace and group."""

        async def read(kube: Kube) -> Sequence[UsageRow]:
            accounts = [
                account for item in (await kube.list(paths.accounts())).items if (account := read_account(item))
            ]
            return usage(accounts, [item.limit for item in await _listed(kube)], month)

        return self._run(read)

    def _run(self, play: Callable[[Kube], Awaitable[T]]) -> T:
        async def whole() -> T:
            async with Kube(credentials.load(), user_agent="jupyter-gpu-limits") as kube:
                return await play(kube)

        try:
            return asyncio.run(whole())
        except NoCredentials as error:
            raise NotPermitted(str(error)) from None
        except KubeError as error:
            raise GpuError(error.message) from None


async def _listed(kube: Kube) -> list[KnownLimit]:
    return [KnownLimit.of(item) for item in (await kube.list(paths.limits())).items if not is_record(item)]


async def _writer(kube: Kube) -> LimitWriter:
    known = {item.name: item for item in await _listed(kube)}
    return LimitWriter(kube, lambda: known, output=lambda _: None)


async def _written(kube: Kube, writer: LimitWriter, edit: Edit) -> dict[str, Any]:
    try:
        prepared, _ = await writer.write(edit, await _own_name(kube))
        return done(prepared)
    except REFUSED as error:
        return refused(edit, error)


async def _own_name(kube: Kube) -> str:
    """Return the name by which the API server knows us."""
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    found = (await kube.create(_REVIEWS, body)).get("status", {}).get("userInfo", {}).get("username")
    return found if isinstance(found, str) and found else "kubectl"


def _edit(subject: str, hub: str, fields: Sequence[str] | None) -> Edit:
    whose, values = limit_words.wanted(subject, hub, fields)
    return Edit(whose, values)


def _told(result: Mapping[str, Any]) -> Mapping[str, Any]:
    if result["result"] == "refused":
        raise GpuError(result["error"]["message"])
    return result


def _of_answer(status: int, body: bytes) -> GpuError:
    try:
        message = json.loads(body)["message"]
    except (ValueError, KeyError, TypeError):
        message = f"The hub's service answered {status}."
    kind: type[GpuError] = {400: InvalidRequest, 403: NotPermitted, 503: ServerUnreachable}.get(status, GpuError)
    return kind(str(message))
