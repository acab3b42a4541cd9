"""``PUT request``: what is accepted, and what is refused without harm."""

from __future__ import annotations

import asyncio
import json

import pytest

from jupyter_gpu.model.request import MAX_REQUEST_BYTES
from jupyter_gpu.server.app import GpuExtension
from tests.server.conftest import GPUS, Call


async def test_granted_request_answers_with_the_view(put: Call, call: Call) -> None:
    """The answer is the view after the request, the same that status returns then."""
    answer = await put({"gpus": 2})
    assert answer.code == 200
    assert answer.body["amounts"] == {"requested": 2000, "allocated": 2000, "attached": 2000, "draining": 0}
    assert answer.body["phase"] == "Ready"
    assert answer.body["sentence"] == "2 of 4 GPUs attached"
    now = (await call("status")).body
    assert now == {**answer.body, "version": now["version"]}


BAD = {
    "negative": b'{"gpus": -1}',
    "nan": b'{"gpus": NaN}',
    "infinite": b'{"gpus": 1e999}',
    "huge": b'{"gpus": 1e9}',
    "digits": b'{"gpus": ' + b"9" * 5000 + b"}",
    "word": b'{"gpus": "two"}',
    "fine": b'{"gpus": 0.0001}',
    "true": b'{"gpus": true}',
    "null": b'{"gpus": null}',
    "list": b'{"gpus": [1]}',
    "empty": b"",
    "nothing": b"{}",
    "array": b"[1]",
    "number": b"1",
    "no json": b"gpus=1",
    "not utf-8": b'{"gpus": "\xff"}',
    "deep": b"[" * 8000,
    "twice": b'{"gpus": 1, "gpus": 2}',
    "both": b'{"gpus": 1, "milli": 1000}',
    "unknown field": b'{"gpus": 1, "gpu": 2}',
    "bad generation": b'{"gpus": 1, "generation": -1}',
    "bad each": b'{"gpus": 1, "each": 300}',
    "bad priority": b'{"gpus": 1, "priority": 10}',
}


@pytest.mark.parametrize("body", BAD.values(), ids=BAD.keys())
async def test_bad_body_is_explained_and_changes_nothing(put: Call, call: Call, body: bytes) -> None:
    """The answer is 400 with a reason, a message and the field; the view stays the same."""
    before = (await call("status")).body
    answer = await put(body)
    assert answer.code == 400
    assert answer.body["reason"] == "InvalidRequest"
    assert len(answer.body["message"]) > 20
    assert "Traceback" not in answer.body["message"]
    assert "field" in answer.body["details"]
    assert (await call("status")).body == before


async def test_request_above_the_limit_is_refused(put: Call, call: Call) -> None:
    """The answer is 422 with the amounts; nothing is recorded."""
    answer = await put({"gpus": GPUS + 1})
    assert (answer.code, answer.body["reason"]) in [(422, "LimitExceeded"), (422, "Infeasible")]
    assert (await call("status")).body["requested"] is None


async def test_stale_generation_is_refused(put: Call) -> None:
    """The answer is 409 with the current generation, so that the client can read it again."""
    first = (await put({"gpus": 1})).body["requested"]["generation"]
    assert (await put({"gpus": 2, "generation": first})).code == 200
    answer = await put({"gpus": 3, "generation": first})
    assert (answer.code, answer.body["reason"]) == (409, "StaleGeneration")
    assert answer.body["details"] == {"current": first + 1}


@pytest.mark.parametrize("kind", ["", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
async def test_other_content_type_is_refused(put: Call, kind: str) -> None:
    """The answer is 415: a form of another site can send these without asking, but never JSON."""
    answer = await put({"gpus": 1}, headers={"Content-Type": kind})
    assert (answer.code, answer.body["reason"]) == (415, "InvalidRequest")


async def test_charset_in_the_content_type_is_accepted(put: Call) -> None:
    """Many clients send one."""
    assert (await put({"gpus": 1}, headers={"Content-Type": "Application/JSON; charset=utf-8"})).code == 200


async def test_body_size_limit_is_exact(put: Call) -> None:
    """A body at the limit is read, one above is not."""
    body = json.dumps({"gpus": 1}).encode()
    assert (await put(body.ljust(MAX_REQUEST_BYTES))).code == 200
    answer = await put(body.ljust(MAX_REQUEST_BYTES + 1))
    assert (answer.code, answer.body["reason"]) == (413, "TooLarge")


async def test_200_concurrent_requests_are_all_answered(put: Call, call: Call) -> None:
    """Each is decided, the last generation holds, and nothing is lost."""
    answers = await asyncio.gather(*(put({"gpus": i % (GPUS + 1)}, request_timeout=60) for i in range(200)))
    assert {answer.code for answer in answers} == {200}
    last = max((answer.body for answer in answers), key=lambda body: body["requested"]["generation"])
    now = (await call("status")).body
    assert now["requested"] == last["requested"]
    assert now["amounts"]["attached"] == now["amounts"]["requested"]


async def test_fixture_settings_reach_the_extension(extension: GpuExtension) -> None:
    """The settings of the fixtures arrive."""
    assert extension.simulated_gpus == GPUS
