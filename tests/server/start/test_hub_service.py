"""The address of the hub's service to which a server sends its token."""

from __future__ import annotations

import pytest
from traitlets import TraitError
from traitlets.config import Config

from jupyter_gpu.server.app import GpuExtension
from jupyter_gpu.server.rules.hub_service import VARIABLE, check


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("", ""),
        ("  ", ""),
        ("http://proxy-public/services/gpu/", "http://proxy-public/services/gpu/"),
        (" http://proxy-public/services/gpu ", "http://proxy-public/services/gpu/"),
        ("http://proxy-public.jhub.svc/services/gpu/", "http://proxy-public.jhub.svc/services/gpu/"),
        ("http://proxy-public.jhub.svc.cluster.local:8000/a/", "http://proxy-public.jhub.svc.cluster.local:8000/a/"),
        ("http://10.0.0.7:8888/services/gpu/", "http://10.0.0.7:8888/services/gpu/"),
        ("http://127.0.0.1:8888/services/gpu/", "http://127.0.0.1:8888/services/gpu/"),
        ("http://[fd00::1]:8888/services/gpu/", "http://[fd00::1]:8888/services/gpu/"),
        ("https://hub.example/jhub/services/gpu", "https://hub.example/jhub/services/gpu/"),
        ("https://192.0.2.1/", "https://192.0.2.1/"),
    ],
)
def test_address_of_the_service_has_a_slash_at_its_end(url: str, expected: str) -> None:
    """Names of the cluster and private addresses may be without TLS, all others with it."""
    assert check(url) == expected


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://hub.example/services/gpu/", "unencrypted"),
        ("http://proxy-public.jhub/services/gpu/", "unencrypted"),  # or a domain of the internet
        ("http://a.b.svc.example/", "unencrypted"),
        ("http://x.a.b.svc/", "unencrypted"),
        ("http://8.8.8.8/", "unencrypted"),
        ("http://169.254.169.254/", "unencrypted"),
        ("http://[2001:4860:4860::8888]/", "unencrypted"),
        ("/services/gpu/", "not an address"),
        ("services/gpu/", "not an address"),
        ("ftp://hub/", "not an address"),
        ("http:///services/gpu/", "not an address"),
        ("http://user:word@hub/", "not an address"),
        ("http://hub/a b/", "not an address"),
        ("http://hub\\\\x/", "not an address"),
        ("http://h\u00fcb/", "not an address"),
        ("http://hub:port/", "not an address"),
        ("http://[::1/", "not an address"),
        ("http://hub/services/gpu/?token=1", "must end with the path"),
        ("http://hub/services/gpu/#a", "must end with the path"),
    ],
)
def test_address_that_would_give_the_token_away_is_refused(url: str, words: str) -> None:
    """The sentence says what to write."""
    with pytest.raises(ValueError, match=words):
        check(url)


def test_address_comes_from_the_environment_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """The setting counts where both are there; a bad variable is told like a bad setting."""
    monkeypatch.setenv(VARIABLE, "http://proxy-public/services/gpu")
    assert GpuExtension().hub_service == "http://proxy-public/services/gpu/"
    chosen = Config({"GpuExtension": {"hub_service": "https://hub.example/services/gpu/"}})
    assert GpuExtension(config=chosen).hub_service == "https://hub.example/services/gpu/"
    monkeypatch.setenv(VARIABLE, "http://hub.example/")
    with pytest.raises(TraitError, match=r"GpuExtension\.hub_service: .*unencrypted"):
        _ = GpuExtension().hub_service
    monkeypatch.delenv(VARIABLE)
    assert GpuExtension().hub_service == ""
