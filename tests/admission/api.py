"""A small client of the API server that says what it answered, whatever it was."""

import base64
import http.client
import json
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"


@dataclass(frozen=True)
class Answer:
    """The answer to one request."""

    status: int
    body: dict[str, Any]

    @property
    def ok(self) -> bool:
        """Whether it was done."""
        return self.status < 300

    @property
    def message(self) -> str:
        """Why it was not."""
        return str(self.body.get("message", ""))

    @property
    def annotations(self) -> dict[str, str]:
        """Return the annotations of the object that came back."""
        found: dict[str, str] = (self.body.get("metadata") or {}).get("annotations") or {}
        return found


class Api:
    """One identity: the certificate of a kubeconfig, a token, or whom the certificate's owner takes the place of."""

    def __init__(
        self, kubeconfig: Path, token: str | None = None, *, impersonate: Sequence[tuple[str, str]] = ()
    ) -> None:
        config = json.loads(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        address = urlsplit(cluster["server"])
        trust = base64.b64decode(cluster["certificate-authority-data"]).decode()
        context = ssl.create_default_context(cadata=trust)
        token = token or user.get("token")
        self._headers = [*impersonate, *([("Authorization", f"Bearer {token}")] if token else [])]
        if token is None:
            pem = kubeconfig.with_suffix(".pem")
            pem.write_bytes(b"".join(base64.b64decode(user[f"client-{part}-data"]) for part in ("certificate", "key")))
            context.load_cert_chain(pem)
        self._connection = http.client.HTTPSConnection(
            address.hostname or "", address.port, context=context, timeout=60
        )

    def __call__(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Answer:
        """One request."""
        data = b"" if body is None else json.dumps(body).encode()
        try:
            answer = self._send(method, path, data, kind)
        except (http.client.HTTPException, ConnectionError, ssl.SSLEOFError):  # the server closed a kept connection
            self._connection.close()
            answer = self._send(method, path, data, kind)
        text = answer.read().decode()
        return Answer(answer.status, json.loads(text) if text.startswith("{") else {"message": text})

    def _send(self, method: str, path: str, data: bytes, kind: str) -> http.client.HTTPResponse:
        self._connection.putrequest(method, path)
        for name, value in (*self._headers, ("Content-Type", kind), ("Content-Length", str(len(data)))):
            self._connection.putheader(name, value)  # a name may come twice: one for each group
        self._connection.endheaders(data)
        return self._connection.getresponse()

    def need(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> dict[str, Any]:
        """Send a request that must succeed."""
        answer = self(method, path, body, kind)
        assert answer.ok, f"{method} {path}: {answer.status} {answer.message}"
        return answer.body

    def close(self) -> None:
        """Ends the connection."""
        self._connection.close()
