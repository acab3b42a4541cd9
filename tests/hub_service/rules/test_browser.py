"""Checks of a request's headers against other sites."""

from __future__ import annotations

import pytest

from jupyter_gpu_hub.rules.browser import check, same_origin
from jupyter_gpu_hub.rules.refusals import Refusal

JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
def test_reads_pass(method: str) -> None:
    """They change nothing, and the browser keeps the answer from other sites."""
    check(method, {"Sec-Fetch-Site": "cross-site"}, "hub.example")


@pytest.mark.parametrize(
    ("method", "headers"),
    [
        ("POST", JSON),
        ("POST", {"Content-Type": "Application/JSON; charset=utf-8", "Sec-Fetch-Site": "same-origin"}),
        ("PATCH", {**JSON, "Origin": "https://hub.example"}),
        ("DELETE", {"Origin": "https://HUB.example"}),
        ("DELETE", JSON),
    ],
)
def test_own_writes_pass(method: str, headers: dict[str, str]) -> None:
    """JSON from the same site, or from a program."""
    check(method, headers, "hub.example")


@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        ("POST", {**JSON, "Sec-Fetch-Site": "cross-site"}, 403),
        ("POST", {**JSON, "Sec-Fetch-Site": "same-site"}, 403),
        ("POST", {**JSON, "Origin": "https://evil.example"}, 403),
        ("POST", {**JSON, "Origin": "https://hub.example.evil"}, 403),
        ("POST", {**JSON, "Origin": "null"}, 403),
        ("POST", {**JSON, "Origin": "https://[::1"}, 403),
        ("POST", {}, 415),
        ("PUT", {"Content-Type": "text/plain"}, 415),
        ("DELETE", {"Content-Type": "text/plain"}, 415),
    ],
)
def test_writes_of_other_sites_are_refused(method: str, headers: dict[str, str], status: int) -> None:
    """Nothing is read of them."""
    with pytest.raises(Refusal) as refused:
        check(method, headers, "hub.example")
    assert refused.value.status == status


def test_same_origin_needs_a_host() -> None:
    """Two unknown addresses are not the same."""
    assert not same_origin("", "")
    assert same_origin("http://localhost:8000", "localhost:8000")
    assert not same_origin("http://localhost:8001", "localhost:8000")
