"""The hub's REST: its users and its groups, page by page, with the service's own token."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlencode

from tornado.httpclient import AsyncHTTPClient, HTTPClientError, HTTPRequest

from jupyter_gpu.model import strict
from jupyter_gpu_hub.rules.groups import Group, read_group, read_user

T = TypeVar("T")

PAGE = 200
"""Items of a page: the most that a hub gives by default."""
MAX_PAGE_BYTES = 32 * 2**20
MAX_PAGES = 1000
SECONDS = 20.0
PAGINATION = "application/jupyterhub-pagination+json"


class HubUnavailable(Exception):
    """The hub did not answer, or not with what was asked for; the text is a sentence."""


@dataclass(frozen=True, slots=True)
class HubAddress:
    """The hub's REST, our token, and our certificate where the hub wants one (``internal_ssl``)."""

    url: str
    token: str
    key: str = ""
    certificate: str = ""
    authorities: str = ""


class HubApi:
    """Reads users and groups. Raises `HubUnavailable` unless all of them could be read."""

    def __init__(self, address: HubAddress) -> None:
        self._address = address

    async def groups(self) -> dict[str, Group]:
        """Return all groups by name."""
        return {group.name: group async for group in self._all("groups", read_group)}

    async def users(self) -> frozenset[str]:
        """Return the names of all users."""
        return frozenset([name async for name in self._all("users", read_user)])

    async def _all(self, what: str, read: Callable[[Any], T | None]) -> AsyncIterator[T]:
        offset = 0
        for _ in range(MAX_PAGES):
            body = await self._page(what, offset)
            try:
                items = strict.required(body, "items", strict.list_of(lambda item, _: read(item), PAGE * 10))
                pages = strict.required(body, "_pagination", strict.an_object)
                after = strict.optional(pages, "next", strict.an_object)
                following = strict.required(after, "offset", strict.integer(offset + 1, 10**9)) if after else None
            except strict.FieldError as error:
                raise HubUnavailable(f"The hub's list of {what} can't be read: {error}") from None
            for item in items:
                if item is not None:
                    yield item
            if following is None:
                return
            offset = following
        raise HubUnavailable(f"The hub's list of {what} has no end.")

    async def _page(self, what: str, offset: int) -> Mapping[str, Any]:
        query = urlencode({"offset": offset, "limit": PAGE})
        address = self._address
        request = HTTPRequest(
            f"{address.url.rstrip('/')}/{what}?{query}",
            headers={"Authorization": f"token {address.token}", "Accept": PAGINATION},
            request_timeout=SECONDS,
            connect_timeout=SECONDS / 4,
            follow_redirects=False,
            client_key=address.key or None,
            client_cert=address.certificate or None,
            ca_certs=address.authorities or None,
        )
        try:
            answer = await AsyncHTTPClient().fetch(request)
            return strict.an_object(strict.loads(answer.body, MAX_PAGE_BYTES), "answer")
        except HTTPClientError as error:
            if error.code == 403:
                raise HubUnavailable(
                    f"The hub does not let this service read its {what}: its role needs list:users, read:users, "
                    "list:groups, read:groups and read:servers."
                ) from None
            raise HubUnavailable(f"The hub answered {error.code} when asked for its {what}.") from None
        except (OSError, ValueError) as error:
            raise HubUnavailable(f"The hub can't be reached: {error}") from None
