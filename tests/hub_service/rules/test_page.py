"""The page as the service sends it."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.limits.index import LimitIndex
from jupyter_gpu.model.limits.owner import Owner
from jupyter_gpu_hub.rules import page, people
from jupyter_gpu_hub.rules.page import Frame
from jupyter_gpu_hub.rules.paging import Page, PageQuery
from jupyter_gpu_hub.rules.paging import page as page_of
from jupyter_gpu_hub.rules.people import UserRow
from jupyter_gpu_hub.rules.translation import Language

from .builders import HUB, limit

FRAME = Frame("/hub/", "/services/gpu/", "ann", "t0ken")


class Seen(HTMLParser):
    """The tags and the text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the tag."""
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        """Note the text."""
        self.text += data


def row(name: str, *, known: bool = True) -> UserRow:
    """Return a user with a limit of two."""
    index = LimitIndex([limit({"kind": "User", "name": name}, max=2, changes=[])])
    return people.row(Owner("User", name, HUB), index, [], known=known, accounts={})


def table(*names: str, **query: object) -> Page:
    """Return one page of these users."""
    return page_of([row(name) for name in names], PageQuery(**query), lambda item: item.name, lambda item: item.name)  # type: ignore[arg-type]


def test_user_sees_the_own_limit() -> None:
    """In plain words, with the address for programs, and nothing of others."""
    seen = Seen(page.render(FRAME, row("ann"), None, ""))
    assert "You may have 2 GPUs, set for you. You have 0 GPUs now." in seen.text
    assert ("a", {"href": "api/v1/me"}) in seen.tags
    assert "table" not in [tag for tag, _ in seen.tags]


def test_table_can_be_sorted_searched_and_paged() -> None:
    """Links keep the search; the sorted column says so to a screen reader."""
    seen = Seen(page.render(FRAME, None, table("a1", "a2", "a3", page=2, size=1, search="a"), ""))
    links = [attributes["href"] for tag, attributes in seen.tags if tag == "a"]
    assert "?search=a&sort=name&page=1&size=1" in links
    assert "?search=a&sort=name&page=3&size=1" in links
    assert "?search=a&sort=-name&page=1&size=1" in links
    assert "?search=a&sort=used&page=1&size=1" in links
    headers = [attributes for tag, attributes in seen.tags if tag == "th" and attributes["scope"] == "col"]
    assert [attributes.get("aria-sort") for attributes in headers] == ["ascending", *[None] * 5]
    assert "2 to 2 of 3" in seen.text
    turned = Seen(page.render(FRAME, None, table("a1", sort="used", descending=True), ""))
    assert [a["aria-sort"] for _, a in turned.tags if "aria-sort" in a] == ["descending"]
    assert "?sort=used&page=1&size=50" in [a.get("href") for _, a in turned.tags]


def test_empty_table_says_so() -> None:
    """It has no pages."""
    seen = Seen(page.render(FRAME, None, table(), ""))
    assert "No user is found." in seen.text
    assert ("nav", {"aria-label": "Pages"}) not in seen.tags


def test_user_whom_the_hub_does_not_know_is_told() -> None:
    """The limit of a removed user stays until somebody removes it."""
    found = Page((row("old", known=False),), 1, PageQuery())
    assert "old (the hub knows no such user)" in Seen(page.render(FRAME, None, found, "")).text


def test_problem_is_a_status() -> None:
    """A screen reader hears it."""
    seen = Seen(page.render(FRAME, row("ann"), None, "The cluster is away."))
    assert ("p", {"role": "status", "class": "alert alert-warning"}) in seen.tags
    assert ("p", {"role": "alert", "class": "alert alert-danger"}) in Seen(page.render_error(FRAME, "No.")).tags


@pytest.mark.parametrize(
    "name", ["<img src=x onerror=alert(1)>", '"><script>', "</td>", "&lt;", "ünï", "a/b", "-" * 255]
)
def test_names_are_text(name: str) -> None:
    """Whatever they look like."""
    seen = Seen(page.render(FRAME, row(name), table(name, search=name), name))
    assert [tag for tag, _ in seen.tags if tag in ("img", "script")] == ["script", "script", "img"]  # ours
    assert seen.text.count(name) >= 2


@given(st.text(min_size=1, max_size=20))
def test_any_name_leaves_the_page_as_it_is(name: str) -> None:
    """The tags are the same as those of a plain name."""
    tags = [
        [tag for tag, _ in Seen(page.render(FRAME, row(text), table(text, search=text), text)).tags]
        for text in (name, "ann")
    ]
    assert tags[0] == tags[1]


def test_page_is_in_the_language_of_the_visitor() -> None:
    """Each sentence with its values; what a translation has of HTML is text, and what is missing is English."""
    words = {
        "You may have %1, %2.": "Sie haben %1 (%2) <b>frei</b>.",
        "set for %1": "für %1",
        "you": "Sie",
        "Guaranteed": "Zugesichert",
        "Programs find the same at %1.": "Für Programme: %1",
        "%1 to %2 of %3": "%1 bis %2 von %3",
    }
    frame = replace(FRAME, language=Language("de_DE", words))
    seen = Seen(page.render(frame, row("ann"), table("ann"), ""))
    assert ("html", {"lang": "de-DE"}) in seen.tags
    for text in ("Sie haben 2 GPUs (für Sie) <b>frei</b>.", "Zugesichert", "Für Programme: api/v1/me", "1 bis 1 von 1"):
        assert text in seen.text
    assert "You have 0 GPUs now." in seen.text
    assert ("a", {"href": "api/v1/me"}) in seen.tags
    assert "b" not in [tag for tag, _ in seen.tags]


def test_frame_is_that_of_the_hub() -> None:
    """Its style sheet and links; what the code needs are attributes, as no script may stand in the page."""
    odd = Frame('/"><b>/', '/"><i>/', '"><u>', '"><s>')
    for text in (page.render(odd, None, None, ""), page.render_error(odd, "No.")):
        assert not {"b", "i", "u", "s"} & {tag for tag, _ in Seen(text).tags}
    seen = Seen(page.render(FRAME, None, None, ""))
    assert ("link", {"rel": "stylesheet", "href": "/hub/static/css/style.min.css"}) in seen.tags
    root = {"id": "gpu-limits", "data-base": "/services/gpu/", "data-xsrf": "t0ken", "hidden": None}
    assert ("div", root) in seen.tags
    assert all(attributes["src"] for tag, attributes in seen.tags if tag == "script")
    assert "Logout" not in Seen(page.render_error(Frame("/hub/"), "No.")).text
