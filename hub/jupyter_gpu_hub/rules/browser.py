"""Checks of a request's headers against pages of other sites. Pure.

JupyterHub's library compares the header ``X-XSRFToken`` with the cookie for requests that a cookie identifies. What is
checked here comes before that, and does not depend on how a browser labels its requests.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from jupyter_gpu.model.message import gettext

from .refusals import Refusal, of_status

READS = ("GET", "HEAD", "OPTIONS")
_SAME = ("same-origin", "none")


def check(method: str, headers: Mapping[str, str], host: str) -> None:
    """Raise `Refusal` for a write that a page of another site may have sent, or that is not JSON.

    ``host``: the address under which the browser knows the service. ``DELETE`` has no body, so it needs no type.
    """
    if method in READS:
        return
    site = headers.get("Sec-Fetch-Site", "")
    if site and site not in _SAME:
        raise Refusal(403, gettext("A page of another site sent this request. Nothing was changed."))
    origin = headers.get("Origin", "")
    if origin and not same_origin(origin, host):
        raise Refusal(403, gettext("The page %1 is not one of this service. Nothing was changed.", repr(origin[:100])))
    kind = headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if kind != "application/json" and (method != "DELETE" or kind):
        raise of_status(415)


def same_origin(origin: str, host: str) -> bool:
    """Tell whether the page of that origin is at ``host``; the port counts, the scheme does not (a proxy ends TLS)."""
    try:
        return bool(host) and urlsplit(origin).netloc.lower() == host.lower()
    except ValueError:  # half of an IPv6 address
        return False
