"""Our identity to the API server: a pod's service account, or a kubeconfig.

A pod's token is short-lived; the kubelet replaces its file long before the end. The file is checked before each
call and read again when it has changed.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import Unauthorized

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Folder where the kubelet puts token, CA and namespace of a pod's service account."""


class NoCredentials(Exception):
    """No usable credentials; the message says what is missing and where it was looked for."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The API server as connections see it."""

    url: str
    ca: str | None = None
    """File with the authorities to trust; the machine's if there are none here."""
    ca_data: str | bytes | None = None
    certificate: str | None = None
    """File with our certificate, and in ``key`` the one with its key."""
    key: str | None = None
    verify: bool = True
    """Whether the server must prove its identity."""
    strict: bool = True
    """Whether its certificate must keep to RFC 5280, where Python's default asks for that."""
    server_name: str | None = None
    """Name in the server's certificate, if it is not that in ``url``."""
    proxy: str | None = None
    proxy_headers: Any = None
    authorization: Callable[[], Awaitable[str | None]] | None = None
    """Returns the header ``Authorization``, renewed where it has run out; ``None``: there is none."""

    def tls(self) -> ssl.SSLContext:
        """Read the files; raises ``OSError``, of which ``SSLError`` is one."""
        made = ssl.create_default_context(cafile=self.ca, cadata=self.ca_data)
        if self.certificate:
            made.load_cert_chain(self.certificate, keyfile=self.key)
        if not self.verify:
            made.check_hostname = False
            made.verify_mode = ssl.CERT_NONE
        if not self.strict:
            made.verify_flags &= ~ssl.VERIFY_X509_STRICT
        return made


@dataclass(frozen=True, slots=True)
class Credentials:
    """The API server's address and our identity; made by `load`, `in_cluster` or `kubeconfig`."""

    server: str = ""
    """URL; empty if the kubeconfig has it."""
    ca: Path | None = None
    token: Path | None = None
    """File of a token that may be replaced at any time."""
    config: Path | None = None
    """A kubeconfig; the rest is empty then."""
    namespace: str = ""
    """Namespace of our own pod, where we are in one."""

    async def endpoint(self) -> Endpoint:
        """Return the API server to connect to; reads files and may run the credential program of a kubeconfig.

        Only a kubeconfig needs the official client, which takes more memory than all else of ours: a pod has none.
        """
        if self.config is None:
            return Endpoint(self.server, ca=str(self.ca) if self.ca else None)
        try:
            from kubernetes.aio.client import Configuration
            from kubernetes.aio.config import ConfigException, load_kube_config
        except ImportError as error:
            raise NoCredentials(
                f"The kubeconfig {self.config} needs a package that is not installed ({error.name}): the wheel's extra "
                "'kubernetes' has it."
            ) from None

        found = Configuration()
        load_config: Any = load_kube_config
        try:
            await load_config(str(self.config), client_configuration=found, persist_config=False)
        except (ConfigException, OSError) as error:
            raise NoCredentials(f"The kubeconfig {self.config} can't be used: {error}") from None
        return Endpoint(
            url=found.host,
            ca=found.ssl_ca_cert,
            ca_data=found.ca_cert_data,
            certificate=found.cert_file,
            key=found.key_file,
            verify=bool(found.verify_ssl),
            strict=not found.disable_strict_ssl_verification,
            server_name=found.tls_server_name,
            proxy=found.proxy,
            proxy_headers=found.proxy_headers,
            authorization=lambda: found.get_api_key_with_prefix("BearerToken"),
        )


class TokenFile:
    """The text of a token file, read again when the file changes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int, int] | None = None
        self._text = ""

    def read(self, *, again: bool = False) -> str:
        """Return the token now; ``again``: even if the file looks the same. Raises `Unauthorized`."""
        try:
            seen = stamp(self._path)
            if again or seen != self._seen:
                self._text = self._path.read_text(encoding="ascii").strip()
                self._seen = seen
        except (OSError, UnicodeError) as error:
            if not self._text:  # else the last token is valid for a while
                raise Unauthorized(401, "NoToken", f"The token {self._path} can't be read: {error}") from None
        return self._text


def stamp(path: Path) -> tuple[int, int, int]:
    """Return inode, time and size of a file, which change with the file; follow the link that the kubelet swaps."""
    found = path.stat()
    return found.st_ino, found.st_mtime_ns, found.st_size


def load(path: Path | None = None) -> Credentials:
    """Load a kubeconfig if one is given; in a pod its service account; else ``KUBECONFIG`` or ``~/.kube/config``.

    Raises `NoCredentials`.
    """
    if path is not None:
        return kubeconfig(path)
    if os.environ.get("KUBERNETES_SERVICE_HOST") and SERVICE_ACCOUNT.is_dir():
        return in_cluster()
    first = os.environ.get("KUBECONFIG", "").split(os.pathsep)[0]
    return kubeconfig(Path(first) if first else Path.home() / ".kube" / "config")


def kubeconfig(path: Path) -> Credentials:
    """Use the current context of a kubeconfig."""
    if not path.is_file():
        raise NoCredentials(
            f"There is no kubeconfig at {path}. Name one with KUBECONFIG, or run in a pod with a service account."
        )
    return Credentials(config=path)


def in_cluster(folder: Path = SERVICE_ACCOUNT, environ: Mapping[str, str] = os.environ) -> Credentials:
    """Use the service account of the pod that this process runs in."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise NoCredentials("KUBERNETES_SERVICE_HOST is not set: this process does not run in a Kubernetes pod.")
    missing = [name for name in ("token", "ca.crt") if not (folder / name).is_file()]
    if missing:
        raise NoCredentials(
            f"{' and '.join(missing)} not found in {folder}. "
            "Set automountServiceAccountToken: true in the pod's spec, or mount a projected token there."
        )
    try:
        namespace = (folder / "namespace").read_text(encoding="utf-8").strip()
    except (OSError, UnicodeError):
        namespace = ""
    shown = f"[{host}]" if ":" in host else host
    return Credentials(f"https://{shown}:{port}", folder / "ca.crt", folder / "token", namespace=namespace)
