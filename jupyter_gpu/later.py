"""Routes whose handlers are loaded with their first request: a server starts without what is seldom asked for."""

from __future__ import annotations

from importlib import import_module
from typing import Any, ClassVar

from jupyter_server.extension.handler import ExtensionHandlerMixin
from tornado import web


class Later(ExtensionHandlerMixin, web.RequestHandler):
    """Stands in a route for another handler, and becomes it for each request."""

    module: ClassVar[str]
    handler: ClassVar[str]

    def __new__(cls, *arguments: Any, **options: Any) -> Any:
        """Make the handler that is meant: that one asks who it is, and whether they may."""
        return cls.meant()(*arguments, **options)

    @classmethod
    def meant(cls) -> type[web.RequestHandler]:
        """Load the handler that it stands for."""
        found: type[web.RequestHandler] = getattr(import_module(cls.module), cls.handler)
        return found


def later(module: str, handler: str) -> type[Later]:
    """What stands for the class ``handler`` of ``module``, which reads no body in parts."""
    return type(handler, (Later,), {"module": module, "handler": handler})
