"""JupyterHub's login for services, imported without the hub's database, which takes 30 MB that only a hub needs.

The login uses one function, about texts, of a module that imports the tables of the hub, and SQLAlchemy and Alembic
with them. Stand-ins are imported in their place. Each loads its module as soon as anything of it is used.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

PUT_OFF = ("jupyterhub.orm", "jupyterhub.roles", "sqlalchemy")


class StandIn(ModuleType):
    """A module that others import in place of one that they hardly use. Submodules can be imported from it."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        spec = importlib.util.find_spec(name)
        if spec and spec.submodule_search_locations:
            self.__path__ = list(spec.submodule_search_locations)

    def __getattr__(self, name: str) -> Any:
        """Return what the module has."""
        if name.startswith("__"):  # the import system asks for these
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is not self:
            return getattr(importlib.import_module(self.__name__), name)
        try:
            return importlib.import_module(f"{self.__name__}.{name}")
        except ImportError:
            raise AttributeError(f"{self.__name__}.{name} is needed at once") from None


@contextmanager
def stand_ins(*names: str) -> Iterator[None]:
    """Let imports find stand-ins for these modules until the end of the block, except for those that are loaded."""
    made = {name: StandIn(name) for name in names if name not in sys.modules}
    sys.modules.update(made)
    try:
        yield
    finally:
        for name in made:
            del sys.modules[name]


def import_login() -> ModuleType:
    """Import the login; with all that it imports where another version of it needs that at once."""
    before = set(sys.modules)
    try:
        with stand_ins(*PUT_OFF):
            return importlib.import_module("jupyterhub.services.auth")
    except (ImportError, AttributeError):
        for name in set(sys.modules) - before:
            if name.partition(".")[0] in ("jupyterhub", "sqlalchemy"):
                del sys.modules[name]
        return importlib.import_module("jupyterhub.services.auth")
