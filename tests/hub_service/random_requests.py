"""Random requests to the service's REST, from one seed: methods, addresses, queries, headers and bodies of any kind."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from .world import HUB

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "NONSENSE")
NAMES = (
    "ann",
    "bob",
    "a/b",
    "ünï",
    "<img onerror>",
    "",
    "x" * 300,
    "\0",
    "..",
    "=cmd()",
    "\u202e",
    "🦊",
    "ml",
    "--",
    "Ann",
)
KINDS = ("User", "Group", "Default", "Cap", "Namespace", "user", "x")
FIELDS: dict[str, tuple[Any, ...]] = {
    "max": (0, 2, "0.5", "unlimited", "tow", -1, None, 1e300, "9" * 60),
    "guaranteed": ("1", 3, 0.25),
    "weight": (1, 0, 1001, "1"),
    "priority": ({"max": 5}, {"max": 11}, {}),
    "models": ([{"model": "A100", "max": 1}], [{"model": "", "max": "x"}], {}),
    "memory": ("40Gi", "40GG", 0),
    "idleTimeout": ("4h", "1s", "soon"),
    "budget": ({"gpuHours": 1, "window": "Day"}, {"gpuHours": -1}),
    "hours": ([{"from": "08:00", "to": "18:00", "max": 1}], [{"from": "25:00"}]),
    "remote": (True, "yes"),
    "grace": ("10m", "-1s"),
}
ODD_BODIES = (
    b"",
    b"[" * 5000,
    b'{"a": ' * 400 + b"1" + b"}" * 400,
    b'{"edits": [], "edits": []}',
    b'{"set": NaN}',
    b'{"max": 1e999}',
    b'"\\ud800"',
    b'{"subject": "\xff\xfe"}',
    b"9" * 5000,
    b"\0",
    b"<xml/>",
    b"kind,name,max\nUser,ann,2\n",
    json.dumps({"text": "x" * 100_000}).encode(),
)
QUERIES = (
    "page=0", "page=-1", "page=999999", "size=501", "size=x", "sort=-used", "sort=nonsense", "search=%00",
    "search=%ff",
    "search=" + "x" * 4000, "page=1&page=2", "%zz", "=", "&&&", "kind=User", "format=csv", "format=xml",
    "month=2026-10", "month=2026-13", "field=max", "field=x", "x=%F0%9F%A6%8A", "token=abc", "_xsrf=abc",
)  # fmt: skip
HEADERS: dict[str, tuple[str, ...]] = {
    "Content-Type": (
        "application/json",
        "text/plain",
        "application/json; charset=x",
        "",
        "\xff",
        "multipart/form-data",
    ),
    "If-Match": ('"1"', "*", "W/", '"', "nonsense", '"a", "b"', "\xe9" * 50),
    "If-None-Match": ('"1"', "*", "W/"),
    "Accept": ("text/html", "*/*;q=x"),
    "Origin": ("http://evil.example", "null", "http://[::1", "\xff"),
    "Sec-Fetch-Site": ("cross-site", "same-origin", "none", "x"),
    "Sec-Fetch-Mode": ("navigate", "cors", "no-cors"),
    "X-XSRFToken": ("", "x", "2|a|b|c", "\xff"),
    "X-Forwarded-For": ("1.2.3.4", "::1, nonsense", "'"),
    "X-Forwarded-Proto": ("https", "gopher"),
    "Accept-Encoding": ("gzip", "br;q=1"),
    "X-Filler": ("y" * 8000,),
}


@dataclass(frozen=True)
class RandomRequest:
    """One request, without what says from whom it is."""

    method: str
    path: str
    """Below the REST's address, with the query."""
    headers: dict[str, str]
    body: bytes | None


def requests(seed: str, route: str, count: int) -> list[RandomRequest]:
    """Return requests to a route; the same ones for the same seed."""
    source = random.Random(f"{seed} {route}")
    return [_request(source, route) for _ in range(count)]


def _request(source: random.Random, route: str) -> RandomRequest:
    head, brace, _ = route.partition("{")
    path = head + (_segment(source) if brace else "")
    if source.random() < 0.5:
        path += "?" + "&".join(source.choices(QUERIES, k=source.randint(1, 2)))
    names = source.sample(list(HEADERS), k=source.choice((0, 0, 1, 2, 4)))
    headers = {"Content-Type": "application/json", **{name: source.choice(HEADERS[name]) for name in names}}
    method = source.choice(METHODS + ("GET", "POST", "PATCH", "DELETE") * 2)
    body = None if method in ("GET", "HEAD") and source.random() < 0.8 else _body(source)
    return RandomRequest(method, path, headers, body)


def _segment(source: random.Random) -> str:
    if source.random() < 0.1:
        return source.choice(("%ff", "%", "%zz", "%2F", "a%2Fb", "..%2f..", "%00", "x" * 5000))
    return quote(source.choice(NAMES), safe="")


def _body(source: random.Random) -> bytes:
    pick = source.random()
    if pick < 0.15:
        return source.choice(ODD_BODIES)
    if pick < 0.2:
        return source.randbytes(source.randint(0, 200))
    if pick < 0.35:
        made: Any = _json(source, 4)
    elif pick < 0.5:
        made = _edit(source)
    elif pick < 0.6:
        made = {"requested": _request_for_gpus(source), "version": source.choice(("", "1", "x" * 70, None, 3))}
    elif pick < 0.8:
        made = {
            "edits": [_edit(source) for _ in range(source.randint(0, 3))],
            "dryRun": source.choice((True, False, 1)),
        }
    else:
        rows = json.dumps([{"subject": _subject(source), **(_fields(source) or {})} for _ in range(2)])
        text = source.choice((rows, "kind,name,max\nUser,ann,2\n", "kind;name\n'=cmd()", "\0"))
        made = {"format": source.choice(("csv", "json", "x")), "text": text}
        made |= {key: source.choice((True, False, None)) for key in ("dryRun", "replace") if source.random() < 0.5}
    return json.dumps(made).encode()


def _edit(source: random.Random) -> Any:
    parts = {"subject": _subject(source), "set": _fields(source), "version": source.choice(("", "x", "1", None, 3))}
    return {
        key: value if source.random() < 0.9 else _json(source, 2)
        for key, value in parts.items()
        if source.random() < 0.8
    }


def _request_for_gpus(source: random.Random) -> Any:
    parts = {"generation": (0, 1, -1, 2**60), "milli": (0, 1000, 250, -1, "2", 2**60), "each": (1, 500, 0), "x": NAMES}
    made = {key: source.choice(values) for key, values in parts.items() if source.random() < 0.8}
    return made if source.random() < 0.9 else _json(source, 2)


def _subject(source: random.Random) -> dict[str, Any]:
    parts = {"kind": source.choice(KINDS), "name": source.choice(NAMES), "hub": source.choice((HUB, "", "other", 1))}
    return {key: value for key, value in parts.items() if source.random() < 0.9}


def _fields(source: random.Random) -> dict[str, Any] | None:
    if source.random() < 0.1:
        return None
    names = source.sample(list(FIELDS), k=source.randint(0, 3))
    return {name: source.choice(FIELDS[name]) if source.random() < 0.8 else _json(source, 2) for name in names}


def _json(source: random.Random, levels: int) -> Any:
    pick = source.randint(0, 7 if levels else 5)
    if pick == 6:
        return [_json(source, levels - 1) for _ in range(source.randint(0, 3))]
    if pick == 7:
        return {
            source.choice((*NAMES, "set", "subject")): _json(source, levels - 1) for _ in range(source.randint(0, 3))
        }
    values = (
        None,
        source.random() < 0.5,
        source.randint(-(2**70), 2**70),
        source.gauss(0, 1e9),
        source.choice(NAMES),
        "",
    )
    return values[pick]
