"""The page, and the end of a login."""

from __future__ import annotations

from jupyter_gpu.model.message import gettext, sentences
from jupyter_gpu_hub.login import HubOAuthCallbackHandler, Login
from jupyter_gpu_hub.rules import page, people
from jupyter_gpu_hub.rules.page import Frame
from jupyter_gpu_hub.rules.paging import read_query
from jupyter_gpu_hub.rules.refusals import Refusal
from jupyter_gpu_hub.rules.translation import Language

from .base import HUB_AUTH, Handler, language_of, refusal_of, set_headers, set_language, set_retry_after, text_of


def frame(auth: Login, language: Language, visitor: str = "", xsrf: str = "") -> Frame:
    """Return the frame of a page; the hub's pages have an address of their own where each user has a domain."""
    return Frame(f"{auth.hub_host}{auth.hub_prefix}", auth.base_url, visitor, xsrf, language)


class PageHandler(Handler):
    """The page. A visitor who is not logged in is sent to the hub, and comes back."""

    async def get(self) -> None:
        """Answer with the visitor's own limit and, for those who may see it, the table of users."""
        query = read_query(self.query(), people.SORTS)
        table = None
        if self.visitor.may_read:
            table = await self.site.users(query)
        row = self.site.user(self.visitor.name) if self.visitor.is_user else None
        token = text_of(self.xsrf_token)  # sets the cookie with which it is compared
        self.set_header("Content-Type", "text/html; charset=utf-8")
        self.finish(
            page.render(frame(self.hub_auth, self.language, self.visitor.name, token), row, table, self.site.problem())
        )

    def refuse_stranger(self) -> None:
        """Send the browser to the hub's login, unless the hub knows the visitor, who may not come in."""
        if self.current_user is not None or self.request.method != "GET":
            raise Refusal(403, gettext("You may not use this page. An administrator of the hub can let you."))
        self.redirect(self.get_login_url())

    def write_refusal(self, refusal: Refusal) -> None:
        """Answer with a page that says what is wrong."""
        self.set_header("Content-Type", "text/html; charset=utf-8")
        self.finish(page.render_error(frame(self.hub_auth, self.language), refusal.message))


class CallbackHandler(HubOAuthCallbackHandler):  # type: ignore[misc] # the hub's library has no types
    """The end of a login: the browser comes from the hub with a code."""

    def initialize(self) -> None:
        """Use the one instance of the hub's login."""
        self.hub_auth = self.settings[HUB_AUTH]

    def set_default_headers(self) -> None:
        """Set the same headers as everywhere."""
        set_headers(self)
        set_language(self)

    async def prepare(self) -> None:
        """Find out who is logged in already. The library would ask the hub later, and block everybody meanwhile."""
        self.current_user = await self.hub_auth.get_user(self, sync=False)

    def write_error(self, status_code: int, **kwargs: object) -> None:
        """Answer with a page; a login that was begun before the service was restarted has to begin again."""
        raised = kwargs.get("exc_info")
        error = raised[1] if isinstance(raised, tuple) else None
        refusal = refusal_of(status_code, error)
        again = gettext("Go back to the page of GPU limits to log in again.")
        set_retry_after(self, refusal)
        self.set_status(refusal.status)
        self.set_header("Content-Type", "text/html; charset=utf-8")
        self.finish(page.render_error(frame(self.hub_auth, language_of(self)), sentences(refusal.message, again)))
