"""The hub's page of GPU limits, as an administrator's browser uses it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.hub_service.browser import Answer, Browser

API = "/services/gpu/api/v1"


class LimitsPage:
    """The page, opened by an administrator who logs in; ``hub``: the hub's name."""

    def __init__(self, address: str, administrator: str, hub: str) -> None:
        self._browser = Browser(address).log_in(administrator)
        self._hub = hub
        self.open()

    def open(self) -> None:
        """Open the page anew."""
        opened = self._browser.open("/services/gpu/")
        assert (opened.status, "GPU limits" in opened.text) == (200, True), opened.text[:2000]

    def limit(self, user: str, most: int) -> UserLimit:
        """Set the limit of a user of the hub who has none."""
        subject = {"kind": "User", "name": user, "hub": self._hub}
        return UserLimit(self, self.ask("POST", "limits", {"subject": subject, "set": {"max": most}}).json["object"])

    def ask(self, method: str, path: str, body: Any = None, version: str = "") -> Answer:
        """Return the answer to a request of the page's code; ``version``: that of the limit that is changed."""
        answer = self._browser.fetch(method, f"{API}/{path}", body, {"If-Match": version} if version else {})
        assert answer.status < 300, f"{method} {path}: {answer.status} {answer.text[:2000]}"
        return answer


@dataclass(frozen=True)
class UserLimit:
    """One limit."""

    page: LimitsPage
    name: str
    """Name of its object."""

    def change(self, most: int) -> None:
        """Change its maximum, on the page as it is opened anew."""
        self.page.open()
        path = f"limits/{self.name}"
        version = self.page.ask("GET", path).headers["ETag"]
        self.page.ask("PATCH", path, {"set": {"max": most}}, version)
