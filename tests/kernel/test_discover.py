"""How code finds its server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from jupyter_core.paths import jupyter_runtime_dir

from jupyter_gpu import discover
from jupyter_gpu.discover import Server, find
from jupyter_gpu.model.errors import ServerUnreachable


def write(folder: Path, pid: int, **changes: Any) -> None:
    """The file of a server, as jupyter_server writes it."""
    info = {
        "base_url": "/base/",
        "hostname": "localhost",
        "password": False,
        "pid": pid,
        "port": 8888,
        "root_dir": "/",
        "secure": False,
        "sock": "",
        "token": "secret",
        "url": "http://localhost:8888/base/",
        "version": "2.21.1",
        **changes,
    }
    (folder / f"jpserver-{pid}.json").write_text(json.dumps(info))


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """An environment whose runtime directory is empty."""
    return {"JUPYTER_RUNTIME_DIR": str(tmp_path)}


def test_server_that_started_the_kernel(env: dict[str, str], tmp_path: Path) -> None:
    """JPY_PARENT_PID names the server, also where others run."""
    write(tmp_path, 1, port=1111)
    write(tmp_path, os.getpid(), port=2222)
    found = find({**env, "JPY_PARENT_PID": str(os.getpid())}, pid=1)
    assert found == Server("127.0.0.1", 2222, "/base/", "secret")


def test_server_among_the_parents(env: dict[str, str], tmp_path: Path) -> None:
    """In a terminal of the server only the parents tell which one it is."""
    write(tmp_path, 1, port=1111)
    write(tmp_path, os.getpid(), port=2222)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert find(env, pid=child.pid).port == 2222
        child.communicate(b"\n")


def test_hub_comes_first(env: dict[str, str], tmp_path: Path) -> None:
    """Under JupyterHub the server listens on every address and is asked on the loopback."""
    write(tmp_path, os.getpid())
    hub = {
        "JUPYTERHUB_API_TOKEN": "hub-token",
        "JUPYTERHUB_SERVICE_URL": "http://0.0.0.0:8765/user/ann/",
        "JUPYTERHUB_SERVICE_PREFIX": "/user/ann/",
    }
    assert find({**env, **hub}) == Server("127.0.0.1", 8765, "/user/ann/", "hub-token")


def test_only_running_server(env: dict[str, str], tmp_path: Path) -> None:
    """From anywhere else, the one that runs; a dead one's file does not count."""
    write(tmp_path, 1, port=1111)
    with subprocess.Popen([sys.executable, "-c", ""]) as dead:
        dead.wait()
    write(tmp_path, dead.pid, port=3333)
    assert find(env, pid=0).port == 1111


def test_none_runs(env: dict[str, str]) -> None:
    """Outside Jupyter the error says what is missing."""
    with pytest.raises(ServerUnreachable, match="start one with 'jupyter lab'"):
        find(env, pid=0)


def test_several_run(env: dict[str, str], tmp_path: Path) -> None:
    """It never guesses among several, and names them without their tokens."""
    write(tmp_path, 1, port=1111)
    write(tmp_path, os.getpid(), port=2222)
    with pytest.raises(ServerUnreachable, match="belongs to none") as caught:
        find(env, pid=0)
    assert "1111" in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{", '{"pid": 1}', '{"pid": 1, "port": "80"}', '{"pid": true, "port": 1, "token": 3}', "9" * 5000],
)
def test_broken_file(env: dict[str, str], tmp_path: Path, content: str) -> None:
    """A file that is not a server's is as good as none."""
    (tmp_path / "jpserver-1.json").write_text(content)
    with pytest.raises(ServerUnreachable):
        find(env, pid=0)


def test_fifo_does_not_block(env: dict[str, str], tmp_path: Path) -> None:
    """Whatever lies in the directory, looking at it ends."""
    os.mkfifo(tmp_path / "jpserver-1.json")
    with pytest.raises(ServerUnreachable):
        find(env, pid=0)


@pytest.mark.root
def test_file_of_somebody_else(env: dict[str, str], tmp_path: Path) -> None:
    """Who writes the file chooses where the token goes, so it must be ours."""
    write(tmp_path, 1)
    os.chown(tmp_path / "jpserver-1.json", 12345, 12345)
    with pytest.raises(ServerUnreachable):
        find(env, pid=0)


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
    assert str(discover.runtime_dir(env)) == jupyter_runtime_dir()
