"""Random requests to each route: whatever is sent, the answer is a refusal or a result, and never a 500."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jupyter_gpu_hub.web.app import ROUTES
from tests.cluster.testbed import until

from .browser import Answer
from .world import HUB, World

pytestmark = pytest.mark.cluster

EXAMPLES = 120
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
NAMES = st.sampled_from(["ann", "a/b", "ünï", "<img onerror>", "", "x" * 300, "\x00"]) | st.text(max_size=10)
SUBJECTS = st.fixed_dictionaries(
    {},
    optional={
        "kind": st.sampled_from(["User", "Group", "Default", "Cap", "Namespace", "x"]),
        "name": NAMES,
        "hub": NAMES,
    },
)
FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "max": st.sampled_from([0, 2, "0.5", "unlimited", "tow", -1, None]) | JSON,
        "guaranteed": st.sampled_from(["1", 3]) | JSON,
        "weight": st.integers(-1, 1001),
        "priority": st.just({"max": 5}) | JSON,
        "models": st.just([{"model": "A100", "max": 1}]) | JSON,
        "memory": st.just("40Gi") | JSON,
        "idleTimeout": st.just("4h") | JSON,
        "budget": st.just({"gpuHours": 1, "window": "Day"}) | JSON,
        "hours": st.just([{"from": "08:00", "to": "18:00", "max": 1}]) | JSON,
        "remote": st.booleans() | JSON,
        "grace": st.just("10m") | JSON,
    },
)
EDITS = st.fixed_dictionaries(
    {}, optional={"subject": SUBJECTS | JSON, "set": FIELDS | st.none() | JSON, "version": st.text(max_size=5) | JSON}
)
BODIES = (
    JSON
    | EDITS
    | st.fixed_dictionaries({"edits": st.lists(EDITS, max_size=3)}, optional={"dryRun": JSON})
    | st.fixed_dictionaries(
        {
            "format": st.sampled_from(["csv", "json"]),
            "text": st.lists(st.builds(lambda s, f: {"subject": s, **f}, SUBJECTS, FIELDS), max_size=3).map(json.dumps)
            | st.text(max_size=40).map("kind,name,max\n".__add__),
        },
        optional={"dryRun": st.booleans(), "replace": st.booleans()},
    )
)
DATA = BODIES.map(lambda body: json.dumps(body).encode()) | st.binary(max_size=60)
QUERY = st.dictionaries(st.sampled_from(["page", "size", "sort", "search", "x"]), st.text(max_size=6), max_size=3)
HEADERS = st.fixed_dictionaries(
    {},
    optional={
        "If-Match": st.sampled_from(['"1"', "*", "W/", '"', "nonsense"]),
        "If-None-Match": st.sampled_from(['"1"', "*"]),
        "Content-Type": st.sampled_from(["application/json", "text/plain", "application/json; charset=latin-1"]),
        "Accept": st.just("text/html"),
    },
)


def check(answer: Answer) -> None:
    """An error has a reason and a sentence."""
    assert answer.status in {200, 201, 204, 304, 400, 403, 404, 405, 409, 413, 415, 422, 428}, answer
    if answer.status >= 400:
        assert set(answer.json) == {"reason", "message", "details"}


@pytest.mark.parametrize("route", [route for route in ROUTES if route != "events"])
def test_random_requests_are_answered(world: World, route: str) -> None:
    """With any method, query, headers and body; the service is as well as before."""

    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.sampled_from(["GET", "POST", "PUT", "PATCH", "DELETE"]), NAMES, QUERY, HEADERS, DATA)
    def send(method: str, name: str, query: dict[str, str], headers: dict[str, str], data: bytes) -> None:
        path = route.split("{", maxsplit=1)[0] + (quote(name, safe="") if "{" in route else "")
        words = "&".join(f"{key}={quote(value, safe='')}" for key, value in query.items())
        target = f"/services/gpu/api/v1/{path}" + (f"?{words}" if words else "")
        body = None if method == "GET" else data
        check(world.limits.send(method, target, headers=headers, data=body))

    send()
    assert world.limits.gpu("GET", "limits").status == 200


def test_random_values_are_written_or_refused(world: World) -> None:
    """A limit that the service accepts and the cluster does not is answered with the cluster's refusal."""
    results: list[Any] = []

    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(FIELDS, min_size=1, max_size=4))
    def send(fields: list[dict[str, Any]]) -> None:
        subjects = [{"kind": "User", "name": f"u{i}", "hub": HUB} for i in range(len(fields))]
        edits = [{"subject": subject, "set": item} for subject, item in zip(subjects, fields, strict=True)]
        answer = world.limits.gpu("POST", "limits/bulk", {"edits": edits})
        check(answer)
        if answer.status == 200:
            results.extend(answer.json["results"])

    send()
    for item in results:
        assert item["result"] != "refused" or item["error"]["reason"] in ("Invalid", "Unacceptable", "Conflict"), item
    assert any(item["result"] == "created" for item in results)
    until(lambda: world.limits.gpu("GET", "limits").json["total"] > 0, 10)
    rows = world.limits.gpu("GET", "limits").json["items"]
    assert [row["problem"] for row in rows if row["problem"]] == []
