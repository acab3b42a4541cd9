"""A JupyterLab server of one's own, for the demo, the screenshots and the tests: its folders, its port, its end."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

START_SECONDS = 60
STOP_SECONDS = 20

QUIET = {  # no questions and no requests to the outside in a demo
    "@jupyterlab/apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
}


class LabError(Exception):
    """The server did not start; the message has the end of its log."""


@dataclass(frozen=True)
class Lab:
    """A running server."""

    url: str
    """Base URL, ends with a slash."""
    token: str
    pid: int
    work: Path
    """Its root folder."""
    log: Path

    def page(self, path: str) -> str:
        """Return the address of a page, with the token in it."""
        return f"{self.url}{path}?token={self.token}"

    def fetch(self, path: str, method: str = "GET", body: object = None) -> bytes:
        """Return the body of the answer; raises urllib.error.HTTPError for an error status."""
        request = urllib.request.Request(
            self.url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"token {self.token}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return bytes(answer.read())

    def json(self, path: str, method: str = "GET", body: object = None) -> Any:
        """Return the body of a JSON answer."""
        return json.loads(self.fetch(path, method, body) or b"null")


@contextmanager
def running(
    folder: Path,
    *arguments: str,
    command: Sequence[str | Path] = (Path(sys.executable).parent / "jupyter-lab",),
    environment: Mapping[str, str] | None = None,
) -> Iterator[Lab]:
    """Run a server whose every file is below `folder` until the end of the block.

    `command` starts JupyterLab, by default the one of this Python. Raises LabError if it does not come up.
    """
    own = folders(folder)
    log = folder / "lab.log"
    words = [*map(str, command), "--no-browser", "--ServerApp.port=0", f"--ServerApp.root_dir={folder / 'work'}"]
    if os.geteuid() == 0:
        words.append("--allow-root")
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("JUPYTER", "JPY_"))}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*words, *arguments],
            cwd=folder / "work",
            env={**inherited, **own, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C reaches the demo, which then ends this in order
        )
    try:
        info = wait_for(process, Path(own["JUPYTER_RUNTIME_DIR"]) / f"jpserver-{process.pid}.json", log)
        yield Lab(info["url"], info["token"], process.pid, folder / "work", log)
    finally:
        stop(process)


def folders(folder: Path) -> dict[str, str]:
    """Make the folders; return the environment variables that name them."""
    variables = {
        "JUPYTER_CONFIG_DIR": folder / "config",
        "JUPYTER_DATA_DIR": folder / "data",
        "JUPYTER_RUNTIME_DIR": folder / "runtime",
        "IPYTHONDIR": folder / "ipython",
    }
    for path in (*variables.values(), folder / "work"):
        path.mkdir(parents=True, exist_ok=True)
    for plugin, settings in QUIET.items():
        file = folder / "config" / "lab" / "user-settings" / f"{plugin}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(settings))
    return {name: str(path) for name, path in variables.items()}


def wait_for(process: subprocess.Popen[bytes], info: Path, log: Path) -> dict[str, Any]:
    """Return the file that the server writes about itself, as soon as it answers."""
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and process.poll() is None:
        with suppress(OSError, ValueError):  # not there yet, half written, or not listening yet
            found: dict[str, Any] = json.loads(info.read_text())
            with urllib.request.urlopen(f"{found['url']}api"):
                return found
        time.sleep(0.05)
    why = "does not answer" if process.poll() is None else f"ended with status {process.returncode}"
    raise LabError(f"JupyterLab {why}. The end of its log:\n{log.read_text(errors='replace')[-4000:]}")


def stop(process: subprocess.Popen[bytes]) -> None:
    """End the server as a service manager would; by force if it does not obey."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
