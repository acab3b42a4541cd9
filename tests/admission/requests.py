"""The table of attempts by the service of limits, which writes requests of its hub's users."""

from collections.abc import Iterator
from typing import Any

from tests.admission.cases import DENIED, DONE, FORGERY, REFUSED, REPORT, WISH, Case
from tests.admission.owners import of

SERVICE = "hub's service"
STATUS = "patch pods/status"


def _own_users() -> Iterator[Case]:
    """Requests of pods with a slot whose user and hub the policy guards."""
    for route in (STATUS, "patch pods/status (json)"):
        yield Case(SERVICE, route, "mine", DONE, WISH)
    yield Case(SERVICE, STATUS, "mine", DONE, note="nothing, to read it")


def _others() -> Iterator[Case]:
    """Pods of no user, of another hub and without a slot, also to read them; what it has no right for at all."""
    for target in ("lab", "blank", "waiting", "theirs", "plain"):
        yield Case(SERVICE, STATUS, target, DENIED, WISH)
        yield Case(SERVICE, STATUS, target, DENIED, note="nothing, to read it")
    yield Case(SERVICE, STATUS, "stranger", REFUSED, WISH)
    for route in ("patch pod", "put pod", "put pods/status", "create slot pod", "create plain pod"):
        yield Case(SERVICE, route, "" if route.startswith("create") else "mine", REFUSED, WISH)


def _other_fields() -> Iterator[Case]:
    """Nothing but the request, not even together with one."""
    for change in (FORGERY, REPORT, {"service": "{}"}, {"hub": "other"}):
        yield Case(SERVICE, STATUS, "mine", DENIED, change)
        yield Case(SERVICE, STATUS, "mine", DENIED, {**WISH, **change})
    yield Case(SERVICE, STATUS, "mine", DENIED, WISH, of("bob"), note="a request and bob")
    more: dict[str, dict[str, Any]] = {
        "labels": {"metadata": {"labels": {"app": "forged"}}},
        "an annotation": {"metadata": {"annotations": {"example.com/other": "1"}}},
        "a finalizer": {"metadata": {"finalizers": ["example.com/kept"]}},
        "its phase": {"status": {"phase": "Failed"}},
        "its address": {"status": {"podIP": "10.9.9.9"}},
    }
    for what, spec in more.items():
        yield Case(SERVICE, STATUS, "mine", DENIED, WISH, spec, note=f"a request and {what}")


REQUESTS = (*_own_users(), *_others(), *_other_fields())
