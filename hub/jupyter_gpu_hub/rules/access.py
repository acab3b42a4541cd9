"""The rights of a user or a program, from the hub's description of the owner of a token. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

EDIT = "custom:gpu:limits"
"""Scope to change limits; includes `READ`."""
READ = "custom:gpu:limits:read"
"""Scope to see the limits and the use of all users."""
_ACCESS = "access:servers"
_SERVER = f"{_ACCESS}!server="


@dataclass(frozen=True, slots=True)
class Visitor:
    """The user, or the service, that a request comes from."""

    name: str
    is_user: bool = True
    """Whether it is a user of the hub; otherwise it is one of its services."""
    may_read: bool = False
    """Whether it may see everybody's limits and use."""
    may_edit: bool = False
    """Whether it may change limits, if the service may."""
    groups: tuple[str, ...] = ()
    server: str | None = None
    """The name of the user's server that the token was made for, empty for the unnamed one; ``None``: of no server."""
    sole_server: str | None = None
    """The same if the token gives access to no other server; ``None`` for one that is wider."""

    @property
    def label(self) -> str:
        """Return the name under which changes are recorded."""
        return self.name if self.is_user else f"service {self.name}"


def visitor(model: Mapping[str, Any], entry: Collection[str]) -> Visitor | None:
    """Return the visitor that the hub describes; ``None`` if it may not use this service.

    ``entry``: the scopes of which it needs one. Administrators of a hub do not hold custom scopes, so ``admin`` counts
    as well. It does not for the token of a server: code in an administrator's notebook has the right only if the
    token's own scopes say so.
    """
    name, kind, scopes = model.get("name"), model.get("kind", "user"), _texts(model.get("scopes"))
    if not isinstance(name, str) or not name or not _enters(entry, scopes):
        return None
    is_user = kind == "user"
    server = _server(name, scopes) if is_user else None
    edits = EDIT in scopes or (is_user and model.get("admin") is True and server is None)
    return Visitor(
        name=name,
        is_user=is_user,
        may_read=edits or READ in scopes,
        may_edit=edits,
        groups=tuple(sorted(_texts(model.get("groups")))),
        server=server,
        sole_server=server if _accesses_one(scopes) else None,
    )


def _enters(entry: Collection[str], scopes: Collection[str]) -> bool:
    """Tell whether one of the scopes, or one without its filter, is there."""
    return any(scope in scopes or scope.partition("!")[0] in scopes for scope in entry)


def _server(user: str, scopes: Collection[str]) -> str | None:
    """Return the server that the token is for: its scope names one server of that user, and no other."""
    names = [scope.removeprefix(_SERVER) for scope in scopes if scope.startswith(_SERVER)]
    owner, slash, server = names[0].rpartition("/") if len(names) == 1 else ("", "", "")
    return server if slash and owner == user else None


def _accesses_one(scopes: Collection[str]) -> bool:
    """Tell whether there is one scope for access to servers: one for all servers, or those of a user, is a second."""
    return sum(scope.partition("!")[0] == _ACCESS for scope in scopes) == 1


def _texts(value: Any) -> frozenset[str]:
    found = value if isinstance(value, list | tuple | set | frozenset) else ()
    return frozenset(item for item in found if isinstance(item, str))
