"""The table of attempts to say whose a pod is. The user's name is an annotation, as is the name of the hub."""

from collections.abc import Iterator
from typing import Any

from tests.admission.cases import DENIED, DONE, NOTHING, REFUSED, WISH, Case
from tests.admission.specs import ODD
from tests.admission.world import NOTEBOOKS, PREFIX, SECOND, USERNAME


def of(user: str | None, hub: str | None = "", **labels: str) -> dict[str, Any]:
    """Return metadata with these annotations; None removes, an empty hub is none."""
    annotations = {USERNAME: user} if user != "" else {}
    named = {PREFIX + "hub": hub} if hub != "" else {}
    return {"metadata": {"annotations": {**annotations, **named}, **({"labels": labels} if labels else {})}}


def _at_creation() -> Iterator[Case]:
    """Only accounts with the right to attribute say whose a pod is."""
    make = "create slot pod"
    yield Case("hub", make, "", DONE, spec=of("ann"), note="of ann")
    yield Case("hub", make, "", DONE, spec=of("ann", NOTEBOOKS), note="of ann and the namespace's hub")
    nameless = {"metadata": {"annotations": {USERNAME: "ann", PREFIX + "hub": ""}}}
    yield Case("hub", make, "", DONE, spec=nameless, note="of ann and no hub")
    yield Case("hub", make, "", DENIED, spec=of("ann", SECOND), note="of another hub's ann")
    yield Case("second hub", make, "", DONE, spec=of("ann", SECOND), note="of its own ann")
    yield Case("second hub", make, "", DENIED, spec=of("ann"), note="of the namespace's ann")
    yield Case("second hub", make, "", DENIED, spec=of("", NOTEBOOKS), note="of nobody and another hub")
    for who in ("editor", "greedy notebook"):
        yield Case(who, make, "", DENIED, spec=of("ann"), note="of ann")
        yield Case(who, make, "", DENIED, spec=of("alice"), note="of itself")
        yield Case(who, make, "", DENIED, spec=of("ann", SECOND), note="of another hub's ann")
        yield Case(who, make, "", DENIED, spec=of("", SECOND), note="of nobody and a hub")
        yield Case(who, make, "", DONE, note="of nobody")
        # The label is of selectors, and names no owner.
        yield Case(who, make, "", DONE, spec={"metadata": {"labels": {USERNAME: "ann"}}}, note="with the label of ann")
        yield Case(who, "create plain pod", "", DONE, spec=of("ann"), note="of ann")
    yield Case("colleague as hub", make, "", DONE, spec=of("ann"), note="of ann")
    yield Case("notebook", make, "", REFUSED, spec=of("ann"), note="of ann")
    yield Case("hub's service", make, "", REFUSED, spec=of("ann"), note="of ann")
    for who in ("cluster-admin", "masters", "break-glass"):
        yield Case(who, make, "", DONE, spec=of("ann", SECOND), note="of another hub's ann")
    # Who may do everything in a namespace speaks for the hub of that name, and for no other.
    yield Case("operator of everything", make, "", DONE, spec=of("ann"), note="of ann")
    yield Case("operator of everything", make, "", DENIED, spec=of("ann", SECOND), note="of another hub's ann")
    for name in ODD:
        yield Case("hub", make, "", DONE, spec=of(name), note=f"of {name}")
        yield Case("editor", make, "", DENIED, spec=of(name), note=f"of {name}")
    for who in ("hub", "masters"):
        yield Case(who, make, "", DENIED, spec=of("x" * 256), note="of a name that is too long")
    yield Case("masters", make, "", DENIED, spec=of("ann", "x" * 256), note="of a hub whose name is too long")


def _later() -> Iterator[Case]:
    """It cannot be changed in any way: `mine` is a pod of ann, `blank` one without a user."""
    changes = {"forged": of("bob"), "removed": of(None), "given a hub": of("", SECOND), "given Ann": of("Ann")}
    for note, spec in changes.items():
        for who in ("hub", "second hub", "editor", "cluster-admin", "masters", "greedy notebook"):
            yield Case(who, "patch pod", "mine", DENIED, spec=spec, note=note)
        for who in ("kubelet", "masters", "editor", "scheduler", "plugin", "hub", "notebook"):
            yield Case(who, "patch pods/status", "mine", DENIED, spec=spec, note=note)
        yield Case("break-glass", "patch pod", "mine", DONE, spec=spec, note=note)
    for who in ("hub", "editor", "masters"):
        yield Case(who, "patch pod", "blank", DENIED, spec=of("ann"), note="added")
        yield Case(who, "patch pod", "blank", DENIED, spec=of("", SECOND), note="hub added")
        yield Case(who, "patch pod", "plain", DONE, spec=of("ann"), note="added")
    for route in ("patch pod (strategic)", "apply pod"):
        yield Case("editor", route, "mine", DENIED, spec=of("bob"), note="forged")
    for route in ("patch pods/ephemeralcontainers", "patch pods/resize"):
        yield Case("editor", route, "mine", NOTHING, {"hub": SECOND}, note="given a hub")
    yield Case("editor", "put pod", "mine", DENIED, {"hub": SECOND}, note="given a hub")
    yield Case("editor", "put pods/status", "mine", DENIED, {"hub": SECOND}, note="given a hub")
    yield Case("editor", "patch pod (json)", "mine", DENIED, {"hub": SECOND}, note="given a hub")
    yield Case("hub", "patch pods/status", "mine", DENIED, WISH, of("bob"), note="a wish and bob")
    # The label may change as ever.
    for who in ("editor", "masters"):
        yield Case(who, "patch pod", "mine", DONE, spec={"metadata": {"labels": {USERNAME: "bob"}}}, note="label")
    yield Case("hook", "patch pods/status", "mine", DENIED, spec=of("bob"), note="forged")
    yield Case("hook", "patch pods/status", "mine", DONE, spec=of(None), note="removed, as from before an installation")


def _bindings() -> Iterator[Case]:
    """Annotations of a Binding are merged into the pod."""
    for route in ("create pods/binding", "create bindings"):
        for who in ("editor", "masters"):
            yield Case(who, route, "waiting", DENIED, {"hub": SECOND}, note="given a hub")
            yield Case(who, route, "waiting", DENIED, spec=of("ann"), note="given ann")
    yield Case("scheduler", "create pods/binding", "waiting", DENIED, spec=of("ann"), note="given ann")


OWNERS = (*_at_creation(), *_later(), *_bindings())
