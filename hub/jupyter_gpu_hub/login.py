"""JupyterHub's login for services, as `login_stand_ins` imports it, with a bound on what the hub is asked.

The hub is one process, which answers some tens of questions a second. So few are open at once, few requests wait, and
requests with one token share a question. While the hub is busy or away, its last answer counts for reads a while
longer. A request that writes is never satisfied with an answer to an earlier question.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from tornado.web import HTTPError

from jupyter_gpu.model.message import gettext

from .login_stand_ins import import_login
from .rules.answers import Answer, Answers, small
from .rules.refusals import Refusal
from .settings import HubServiceSettings
from .state.questions import BusyError, Questions

import_login()
from jupyterhub.services.auth import HubOAuth, HubOAuthCallbackHandler, HubOAuthenticated  # noqa: E402 - see above

__all__ = ["HubOAuthCallbackHandler", "HubOAuthenticated", "Login"]

BUSY = gettext(
    "The hub has more to do than it can, so nobody can be identified now, and nothing was changed. Limits that are set "
    "hold. Try again in a few seconds."
)
QUIET = 60.0
"""Seconds between two lines in the log about a hub that is busy."""

_log = logging.getLogger(__name__)


class Login(HubOAuth):  # type: ignore[misc] # the hub's library has no types
    """The hub's login. Raises what the library raises and, where the hub is busy, `Refusal` with status 503."""

    def __init__(self, settings: HubServiceSettings, **more: Any) -> None:
        super().__init__(**more)
        bounds = settings.hub_requests
        self._answers = Answers(fresh=settings.cache_seconds, usable=bounds.stale_seconds)
        self._questions: Questions[Any] = Questions(
            at_once=bounds.at_once, waiting=bounds.waiting, seconds=bounds.seconds
        )
        self._retry_after = bounds.seconds
        self._refused = 0
        self._told = float("-inf")

    async def user_for_token(
        self, token: str, use_cache: bool = True, session_id: str = "", *, sync: bool = False, since: float = math.inf
    ) -> Mapping[str, Any] | None:
        """Return the owner of a token; ``None``: the hub does not know it.

        ``use_cache``: whether an answer to an earlier question will do; if not, only to one that was asked at ``since``
        or later, by the clock of the event loop. ``sync`` has no effect: nothing here blocks.
        """
        del sync
        key = _key(token, session_id)
        now = asyncio.get_running_loop().time
        known = self._answers.fresh(key, now())
        if use_cache and known is None and self._questions.busy:  # leave the hub to those that have no answer
            known = self._answers.usable(key, now())
        if known is not None and (use_cache or known.asked >= since):
            return known.model
        library = super().user_for_token

        async def send() -> Answer:
            asked = now()
            model = await library(token, use_cache=False, session_id=session_id, sync=False)
            answer = Answer(small(model), asked)
            self._answers.put(key, answer)
            return answer

        try:
            found: Answer = await self._ask(key, send, anew=not use_cache)
        except (Refusal, HTTPError):
            last = self._answers.usable(key, now()) if use_cache else None
            if last is None:
                raise
            found = last
        return found.model

    async def token_for_code(self, code: str, *, sync: bool = False, **more: Any) -> str:
        """Return the token at the end of a login. ``sync`` has no effect: nothing here blocks."""
        del sync
        library = super().token_for_code
        token: str = await self._ask(f"code {code}", lambda: library(code, sync=False, **more))
        return token

    def knows(self, token: str, session_id: str) -> bool:
        """Tell whether the hub has named the owner of a token lately."""
        return self._answers.usable(_key(token, session_id), asyncio.get_running_loop().time()) is not None

    async def _ask(self, key: str, send: Callable[[], Awaitable[Any]], *, anew: bool = False) -> Any:
        try:
            return await self._questions.ask(key, send, anew=anew)
        except BusyError:
            self._tell()
            raise Refusal(503, BUSY, retry_after=self._retry_after) from None

    def _tell(self) -> None:
        """Log now and then how many requests were refused, and not each of them."""
        self._refused += 1
        now = asyncio.get_running_loop().time()
        if now - self._told >= QUIET:
            _log.warning("The hub is busy or away: %d requests were refused, with status 503.", self._refused)
            self._told, self._refused = now, 0


def _key(token: str, session_id: str) -> str:
    return f"{session_id} {hashlib.sha256(token.encode(errors='replace')).hexdigest()}"
