"""``docs/hub-openapi.yaml`` against the standard, the routes, and the real service's answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator  # type: ignore[import-untyped,unused-ignore]
from openapi_spec_validator import validate

from jupyter_gpu.model.limits.limit import Limit
from jupyter_gpu_hub.rules import audit, limit_rows, people, subjects
from jupyter_gpu_hub.rules.refusals import REASONS
from jupyter_gpu_hub.web.app import ROUTES
from jupyter_gpu_hub.web.base import verbs
from tests.cluster.testbed import until
from tests.hub import SECONDS

from .browser import Answer
from .world import HUB, World

SPEC: dict[str, Any] = yaml.safe_load((Path(__file__).parents[2] / "docs" / "hub-openapi.yaml").read_text())
ANN = {"kind": "User", "name": "ann", "hub": HUB}


def walk(value: Any) -> list[dict[str, Any]]:
    """Return all objects inside ``value``."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    found = [item for child in inner for item in walk(child)]
    return [value, *found] if isinstance(value, dict) else found


def matches(answer: Answer, path: str, verb: str) -> Any:
    """Check an answer against what is described for it, without any field more; return its JSON."""
    described = SPEC["paths"][path][verb]["responses"][str(answer.status)]
    if "$ref" in described:
        described = SPEC["components"]["responses"][described["$ref"].rpartition("/")[2]]
    root = json.loads(
        json.dumps({**described["content"]["application/json"]["schema"], "components": SPEC["components"]})
    )
    for item in walk(root["components"]["schemas"]):
        if "properties" in item and item.get("properties") and item is not root["components"]["schemas"]["Error"]:
            item.setdefault("additionalProperties", False)
    Draft202012Validator(root).validate(answer.json)
    return answer.json


def test_document_is_valid_openapi() -> None:
    """The whole text is valid."""
    validate(SPEC)


def test_every_route_and_verb_is_described() -> None:
    """The document has exactly the routes that exist."""
    real = {f"/{path}": {verb.lower() for verb in verbs(handler)} for path, handler in ROUTES.items()}
    assert {path: set(item) - {"parameters"} for path, item in SPEC["paths"].items()} == real


def test_every_reason_field_and_column_is_described() -> None:
    """A new one must be added to the description."""
    schemas, paths = SPEC["components"]["schemas"], SPEC["paths"]
    assert set(schemas["Error"]["properties"]["reason"]["enum"]) == set(REASONS.values())
    assert set(schemas["Fields"]["properties"]) == set(Limit.FIELDS)
    tables = {
        "/limits": limit_rows.SORTS,
        "/subjects": subjects.SORTS,
        "/users": people.SORTS,
        "/audit": audit.SORTS,
    }
    for path, sorts in tables.items():
        (sort,) = [item for item in paths[path]["get"]["parameters"] if item.get("name") == "sort"]
        assert sort["schema"]["pattern"] == f"^-?({'|'.join(sorts)})$"


@pytest.mark.cluster
def test_answers_match_the_description(world: World) -> None:
    """Answers of each route, with values in every field."""
    api, ann = world.limits, world.token("ann")
    made = api.gpu("POST", "limits", {"subject": ANN, "set": {"max": 2}})
    name = matches(made, "/limits", "post")["object"]
    world.put_limit("twin", subject=ANN, max=1)
    until(lambda: api.gpu("GET", "limits").json["items"][0]["conditions"], SECONDS)
    matches(api.gpu("GET", "limits"), "/limits", "get")
    tag = {"If-Match": api.gpu("GET", f"limits/{name}").headers["ETag"]}
    matches(api.gpu("GET", f"limits/{name}"), "/limits/{name}", "get")
    matches(api.gpu("PATCH", f"limits/{name}", {"set": {"max": 3}}, tag), "/limits/{name}", "patch")
    matches(api.gpu("PATCH", f"limits/{name}", {"set": {"max": 3}}, tag), "/limits/{name}", "patch")
    matches(api.gpu("DELETE", f"limits/{name}", None, tag), "/limits/{name}", "delete")
    for path in ("subjects", "users", "cluster", "audit"):
        matches(api.gpu("GET", path), f"/{path}", "get")
    matches(api.gpu("GET", "explain/ann"), "/explain/{user}", "get")
    matches(api.gpu("GET", f"subject?kind=User&name=ann&hub={HUB}"), "/subject", "get")
    matches(api.gpu("GET", "translation"), "/translation", "get")
    matches(ann.gpu("GET", "me"), "/me", "get")
    matches(api.gpu("GET", "usage?month=2026-10"), "/usage", "get")
    matches(api.gpu("GET", "limits/export"), "/limits/export", "get")
    for dry in (True, False):
        edits = [{"subject": {**ANN, "name": "eve"}, "set": {"max": 3}}, {"subject": {"kind": "Cap"}, "set": {}}]
        matches(api.gpu("POST", "limits/bulk", {"edits": edits, "dryRun": dry}), "/limits/bulk", "post")
        text = f"kind,name,hub,max\r\nUser,zoe,{HUB},1\r\n"
        body = {"format": "csv", "text": text, "dryRun": dry}
        matches(api.gpu("POST", "limits/import", body), "/limits/import", "post")


@pytest.mark.cluster
def test_refusals_match_the_description(world: World) -> None:
    """Each status that a verb answers with is described for it."""
    api, bob = world.limits, world.token("bob")
    answers = [
        ("/limits", "get", api.gpu("GET", "limits?x=1")),
        ("/limits", "get", bob.gpu("GET", "limits")),
        ("/limits", "post", api.gpu("POST", "limits", {"subject": ANN, "set": {"max": "tow"}})),
        ("/limits", "post", bob.gpu("POST", "limits", {"subject": ANN, "set": {"max": 1}})),
        (
            "/limits",
            "post",
            api.send("POST", "/services/gpu/api/v1/limits", headers={"Content-Type": "text/plain"}, data=b""),
        ),
        ("/limits", "post", api.send("POST", "/services/gpu/api/v1/limits", data=b" " * 70_000)),
        ("/limits/{name}", "get", api.gpu("GET", "limits/nothing")),
        ("/limits/{name}", "delete", api.gpu("DELETE", "limits/nothing")),
        ("/explain/{user}", "get", api.gpu("GET", f"explain/{'x' * 300}")),
        ("/subject", "get", api.gpu("GET", "subject?kind=User")),
        ("/me", "get", api.gpu("GET", "me")),
        ("/limits/import", "post", api.gpu("POST", "limits/import", {"format": "json", "text": "["})),
        ("/usage", "get", api.gpu("GET", "usage?month=October")),
        ("/usage", "get", bob.gpu("GET", "usage?month=2026-10")),
        ("/events", "get", bob.gpu("GET", "events?x=1")),
    ]
    assert [answer.status for _, _, answer in answers] == [
        400,
        403,
        400,
        403,
        415,
        413,
        404,
        404,
        400,
        400,
        403,
        422,
        400,
        403,
        400,
    ]
    for path, verb, answer in answers:
        matches(answer, path, verb)
