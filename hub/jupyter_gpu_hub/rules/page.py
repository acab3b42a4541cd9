"""The page as the service sends it: the frame of the hub's pages, and what is shown without a script. Pure.

Without a script that is the visitor's own limit and, for those who may see it, the table of users. The script shows
the same and more in its place. Names come from outside: all text is escaped here, in one place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from urllib.parse import urlencode

from jupyter_gpu.model.quantity import count_gpus

from . import words
from .paging import Page, PageQuery
from .people import UserRow

_COLUMNS = (
    ("name", "User"),
    ("limit", "Limit"),
    ("used", "In use"),
    ("waiting", "Waiting"),
    ("guaranteed", "Guaranteed"),
    ("idle", "Idle"),
)


@dataclass(frozen=True, slots=True)
class Frame:
    """The frame of every page."""

    hub: str
    """Path, or address, of the hub's own pages, with a slash at its end."""
    base: str = "/"
    """Path of the service, with a slash at its end."""
    visitor: str = ""
    """Name of the visitor; empty: not known."""
    xsrf: str = ""
    """Value of the header that the page's code sends."""


def render(frame: Frame, row: UserRow | None, table: Page | None, problem: str) -> str:
    """Return the page. ``row``: the visitor, ``None`` for a service; ``table``: for those who may see it."""
    plain = [
        f'<p role="status" class="alert alert-warning">{escape(problem)}</p>\n' if problem else "",
        _own(row) if row else "",
        _table(table) if table else "",
    ]
    return _framed(
        frame,
        f'<div id="gpu-limits" data-base="{escape(frame.base)}" data-xsrf="{escape(frame.xsrf)}" hidden></div>\n'
        f'<div id="gpu-plain">\n{"".join(plain)}</div>\n',
        '<script type="module" src="static/page.js"></script>\n',
    )


def render_error(frame: Frame, message: str) -> str:
    """Return the page that says what went wrong."""
    return _framed(frame, f'<p role="alert" class="alert alert-danger">{escape(message)}</p>\n')


def _framed(frame: Frame, content: str, scripts: str = "") -> str:
    """Return a page that looks like the hub's own: its style sheet, navigation and theme."""
    hub, base, name = escape(frame.hub), escape(frame.base), escape(frame.visitor)
    who = f'<span class="me-2">{name}</span><a class="btn btn-sm btn-secondary" href="{hub}logout">Logout</a>'
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>GPU limits</title>\n'
        f'<link rel="stylesheet" href="{hub}static/css/style.min.css">\n'
        '<link rel="stylesheet" href="static/style.css">\n'
        f'<link rel="icon" href="{hub}static/favicon.ico">\n'
        f'<script src="static/theme.js"></script>\n{scripts}</head>\n<body>\n'
        '<nav class="navbar navbar-expand bg-body-tertiary mb-4" aria-label="JupyterHub">\n'
        '<div class="container-fluid">\n'
        f'<span id="jupyterhub-logo" class="navbar-brand"><a href="{hub}home">'
        f'<img class="jpy-logo" src="{hub}logo" alt="JupyterHub"></a></span>\n'
        f'<ul class="navbar-nav me-auto"><li class="nav-item"><a class="nav-link" href="{hub}home">Home</a></li>\n'
        f'<li class="nav-item"><a class="nav-link" href="{hub}token">Token</a></li>\n'
        f'<li class="nav-item"><a class="nav-link active" href="{base}" aria-current="page">GPU limits</a></li></ul>\n'
        '<button type="button" class="btn btn-sm me-2" id="dark-theme-toggle" aria-label="Toggle dark mode" '
        f'title="Toggle dark mode" hidden>\u25d0</button>\n{who if name else ""}\n</div>\n</nav>\n'
        f'<main class="container-fluid">\n<h1>GPU limits</h1>\n{content}</main>\n</body>\n</html>\n'
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
        f'<form method="get" role="search"><label>Name <input type="search" class="form-control" name="search" '
        f'value="{escape(query.search)}" maxlength="255"></label> '
        '<button class="btn btn-secondary">Search</button></form>\n'
        f"<p>{_count(table)}</p>\n"
        f'<table class="table">\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody>\n</table>\n{_pages(table)}'
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
