"""The service as a process: started by a hub, by an administrator, and with settings that can't be used."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_gpu.common.settings_file import SettingsError, parse
from jupyter_gpu_hub.__main__ import main
from jupyter_gpu_hub.process import is_hub
from jupyter_gpu_hub.settings import NEEDED, HubServiceSettings, check_environment, hub_name, listen_on
from tests import hub
from tests.cluster.testbed import ControlPlane, control_plane, until
from tests.cluster.testbed.ports import free
from tests.hub import SECONDS

from .browser import Browser
from .world import CRDS

MANAGED = """
c.JupyterHub.redirect_to_server = False
c.JupyterHub.services = [
    {{
        "name": "gpu",
        "url": "http://127.0.0.1:{port}",
        "command": [{python!r}, "-m", "jupyter_gpu_hub", "--settings", {settings!r}],
        "oauth_no_confirm": True,
    }},
]
c.JupyterHub.load_roles = [
    {{"name": "user", "scopes": ["self", "access:services!service=gpu"]}},
    {{"name": "gpu-service", "services": ["gpu"], "scopes": ["list:users", "list:groups", "read:groups"]}},
]
"""


@pytest.mark.parametrize(
    ("url", "settings", "place"),
    [
        ("", {}, ("127.0.0.1", 8888)),
        ("http://127.0.0.1:1234", {}, ("127.0.0.1", 1234)),
        ("http://localhost:1234", {}, ("127.0.0.1", 1234)),
        ("http://gpu.hub.svc:8181", {}, ("0.0.0.0", 8181)),
        ("http://[::1]:7", {}, ("::1", 7)),
        ("http://gpu:8181", {"address": "127.0.0.2", "port": 9}, ("127.0.0.2", 9)),
    ],
)
def test_place_is_the_hubs_or_the_settings(url: str, settings: dict[str, object], place: tuple[str, int]) -> None:
    """The name of a Kubernetes Service is no address of the pod behind it."""
    assert listen_on(parse(settings, HubServiceSettings), {"JUPYTERHUB_SERVICE_URL": url}) == place


def test_place_that_is_none_is_refused() -> None:
    """The sentence names the variable."""
    for url in ("http://x:port", "http://[::1"):
        with pytest.raises(SettingsError, match="JUPYTERHUB_SERVICE_URL"):
            listen_on(HubServiceSettings(), {"JUPYTERHUB_SERVICE_URL": url})


def test_variables_of_the_hub_are_needed() -> None:
    """All that are missing are named."""
    with pytest.raises(SettingsError, match=", ".join(NEEDED[1:])):
        check_environment({NEEDED[0]: "x"})
    check_environment(dict.fromkeys(NEEDED, "x"))


def test_hub_has_a_name() -> None:
    """The hub is named as in the settings, or else like the namespace."""
    assert hub_name(HubServiceSettings(hub="a"), {"POD_NAMESPACE": "b"}, "c") == "a"
    assert hub_name(HubServiceSettings(), {"POD_NAMESPACE": "b"}, "c") == "b"
    assert hub_name(HubServiceSettings(), {}, "c") == "c"
    with pytest.raises(SettingsError, match="The hub has no name"):
        hub_name(HubServiceSettings(), {}, "")


def test_language_is_checked() -> None:
    """By its form; a language without a pack is English."""
    with pytest.raises(SettingsError, match="language"):
        parse({"language": "../de"}, HubServiceSettings)
    assert parse({"language": "pt_BR"}, HubServiceSettings).language == "pt_BR"


@pytest.mark.parametrize("zone", ["Nowhere/Town", "../../etc/passwd", "\0"])
def test_time_zone_is_checked(zone: str) -> None:
    """The settings are refused at the start, not at the first preview."""
    with pytest.raises(SettingsError, match=r"timeZone|control characters"):
        parse({"timeZone": zone}, HubServiceSettings)
    assert str(parse({"timeZone": "Europe/Berlin"}, HubServiceSettings).zone) == "Europe/Berlin"


def test_bad_settings_end_with_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit status 2, for settings and for a missing environment."""
    file = tmp_path / "settings.json"
    file.write_text('{"prot": 1}')
    assert main(["--settings", str(file)]) == 2
    assert "'prot' is not known" in capsys.readouterr().err
    monkeypatch.delenv("JUPYTERHUB_API_TOKEN", raising=False)
    assert main([]) == 2
    assert "JUPYTERHUB_API_TOKEN" in capsys.readouterr().err


def test_parent_that_is_no_hub_is_none() -> None:
    """A shell or systemd may end; the service goes on."""
    assert not is_hub(1)
    assert not is_hub(2**22 + 1)


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """Return an API server that knows limits."""
    with control_plane() as made:
        made.kubectl("apply", "-f", CRDS)
        yield made


@pytest.mark.cluster
def test_managed_service_ends_with_its_hub(plane: ControlPlane, tmp_path: Path) -> None:
    """A hub that is killed ends no service; it would keep the port, and its secret would be outdated."""
    (port,) = free(1)
    settings = tmp_path / "settings.json"
    settings.write_text(json.dumps({"hub": "small", "kubeconfig": str(plane.kubeconfig)}))
    config = MANAGED.format(port=port, python=sys.executable, settings=str(settings))
    with hub.running(tmp_path, config) as address:
        browser = Browser(address).log_in("ann")
        until(lambda: browser.open("/services/gpu/").status == 200, SECONDS, "the page")
        (service,) = _processes("jupyter_gpu_hub", str(settings))
        os.kill(_parent(service), 9)
        until(lambda: not _processes("jupyter_gpu_hub", str(settings)), SECONDS, "the service to end")


@pytest.mark.cluster
def test_hub_does_not_wait_for_a_service_that_is_away(tmp_path: Path) -> None:
    """With ``timeout: 2`` a hub 6 answers soon, though the external service does not exist yet."""
    (port,) = free(1)
    config = (
        "import jupyterhub\nmore = {'timeout': 2} if jupyterhub.version_info >= (6,) else {}\n"
        f"service = {{'name': 'gpu', 'url': 'http://127.0.0.1:{port}', 'api_token': 'x' * 32}}\n"
        "c.JupyterHub.services = [{**service, **more}]\n"
    )
    with hub.running(tmp_path, config) as address:
        browser = Browser(address)
        until(lambda: "Sign in" in browser.open("/hub/login").text, 30, "the login page")


def test_command_says_what_it_is() -> None:
    """It can be started by its module."""
    words = [sys.executable, "-m", "jupyter_gpu_hub", "--help"]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=SECONDS)
    assert "--settings FILE" in done.stdout


def _processes(*words: str) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().decode(errors="replace")
        except OSError:
            continue
        if all(word in line for word in words):
            found.append(int(path.parent.name))
    return found


def _parent(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("PPid:")).split()[1])
