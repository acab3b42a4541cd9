"""The identity of the pod in which a server runs."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpu.backends.kubernetes.identity import Identity, here, identify
from jupyter_gpu.kube import Credentials
from jupyter_gpu.model.errors import BackendUnavailable

ENVIRON = {"POD_NAME": "p", "POD_NAMESPACE": "n", "POD_UID": "u"}


def token(claims: Any) -> str:
    """Return a token with the fields that are read."""
    body = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"head.{body}.signature\n"


BOUND = token({"kubernetes.io": {"namespace": "tn", "pod": {"name": "tp", "uid": "tu"}}})


@pytest.mark.parametrize(
    ("environ", "text", "namespace", "expected"),
    [
        (ENVIRON, BOUND, "file", Identity("n", "p", "u")),
        ({}, BOUND, "file", Identity("tn", "tp", "tu")),
        ({"POD_NAME": "p"}, BOUND, "file", Identity("tn", "p", "")),
        ({"POD_NAME": "tp"}, BOUND, "file", Identity("tn", "tp", "tu")),
        ({}, "", "file", Identity("file", "host", "")),
        ({}, token({"kubernetes.io": {"namespace": "tn"}}), "", Identity("tn", "host", "")),
        ({}, token([]), "file", Identity("file", "host", "")),
        ({}, token({"kubernetes.io": 7}), "file", Identity("file", "host", "")),
        ({}, "a.!!.c", "file", Identity("file", "host", "")),
        ({}, "a.b", "file", Identity("file", "host", "")),
    ],
)
def test_identity_is_found_in_order(environ: dict[str, str], text: str, namespace: str, expected: Identity) -> None:
    """It comes from the downward API, else the token, else the host name; odd tokens are no tokens."""
    assert identify(environ, text, namespace, "host") == expected


def test_unknown_identity_names_the_fields_to_add() -> None:
    """The message is text to paste into the pod's spec."""
    with pytest.raises(BackendUnavailable, match=r"fieldPath: metadata\.name"):
        identify({}, "", "", "host")


def test_identity_of_this_process_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes from this process's environment and token; a token that cannot be read has none."""
    for key in ENVIRON:
        monkeypatch.delenv(key, raising=False)
    (tmp_path / "token").write_text(BOUND)
    assert here(Credentials(token=tmp_path / "token")) == Identity("tn", "tp", "tu")
    monkeypatch.setenv("POD_NAME", "p")
    assert here(Credentials(token=tmp_path / "none", namespace="n")) == Identity("n", "p", "")
