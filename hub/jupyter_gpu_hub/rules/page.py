"""The page without a script: the visitor's own limit and, for those who may see it, the table of users. Pure.

Names come from outside: all text is escaped here, in one place.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from urllib.parse import urlencode

from jupyter_gpu.model.quantity import count_gpus

from . import words
from .paging import Page, PageQuery
from .people import UserRow

_HEAD = (
    '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
    '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
    '<title>GPU limits</title>\n<link rel="stylesheet" href="static/style.css">\n</head>\n<body>\n'
)
_COLUMNS = (
    ("name", "User"),
    ("limit", "Limit"),
    ("used", "In use"),
    ("waiting", "Waiting"),
    ("guaranteed", "Guaranteed"),
    ("idle", "Idle"),
)


def render(hub: str, row: UserRow | None, table: Page | None, problem: str) -> str:
    """Return the page. ``hub``: path of the hub's own pages; ``row``: the visitor, ``None`` for a service."""
    parts = [
        _HEAD,
        f'<nav><a href="{escape(hub)}home">Home</a></nav>\n<main>\n<h1>GPU limits</h1>\n',
        f'<p role="status" class="problem">{escape(problem)}</p>\n' if problem else "",
        _own(row) if row else "",
        _table(table) if table else "",
        "</main>\n</body>\n</html>\n",
    ]
    return "".join(parts)


def render_error(hub: str, message: str) -> str:
    """Return the page that says what went wrong."""
    return (
        f'{_HEAD}<nav><a href="{escape(hub)}home">Home</a></nav>\n<main>\n<h1>GPU limits</h1>\n'
        f'<p role="alert">{escape(message)}</p>\n</main>\n</body>\n</html>\n'
    )


def _own(row: UserRow) -> str:
    sentences = f"{words.may_have(row.limit)} {words.use(row)}"
    return (
        f"<p>{escape(sentences)}</p>\n"
        '<p>Programs find the same at <a href="api/v1/me"><code>api/v1/me</code></a>.</p>\n'
    )


def _table(table: Page) -> str:
    query = table.query
    head = "".join(_header(column, title, query) for column, title in _COLUMNS)
    body = "".join(_row(row) for row in table.rows)
    return (
        "<h2>Users</h2>\n"
        f'<form method="get" role="search"><label>Name <input type="search" name="search" '
        f'value="{escape(query.search)}" maxlength="255"></label> <button>Search</button></form>\n'
        f"<p>{_count(table)}</p>\n"
        f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody>\n</table>\n{_pages(table)}"
    )


def _header(column: str, title: str, query: PageQuery) -> str:
    mine = column == query.sort
    order = (' aria-sort="descending"' if query.descending else ' aria-sort="ascending"') if mine else ""
    sort = f"-{column}" if mine and not query.descending else column
    return f'<th scope="col"{order}><a href="{_link(query, sort=sort, page=1)}">{title}</a></th>'


def _row(row: UserRow) -> str:
    limit = f"{words.amount(row.limit.value)}, {row.limit.source.sentence(you=False)}"
    name = row.name if row.known else f"{row.name} (the hub knows no such user)"
    cells: Sequence[str] = [
        limit,
        count_gpus(row.used),
        count_gpus(row.waiting),
        count_gpus(row.guaranteed.value),
        count_gpus(row.idle),
    ]
    return f'<tr><th scope="row">{escape(name)}</th>{"".join(f"<td>{escape(cell)}</td>" for cell in cells)}</tr>\n'


def _count(table: Page) -> str:
    if not table.rows:
        return "No user is found."
    first = (table.query.page - 1) * table.query.size + 1
    return f"{first} to {first + len(table.rows) - 1} of {table.total}"


def _pages(table: Page) -> str:
    query = table.query
    links = []
    if query.page > 1:
        links.append(f'<a rel="prev" href="{_link(query, page=query.page - 1)}">Previous</a>')
    if query.page * query.size < table.total:
        links.append(f'<a rel="next" href="{_link(query, page=query.page + 1)}">Next</a>')
    return f'<nav aria-label="Pages">{" ".join(links)}</nav>\n' if links else ""


def _link(query: PageQuery, *, page: int, sort: str = "") -> str:
    own = f"-{query.sort}" if query.descending else query.sort
    fields = {"search": query.search, "sort": sort or own, "page": page, "size": query.size}
    return "?" + escape(urlencode({key: value for key, value in fields.items() if value}))
