"""``docs/openapi.yaml`` against the standard, and the real server's answers against it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator  # type: ignore[import-untyped,unused-ignore]
from openapi_spec_validator import validate

from jupyter_gpu.doctor.rules.facts import Facts
from jupyter_gpu.model import errors, strict
from jupyter_gpu.model.request import MAX_REQUEST_BYTES, decode_request
from jupyter_gpu.server.app import GpuExtension
from jupyter_gpu.server.stream import StreamHandler
from tests.server.api.test_access import VERBS, our_handlers
from tests.server.conftest import Call, Connect

SPEC: dict[str, Any] = yaml.safe_load((Path(__file__).parents[3] / "docs" / "openapi.yaml").read_text())
GOLDEN = Path(__file__).parents[2] / "golden"


def schema(name: str, *, closed: bool = False) -> Draft202012Validator:
    """Return a validator of one of the schemas; ``closed``: fields that are not described are errors."""
    components = json.loads(json.dumps(SPEC["components"]))
    if closed:
        for item in walk(components["schemas"]):
            if item.get("type") == "object" and "properties" in item:
                item.setdefault("additionalProperties", False)
    root = {"$ref": f"#/components/schemas/{name}", "components": components}
    Draft202012Validator.check_schema(root)
    return Draft202012Validator(root)


def walk(value: Any) -> list[dict[str, Any]]:
    """Yield all objects inside ``value``."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    found = [item for child in inner for item in walk(child)]
    return [value, *found] if isinstance(value, dict) else found


VIEW = schema("View", closed=True)
ERROR = schema("Error", closed=True)


def test_document_is_valid_openapi() -> None:
    """The whole text is valid."""
    validate(SPEC)


async def test_every_route_and_verb_is_described(extension: GpuExtension) -> None:
    """The document has exactly the routes that exist."""
    prefix = "/jupyter-gpu/api/v1"
    real = {
        re.sub(r"\(.*\)", "{key}", pattern.removeprefix(prefix)): {verb for verb in VERBS if verb in vars(handler)}
        for (pattern, _), handler in zip(extension.handlers, our_handlers(extension), strict=True)
        if pattern.startswith(prefix)
    }
    assert {path: set(item) - {"parameters"} for path, item in SPEC["paths"].items()} == real
    assert StreamHandler in our_handlers(extension)


def test_every_reason_is_described() -> None:
    """A new error must be added to the API's description."""
    described = SPEC["components"]["schemas"]["Error"]["properties"]["reason"]["enum"]
    classes = [value for value in vars(errors).values() if isinstance(value, type)]
    assert {cls.reason for cls in classes if issubclass(cls, errors.GpuError)} == set(described)


async def test_views_match_the_schema(call: Call, put: Call) -> None:
    """Every field of a real server's views is described, with its type."""
    VIEW.validate((await call("status")).body)
    for body in [{"gpus": 2}, {"gpus": 0.5}, {"milli": 1000, "each": 500, "priority": 3}, {"gpus": 0}]:
        answer = await put(body)
        assert answer.code == 200
        VIEW.validate(answer.body)


async def test_errors_match_the_schema(call: Call, put: Call) -> None:
    """Each status code that a verb can answer with is described for it."""
    answers = [
        ("/request", "put", await put({"gpus": -1})),
        ("/request", "put", await put({"gpus": 1}, headers={"Authorization": ""})),
        ("/request", "put", await put({"gpus": 1, "generation": 99})),
        ("/request", "put", await put(b" " * 20_000)),
        ("/request", "put", await put({"gpus": 1}, headers={"Content-Type": "text/plain"})),
        ("/request", "put", await put({"gpus": 99})),
        ("/status", "get", await call("status", params={"after": "x"})),
        ("/status", "get", await call("status", headers={"Authorization": ""})),
        ("/stream", "get", await call("stream")),
    ]
    assert [answer.code for _, _, answer in answers] == [400, 403, 409, 413, 415, 422, 400, 403, 426]
    for path, verb, answer in answers:
        assert str(answer.code) in SPEC["paths"][path][verb]["responses"]
        ERROR.validate(answer.body)


async def test_stream_messages_match_the_schema(connect: Connect, put: Call) -> None:
    """All three kinds and the error are described."""
    await put({"gpus": 2})
    stream = await connect()
    validator = schema("ServerMessage", closed=True)
    messages = await stream.read_kinds("sample")
    for message in messages:
        validator.validate(message)
    stream.socket.write_message("{}")
    validator.validate(await stream.read_until("error"))
    assert [message["type"] for message in messages] == ["view", "history", "sample"]


@pytest.mark.parametrize(
    "example", SPEC["paths"]["/request"]["put"]["requestBody"]["content"]["application/json"]["examples"].values()
)
def test_examples_are_accepted(example: dict[str, Any]) -> None:
    """The schema and the server's own parser accept them."""
    schema("Request").validate(example["value"])
    decode_request(json.dumps(example["value"]).encode())


BEYOND_A_SCHEMA = {
    "too fine": "finer than a thousandth",
    "too fine as text": "finer than a thousandth",
    "a field twice": "twice",
    "more shares than a pod can have": "more than one pod can have",
    "each does not divide": "can't be cut",
    "memory beyond 8 PiB": "below 8 PiB",
    "model with a line break": "control characters",
}
"""Golden wishes that only the server can refuse, with its words."""


@pytest.mark.parametrize("case", json.loads((GOLDEN / "wishes.json").read_text()), ids=lambda case: case["name"])
def test_schema_and_server_accept_the_same_requests(case: dict[str, Any]) -> None:
    """They agree on all golden requests; what a schema cannot express is listed."""
    try:
        body = strict.loads(case["body"], MAX_REQUEST_BYTES)
    except strict.FieldError:
        return  # no JSON, no schema
    refused = case.get("error", {}).get("says")
    beyond = BEYOND_A_SCHEMA.get(case["name"])
    assert beyond in (None, refused)
    assert schema("Request").is_valid(body) == (refused is None or beyond is not None)


@pytest.mark.parametrize("case", json.loads((GOLDEN / "views.json").read_text()), ids=lambda case: case["name"])
def test_golden_views_match_the_schema(case: dict[str, Any]) -> None:
    """They cover all states that a test of one server does not reach."""
    validator = schema("View") if "newer version" in case["name"] else VIEW
    validator.validate({**case["view"], "sentence": "x"})


@pytest.mark.parametrize("case", json.loads((GOLDEN / "samples.json").read_text()), ids=lambda case: case["name"])
def test_golden_samples_match_the_schema(case: dict[str, Any]) -> None:
    """They have all fields of a time share."""
    schema("Sample", closed=True).validate(case["sample"])


BEYOND_THE_SAMPLE = {"a share under another GPU"}
"""Golden samples that only a reader can refuse."""


@pytest.mark.parametrize("case", json.loads((GOLDEN / "bad_samples.json").read_text()), ids=lambda case: case["name"])
def test_bad_golden_samples_violate_the_schema(case: dict[str, Any]) -> None:
    """The schema is as strict as the readers, except for what it cannot express."""
    assert schema("Sample").is_valid(case["sample"]) == (case["name"] in BEYOND_THE_SAMPLE)


async def test_doctor_facts_match_the_schema(call: Call) -> None:
    """Every field that the doctor asks for is described, and read back."""
    answer = await call("doctor")
    schema("Facts", closed=True).validate(answer.body)
    assert json.loads(json.dumps(Facts.from_json(answer.body).to_json())) == answer.body


async def test_usage_matches_the_schema(call: Call, put: Call) -> None:
    """Every field of the usage is described."""
    await put({"gpus": 1})
    answer = await call("usage")
    schema("Usage", closed=True).validate(answer.body)
    assert len(answer.body["gpus"]) == 1


async def test_samples_match_the_schema(call: Call) -> None:
    """GET sample answers as gpu.usage() expects."""
    answer = await call("sample")
    assert answer.code == 200
    schema("Sample", closed=True).validate(answer.body)


def test_client_message_matches_the_schema() -> None:
    """It is the stream's only message from the client."""
    validator = schema("ClientMessage")
    assert validator.is_valid({"type": "samples", "on": True})
    assert not validator.is_valid({"type": "samples", "on": 1})
    assert not validator.is_valid({"type": "samples", "on": True, "more": 1})
