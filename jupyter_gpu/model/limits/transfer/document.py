"""Limits as a document (JSON): ``{"limits": [spec, …]}``, each as in the spec of a ``GpuLimit``.

A list of objects as ``kubectl get gpulimits -o json`` prints it, and a bare list, are read as well.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ... import strict
from ..limit import HUB_PROPERTIES, MANAGED_BY, Limit
from .row import MAX_BYTES, MAX_ROWS, ImportedRow, distinct, row_of
from .table import BOM, exported

_LISTS = ("limits", "items")


def write_document(limits: Iterable[Limit]) -> str:
    """Return limits as JSON; `read_document` reads it.

    Left out are limits that are about no one, mirrored properties of groups, and fields of a newer version.
    """
    specs = [
        {key: value for key, value in limit.spec().items() if key not in limit.extra} for limit in exported(limits)
    ]
    return json.dumps({"limits": specs}, indent=2, ensure_ascii=False) + "\n"


def read_document(text: str) -> tuple[ImportedRow, ...]:
    """Read limits from JSON; never raises.

    Errors of one limit are in its row; an error of the whole text is one row without a limit.
    """
    text = text.removeprefix(BOM)
    try:
        value = strict.loads(text, MAX_BYTES)
        items = strict.list_of(lambda item, _: item, MAX_ROWS)(_list(value), "limits")
    except strict.FieldError as error:
        return (ImportedRow(1, None, (str(error),)),)
    return distinct(_row(line, item) for line, item in zip(_lines(text), items, strict=True) if not _is_mirrored(item))


def objects_of(text: str) -> tuple[Mapping[str, Any], ...]:
    """Return the items of a document as objects with a ``spec``, none of them checked; raises `FieldError`."""
    items = strict.list_of(lambda item, _: item, MAX_ROWS)(
        _list(strict.loads(text.removeprefix(BOM), MAX_BYTES)), "limits"
    )
    return tuple(item if isinstance(item, Mapping) and "spec" in item else {"spec": item} for item in items)


def _list(value: Any) -> Any:
    if isinstance(value, list):
        return value
    body = strict.an_object(value, "The document")
    key = next((key for key in _LISTS if key in body), None)
    if key is None:
        raise strict.FieldError('The document must be {"limits": […]}, or a list of limits.', "limits")
    return body[key]


def _spec(item: Any) -> Any:
    return item["spec"] if isinstance(item, Mapping) and "spec" in item else item


def _is_mirrored(item: Any) -> bool:
    """Tell whether an object of the cluster is a mirror of the hub's, and so is not to be written."""
    meta = item.get("metadata") if isinstance(item, Mapping) else None
    labels = meta.get("labels") if isinstance(meta, Mapping) else None
    return isinstance(labels, Mapping) and labels.get(MANAGED_BY) == HUB_PROPERTIES


def _row(line: int, item: Any) -> ImportedRow:
    spec = _spec(item)
    if not isinstance(spec, Mapping):
        return ImportedRow(line, None, ('A limit must be an object such as {"subject": {…}, "max": 2}.',))
    return row_of(line, spec)


def _lines(text: str) -> Iterator[int]:
    """Yield the line on which each item of the list begins; ``text`` is known to be JSON with that list."""
    decoder, at, line, counted = json.JSONDecoder(), _start(text), 1, 0
    while True:
        at = _skip(text, at, " \t\r\n,")
        if text[at] == "]":
            return
        line, counted = line + text.count("\n", counted, at), at
        yield line
        at = decoder.raw_decode(text, at)[1]


def _start(text: str) -> int:
    """Return the place after the bracket that opens the list."""
    decoder, at, places = json.JSONDecoder(), _skip(text, 0, " \t\r\n"), {}
    if text[at] == "[":
        return at + 1
    at += 1
    while text[at := _skip(text, at, " \t\r\n,")] != "}":
        key, at = decoder.raw_decode(text, at)
        at = _skip(text, at, " \t\r\n:")
        places[key] = at + 1
        at = decoder.raw_decode(text, at)[1]
    return next(places[key] for key in _LISTS if key in places)


def _skip(text: str, at: int, letters: str) -> int:
    while text[at] in letters:
        at += 1
    return at
