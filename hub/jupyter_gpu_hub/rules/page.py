"""The page as the service sends it: the frame of the hub's pages, and what is shown without a script. Pure.

Without a script that is the visitor's own limit and, for those who may see it, the table of users. The script shows
the same and more in its place. Names come from outside: all text is escaped here, in one place.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from urllib.parse import urlencode

from jupyter_gpu.model.message import Message, gettext, sentences
from jupyter_gpu.model.quantity import gpus

from . import words
from .paging import Page, PageQuery
from .people import UserRow
from .translation import EN, Language

TITLE = gettext("GPU limits")
_COLUMNS = (
    ("name", gettext("User")),
    ("limit", gettext("Limit")),
    ("used", gettext("In use")),
    ("waiting", gettext("Waiting")),
    ("guaranteed", gettext("Guaranteed")),
    ("idle", gettext("Idle")),
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
    language: Language = EN

    def say(self, text: object) -> str:
        """Return a text in the visitor's language, as HTML."""
        return escape(self.language.say(text))


def render(frame: Frame, row: UserRow | None, table: Page | None, problem: str) -> str:
    """Return the page. ``row``: the visitor, ``None`` for a service; ``table``: for those who may see it."""
    plain = [
        f'<p role="status" class="alert alert-warning">{frame.say(problem)}</p>\n' if problem else "",
        _own(frame, row) if row else "",
        _table(frame, table) if table else "",
    ]
    return _framed(
        frame,
        f'<div id="gpu-limits" data-base="{escape(frame.base)}" data-xsrf="{escape(frame.xsrf)}" hidden></div>\n'
        f'<div id="gpu-plain">\n{"".join(plain)}</div>\n',
        '<script type="module" src="static/page.js"></script>\n',
    )


def render_error(frame: Frame, message: str) -> str:
    """Return the page that says what went wrong."""
    return _framed(frame, f'<p role="alert" class="alert alert-danger">{frame.say(message)}</p>\n')


def _framed(frame: Frame, content: str, scripts: str = "") -> str:
    """Return a page that looks like the hub's own: its style sheet, navigation and theme."""
    hub, base, name = escape(frame.hub), escape(frame.base), escape(frame.visitor)
    title, home, token = (frame.say(text) for text in (TITLE, gettext("Home"), gettext("Token")))
    logout, toggle = frame.say(gettext("Logout")), frame.say(gettext("Toggle dark mode"))
    who = f'<span class="me-2">{name}</span><a class="btn btn-sm btn-secondary" href="{hub}logout">{logout}</a>'
    return (
        f'<!doctype html>\n<html lang="{escape(frame.language.tag)}">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>{title}</title>\n'
        f'<link rel="stylesheet" href="{hub}static/css/style.min.css">\n'
        '<link rel="stylesheet" href="static/style.css">\n'
        f'<link rel="icon" href="{hub}static/favicon.ico">\n'
        f'<script src="static/theme.js"></script>\n{scripts}</head>\n<body>\n'
        '<nav class="navbar navbar-expand bg-body-tertiary mb-4" aria-label="JupyterHub">\n'
        '<div class="container-fluid">\n'
        f'<span id="jupyterhub-logo" class="navbar-brand"><a href="{hub}home">'
        f'<img class="jpy-logo" src="{hub}logo" alt="JupyterHub"></a></span>\n'
        f'<ul class="navbar-nav me-auto"><li class="nav-item"><a class="nav-link" href="{hub}home">{home}</a></li>\n'
        f'<li class="nav-item"><a class="nav-link" href="{hub}token">{token}</a></li>\n'
        f'<li class="nav-item"><a class="nav-link active" href="{base}" aria-current="page">{title}</a></li></ul>\n'
        f'<button type="button" class="btn btn-sm me-2" id="dark-theme-toggle" aria-label="{toggle}" '
        f'title="{toggle}" hidden>\u25d0</button>\n{who if name else ""}\n</div>\n</nav>\n'
        f'<main class="container-fluid">\n<h1>{title}</h1>\n{content}</main>\n</body>\n</html>\n'
    )


def _own(frame: Frame, row: UserRow) -> str:
    link = '<a href="api/v1/me"><code>api/v1/me</code></a>'
    programs = frame.say(gettext("Programs find the same at %1.")).replace("%1", link)
    return f"<p>{frame.say(sentences(words.may_have(row.limit), words.use(row)))}</p>\n<p>{programs}</p>\n"


def _table(frame: Frame, table: Page) -> str:
    query = table.query
    users, name, search = (frame.say(text) for text in (gettext("Users"), gettext("Name"), gettext("Search")))
    head = "".join(_header(column, frame.say(title), query) for column, title in _COLUMNS)
    body = "".join(_row(frame, row) for row in table.rows)
    return (
        f"<h2>{users}</h2>\n"
        f'<form method="get" role="search"><label>{name} <input type="search" class="form-control" name="search" '
        f'value="{escape(query.search)}" maxlength="255"></label> '
        f'<button class="btn btn-secondary">{search}</button></form>\n'
        f"<p>{frame.say(_count(table))}</p>\n"
        f'<table class="table">\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody>\n</table>\n'
        f"{_pages(frame, table)}"
    )


def _header(column: str, title: str, query: PageQuery) -> str:
    mine = column == query.sort
    order = (' aria-sort="descending"' if query.descending else ' aria-sort="ascending"') if mine else ""
    sort = f"-{column}" if mine and not query.descending else column
    return f'<th scope="col"{order}><a href="{_link(query, sort=sort, page=1)}">{title}</a></th>'


def _row(frame: Frame, row: UserRow) -> str:
    limit = gettext("%1, %2", words.amount(row.limit.value), row.limit.source.sentence(you=False))
    name = row.name if row.known else gettext("%1 (the hub knows no such user)", row.name)
    amounts = (row.used, row.waiting, row.guaranteed.value, row.idle)
    cells = "".join(f"<td>{frame.say(cell)}</td>" for cell in (limit, *map(gpus, amounts)))
    return f'<tr><th scope="row">{frame.say(name)}</th>{cells}</tr>\n'


def _count(table: Page) -> Message:
    if not table.rows:
        return gettext("No user is found.")
    first = (table.query.page - 1) * table.query.size + 1
    return gettext("%1 to %2 of %3", first, first + len(table.rows) - 1, table.total)


def _pages(frame: Frame, table: Page) -> str:
    query = table.query
    links = []
    if query.page > 1:
        links.append(f'<a rel="prev" href="{_link(query, page=query.page - 1)}">{frame.say(gettext("Previous"))}</a>')
    if query.page * query.size < table.total:
        links.append(f'<a rel="next" href="{_link(query, page=query.page + 1)}">{frame.say(gettext("Next"))}</a>')
    label = frame.say(gettext("Pages"))
    return f'<nav aria-label="{label}">{" ".join(links)}</nav>\n' if links else ""


def _link(query: PageQuery, *, page: int, sort: str = "") -> str:
    own = f"-{query.sort}" if query.descending else query.sort
    fields = {"search": query.search, "sort": sort or own, "page": page, "size": query.size}
    return "?" + escape(urlencode({key: value for key, value in fields.items() if value}))
