"""The address of the page about limits, which the panel links. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import urlsplit

HUB = "JUPYTERHUB_BASE_URL"
"""Environment variable of a server of JupyterHub with the path of the hub's pages and services."""
_UNSAFE = re.compile(r"[\x00-\x20\x7f\\]")


def check(url: str) -> str:
    """Return ``url`` without spaces around it; raises ``ValueError`` with a sentence if a page must not link it."""
    text = url.strip()
    if _UNSAFE.search(text) or text.startswith("//"):
        raise ValueError(f"{text!r} is not an address: write /hub/services/gpu/, services/gpu/ or https://….")
    try:
        parts = urlsplit(text)
    except ValueError as error:
        raise ValueError(f"{text!r} is not an address: {error}.") from None
    if parts.scheme and (parts.scheme not in ("http", "https") or not parts.netloc):
        raise ValueError(f"{text!r} must begin with https://, with http:// or with a path.")
    return text


def resolve(url: str, environ: Mapping[str, str]) -> str:
    """Return the address for a page: a path without a slash before it is below the hub's; empty without a hub."""
    if not url or url.startswith("/") or urlsplit(url).scheme:
        return url
    base = environ.get(HUB, "")
    return f"{base.rstrip('/')}/{url}" if base.startswith("/") else ""
