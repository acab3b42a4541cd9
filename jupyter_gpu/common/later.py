"""Routes whose handlers are loaded with their first request, so that a server starts without rarely used ones."""

from __future__ import annotations

from importlib import import_module
from typing import Any, ClassVar

from jupyter_server.extension.handler import ExtensionHandlerMixin
from tornado import web


class Later(ExtensionHandlerMixin, web.RequestHandler):
    """A placeholder for a handler in a route; it creates that handler for each request."""

    module: ClassVar[str]
    handler: ClassVar[str]

    def __new__(cls, *arguments: Any, **options: Any) -> Any:
        """Create the real handler, which checks the user and their rights."""
        return cls.meant()(*arguments, **options)

    @classmethod
    def meant(cls) -> type[web.RequestHandler]:
        """Load the real handler."""
        found: type[web.RequestHandler] = getattr(import_module(cls.module), cls.handler)
        return found


def later(module: str, handler: str, *, streams_body: bool = False) -> type[Later]:
    """Return the placeholder for the class ``handler`` of ``module``.

    ``streams_body``: whether that class is decorated with `tornado.web.stream_request_body`.
    """
    placeholder = type(handler, (Later,), {"module": module, "handler": handler})
    return web.stream_request_body(placeholder) if streams_body else placeholder
