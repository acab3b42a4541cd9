"""Routes whose handlers are loaded with their first request: a server starts without what is seldom asked for."""

from __future__ import annotations

from importlib import import_module
from typing import Any, ClassVar

from jupyter_server.extension.handler import ExtensionHandlerMixin
from tornado import web


class Later(ExtensionHandlerMixin, web.RequestHandler):
    """The stand-in for another handler in a route; it becomes that handler for each request."""

    module: ClassVar[str]
    handler: ClassVar[str]

    def __new__(cls, *arguments: Any, **options: Any) -> Any:
        """Make the handler that is meant: that one checks the user and what they may do."""
        return cls.meant()(*arguments, **options)

    @classmethod
    def meant(cls) -> type[web.RequestHandler]:
        """Load the handler for which it stands."""
        found: type[web.RequestHandler] = getattr(import_module(cls.module), cls.handler)
        return found


def later(module: str, handler: str) -> type[Later]:
    """Make the stand-in for the class ``handler`` of ``module``, which reads no body in parts."""
    return type(handler, (Later,), {"module": module, "handler": handler})
