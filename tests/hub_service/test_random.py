"""Random requests to each route: whatever is sent, the answer is a refusal or a result, and never a 500."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jupyter_gpu_hub.web.app import ROUTES
from tests.cluster.testbed import until
from tests.hub import SECONDS

from .browser import FETCH, Answer
from .random_requests import RandomRequest, requests
from .world import HUB, LIMITS, World

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(3600)]

COUNT = int(os.environ.get("JUPYTER_GPU_TEST_RANDOM", "200"))
"""Random requests to each route, half of them from visitors who may change something."""
CONNECTIONS = 4
EXAMPLES = 120
REST = "/services/gpu/api/v1/"
ANSWERS = frozenset({200, 201, 204, 304, 400, 403, 404, 405, 409, 413, 415, 422, 428, 429})
MEGABYTES = 40
"""Most by which the service's memory may grow by all requests to one route."""
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


def check(answer: Answer) -> None:
    """An error has a reason and a sentence."""
    assert answer.status in ANSWERS, answer
    if answer.status >= 400:
        assert set(answer.json) == {"reason", "message", "details"}


class Connection:
    """One connection to the service itself, which stays open from request to request."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._open = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)

    def close(self) -> None:
        """Close it."""
        self._open.close()

    def send(self, request: RandomRequest, headers: dict[str, str]) -> int:
        """Send a request as a visitor with these headers; return the status of the answer, once that is checked."""
        own = {**request.headers, **headers}
        self._open.request(request.method, REST + request.path, request.body, own)
        answer = self._open.getresponse()
        assert answer.status in ANSWERS, (request, headers, answer.status, answer.read())
        if answer.headers.get_content_type() == "text/event-stream" and request.method == "GET":
            self._open.close()  # it has no end
            return answer.status
        text = answer.read()
        if answer.status >= 400 and request.method != "HEAD":
            assert set(json.loads(text)) == {"reason", "message", "details"}, (request, text)
        if answer.will_close:
            self._open.close()
        return answer.status


def send_all(world: World, sent: Sequence[RandomRequest], visitors: Sequence[dict[str, str]]) -> Counter[int]:
    """Send requests on a few connections, from each visitor in turn; return how many had which status."""

    def part(number: int) -> list[int]:
        with contextlib.closing(Connection(world.service.port)) as connection:
            return [
                connection.send(request, visitors[index % len(visitors)])
                for index, request in enumerate(sent)
                if index % CONNECTIONS == number
            ]

    with ThreadPoolExecutor(CONNECTIONS) as pool:
        return Counter(status for found in pool.map(part, range(CONNECTIONS)) for status in found)


def authorised(world: World) -> list[dict[str, str]]:
    """Return the headers of visitors who may change limits: a program, and an administrator's page."""
    return [{"Authorization": f"token {world.limits.token}"}, page(world, "root")]


def unauthorised(world: World) -> list[dict[str, str]]:
    """Return the headers of visitors who may change nothing: none, unknown ones, users, pages of other sites."""
    mine = page(world, "root")
    without = {key: text for key, text in mine.items() if key != "X-XSRFToken"}
    return [
        {"Authorization": f"token {world.token('bob').token}"},
        {"Authorization": f"token {world.token('rita').token}"},
        page(world, "bob"),
        {"Authorization": f"token {world.script.token}"},
        {**without, "X-XSRFToken": "x"},
        {**mine, "Sec-Fetch-Site": "cross-site"},
        {**mine, "Origin": "http://evil.example"},
        {**without, "Authorization": "token nonsense", "X-XSRFToken": "x"},
        {"Authorization": "Bearer \xff", "Cookie": "service-gpu=\xff; _xsrf="},
        {},
    ]


def page(world: World, name: str) -> dict[str, str]:
    """Return the headers of a request by the page of a user."""
    browser = world.browser(name)
    paths = ("/services/gpu/", "/")
    cookies = "; ".join(f"{item.name}={item.value}" for item in browser.cookies if item.path in paths)
    host = world.address.removeprefix("http://")
    token = browser.cookie("_xsrf", "/services/gpu/")
    return {**FETCH, "Cookie": cookies, "X-XSRFToken": token, "Origin": world.address, "Host": host}


def stored(world: World) -> dict[str, str]:
    """Return the versions of all limits at the API server."""
    return {
        item["metadata"]["name"]: item["metadata"]["resourceVersion"] for item in world.kube("GET", LIMITS)["items"]
    }


def memory(world: World) -> float:
    """Return the memory of the service in MB."""
    assert world.service.process is not None
    lines = Path(f"/proc/{world.service.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


@pytest.fixture
def sound(world: World) -> Iterator[None]:
    """Check afterwards that the service is as well as before: its answers, its log and its memory."""
    start, before = world.service.log.stat().st_size, memory(world)
    yield
    until(lambda: world.limits.gpu("GET", "limits").status == 200, SECONDS, "an answer within the rate again")
    log = world.service.log.read_bytes()[start:].decode(errors="replace")
    assert "Traceback" not in log, log[-4000:]
    assert " 500 " not in log
    assert memory(world) < before + MEGABYTES


@pytest.mark.usefixtures("sound")
@pytest.mark.parametrize("route", ROUTES)
def test_random_requests_are_answered(world: World, route: str) -> None:
    """With any method, address, query, headers and body, by visitors who may change limits."""
    found = send_all(world, requests("may", route, COUNT // 2), authorised(world))
    print(route, dict(found))
    assert found[405] > 0


@pytest.mark.usefixtures("sound")
@pytest.mark.parametrize("route", ROUTES)
def test_random_requests_of_others_change_nothing(world: World, route: str) -> None:
    """No object is another one afterwards, whatever the request looks like."""
    for name in ("ann", "a/b", "<img onerror>"):
        subject = {"kind": "User", "name": name, "hub": HUB}
        assert world.limits.gpu("POST", "limits", {"subject": subject, "set": {"max": 3}}).status == 201
    before = stored(world)
    found = send_all(world, requests("may not", route, COUNT // 2), unauthorised(world))
    print(route, dict(found))
    assert stored(world) == before
    assert found[201] == 0
    assert found[403] + found[429] > 0


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
