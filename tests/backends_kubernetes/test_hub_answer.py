"""Answers of the hub's service, and what a server makes of them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.backends.kubernetes.rules import hub_answer
from jupyter_gpu.kube import Conflict, Forbidden, Invalid, KubeError, NotFound, TooMany, Unavailable
from jupyter_gpu.kube.rules import objects
from jupyter_gpu.model.annotations import REQUESTED
from jupyter_gpu.model.errors import GpuError, LimitExceeded

POD = {"namespace": "jhub", "name": "lab", "uid": "u", "version": "7", "annotations": {REQUESTED: "2"}}


def read(status: int, body: Any, retry_after: str = "") -> Any:
    """Read an answer with this body."""
    return hub_answer.read(status, body if isinstance(body, bytes) else json.dumps(body).encode(), retry_after)


def refusal(status: int, **details: Any) -> bytes:
    """Return the body of a refusal by the service."""
    return json.dumps({"reason": "Word", "message": "A sentence.", "details": details}).encode()


def test_pod_is_as_the_api_server_has_it() -> None:
    """Its identity, its version and its annotations are where the rest of the backend looks for them."""
    pod = read(200, POD)
    assert (objects.namespace(pod), objects.name(pod), objects.uid(pod)) == ("jhub", "lab", "u")
    assert (objects.resource_version(pod), objects.annotation(pod, REQUESTED)) == ("7", "2")


@pytest.mark.parametrize(
    ("status", "details", "kind"),
    [
        (403, {}, Forbidden),
        (404, {}, NotFound),
        (409, {}, Conflict),
        (409, {"pods": ["a", "b"]}, Invalid),  # repeating it would not help, unlike after a conflict
        (422, {}, Invalid),
        (400, {"field": "milli"}, Invalid),
        (413, {}, Invalid),
        (415, {}, Invalid),
        (429, {}, TooMany),
        (500, {}, Unavailable),
        (503, {}, Unavailable),
    ],
)
def test_refusal_is_the_error_that_says_how_to_go_on(
    status: int, details: dict[str, Any], kind: type[KubeError]
) -> None:
    """The service's sentence stays."""
    with pytest.raises(KubeError) as caught:
        read(status, refusal(status, **details), "3")
    assert type(caught.value) is kind
    assert (caught.value.status, caught.value.message) == (status, "A sentence.")
    if isinstance(caught.value, TooMany):
        assert caught.value.retry_after == 3


@pytest.mark.parametrize(
    ("status", "body", "sent"),
    [
        (503, refusal(503), False),  # the hub is away: the service has not written yet
        (503, refusal(503, unknown=False), False),
        (503, refusal(503, unknown=True), True),
        (503, refusal(503, unknown="no"), False),
        (500, refusal(500), True),
        (503, b"<html>Service Unavailable</html>", True),  # of the proxy, which may have lost the answer
        (404, b"<html>No such page</html>", False),
        (404, b'{"message": "Not Found"}', False),
        (403, b'{"status": 403, "message": "Forbidden"}', False),  # of the hub itself
        (200, b"<html>A login page</html>", True),
        (200, json.dumps({**POD, "uid": 7}).encode(), True),
        (200, json.dumps({**POD, "annotations": {REQUESTED: 2}}).encode(), True),
        (200, b"x" * (hub_answer.MAX_BYTES + 1), True),
        (302, b"", False),
    ],
)
def test_only_the_service_itself_can_say_that_it_is_final(status: int, body: bytes, sent: bool) -> None:
    """An answer of something else on the way is temporary; it is told whether a request may have been written."""
    with pytest.raises(Unavailable) as caught:
        read(status, body)
    assert caught.value.sent is sent


def test_redirect_is_told_and_not_followed() -> None:
    """The sentence says what to set."""
    with pytest.raises(Unavailable, match=r"the token is not sent there. Set GpuExtension.hub_service"):
        read(302, b"")


def test_refused_request_is_the_servers_own_error() -> None:
    """A limit is told as if the server had refused it; an error that nobody knows keeps its sentence."""
    error = LimitExceeded("Your limit is 2 GPUs.", limit=2000, source={"kind": "Group"}, maximum=2000)
    with pytest.raises(LimitExceeded, match=r"Your limit is 2 GPUs\.") as caught:
        read(422, refusal(422, error=error.to_json()))
    assert (caught.value.limit, caught.value.maximum, caught.value.source) == (2000, 2000, {"kind": "Group"})
    with pytest.raises(GpuError, match="Of tomorrow"):
        read(422, refusal(422, error={"reason": "New", "message": "Of tomorrow.", "details": {}}))


def test_lost_answer_is_told_by_its_reason() -> None:
    """A connection that was refused sent nothing; an error without words has its name."""
    assert hub_answer.away(OSError("refused"), sent=False).message == "The hub's service does not answer: refused."
    assert hub_answer.away(TimeoutError(), sent=True).message.endswith("it took too long.")
    assert hub_answer.away(ConnectionResetError(), sent=True).message.endswith("ConnectionResetError.")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.dictionaries(st.sampled_from(["reason", "message", "details", *POD]), JSON)


@given(st.integers(100, 599), FIELDS.map(lambda body: json.dumps(body).encode()) | st.binary(max_size=40), st.text())
def test_any_answer_is_a_pod_or_an_error(status: int, body: bytes, retry_after: str) -> None:
    """Whatever answers at the address, the backend meets errors that it handles."""
    try:
        pod = hub_answer.read(status, body, retry_after)
    except (KubeError, GpuError):
        return
    assert status == 200
    assert objects.uid(pod)
