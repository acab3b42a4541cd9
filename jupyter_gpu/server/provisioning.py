"""Makes our provisioner the default of a server's kernels, unless an administrator chose another one."""

from __future__ import annotations

import os
from importlib import metadata
from logging import Logger
from typing import Any

from jupyter_client.provisioning.factory import KernelProvisionerFactory as Factory

_STOCK = "local-provisioner"
_DISTRIBUTION = "jupyter-gpu"


def set_default(name: str, app: Any, log: Logger) -> None:
    """Make the provisioner ``name`` the default of the kernels of the server ``app``.

    The factory of provisioners is not created here: it reads about every installed distribution, which takes some 10
    ms. Its first use creates it, with the default from the server's configuration.
    """
    made = Factory.initialized()
    chosen = Factory.instance().default_provisioner_name if made else _configured(app.config)
    if not (name in Factory.instance().provisioners if made else is_installed(name)):
        log.warning("The kernel provisioner %r is not installed: kernels start without GPU support.", name)
    elif chosen not in (_STOCK, name):
        log.info("Kernels keep the provisioner %r that is configured.", chosen)
    elif made:
        Factory.instance().default_provisioner_name = name
    else:
        # Each of these is, or has as its configuration, what the factory is made with.
        for part in (app, app.kernel_manager, app.kernel_spec_manager):
            part.config[Factory.__name__].default_provisioner_name = name


def _configured(config: Any) -> str:
    """Return the default that the factory will have."""
    found = config[Factory.__name__].get("default_provisioner_name")
    return str(found or os.environ.get(Factory.default_provisioner_name_env, _STOCK))


def is_installed(name: str) -> bool:
    """Tell whether a provisioner is installed; asks our own distribution first, which is quick."""
    try:
        points = metadata.distribution(_DISTRIBUTION).entry_points
    except metadata.PackageNotFoundError:
        points = metadata.EntryPoints()
    mine = points.select(group=Factory.GROUP_NAME, name=name)
    return bool(mine or metadata.entry_points(group=Factory.GROUP_NAME, name=name))
