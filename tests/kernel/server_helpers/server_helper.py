"""Helpers in real servers: an extension that starts kernels, and ways to log in without tokens."""

import asyncio
from pathlib import Path
from typing import Any

from jupyter_server.auth import Authorizer, IdentityProvider, User


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": "server_helper"}]


def _load_jupyter_server_extension(app: Any) -> None:
    """Start a kernel for each file ``*.start``: tests have no other access to these servers."""

    async def watch() -> None:
        folder = Path(app.root_dir)
        while True:
            for asked in folder.glob("*.start"):
                asked.unlink(missing_ok=True)
                kernel = await app.kernel_manager.start_kernel()
                draft = asked.with_suffix(".draft")
                draft.write_text(app.kernel_manager.get_kernel(kernel).connection_file)
                draft.rename(asked.with_suffix(".started"))
            await asyncio.sleep(0.05)

    app.io_loop.add_callback(watch)


class ProxyUsers(IdentityProvider):
    """An identity provider that knows users by a header that a proxy sets; there is no token."""

    def get_user(self, handler: Any) -> User | None:
        """Return the user that the proxy names."""
        return self.generate_anonymous_user(handler) if handler.request.headers.get("X-Proxy-User") else None


class AllowNothing(Authorizer):
    """An authorizer that allows nothing."""

    def is_authorized(self, handler: Any, user: User, action: str, resource: str) -> bool:
        """Return false."""
        return False
