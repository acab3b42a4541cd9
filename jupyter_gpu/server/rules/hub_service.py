"""Pure: the address of JupyterHub's service of GPU limits, to which a server sends its token."""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import urlsplit

VARIABLE = "JUPYTER_GPU_HUB_SERVICE"
"""Environment variable with the address."""
_UNSAFE = re.compile(r"[\x00-\x20\x7f-\U0010ffff\\\\]")
_SERVICE = re.compile(r"[a-z0-9-]+\.[a-z0-9-]+\.svc(\.cluster\.local)?\.?")
"""Name of a Kubernetes Service with its namespace."""


def check(url: str) -> str:
    """Return the address with a slash at its end, or nothing for nothing; raises ``ValueError`` with a sentence.

    Plain HTTP shows the token to every router on the way, so it is for names and addresses inside the cluster only.
    """
    text = url.strip()
    if not text:
        return ""
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname or "", parts.port
    except ValueError as error:
        raise ValueError(f"{text!r} is not an address: {error}.") from None
    if _UNSAFE.search(text) or parts.scheme not in ("http", "https") or not host or "@" in parts.netloc:
        raise ValueError(f"{text!r} is not an address: write http://proxy-public/services/gpu/ or https://….")
    if parts.query or parts.fragment:
        raise ValueError(f"{text!r} must end with the path of the service, such as /services/gpu/.")
    if parts.scheme == "http" and not _inside(host):
        raise ValueError(
            f"{text!r} would send this server's token unencrypted. Plain http is accepted for a name in the cluster "
            "only, such as proxy-public or proxy-public.jhub.svc; write https:// otherwise."
        )
    return text if text.endswith("/") else f"{text}/"


def _inside(host: str) -> bool:
    """Tell whether a host is inside the cluster: a private address, or a name that no other network can resolve."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return "." not in host or _SERVICE.fullmatch(host) is not None
    return address.is_private and not address.is_link_local
