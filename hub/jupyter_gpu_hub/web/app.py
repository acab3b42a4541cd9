"""The web application: routes and shared parts."""

from __future__ import annotations

import hmac
from pathlib import Path
from typing import Any

from tornado import web
from tornado.httpserver import HTTPServer

from jupyter_gpu_hub.login import Login
from jupyter_gpu_hub.rules.rate import Rate, RateLimiter
from jupyter_gpu_hub.settings import HubServiceSettings
from jupyter_gpu_hub.state.language_packs import Languages
from jupyter_gpu_hub.state.site import Site

from . import limits_api, people_api, server_api, stream, subject_api, translation_api, usage_api
from .api import NothingHere
from .base import EDITS, HUB_AUTH, LANGUAGES, LIMITER, SITE, STRANGERS, log_request, set_headers
from .page import CallbackHandler, PageHandler

API = "api/v1/"
MAX_BODY = limits_api.MAX_DOCUMENT
STRANGERS_RATE = Rate(per_second=2.0, burst=30.0)
"""Requests of one address with tokens that the hub does not know: each of them asks the hub."""


class HealthHandler(web.RequestHandler):
    """The probe of Kubernetes, at an address that the hub's proxy does not lead to."""

    def get(self) -> None:
        """Answer 200 once the cluster is known, before that 503."""
        site: Site = self.settings[SITE]
        self.set_status(200 if site.ready else 503)
        self.finish("ok" if site.ready else site.problem())


class StaticHandler(web.StaticFileHandler):
    """Style sheets and scripts, which are no secret."""

    def set_default_headers(self) -> None:
        """Set the same headers as everywhere."""
        set_headers(self)


ROUTES: dict[str, type[web.RequestHandler]] = {
    "limits": limits_api.LimitsHandler,
    "limits/export": limits_api.ExportHandler,
    "limits/import": limits_api.ImportHandler,
    "limits/bulk": limits_api.BulkHandler,
    "limits/{name}": limits_api.LimitHandler,
    "subject": subject_api.SubjectHandler,
    "subjects": people_api.SubjectsHandler,
    "users": people_api.UsersHandler,
    "explain/{user}": people_api.ExplainHandler,
    "me": people_api.MeHandler,
    "cluster": people_api.ClusterHandler,
    "audit": people_api.AuditHandler,
    "translation": translation_api.TranslationHandler,
    "events": stream.EventsHandler,
    "server/pod": server_api.ServerPodHandler,
    "usage": usage_api.MonthHandler,
}
"""REST by address below `API`; ``{name}`` is any text, with a slash in it quoted."""


def application(site: Site, auth: Login, settings: HubServiceSettings) -> web.Application:
    """Return the application. Cookies stay valid over a restart, as long as the hub knows the token in them."""
    base: str = auth.base_url
    routes: list[Any] = [
        ("/healthz", HealthHandler),
        (base, PageHandler),
        (f"{base}oauth_callback", CallbackHandler),
        (f"{base}static/(.*)", StaticHandler, {"path": str(Path(__file__).parent / "static")}),
        *((base + API + _pattern(path), handler) for path, handler in ROUTES.items()),
    ]
    shared: dict[str, Any] = {
        SITE: site,
        LANGUAGES: Languages(settings.language),
        HUB_AUTH: auth,
        EDITS: settings.edit,
        LIMITER: RateLimiter(Rate(settings.rate.per_second, settings.rate.burst)),
        STRANGERS: RateLimiter(STRANGERS_RATE),
        server_api.WRITES: settings.write,
        server_api.SERVERS: RateLimiter(Rate(settings.server_rate.per_second, settings.server_rate.burst)),
    }
    return web.Application(
        routes,
        default_handler_class=NothingHere,
        cookie_secret=cookie_secret(auth.api_token),
        log_function=log_request,
        base_url=base,
        **shared,
    )


def server(app: web.Application) -> HTTPServer:
    """Return the HTTP server; the proxy tells it where a request comes from."""
    return HTTPServer(app, xheaders=True, max_body_size=MAX_BODY, max_header_size=64 * 1024)


def cookie_secret(token: str) -> bytes:
    """Return the secret that signs cookies: it follows from the service's own token, so it needs no file, and a new
    process goes on with the pages that are open. A new token makes all of them log in again.
    """
    return hmac.digest(token.encode(), b"cookies of jupyter-gpu-hub", "sha256")


def _pattern(path: str) -> str:
    head, brace, _ = path.partition("{")
    return head + ("([^/]+)" if brace else "")
