"""The address of the page about limits."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_gpu.server.app import GpuExtension
from jupyter_gpu.server.rules.limits_page import check, resolve


@pytest.mark.parametrize(
    ("url", "base", "expected"),
    [
        ("", "/", ""),
        ("services/gpu/", "/", "/services/gpu/"),
        ("services/gpu/", "/jhub/", "/jhub/services/gpu/"),
        ("services/gpu/", None, ""),
        ("services/gpu/", "https://elsewhere.example/", ""),
        ("/services/gpu/", "/jhub/", "/services/gpu/"),
        ("/services/gpu/", None, "/services/gpu/"),
        ("https://hub.example/services/gpu/", "/jhub/", "https://hub.example/services/gpu/"),
    ],
)
def test_path_is_below_the_hub(url: str, base: str | None, expected: str) -> None:
    """A path without a slash before it is one of the hub's; without a hub there is no page."""
    assert resolve(check(f" {url} "), {} if base is None else {"JUPYTERHUB_BASE_URL": base}) == expected


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("//elsewhere.example/", "is not an address: write"),
        ("/hub services", "is not an address: write"),
        ("/\\elsewhere.example/", "is not an address: write"),
        ("https://[::1/", "is not an address: Invalid IPv6 URL"),
        ("javascript:alert(1)", "must begin with https://"),
        ("https:/hub", "must begin with https://"),
    ],
)
def test_unsafe_address_is_refused(url: str, sentence: str) -> None:
    """A page that links it would lead elsewhere, or run its program."""
    with pytest.raises(ValueError, match=sentence):
        check(url)


class TestLinked:
    """A server with a page about limits."""

    @pytest.fixture
    def gpu_config(self) -> dict[str, Any]:
        """Return the configuration of the extension."""
        return {"limits_url": "/hub/services/gpu/"}

    async def test_pages_know_the_address(self, extension: GpuExtension) -> None:
        """The address is an option of every page, from which the panel makes its link."""
        assert extension.serverapp is not None
        assert extension.serverapp.web_app.settings["page_config_data"]["jupyterGpuLimits"] == "/hub/services/gpu/"
