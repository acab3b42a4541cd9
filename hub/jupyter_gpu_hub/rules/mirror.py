"""The writes that make group limits follow the groups of a hub. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from jupyter_gpu.model.limits.limit import GROUP, HUB_PROPERTIES, MANAGED_BY, VERSION, Limit, Subject, SubjectKind
from jupyter_gpu.model.limits.owner import object_name

from .groups import Group, limit_of


@dataclass(frozen=True, slots=True)
class SetMembers:
    """Write the members of a group into the status of one of its limits."""

    object_name: str
    members: tuple[str, ...]
    hub: str | None = None
    """The hub whose members they are, of a group of every hub; ``None``: the limit is for a group of one hub."""

    @property
    def status(self) -> dict[str, Any]:
        """The fields of the status to merge; what other hubs wrote stays."""
        members = list(self.members)
        return {"members": members} if self.hub is None else {"membersOfHubs": {self.hub: members}}


@dataclass(frozen=True, slots=True)
class WriteProperties:
    """Create the limit that a group's properties say, or replace its fields."""

    object_name: str
    subject: Subject
    spec: Mapping[str, Any]
    gone: tuple[str, ...] = ()
    """Fields that the object has and the properties do not say any more."""
    exists: bool = False
    """Whether there is such an object."""


@dataclass(frozen=True, slots=True)
class RemoveProperties:
    """Remove a limit whose properties are gone."""

    object_name: str


Write = SetMembers | WriteProperties | RemoveProperties


def plan(groups: Mapping[str, Group], limits: Iterable[Limit], hub: str, *, shared: bool = True) -> list[Write]:
    """Return the writes that are missing, in the order of objects; nothing is left to do where there is none.

    ``groups``: all groups of the hub, by name. ``hub``: its name. ``shared``: whether limits for groups of every hub
    have this hub's members, too.
    """
    of_groups = [limit for limit in limits if limit.subject and limit.subject.kind is SubjectKind.GROUP]
    properties = list(_properties(groups, of_groups, hub))
    removed = {write.object_name for write in properties if isinstance(write, RemoveProperties)}
    kept = [limit for limit in of_groups if limit.object_name not in removed]
    return [*properties, *_members(groups, kept, hub, shared)]


def properties_name(group: str, hub: str) -> str:
    """Return the name of the object for a group's properties; another than that of a limit that somebody writes.

    Where both set a field, the written one counts.
    """
    return f"properties-{object_name(SubjectKind.GROUP, group, hub)}"


def properties_object(write: WriteProperties) -> dict[str, Any]:
    """Return the object to create, or the merge patch of the one that exists."""
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "GpuLimit",
        "metadata": {"name": write.object_name, "labels": {MANAGED_BY: HUB_PROPERTIES}},
        "spec": {"subject": write.subject.to_json(), **dict.fromkeys(write.gone), **write.spec},
    }


def _properties(groups: Mapping[str, Group], limits: list[Limit], hub: str) -> Iterator[Write]:
    mirrored = {
        limit.object_name: limit
        for limit in limits
        if limit.managed_by == HUB_PROPERTIES and limit.subject and limit.subject.hub == hub
    }
    wanted: dict[str, WriteProperties] = {}
    kept: set[str] = set()
    for group in groups.values():
        name, said = properties_name(group.name, hub), limit_of(group)
        if not said.readable:
            kept.add(name)  # what it said before goes on to hold
        elif said.spec:
            wanted[name] = WriteProperties(name, Subject(SubjectKind.GROUP, group.name, hub), said.spec)
    for name in sorted({*mirrored, *wanted}):
        if name in wanted:
            before = _fields(mirrored[name]) if name in mirrored else None
            if before != wanted[name].spec:
                gone = tuple(sorted((before or {}).keys() - wanted[name].spec.keys()))
                yield replace(wanted[name], gone=gone, exists=before is not None)
        elif name not in kept:
            yield RemoveProperties(name)


def _fields(limit: Limit) -> dict[str, Any]:
    return {key: value for key, value in limit.spec().items() if key != "subject"}


def _members(groups: Mapping[str, Group], limits: list[Limit], hub: str, shared: bool) -> Iterator[Write]:
    for limit in sorted(limits, key=lambda limit: limit.object_name):
        assert limit.subject is not None
        group = groups.get(limit.subject.name)
        members = group.members if group else frozenset()
        names = tuple(sorted(members))
        if limit.subject.hub == hub and members != limit.members:
            yield SetMembers(limit.object_name, names)
        elif shared and not limit.subject.hub and members != limit.hub_members.get(hub):
            yield SetMembers(limit.object_name, names, hub)
