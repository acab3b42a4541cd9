"""Pure: the file with a machine's limits as ``GpuLimit`` objects, and the file after a change of one of them.

In the file users and groups belong to no hub. Here they are those of the service's hub, so that the service finds one
limit for a user, however it was written. A change rewrites the one item that it is about as an object, and keeps what
else the file says: all other items with all their fields, known or not, in their order, and fields beside the list.
Only the layout is not kept.

``status.members`` of a group are those of its limit for servers; ``status.mirrored`` are those of them that the hub's
group has, so that others, who were written by hand, stay.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from jupyter_gpu.kube.errors import Conflict, Invalid, NotFound
from jupyter_gpu.kube.rules import objects
from jupyter_gpu.model import strict
from jupyter_gpu.model.limits.limit import GROUP, HUB_PROPERTIES, MANAGED_BY, VERSION, Limit, Subject, SubjectKind
from jupyter_gpu.model.limits.machine_file import HUB, stored, unsuitable
from jupyter_gpu.model.limits.owner import object_name
from jupyter_gpu.model.limits.read_limit import read_limit
from jupyter_gpu.model.limits.transfer.row import MAX_BYTES
from jupyter_gpu.model.limits.transfer.table import BOM

from .identity import digest, number, versioned
from .merge_patch import merged

Groups = Callable[[str], Collection[str]]
"""Returns the members of a group of the machine."""
LISTS = ("limits", "items")
OF_SERVER = ("name", "uid", "resourceVersion", "generation")
"""Metadata that an API server would set."""
_OF_HUB = (SubjectKind.USER, SubjectKind.GROUP)


class Entry(NamedTuple):
    """One limit of the file."""

    item: Mapping[str, Any]
    """The item as it is written, a ``spec`` or an object."""
    object: dict[str, Any]


class LimitDocument(NamedTuple):
    """The whole file."""

    hub: str
    groups: Groups
    entries: tuple[Entry, ...] = ()
    body: Mapping[str, Any] | None = None
    """Fields around the list; ``None``: there are none, the document is the list itself."""
    key: str = LISTS[0]
    """Name of the list."""

    @property
    def objects(self) -> dict[str, dict[str, Any]]:
        """The objects by name."""
        return {objects.name(entry.object): entry.object for entry in self.entries}

    def text(self) -> str:
        """Return the text of the file."""
        return json.dumps(self._body([entry.item for entry in self.entries]), indent=2, ensure_ascii=False) + "\n"

    def with_items(self, items: Sequence[Mapping[str, Any]]) -> LimitDocument:
        """Return the file with these items in place of its own."""
        return read(json.dumps(self._body(items)).encode(), self.hub, self.groups)

    def _body(self, items: Sequence[Mapping[str, Any]]) -> Any:
        return items if self.body is None else {**self.body, self.key: items}


def read(text: bytes | None, hub: str, groups: Groups = lambda _: ()) -> LimitDocument:
    """Read the file, ``None`` where there is none. Raises `FieldError` as the servers do."""
    if text is None:
        return LimitDocument(hub, groups, (), {})
    limits = stored(text)
    value = strict.loads(text.decode().removeprefix(BOM), MAX_BYTES)
    whole = isinstance(value, Mapping)
    key = next(key for key in LISTS if key in value) if whole else LISTS[0]
    entries: list[Entry] = []
    names: set[str] = set()
    uids: set[str] = set()
    for item, (wrapped, limit) in zip(value[key] if whole else value, limits, strict=True):
        found = _object(wrapped, limit, hub, names, uids, groups)
        names.add(objects.name(found))
        uids.add(objects.uid(found))
        entries.append(Entry(item, found))
    return LimitDocument(hub, groups, tuple(entries), value if whole else None, key)


def created(file: LimitDocument, body: Mapping[str, Any], uid: str) -> LimitDocument:
    """Return the file with a new object at its end. Raises `Conflict` if the subject has one, and `Invalid`."""
    after = file.with_items([*(entry.item for entry in file.entries), _written(body, file.hub, uid)])
    wanted = _name(after.entries[-1].object["spec"]["subject"], is_mirror(after.entries[-1].object))
    if wanted in file.objects:
        raise Conflict(409, "AlreadyExists", f"There is a limit {wanted} already.")
    return after


def patched(file: LimitDocument, name: str, patch: Mapping[str, Any], *, status: bool = False) -> LimitDocument:
    """Return the file with an object changed. Raises `NotFound`, `Conflict` and `Invalid`.

    ``status``: whether the patch is one of the status, which nothing else is.
    """
    place, entry = _find(file, name)
    meta = patch.get("metadata") or {}
    check(entry.object, meta.get("uid", ""), meta.get("resourceVersion", ""))
    old = entry.item if "spec" in entry.item else _head({"spec": entry.item})
    if status:
        made = {**old, "status": _with_members(old.get("status"), (patch.get("status") or {}).get("members", []))}
    else:
        wanted = {key: value for key, value in meta.items() if key not in OF_SERVER}
        rest = {key: value for key, value in patch.items() if key not in ("metadata", "status")}
        unknown = old["spec"].keys() - {"subject", *Limit.FIELDS}  # written by hand, and kept
        made = _written(merged(old, {**rest, "metadata": wanted}), file.hub, objects.uid(entry.object), unknown)
    items = [entry.item for entry in file.entries]
    return file.with_items([*items[:place], made, *items[place + 1 :]])


def removed(file: LimitDocument, name: str, uid: str = "", version: str = "") -> LimitDocument:
    """Return the file without an object. Raises `NotFound` and `Conflict`."""
    place, entry = _find(file, name)
    check(entry.object, uid, version)
    items = [entry.item for entry in file.entries]
    return file.with_items([*items[:place], *items[place + 1 :]])


def check(item: Mapping[str, Any], uid: str, version: str) -> None:
    """Raise `Conflict` unless an object is the one that a change is for; empty: any."""
    if (uid and uid != objects.uid(item)) or (version and version != objects.resource_version(item)):
        raise Conflict(409, "Conflict", f"The limit {objects.name(item)} was changed meanwhile.")


def at_home(subject: Subject, hub: str) -> Subject:
    """Return a subject as it is here: all users and groups of a machine are of one hub."""
    home = subject.kind in _OF_HUB and subject.hub in ("", HUB)
    return replace(subject, hub=hub) if home else subject


def in_file(subject: Subject, hub: str) -> Subject:
    """Return a subject as it is in the file, and in what is exported."""
    return replace(subject, hub="") if subject.hub == hub else subject


def mirrored(item: Mapping[str, Any]) -> frozenset[str]:
    """Return the members of a group's limit that the hub's group has."""
    return frozenset(_names(item.get("status"), "mirrored"))


def why_not(limit: Limit) -> str:
    """Return why a limit can't be written; empty if it can. A limit that is written has what a reader understands."""
    return " ".join(filter(None, [limit.problem, unsuitable(limit)]))


def _find(file: LimitDocument, name: str) -> tuple[int, Entry]:
    for place, entry in enumerate(file.entries):
        if objects.name(entry.object) == name:
            return place, entry
    raise NotFound(404, "NotFound", f"There is no limit {name}.")


def is_mirror(item: Mapping[str, Any]) -> bool:
    """Tell whether an object is the copy of the properties of a hub's group."""
    return objects.labels(item).get(MANAGED_BY) == HUB_PROPERTIES


def _name(subject: Mapping[str, str], mirror: bool) -> str:
    name = object_name(subject["kind"], subject.get("name", ""), subject.get("hub", ""))
    return f"properties-{name}" if mirror else name


def _object(
    wrapped: Mapping[str, Any], limit: Limit, hub: str, names: set[str], uids: set[str], groups: Groups
) -> dict[str, Any]:
    """Return an item of the file as an object."""
    assert limit.subject is not None
    subject = at_home(limit.subject, hub)
    raw = wrapped.get("metadata")
    metadata = dict(raw) if isinstance(raw, Mapping) else {}
    name = _name(subject.to_json(), is_mirror(wrapped))
    if name in names:
        name = f"{name}-{len(names)}"
    own = metadata.get("uid")
    uid = own if isinstance(own, str) and 0 < len(own) <= 64 and own not in uids else digest(name, 32)
    spec = {**wrapped["spec"], "subject": subject.to_json()}
    status = dict(wrapped["status"]) if isinstance(wrapped.get("status"), Mapping) else {}
    if subject.kind is SubjectKind.GROUP and (more := groups(subject.name)):
        status["members"] = sorted({*_names(status, "members"), *more})
    identity = {"name": name, "uid": uid, "generation": number(spec)}
    return versioned({**_head(wrapped), "metadata": {**metadata, **identity}, "spec": spec, "status": status})


def _head(item: Mapping[str, Any]) -> dict[str, Any]:
    return {"apiVersion": f"{GROUP}/{VERSION}", "kind": "GpuLimit", **item}


def _written(body: Mapping[str, Any], hub: str, uid: str, unknown: Collection[str] = ()) -> dict[str, Any]:
    """Return the item for an object, whose fields ``unknown`` are not looked at. Raises `Invalid`."""
    limit = read_limit({**body, "spec": {key: value for key, value in body["spec"].items() if key not in unknown}})
    if limit.subject is None:
        raise Invalid(422, "Invalid", limit.problem)
    subject = in_file(limit.subject, hub)
    if why := why_not(replace(limit, subject=subject)):
        raise Invalid(422, "Invalid", why)
    given = body.get("metadata") or {}
    metadata = {**{key: value for key, value in given.items() if key not in OF_SERVER}, "uid": uid}
    return {**_head(body), "metadata": metadata, "spec": {**body["spec"], "subject": subject.to_json()}}


def _with_members(status: Any, members: Any) -> dict[str, Any]:
    """Return the status with other members of the hub's group."""
    known = dict(status) if isinstance(status, Mapping) else {}
    by_hand = set(_names(known, "members")) - set(_names(known, "mirrored"))
    return {**known, "members": sorted({*by_hand, *members}), "mirrored": sorted(members)}


def _names(status: Any, key: str) -> list[str]:
    listed = status.get(key) if isinstance(status, Mapping) else None
    return [name for name in listed if isinstance(name, str)] if isinstance(listed, list) else []
