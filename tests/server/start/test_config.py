"""``c.GpuExtension``: every setting documented and checked, with a sentence that says what is wrong."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.provisioning.factory import KernelProvisionerFactory
from jupyter_server.serverapp import ServerApp
from traitlets import TraitError
from traitlets.config import Config

from benchmarks.lib.jupyter_server import Server, simulated
from jupyter_gpu.backends import choose
from jupyter_gpu.backends.local import LocalBackend
from jupyter_gpu.model.errors import BackendUnavailable
from jupyter_gpu.server import provisioning
from jupyter_gpu.server.app import PROVISIONER, GpuExtension
from jupyter_gpu.server.keys import STARTING, VIEWERS
from tests.server.conftest import Call, Connect

OURS = (
    *("backend", "simulated_gpus", "limit", "fractions", "state_dir", "enforcement"),
    *("system_holders", "sample_interval", "history", "priority", "follow_visible_devices", "limits_url"),
    *("hub_service", "vendors"),
)


def configured(**settings: Any) -> GpuExtension:
    """Return the extension with these settings, without a server."""
    return GpuExtension(config=Config({"GpuExtension": settings}))


@pytest.mark.parametrize("name", OURS)
def test_every_setting_is_documented(name: str) -> None:
    """Each setting has a help text, which ``jupyter server --help-all`` shows."""
    trait = GpuExtension.class_traits(config=True)[name]
    assert len(trait.help) > 40


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("backend", "slurm", "backend"),
        ("simulated_gpus", -1, "simulated_gpus"),
        ("simulated_gpus", 25, "simulated_gpus"),
        ("simulated_gpus", "two", "simulated_gpus"),
        ("limit", "two", "not an amount of GPUs"),
        ("limit", "-1", "negative"),
        ("limit", "0.0001", "finer than a thousandth"),
        ("limit", True, "not an amount of GPUs"),
        ("limit", float("nan"), "not an amount of GPUs"),
        ("fractions", ["2"], "between 0 and 1 GPU"),
        ("fractions", ["0"], "between 0 and 1 GPU"),
        ("fractions", ["half"], "not an amount of GPUs"),
        ("vendors", ["nvidia", "nvidia"], "each once"),
        ("vendors", ["acme"], "no installed package"),
        ("vendors", [], "one vendor or several"),
        ("state_dir", "relative/path", "absolute path"),
        ("enforcement", "maybe", "enforcement"),
        ("system_holders", ["/usr/bin/Xorg"], "without path"),
        ("system_holders", [" "], "name of a program"),
        ("sample_interval", 0.05, "sample_interval"),
        ("sample_interval", float("nan"), "number of seconds"),
        ("history", -1.0, "history"),
        ("history", float("nan"), "number of seconds"),
        ("history", 86_401.0, "history"),
        ("history", float("inf"), "history"),
        ("priority", 10, "priority"),
        ("limits_url", "javascript:alert(1)", "must begin with https://"),
        ("limits_url", "https:/hub", "must begin with https://"),
        ("limits_url", "//elsewhere.example/", "not an address"),
        ("limits_url", "/hub services", "not an address"),
        ("limits_url", "/\\elsewhere.example/", "not an address"),
        ("limits_url", "https://[::1/", "not an address"),
        ("hub_service", "http://hub.example/services/gpu/", "unencrypted"),
        ("hub_service", "services/gpu/", "not an address"),
    ],
)
def test_bad_setting_is_explained(name: str, value: object, words: str) -> None:
    """The message names the setting and what is wrong with it."""
    with pytest.raises(TraitError, match=words) as error:
        configured(**{name: value})
    assert name in str(error.value)


@pytest.mark.parametrize(
    ("limit", "text"), [("2", "2"), ("500m", "500m"), (1.5, "1.5"), (2, "2"), ("", ""), (" 2 ", "2")]
)
def test_limit_may_be_text_or_number(limit: object, text: str) -> None:
    """Text and numbers give the same limit."""
    assert configured(limit=limit).limit == text


def test_history_is_bounded() -> None:
    """Whatever is configured, a server does not fill its memory with samples."""
    assert configured(history=300, sample_interval=1).points == 300
    assert configured(history=86_400, sample_interval=0.1).points == 864_000
    assert configured(history=0).points == 0


def test_own_configuration_file_is_read() -> None:
    """``jupyter_gpu_config.py`` is read beside the server's own files."""
    assert GpuExtension().config_file_name == "jupyter_gpu_config"


def test_server_with_a_bad_setting_does_not_start(
    jp_configurable_serverapp: Callable[..., ServerApp], capsys: pytest.CaptureFixture[str]
) -> None:
    """Without the limit that was meant, it would give away too much."""
    config = Config({"ServerApp": {"jpserver_extensions": {"jupyter_gpu": True}}, "GpuExtension": {"limit": "two"}})
    with pytest.raises(SystemExit) as end:
        jp_configurable_serverapp(config=config)
    assert end.value.code == 1
    assert "'two' is not an amount of GPUs" in capsys.readouterr().err


async def test_settings_are_read_from_the_command_line(
    jp_configurable_serverapp: Callable[..., ServerApp], jp_server_config: Config
) -> None:
    """The demo sets them this way."""
    argv = ["--GpuExtension.limit=2", "--GpuExtension.fractions=0.5", "--GpuExtension.fractions=250m"]
    app = jp_configurable_serverapp(config=jp_server_config, argv=argv)
    (extension,) = app.extension_manager.extension_apps["jupyter_gpu"]
    assert isinstance(extension, GpuExtension)
    await extension.settings[STARTING]  # this loop runs already
    view = extension.settings[VIEWERS].backend.view()
    assert (view.limit, view.steps) == (2000, (0, 250, 500, 1000, 2000))


class Unstartable(LocalBackend):
    """A backend that cannot start here."""

    async def guard(self) -> None:
        """See the base class."""
        raise BackendUnavailable("There is no way to look after GPUs here. Ask an administrator.")


class TestUnavailable:
    """A server whose backend cannot start."""

    @pytest.fixture(autouse=True)
    def unstartable(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(GpuExtension, "make_backend", lambda self: Unstartable())

    async def test_server_starts_and_gives_the_reason(self, call: Call, put: Call, connect: Connect) -> None:
        """Every route answers 503 with the reason; the stream sends it and closes."""
        status = await call("status")
        assert status.code == 503
        said = {
            "reason": "BackendUnavailable",
            "message": "There is no way to look after GPUs here. Ask an administrator.",
        }
        assert status.body == {**said, "details": {}}
        assert (await put({"gpus": 1})).body == status.body
        stream = await connect()
        assert await stream.read() == {"type": "error", **said}
        assert await stream.read() is None
        assert stream.socket.close_code == 1013


@pytest.mark.root
def test_server_with_required_enforcement_does_not_start_without_rights(tmp_path: Path) -> None:
    """Root without its capabilities cannot guard; notebooks of that server could open any GPU."""
    options = (*simulated(tmp_path), "--GpuExtension.enforcement=required")
    with (
        pytest.raises(RuntimeError, match=r"cannot guard the GPUs[^$]*'required', so the server does not start"),
        Server(tmp_path, *options, via=("setpriv", "--bounding-set=-all")),
    ):
        pass


class TestUnusableRecords:
    """A state directory that is a file."""

    @pytest.fixture
    def gpu_config(self, tmp_path: Path) -> dict[str, Any]:
        path = tmp_path / "a-file"
        path.write_text("")
        return {"state_dir": str(path)}

    async def test_nothing_is_granted_and_the_status_gives_the_reason(self, call: Call, put: Call) -> None:
        """The status has a condition with the reason; a request is refused with 503."""
        answer = await put({"gpus": 1})
        assert (answer.code, answer.body["reason"]) == (503, "BackendUnavailable")
        assert "a-file" in answer.body["message"]
        status = await call("status")
        assert status.code == 200
        assert status.body["amounts"]["attached"] == 0
        assert any("a-file" in condition["message"] for condition in status.body["conditions"])


async def test_unforeseen_backend_error_is_reported(
    jp_configurable_serverapp: Callable[..., ServerApp],
    jp_server_config: Config,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The server starts, the log has the traceback, and clients get a message."""

    def broken(self: GpuExtension) -> Any:
        raise ZeroDivisionError("inside")

    monkeypatch.setattr(GpuExtension, "make_backend", broken)
    app = jp_configurable_serverapp(config=jp_server_config)
    (extension,) = app.extension_manager.extension_apps["jupyter_gpu"]
    assert isinstance(extension, GpuExtension)
    await extension.settings[STARTING]  # this loop runs already
    assert "ZeroDivisionError: inside" in capsys.readouterr().err
    error = app.web_app.settings["jupyter_gpu_viewers"]
    assert isinstance(error, BackendUnavailable)
    assert "inside" not in error.message.replace("inside the server", "")


def test_provisioner_is_the_default_only_if_installed(jp_serverapp: ServerApp, extension: GpuExtension) -> None:
    """A kernel never fails to start because it is missing, and a provisioner that was configured is kept."""
    factory: Any = KernelProvisionerFactory.instance(parent=jp_serverapp)
    known = dict(factory.provisioners)
    try:
        for installed, before, after in [
            (True, "local-provisioner", PROVISIONER),
            (True, "another", "another"),
            (False, "local-provisioner", "local-provisioner"),
        ]:
            factory.provisioners = {"local-provisioner": None, **({PROVISIONER: None} if installed else {})}
            factory.default_provisioner_name = before
            provisioning.set_default(PROVISIONER, jp_serverapp, extension.log)
            assert factory.default_provisioner_name == after
    finally:
        factory.provisioners = known
        KernelProvisionerFactory.clear_instance()


@pytest.mark.parametrize(
    ("installed", "configured", "environment", "after"),
    [
        (True, None, None, PROVISIONER),
        (True, "another", None, "another"),
        (True, None, "another", "another"),
        (False, None, None, "local-provisioner"),
    ],
)
@pytest.mark.parametrize("first", ["the list of kernel specs", "a kernel"])
def test_later_factory_has_the_provisioner_as_default(
    jp_serverapp: ServerApp,
    extension: GpuExtension,
    monkeypatch: pytest.MonkeyPatch,
    first: str,
    installed: bool,
    configured: str | None,
    environment: str | None,
    after: str,
) -> None:
    """The first use makes the factory, not the start of the server, as it reads about everything that is installed."""
    monkeypatch.setattr(provisioning, "is_installed", lambda name: installed)
    if environment:
        monkeypatch.setenv("JUPYTER_DEFAULT_PROVISIONER_NAME", environment)
    section = jp_serverapp.config["KernelProvisionerFactory"]
    before = section.pop("default_provisioner_name", None)
    if configured:
        section.default_provisioner_name = configured
    KernelProvisionerFactory.clear_instance()
    try:
        provisioning.set_default(PROVISIONER, jp_serverapp, extension.log)
        assert not KernelProvisionerFactory.initialized()
        parent = jp_serverapp.kernel_manager if first == "a kernel" else jp_serverapp
        factory: Any = KernelProvisionerFactory.instance(parent=parent)
        assert factory.default_provisioner_name == after
    finally:
        KernelProvisionerFactory.clear_instance()
        section.pop("default_provisioner_name", None)
        if before:
            section.default_provisioner_name = before


def test_installed_provisioner_is_found() -> None:
    """It is found by its entry point; another name is not found."""
    assert provisioning.is_installed(PROVISIONER)
    assert not provisioning.is_installed("no-such-provisioner")


@pytest.mark.parametrize(
    ("wanted", "slot", "expected"),
    [
        ("auto", True, "kubernetes"),
        ("auto", False, "local"),
        ("local", True, "local"),
        ("kubernetes", False, "kubernetes"),
    ],
)
def test_backend_is_chosen_by_the_slot(wanted: str, slot: bool, expected: str) -> None:
    """By default a server uses the cluster in a pod with a slot, and only there; a setting overrides that."""
    assert choose(wanted, {"JUPYTER_GPU_NODE_SOCKET": "/run/jupyter-gpu/node.sock"} if slot else {}) == expected


async def test_kubernetes_backend_outside_a_pod_gives_the_reason(
    jp_configurable_serverapp: Callable[..., ServerApp], jp_server_config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server starts, and answers every question with what is missing."""
    monkeypatch.delenv("JUPYTER_GPU_NODE_SOCKET", raising=False)
    app = jp_configurable_serverapp(config=jp_server_config, argv=["--GpuExtension.backend=kubernetes"])
    (extension,) = app.extension_manager.extension_apps["jupyter_gpu"]
    await extension.settings[STARTING]
    error = extension.settings[VIEWERS]
    assert isinstance(error, BackendUnavailable)
    assert "this container has no GPU slot" in error.message


def test_kubernetes_client_is_loaded_only_if_used() -> None:
    """Loading takes half a second, and one machine has no use for it."""
    code = "import sys, jupyter_gpu.server.app, jupyter_gpu.backends.local; print('kubernetes' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
