"""Code in real servers of every kind finds and reaches its own server; its secret is accepted nowhere else."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_server.auth import security

from jupyter_gpu.common import rendezvous
from jupyter_gpu.kernel import discovery
from jupyter_gpu.kernel.client import Call, Client, get_status
from jupyter_gpu.model.errors import NotPermitted
from tests.devices import first_minor
from tests.kernel.kernels import Kernel
from tests.kernel.servers import SERVER, await_, environment, extensions

HELPERS = Path(__file__).parents[1] / "server_helpers"
NO_TOKEN = "--IdentityProvider.token="
WHOSE = """
import os
from jupyter_gpu import gpu
view = gpu.status().view
print(view.total, view.instance, os.environ["JUPYTER_GPU_POD"])
"""
RESIZE = "from jupyter_gpu import gpu; print(len(gpu.resize({}).devices))"


@pytest.fixture
def short_tmp() -> Iterator[Path]:
    """Return a folder whose name leaves room for that of a server's own socket."""
    with tempfile.TemporaryDirectory(prefix="jg-", ignore_cleanup_errors=True) as name:
        yield Path(name)


class Running:
    """A real server, and kernels that it starts."""

    def __init__(self, folder: Path, state: Path, *options: str, wrapper: tuple[str, ...] = (), gpus: int = 2) -> None:
        self.folder, self.wrapper = folder, wrapper
        self.root = folder / "root"
        self.root.mkdir(exist_ok=True)
        self.env = environment(folder)
        self.env["PYTHONPATH"] = os.pathsep.join([str(HELPERS), self.env["PYTHONPATH"]])
        command = [sys.executable, "-c", SERVER, str(first_minor()), "--allow-root", "--no-browser"]
        command += [
            f"--ServerApp.root_dir={self.root}",
            f"--ServerApp.jpserver_extensions={extensions('server_helper')}",
            f"--GpuExtension.simulated_gpus={gpus}",
            f"--GpuExtension.state_dir={state}",
            "--GpuExtension.enforcement=soft",
        ]
        if not any(option.startswith("--ServerApp.sock=") for option in options):
            command += ["--ServerApp.port=0"]
        self.log = folder / f"log-{os.urandom(4).hex()}"
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(
                [*wrapper, *command, *options], env=self.env, cwd=folder, stdout=out, stderr=out, start_new_session=True
            )

    @contextlib.contextmanager
    def kernel(self) -> Iterator[Kernel]:
        """Start a kernel, as for a notebook."""
        name = os.urandom(4).hex()
        (self.root / f"{name}.start").touch()
        started = self.root / f"{name}.started"
        await_(lambda: self.process.poll() is not None or started.exists())
        assert started.exists(), self.log.read_text()
        client = BlockingKernelClient(connection_file=started.read_text())
        client.load_connection_file()
        client.start_channels()
        try:
            await_(lambda: _ready(client))
            yield Kernel(None, client)
        finally:
            client.stop_channels()

    def file(self) -> Path:
        """Return the file that the server names to its programs."""

        def found() -> Path | None:
            names = sorted((self.folder / "runtime").glob("jupyter-gpu-*.json"))
            return next((name for name in names if _pid(name) == self.process.pid), None)

        path: Path = await_(found)
        return path

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End the server and its kernels."""
        with contextlib.suppress(ProcessLookupError):
            if self.wrapper:
                os.killpg(self.process.pid, signal.SIGKILL)
            else:
                self.process.send_signal(number)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


def _pid(path: Path) -> int | None:
    try:
        found = json.loads(path.read_text())["pid"]
        assert isinstance(found, int)
        return found
    except (OSError, ValueError):
        return None


def _ready(client: BlockingKernelClient) -> bool:
    try:
        client.wait_for_ready(timeout=20)
    except RuntimeError:
        return False
    return True


def certificate(folder: Path) -> tuple[Path, Path]:
    """Make a certificate that no authority signed."""
    key, made = folder / "key.pem", folder / "cert.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=elsewhere", "-days", "2",
         "-keyout", key, "-out", made],
        check=True, capture_output=True,
    )  # fmt: skip
    return key, made


def password() -> str:
    """Return the option of a server with a password."""
    return f"--PasswordIdentityProvider.hashed_password={security.passwd('secret')}"  # type: ignore[no-untyped-call]


def kinds(folder: Path) -> dict[str, list[str]]:
    """Return options of servers that people run."""
    key, made = certificate(folder)
    tls = [f"--ServerApp.keyfile={key}", f"--ServerApp.certfile={made}"]
    return {
        "a password alone": [password(), NO_TOKEN],
        "an identity provider without tokens": ["--ServerApp.identity_provider_class=server_helper.ProxyUsers"],
        "an authorizer of its own": ["--ServerApp.authorizer_class=server_helper.AllowNothing"],
        "IPv6": ["--ServerApp.ip=::"],
        "a Unix socket": [f"--ServerApp.sock={folder / 'own.sock'}"],
        "a certificate that nobody trusts": tls,
        "certificates of both sides, as in a hub with internal_ssl": [*tls, f"--ServerApp.client_ca={made}"],
    }


@pytest.mark.parametrize("kind", range(7))
def test_kernel_changes_gpus_in_every_kind_of_server(short_tmp: Path, kind: int) -> None:
    """Nothing is configured for it."""
    name, options = list(kinds(short_tmp).items())[kind]
    with Running(short_tmp, short_tmp / "state", *options) as server, server.kernel() as kernel:
        assert kernel.run(RESIZE.format(2)).strip() == "2", name


def test_port_is_used_if_no_socket_can_be_made(short_tmp: Path) -> None:
    """Some file systems have no sockets; this server has a password and listens on IPv6."""
    config = short_tmp / "jupyter_server_config.py"
    config.write_text("import jupyter_gpu.server.local_endpoint as e; e.listener = lambda path: None")
    options = [password(), NO_TOKEN, "--ServerApp.ip=::"]
    server = Running(short_tmp, short_tmp / "state", f"--config={config}", *options)
    with server, server.kernel() as kernel:
        found = kernel.run(
            "from jupyter_gpu.kernel import discovery; s = discovery.find(); print(s.host, s.sock, s.port > 0)"
        )
        assert found.split() == ["::1", "True"]
        assert kernel.run(RESIZE.format(1)).strip() == "1"


def ask(server: discovery.ServerAddress, method: str, path: str, token: str | None, body: str = "") -> int:
    """Return the status of an answer through the server's local socket."""
    connection = http.client.HTTPConnection("localhost", timeout=30)
    connection.sock = socket.socket(socket.AF_UNIX)
    with rendezvous.short(server.sock) as address:
        connection.sock.connect(address)
    headers = {"Content-Type": "application/json", **({"Authorization": f"token {token}"} if token is not None else {})}
    with contextlib.suppress(BrokenPipeError):  # refused by its headers alone
        connection.request(method, server.base + path, body, headers)
    status = connection.getresponse().status
    connection.close()
    return status


def test_secret_is_accepted_at_our_addresses_only(short_tmp: Path) -> None:
    """No cookie is needed or set; any other secret is refused. Only this user can read it."""
    with Running(short_tmp, short_tmp / "state") as running:
        path = running.file()
        server = discovery.find({"JUPYTER_GPU_SERVER": str(path)})
        assert path.stat().st_mode & 0o777 == Path(server.sock).stat().st_mode & 0o777 == 0o600
        for method, where, body in (("GET", "status", ""), ("PUT", "request", '{"gpus": 1}')):
            await_(lambda: ask(server, "GET", "jupyter-gpu/api/v1/status", server.token) != 503)
            assert ask(server, method, f"jupyter-gpu/api/v1/{where}", server.token, body) == 200
            for wrong in (None, "", server.token[:-1], server.token + "x", "\u00e9" * 43):
                assert ask(server, method, f"jupyter-gpu/api/v1/{where}", wrong, body) == 403
        assert ask(server, "GET", "jupyter-gpu/api/v1/nothing", server.token) == 404
        for elsewhere in ("api/kernels", "api/contents", "api/me", "lab", "api/status"):
            assert ask(server, "GET", elsewhere, server.token) in (302, 403, 404)
        assert ask(server, "POST", "api/kernels", server.token, "{}") == 403
    assert not list((short_tmp / "runtime").glob("jupyter-gpu-*"))


SCRIPT = """
import sys, time
from jupyter_gpu import gpu
def answered():
    for _ in range(600):
        try:
            return gpu.status().view.instance
        except Exception as error:
            said = repr(error)
            time.sleep(0.1)
    return said
print(answered(), flush=True)
sys.stdin.readline()
print(answered(), flush=True)
"""


def test_refusal_is_read_before_the_body_is_sent(short_tmp: Path) -> None:
    """The server closes after a refusal by the headers; the client still gets the reason."""
    with Running(short_tmp, short_tmp / "state") as running:
        stale = replace(discovery.find({"JUPYTER_GPU_SERVER": str(running.file())}), token="stale")
        long = Call("PUT", "request", {"gpus": 1, "message": "x" * 4_000_000})
        with pytest.raises(NotPermitted):
            Client(stale).send(long)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_program_finds_its_restarted_server(short_tmp: Path, number: signal.Signals) -> None:
    """The server was killed and has another port and another secret; a program in tmux lives through that."""
    with Running(short_tmp, short_tmp / "state") as first:
        path = first.file()
        env = {**first.env, "JUPYTER_GPU_SERVER": str(path)}
        before = json.loads(path.read_text())
        command = [sys.executable, "-c", SCRIPT]
        with subprocess.Popen(
            command, env=env, cwd=short_tmp, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as program:
            assert program.stdout
            instance = program.stdout.readline().strip()
            first.end(number)
            with Running(short_tmp, short_tmp / "state") as second:
                assert second.file() == path
                after = json.loads(path.read_text())
                assert after["port"] != before["port"]
                assert after["token"] != before["token"]
                said = program.communicate("\n")[0].strip()
                assert len(said) == len(instance)
                assert said != instance


def test_two_servers_of_one_folder_have_their_own_files(short_tmp: Path) -> None:
    """Each kernel finds the one that started it."""
    with Running(short_tmp, short_tmp / "state") as one, Running(short_tmp, short_tmp / "state") as other:
        assert one.file() != other.file()
        other.root = one.root
        seen = set()
        for _ in range(6):
            with one.kernel() as kernel:  # either of them starts it, as both see the file that asks for one
                instance, pod = kernel.run(WHOSE).split()[1:]
                assert instance == pod
                seen.add(pod)
        assert seen


@pytest.mark.root
def test_containers_with_one_home_do_not_collide(short_tmp: Path) -> None:
    """Both servers have the same pid, the same runtime directory and the same folder."""
    wrapper = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
    seen = {}
    with (
        Running(short_tmp, short_tmp / "one", wrapper=wrapper, gpus=1) as one,
        Running(short_tmp, short_tmp / "other", wrapper=wrapper, gpus=2),
    ):
        for _ in range(6):
            with one.kernel() as kernel:  # either of them starts it
                total, instance, pod = kernel.run(WHOSE).split()
                assert instance == pod
                seen[pod] = total
    assert set(seen.values()) <= {"1000", "2000"}


def test_address_of_a_server_can_be_given(short_tmp: Path) -> None:
    """It works in code, on the command line and by variables; a wrong token is reported as such."""
    token = "0123456789abcdef"
    with Running(short_tmp, short_tmp / "state", f"--IdentityProvider.token={token}") as server:
        port = json.loads(server.file().read_text())["port"]
        url = f"http://localhost:{port}/lab"
        env = {**environment(short_tmp), "JUPYTER_RUNTIME_DIR": str(short_tmp / "elsewhere")}

        def said(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run([sys.executable, *words], env={**env, **more}, capture_output=True, text=True)

        cli = ("-m", "jupyter_gpu.cli", "status")
        await_(lambda: said(*cli, "--url", f"{url}?token={token}").returncode == 0)
        assert said(*cli, "--url", url, JUPYTER_GPU_TOKEN=token).returncode == 0
        assert said(*cli, JUPYTER_GPU_URL=url, JUPYTER_GPU_TOKEN=token).returncode == 0
        assert said(*cli, "--url", "nonsense").returncode == 2
        assert said(*cli).returncode == 5
        code = f"from jupyter_gpu import gpu; gpu.connect({url!r}, {token!r}); print(gpu.status().view.total)"
        assert said("-c", code).stdout.strip() == "2000"
        with pytest.raises(NotPermitted, match="not logged in"):
            Client(discovery.at(url, "wrong")).send(get_status())
