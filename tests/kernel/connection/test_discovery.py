"""Discovery of the server to which code belongs."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from jupyter_core.paths import jupyter_runtime_dir

from jupyter_gpu.common import rendezvous
from jupyter_gpu.common.parents import started
from jupyter_gpu.kernel.discovery import ServerAddress, at, find, named, renewed, wanted
from jupyter_gpu.kernel.rules import outside
from jupyter_gpu.model.errors import InvalidRequest, OutsideServer, ServerUnreachable


def write(folder: Path, pid: int, /, *, place: str | None = None, alike: str = "0" * 16, **changes: Any) -> Path:
    """Write the file of a server, as the server does."""
    info = {
        "pid": pid,
        "started": started(pid),
        "host": "localhost",
        "port": 8888,
        "secure": False,
        "sock": "",
        "base": "/base/",
        "token": "secret",
        **changes,
    }
    path = folder / f"jupyter-gpu-{place or rendezvous.here()}-{alike}-{pid % 100}.json"
    path.write_text(json.dumps(info))
    path.chmod(0o600)
    return path


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """Return an environment whose runtime directory is empty."""
    return {"JUPYTER_RUNTIME_DIR": str(tmp_path)}


def test_named_file_is_used(env: dict[str, str], tmp_path: Path) -> None:
    """It is used even if other servers run, and if this process has another parent."""
    write(tmp_path, 1, port=1111)
    path = write(tmp_path, os.getpid(), port=2222)
    found = find({**env, "JUPYTER_GPU_SERVER": str(path)}, pid=1)
    assert (found.host, found.port, found.base, found.token) == ("127.0.0.1", 2222, "/base/", "secret")


def test_ended_server_is_not_replaced_by_another(env: dict[str, str], tmp_path: Path) -> None:
    """A program has its own server or none: it did not mean the GPUs of another."""
    write(tmp_path, 1, port=1111)
    with pytest.raises(ServerUnreachable, match="does not run any more"):
        find({**env, "JUPYTER_GPU_SERVER": str(tmp_path / "gone.json")})


def test_restarted_server_is_found_again(env: dict[str, str], tmp_path: Path) -> None:
    """It has the same file, another port and another secret; while there is none, the error says so."""
    path = write(tmp_path, os.getpid(), port=1111)
    found = find({**env, "JUPYTER_GPU_SERVER": str(path)})
    assert renewed(found) is found
    path.unlink()
    with pytest.raises(ServerUnreachable, match="does not run any more"):
        renewed(found)
    os.utime(write(tmp_path, os.getpid(), port=2222, token="other"), ns=(1, 1))
    assert (renewed(found).port, renewed(found).token) == (2222, "other")
    plain = ServerAddress("127.0.0.1", 1)
    assert renewed(plain) is plain


def test_server_is_found_among_the_parents(env: dict[str, str], tmp_path: Path) -> None:
    """If the environment was lost, only the parents show which server it is."""
    write(tmp_path, 1, port=1111)
    write(tmp_path, os.getpid(), port=2222)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert find(env, pid=child.pid).port == 2222
        child.communicate(b"\n")


def test_users_address_comes_first(env: dict[str, str], tmp_path: Path) -> None:
    """The token may be in the address or beside it."""
    said = {**env, "JUPYTER_GPU_SERVER": str(write(tmp_path, 1)), "JUPYTER_GPU_URL": "http://localhost:9/lab?token=one"}
    assert find(said) == ServerAddress("127.0.0.1", 9, "/", "one")
    assert find({**said, "JUPYTER_GPU_TOKEN": "two"}).token == "two"


def test_hub_address_is_used_without_a_file(env: dict[str, str]) -> None:
    """Under JupyterHub the server listens on every address and is reached on the loopback."""
    hub = {
        "JUPYTERHUB_API_TOKEN": "hub-token",
        "JUPYTERHUB_SERVICE_URL": "http://0.0.0.0:8765/user/ann/",
        "JUPYTERHUB_SERVICE_PREFIX": "/user/ann/",
    }
    assert find({**env, **hub}) == ServerAddress("127.0.0.1", 8765, "/user/ann/", "hub-token")
    with pytest.raises(ServerUnreachable, match="JUPYTERHUB_SERVICE_URL"):
        find({**env, **hub, "JUPYTERHUB_SERVICE_URL": "http://[::"})


def test_outside_error_lists_the_only_running_server(env: dict[str, str], tmp_path: Path) -> None:
    """The error names the server, what its GPUs would mean here and how to connect; ended servers are left out."""
    write(tmp_path, 1, port=1111, folder="/home/ann/work")
    (tmp_path / "jpserver-2.json").write_text(
        json.dumps({"pid": 1, "port": 7777, "token": "x", "hostname": "localhost"})
    )
    with subprocess.Popen([sys.executable, "-c", ""]) as dead:
        dead.wait()
    write(tmp_path, dead.pid, port=3333)
    with pytest.raises(OutsideServer) as caught:
        find(env, pid=0)
    said = str(caught.value)
    assert "One runs here: http://127.0.0.1:1111/base/ (folder /home/ann/work)." in said
    for word in ("gpu.connect()", "--connect", "JUPYTER_GPU_URL", "Nothing guards", "CUDA_VISIBLE_DEVICES"):
        assert word in said
    assert "secret" not in said
    assert caught.value.servers == [{"url": "http://127.0.0.1:1111/base/", "folder": "/home/ann/work"}]


def test_connect_chooses_the_own_or_only_server(env: dict[str, str], tmp_path: Path) -> None:
    """The own server is chosen, or the only one; among several others none."""
    with pytest.raises(ServerUnreachable, match="start one with 'jupyter lab'"):
        wanted(env, pid=0)
    write(tmp_path, 1, port=1111)
    assert wanted(env, pid=0).port == 1111
    assert wanted({**env, "JUPYTER_GPU_SERVER": str(tmp_path / "gone.json")}, pid=0).port == 1111
    path = write(tmp_path, os.getpid(), port=2222)
    assert wanted(env, pid=os.getpid()).port == 2222
    assert wanted({**env, "JUPYTER_GPU_SERVER": str(path)}, pid=0).port == 2222
    with pytest.raises(OutsideServer, match="2 run here"):
        wanted(env, pid=0)


@pytest.mark.parametrize(
    "url", ["http://localhost:1111/base/", "http://127.0.0.1:1111/base/lab", "http+unix://%2Frun%2Fcode.sock/base"]
)
def test_local_server_needs_no_token(env: dict[str, str], tmp_path: Path, url: str) -> None:
    """Its file has address and secret; the address in it is used, and a given token wins."""
    write(tmp_path, 1, port=1111, sock="/run/code.sock")
    found = named(url, None, env)
    assert (found.token, found.sock, bool(found.file)) == ("secret", "/run/code.sock", True)
    assert find({**env, "JUPYTER_GPU_URL": url}, pid=0) == found
    assert named(url, "other", env).token == "other"


@pytest.mark.parametrize(
    "url",
    ["http://localhost:1112/base/", "http://localhost:1111/", "https://localhost:1111/base/",
     "http://hub.example:1111/base/", "http+unix://%2Frun%2Fother.sock/base/"],
)  # fmt: skip
def test_secret_is_sent_to_its_own_server_only(env: dict[str, str], tmp_path: Path, url: str) -> None:
    """Any difference in the address makes it another server."""
    write(tmp_path, 1, port=1111, sock="/run/code.sock")
    assert named(url, None, env) == at(url)


def test_reused_pid_is_no_server(env: dict[str, str], tmp_path: Path) -> None:
    """A server that was killed left its file; another process has its number now."""
    write(tmp_path, os.getpid(), started=1)
    with pytest.raises(ServerUnreachable):
        find(env)


def test_servers_of_other_machines_and_containers_are_ignored(env: dict[str, str], tmp_path: Path) -> None:
    """With a shared home, they may have any pid that is in use here."""
    write(tmp_path, os.getpid(), place="0" * 16)
    with pytest.raises(ServerUnreachable, match="start one with 'jupyter lab'"):
        find(env)


def test_no_server_is_explained(env: dict[str, str]) -> None:
    """Outside Jupyter the error says what is missing."""
    with pytest.raises(ServerUnreachable, match="start one with 'jupyter lab'"):
        find(env, pid=0)
    with pytest.raises(ServerUnreachable, match="start one with 'jupyter lab'"):
        find({"JUPYTER_RUNTIME_DIR": "/proc/self/mem"}, pid=0)


def test_several_servers_are_listed_and_none_chosen(env: dict[str, str], tmp_path: Path) -> None:
    """They are listed without their secrets."""
    write(tmp_path, 1, port=1111)
    write(tmp_path, os.getpid(), port=2222)
    with pytest.raises(OutsideServer, match="say which") as caught:
        find(env, pid=0)
    assert "1111" in str(caught.value)
    assert "2222" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_sudo_is_named_as_a_cause(env: dict[str, str]) -> None:
    """It clears the environment and uses the home of root; the error says so."""
    with pytest.raises(ServerUnreachable, match="without sudo"):
        find({**env, "SUDO_USER": "ann"}, pid=0)


def test_folder_name_is_shown_as_one_line(env: dict[str, str], tmp_path: Path) -> None:
    """It is shown in terminals; an older server has none."""
    path = write(tmp_path, 1, folder="/a\nb\x1b[31m")
    with pytest.raises(OutsideServer, match=r"folder /a\\nb\\x1b\[31m") as caught:
        find(env, pid=0)
    assert str(caught.value).isprintable()
    path.unlink()
    write(tmp_path, 1)
    with pytest.raises(OutsideServer) as caught:
        find(env, pid=0)
    assert "folder" not in str(caught.value)


@pytest.mark.parametrize(
    "content",
    [
        "", "[]", "{", '{"pid": 1}', "9" * 5000, "[" * 60_000, '{"host": 1}',
        *(json.dumps({"pid": 1, "host": "h", "port": 1, "secure": False, "sock": "", "base": "/", "token": "t", **bad})
          for bad in ({"pid": True}, {"pid": "1"}, {"port": "80"}, {"port": 65536}, {"token": "a\nb"}, {"secure": 1})),
    ],
)  # fmt: skip
def test_broken_file_is_ignored(env: dict[str, str], tmp_path: Path, content: str) -> None:
    """A file that is not a server's counts as none."""
    path = write(tmp_path, 1)
    path.write_text(content)
    for environ in (env, {**env, "JUPYTER_GPU_SERVER": str(path)}):
        with pytest.raises(ServerUnreachable):
            find(environ, pid=0)


def test_fifo_does_not_block(env: dict[str, str], tmp_path: Path) -> None:
    """Reading the directory ends, whatever lies in it."""
    path = write(tmp_path, 1)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(ServerUnreachable):
        find(env, pid=0)


@pytest.mark.parametrize("wrong", ["owner", "mode", "link"])
@pytest.mark.root
def test_file_of_another_user_is_ignored(env: dict[str, str], tmp_path: Path, wrong: str) -> None:
    """A user that can write the file could choose where the secret goes."""
    path = write(tmp_path, 1)
    if wrong == "owner":
        os.chown(path, 12345, 12345)
    elif wrong == "mode":
        path.chmod(0o620)
    else:
        path.rename(tmp_path / "other")
        path.symlink_to(tmp_path / "other")
    with pytest.raises(ServerUnreachable):
        find(env, pid=0)


@pytest.mark.parametrize(
    ("url", "server"),
    [
        ("http://localhost:8888/lab?token=abc", ServerAddress("127.0.0.1", 8888, "/", "abc")),
        ("http://127.0.0.1:8888/base/tree/a/b.ipynb", ServerAddress("127.0.0.1", 8888, "/base/")),
        ("https://[::1]/", ServerAddress("::1", 443, "/", secure=True)),
        ("http://[::]:80/", ServerAddress("::1", 80)),
        ("https://hub.example/user/ann/", ServerAddress("hub.example", 443, "/user/ann/", secure=True, check=True)),
        ("http+unix://%2Frun%2Fj.sock/?token=t", ServerAddress("localhost", 0, "/", "t", sock="/run/j.sock")),
    ],
)
def test_address_is_parsed_as_jupyter_prints_it(url: str, server: ServerAddress) -> None:
    """The certificate of another machine is checked."""
    assert at(url) == server


@pytest.mark.parametrize(
    "url", ["", "8888", "localhost:8888", "ftp://a/", "http://", "http://a:b@c/", "http://h:99999/", "http://[::/"]
)
def test_invalid_address_is_explained(url: str) -> None:
    """The error shows what an address looks like."""
    with pytest.raises(InvalidRequest, match="not the address of a Jupyter server"):
        at(url)


def test_token_with_control_characters_is_refused() -> None:
    """It cannot smuggle anything into a request."""
    with pytest.raises(InvalidRequest, match="token"):
        at("http://localhost/", "a\r\nHost: b")


def test_errors_about_an_address_hide_its_token() -> None:
    """Errors are shown in notebooks."""
    with pytest.raises(InvalidRequest) as caught:
        at("ftp://localhost/?token=secret")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("length", [20, 100, 108, 200])
def test_socket_in_a_deep_folder_is_reached(tmp_path: Path, length: int) -> None:
    """A socket address has 108 bytes, its path may be longer."""
    folder = tmp_path / ("d" * max(1, length - len(str(tmp_path)) - 7))
    folder.mkdir()
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        with rendezvous.short(str(folder / "sock")) as address:
            server.bind(address)
        server.listen()
        with rendezvous.short(str(folder / "sock")) as address:
            client.connect(address)


def test_token_is_not_in_the_repr() -> None:
    """A server in a traceback does not reveal its token."""
    assert "secret" not in repr(ServerAddress("127.0.0.1", 1, "/", "secret"))


@pytest.mark.parametrize(
    "env",
    [
        {"HOME": "/home/ann"},
        {"HOME": "/home/ann", "XDG_DATA_HOME": "/data"},
        {"HOME": "/home/ann", "JUPYTER_DATA_DIR": "/jupyter"},
        {"HOME": "/home/ann", "JUPYTER_RUNTIME_DIR": "/run/jupyter"},
    ],
)
def test_runtime_dir_is_jupyters(monkeypatch: pytest.MonkeyPatch, env: dict[str, str]) -> None:
    """Our short rules give what jupyter_core's long ones give."""
    for name in ("XDG_DATA_HOME", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_PLATFORM_DIRS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert str(rendezvous.runtime_dir(env)) == jupyter_runtime_dir()


def test_hub_variables_lead_to_the_file(env: dict[str, str], tmp_path: Path) -> None:
    """With internal_ssl the server's port accepts only the hub and the proxy."""
    hub = {"JUPYTERHUB_API_TOKEN": "hub-token", "JUPYTERHUB_SERVICE_URL": "https://0.0.0.0:8765/user/ann/"}
    write(tmp_path, 1, port=8765, base="/user/bob/", secure=True)
    assert find({**env, **hub}, pid=0) == ServerAddress("127.0.0.1", 8765, "/user/ann/", "hub-token", secure=True)
    path = write(tmp_path, 1, port=8765, base="/user/ann/", secure=True, sock="/run/code.sock")
    found = find({**env, **hub}, pid=0)
    assert (found.sock, found.token, found.file) == ("/run/code.sock", "secret", str(path))


PLACE = outside.RunningServer("http://127.0.0.1:1/", "/home/ann", container=False)


def test_program_in_a_guarded_pod_gets_no_warning() -> None:
    """The pod's device rules hold for its whole container."""
    said = outside.message([PLACE._replace(container=True)])
    assert "Nothing guards" not in said
    assert "CUDA_VISIBLE_DEVICES is not set" in said
    assert "Nothing guards" in outside.message([PLACE, PLACE._replace(container=True)])


def test_server_file_marks_a_container(env: dict[str, str], tmp_path: Path) -> None:
    """The field `container` removes the warning."""
    write(tmp_path, 1, container=True)
    with pytest.raises(OutsideServer) as caught:
        find(env, pid=0)
    assert "Nothing guards" not in str(caught.value)


@pytest.mark.parametrize(("count", "text"), [(5, "5 run here"), (7, "; and 2 more.")])
def test_at_most_five_servers_are_listed(count: int, text: str) -> None:
    """The error stays short."""
    said = outside.message([PLACE] * count)
    assert text in said
    assert said.count("http:") == 5


def test_every_error_says_how_to_connect() -> None:
    """The messages for none, one and several servers do, and so does the note of `status`."""
    for said in (
        outside.none(""),
        outside.none("ann"),
        outside.GONE,
        outside.message([PLACE]),
        outside.message([PLACE] * 2),
    ):
        assert "gpu.connect(" in said
        assert "JUPYTER_GPU_URL" in said
        assert said.endswith((".", "sudo."))
    assert "add --connect" in outside.note({"url": "http://127.0.0.1:1/", "folder": ""})
