"""The users of a hub whose servers all run as one user of the machine: its key, and the groups of its users.

    c.Spawner.environment = {"JUPYTER_GPU_HUB_USER": HubUsers()}

in the hub's configuration. The folder is that of the process that counts GPU-hours, which makes the key. Only root, or
the user as which that process runs, may read the key and write groups: the hub must run as that user, too.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import secrets
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from jupyter_gpu.model import strict

from . import admin_file, limits_file

KEY = "hub.key"
GROUPS = "groups"
KEY_BYTES = 32
_MAX_BYTES = 512 * 1024
_log = logging.getLogger(__name__)


class HubUsers:
    """The users of a hub, in a folder of its administrator.

    ``groups``: whether the groups of a user are noted when a server starts; not where the hub's service of limits
    writes members of groups all the time.
    """

    def __init__(self, folder: Path = limits_file.LASTING, *, groups: bool = True) -> None:
        self._folder = folder
        self._groups = groups

    def __call__(self, spawner: Any) -> str:
        """Return the credential of the user whose server a hub starts, and note the groups; never raises.

        Without a credential, which is empty then, the server counts for the user of the machine that it runs as.
        """
        from jupyter_gpu.model.limits.hub_user import credential

        try:
            name = spawner.user.name
            self.note(name, (group.name for group in spawner.user.groups) if self._groups else ())
            return credential(self.key(), name)
        except (OSError, strict.FieldError) as error:
            _log.error("GPU limits of this server are those of the machine's user that it runs as: %s", error)
            return ""

    def key(self) -> bytes:
        """Return the key. Raises `FieldError` or `OSError` where it can't be used."""
        path = self._folder / KEY
        found = admin_file.read(path, {0, os.geteuid()}, 2 * KEY_BYTES)
        if stat.S_IMODE(path.stat().st_mode) & 0o077:
            raise strict.FieldError(f"{path} can be read by others, who could speak for any user: remove it.")
        try:
            key = bytes.fromhex(found.text.decode())
        except ValueError:
            key = b""
        if len(key) != KEY_BYTES:
            raise strict.FieldError(f"{path} is no key: remove it.")
        return key

    def make_key(self) -> None:
        """Make the key where it is missing. Raises `OSError`."""
        path = self._folder / KEY
        temporary = path.with_name(f".{KEY}.{secrets.token_hex(8)}.new")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, secrets.token_hex(KEY_BYTES).encode())
            os.fsync(descriptor)
            with contextlib.suppress(FileExistsError):
                os.link(temporary, path)
        finally:
            os.close(descriptor)
            temporary.unlink()

    def note(self, name: str, groups: Iterable[str]) -> None:
        """Note the groups of a user: those count from now on. Raises `OSError`."""
        from jupyter_gpu.model.limits.hub_user import usable_groups

        path = self._path(name)
        path.parent.mkdir(mode=0o755, exist_ok=True)
        text = strict.dumps({"name": name, "groups": usable_groups(groups)})
        with contextlib.suppress(OSError):
            if path.read_text(encoding="utf-8") == text:
                return
        limits_file.replace(path, text)

    def groups(self, name: str) -> frozenset[str]:
        """Return the groups of a user as the hub noted them; none where it did not."""
        from jupyter_gpu.model.limits.hub_user import read_groups

        try:
            found = admin_file.read(self._path(name), {0, os.geteuid()}, _MAX_BYTES)
            body = strict.an_object(strict.loads(found.text, _MAX_BYTES), "groups")
            return frozenset(strict.required(body, "groups", read_groups))
        except (FileNotFoundError, NotADirectoryError):
            return frozenset()
        except strict.FieldError as error:
            _log.warning("Groups of %s: %s", strict.printable(name, 80), error)
            return frozenset()

    def _path(self, name: str) -> Path:
        return self._folder / GROUPS / f"{hashlib.sha256(name.encode()).hexdigest()}.json"
