"""JupyterHub's login for services, as `login_stand_ins` imports it."""

from __future__ import annotations

from .login_stand_ins import import_login

import_login()
from jupyterhub.services.auth import HubOAuth, HubOAuthCallbackHandler, HubOAuthenticated  # noqa: E402 - see above

__all__ = ["HubOAuth", "HubOAuthCallbackHandler", "HubOAuthenticated"]
