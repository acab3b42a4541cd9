"""How code finds its server."""

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
from jupyter_gpu.kernel.discovery import Server, at, find, named, renewed, wanted
from jupyter_gpu.kernel.rules import outside
from jupyter_gpu.model.errors import InvalidRequest, OutsideServer, ServerUnreachable


def write(folder: Path, pid: int, /, *, place: str | None = None, alike: str = "0" * 16, **changes: Any) -> Path:
    """The file of a server, as `door` writes it."""
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
    """An environment whose runtime directory is empty."""
    return {"JUPYTER_RUNTIME_DIR": str(tmp_path)}


def test_the_file_that_the_server_names(env: dict[str, str], tmp_path: Path) -> None:
    """Also where others run, and where this process has another parent."""
    write(tmp_path, 1, port=1111)
    path = write(tmp_path, os.getpid(), port=2222)
    found = find({**env, "JUPYTER_GPU_SERVER": str(path)}, pid=1)
    assert (found.host, found.port, found.base, found.token) == ("127.0.0.1", 2222, "/base/", "secret")


def test_a_server_that_has_ended_is_not_replaced_by_another(env: dict[str, str], tmp_path: Path) -> None:
    """A program's own server, or none: another one's GPUs are not what it meant."""
    write(tmp_path, 1, port=1111)
    with pytest.raises(ServerUnreachable, match="does not run any more"):
        find({**env, "JUPYTER_GPU_SERVER": str(tmp_path / "gone.json")})


def test_a_server_that_was_started_anew_is_found_again(env: dict[str, str], tmp_path: Path) -> None:
    """By the same file, on another port and with another secret; while there is none, that is said."""
    path = write(tmp_path, os.getpid(), port=1111)
    found = find({**env, "JUPYTER_GPU_SERVER": str(path)})
    assert renewed(found) is found
    path.unlink()
    with pytest.raises(ServerUnreachable, match="does not run any more"):
        renewed(found)
    os.utime(write(tmp_path, os.getpid(), port=2222, token="other"), ns=(1, 1))
    assert (renewed(found).port, renewed(found).token) == (2222, "other")
    plain = Server("127.0.0.1", 1)
    assert renewed(plain) is plain


def test_server_among_the_parents(env: dict[str, str], tmp_path: Path) -> None:
    """Where the environment was lost only the parents tell which one it is."""
    write(tmp_path, 1, port=1111)
    write(tmp_path, os.getpid(), port=2222)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert find(env, pid=child.pid).port == 2222
        child.communicate(b"\n")


def test_what_the_user_says_comes_first(env: dict[str, str], tmp_path: Path) -> None:
    """The address with its token in it or beside it."""
    said = {**env, "JUPYTER_GPU_SERVER": str(write(tmp_path, 1)), "JUPYTER_GPU_URL": "http://localhost:9/lab?token=one"}
    assert find(said) == Server("127.0.0.1", 9, "/", "one")
    assert find({**said, "JUPYTER_GPU_TOKEN": "two"}).token == "two"


def test_hub_where_there_is_no_file(env: dict[str, str]) -> None:
    """Under JupyterHub the server listens on every address and is asked on the loopback."""
    hub = {
        "JUPYTERHUB_API_TOKEN": "hub-token",
        "JUPYTERHUB_SERVICE_URL": "http://0.0.0.0:8765/user/ann/",
        "JUPYTERHUB_SERVICE_PREFIX": "/user/ann/",
    }
    assert find({**env, **hub}) == Server("127.0.0.1", 8765, "/user/ann/", "hub-token")
    with pytest.raises(ServerUnreachable, match="JUPYTERHUB_SERVICE_URL"):
        find({**env, **hub, "JUPYTERHUB_SERVICE_URL": "http://[::"})


def test_outside_the_only_server_that_runs(env: dict[str, str], tmp_path: Path) -> None:
    """A program that belongs to none is told which runs, what it would get and how to say so; no dead one counts."""
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


def test_a_program_that_says_it_wants_one(env: dict[str, str], tmp_path: Path) -> None:
    """Its own, or else the only one that runs here; of several none is taken."""
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
    "url", ["http://localhost:1111/base/", "http://127.0.0.1:1111/base/lab", "http+unix://%2Frun%2Fdoor.sock/base"]
)
def test_one_that_runs_here_needs_no_token(env: dict[str, str], tmp_path: Path, url: str) -> None:
    """Its file has what it takes; the address in it is used, and a token that is given wins."""
    write(tmp_path, 1, port=1111, sock="/run/door.sock")
    found = named(url, None, env)
    assert (found.token, found.sock, bool(found.file)) == ("secret", "/run/door.sock", True)
    assert find({**env, "JUPYTER_GPU_URL": url}, pid=0) == found
    assert named(url, "other", env).token == "other"


@pytest.mark.parametrize(
    "url",
    ["http://localhost:1112/base/", "http://localhost:1111/", "https://localhost:1111/base/",
     "http://hub.example:1111/base/", "http+unix://%2Frun%2Fother.sock/base/"],
)  # fmt: skip
def test_the_secret_of_one_is_used_for_no_other(env: dict[str, str], tmp_path: Path, url: str) -> None:
    """Whatever differs, it is another server."""
    write(tmp_path, 1, port=1111, sock="/run/door.sock")
    assert named(url, None, env) == at(url)


def test_a_pid_that_another_process_has_by_now(env: dict[str, str], tmp_path: Path) -> None:
    """A server that was killed left its file; whoever has its number now is no server."""
    write(tmp_path, os.getpid(), started=1)
    with pytest.raises(ServerUnreachable):
        find(env)


def test_servers_of_other_machines_and_containers_with_this_home(env: dict[str, str], tmp_path: Path) -> None:
    """They may have any pid that is in use here, too."""
    write(tmp_path, os.getpid(), place="0" * 16)
    with pytest.raises(ServerUnreachable, match="start one with 'jupyter lab'"):
        find(env)


def test_none_runs(env: dict[str, str]) -> None:
    """Outside Jupyter the error says what is missing."""
    with pytest.raises(ServerUnreachable, match="start one with 'jupyter lab'"):
        find(env, pid=0)
    with pytest.raises(ServerUnreachable, match="start one with 'jupyter lab'"):
        find({"JUPYTER_RUNTIME_DIR": "/proc/self/mem"}, pid=0)


def test_several_run(env: dict[str, str], tmp_path: Path) -> None:
    """It never guesses among several, and names them without their secrets."""
    write(tmp_path, 1, port=1111)
    write(tmp_path, os.getpid(), port=2222)
    with pytest.raises(OutsideServer, match="say which") as caught:
        find(env, pid=0)
    assert "1111" in str(caught.value)
    assert "2222" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_sudo_hides_the_server(env: dict[str, str]) -> None:
    """It clears the environment and looks into the home of root: that is said."""
    with pytest.raises(ServerUnreachable, match="without sudo"):
        find({**env, "SUDO_USER": "ann"}, pid=0)


def test_a_folder_of_any_name_is_one_line(env: dict[str, str], tmp_path: Path) -> None:
    """It is shown in terminals, and an older server tells none."""
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
def test_broken_file(env: dict[str, str], tmp_path: Path, content: str) -> None:
    """A file that is not a server's is as good as none."""
    path = write(tmp_path, 1)
    path.write_text(content)
    for environ in (env, {**env, "JUPYTER_GPU_SERVER": str(path)}):
        with pytest.raises(ServerUnreachable):
            find(environ, pid=0)


def test_fifo_does_not_block(env: dict[str, str], tmp_path: Path) -> None:
    """Whatever lies in the directory, looking at it ends."""
    path = write(tmp_path, 1)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(ServerUnreachable):
        find(env, pid=0)


@pytest.mark.parametrize("wrong", ["owner", "mode", "link"])
@pytest.mark.root
def test_file_of_somebody_else(env: dict[str, str], tmp_path: Path, wrong: str) -> None:
    """A user that can write the file chooses where the secret goes."""
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
        ("http://localhost:8888/lab?token=abc", Server("127.0.0.1", 8888, "/", "abc")),
        ("http://127.0.0.1:8888/base/tree/a/b.ipynb", Server("127.0.0.1", 8888, "/base/")),
        ("https://[::1]/", Server("::1", 443, "/", secure=True)),
        ("http://[::]:80/", Server("::1", 80)),
        ("https://hub.example/user/ann/", Server("hub.example", 443, "/user/ann/", secure=True, check=True)),
        ("http+unix://%2Frun%2Fj.sock/?token=t", Server("localhost", 0, "/", "t", sock="/run/j.sock")),
    ],
)
def test_addresses_that_users_give(url: str, server: Server) -> None:
    """As Jupyter prints them; the certificate of another machine is checked."""
    assert at(url) == server


@pytest.mark.parametrize(
    "url", ["", "8888", "localhost:8888", "ftp://a/", "http://", "http://a:b@c/", "http://h:99999/", "http://[::/"]
)
def test_what_is_no_address(url: str) -> None:
    """It is said at once, with what one looks like."""
    with pytest.raises(InvalidRequest, match="not the address of a Jupyter server"):
        at(url)


def test_a_token_that_no_header_can_carry() -> None:
    """Nothing can be put into a request beside it."""
    with pytest.raises(InvalidRequest, match="token"):
        at("http://localhost/", "a\r\nHost: b")


def test_a_token_is_not_in_what_is_said_of_an_address() -> None:
    """Errors are shown in notebooks."""
    with pytest.raises(InvalidRequest) as caught:
        at("ftp://localhost/?token=secret")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("length", [20, 100, 108, 200])
def test_sockets_in_deep_folders(tmp_path: Path, length: int) -> None:
    """An address has 108 bytes, the path of a socket may have more."""
    folder = tmp_path / ("d" * max(1, length - len(str(tmp_path)) - 7))
    folder.mkdir()
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        with rendezvous.short(str(folder / "sock")) as address:
            server.bind(address)
        server.listen()
        with rendezvous.short(str(folder / "sock")) as address:
            client.connect(address)


def test_token_is_not_shown() -> None:
    """A server in a traceback does not give its token away."""
    assert "secret" not in repr(Server("127.0.0.1", 1, "/", "secret"))


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


def test_the_variables_of_a_hub_lead_to_the_file(env: dict[str, str], tmp_path: Path) -> None:
    """A hub with internal_ssl has the server's port accept the hub and the proxy alone."""
    hub = {"JUPYTERHUB_API_TOKEN": "hub-token", "JUPYTERHUB_SERVICE_URL": "https://0.0.0.0:8765/user/ann/"}
    write(tmp_path, 1, port=8765, base="/user/bob/", secure=True)
    assert find({**env, **hub}, pid=0) == Server("127.0.0.1", 8765, "/user/ann/", "hub-token", secure=True)
    path = write(tmp_path, 1, port=8765, base="/user/ann/", secure=True, sock="/run/door.sock")
    found = find({**env, **hub}, pid=0)
    assert (found.sock, found.token, found.file) == ("/run/door.sock", "secret", str(path))


PLACE = outside.RunningServer("http://127.0.0.1:1/", "/home/ann", container=False)


def test_what_a_pod_guards() -> None:
    """Its device rules hold all of its container: nothing else is said of it."""
    said = outside.told([PLACE._replace(container=True)])
    assert "Nothing guards" not in said
    assert "CUDA_VISIBLE_DEVICES is not set" in said
    assert "Nothing guards" in outside.told([PLACE, PLACE._replace(container=True)])


def test_the_server_of_a_pod_says_so(env: dict[str, str], tmp_path: Path) -> None:
    """In its file."""
    write(tmp_path, 1, container=True)
    with pytest.raises(OutsideServer) as caught:
        find(env, pid=0)
    assert "Nothing guards" not in str(caught.value)


@pytest.mark.parametrize(("count", "text"), [(5, "5 run here"), (7, "; and 2 more.")])
def test_many_servers(count: int, text: str) -> None:
    """An error is no page: some are named."""
    said = outside.told([PLACE] * count)
    assert text in said
    assert said.count("http:") == 5


def test_every_way_is_said() -> None:
    """Whatever is told, it says what to do."""
    for said in (outside.none(""), outside.none("ann"), outside.GONE, outside.told([PLACE]), outside.told([PLACE] * 2)):
        assert "gpu.connect(" in said
        assert "JUPYTER_GPU_URL" in said
        assert said.endswith((".", "sudo."))
    assert "add --connect" in outside.note({"url": "http://127.0.0.1:1/", "folder": ""})
