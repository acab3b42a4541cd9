"""Login, rights and the hub's check against other sites, with a real hub, proxy and cookies."""

from __future__ import annotations

import time

import pytest

from jupyter_gpu_hub.web.app import cookie_secret
from tests.cluster.testbed import until
from tests.hub import SECONDS

from .browser import FETCH, Browser
from .world import HUB, World

PAGE = "/services/gpu/"
API = f"{PAGE}api/v1/"
NEW = {"subject": {"kind": "User", "name": "eve"}, "set": {"max": 1}}

pytestmark = pytest.mark.cluster


def test_page_sends_to_the_login_and_back(world: World) -> None:
    """A browser without a session goes to the hub, logs in, and is back at the page without another click."""
    browser = Browser(world.address)
    assert "/hub/login" in browser.open(PAGE).url
    answer = browser.log_in("bob").open(PAGE)
    assert (answer.status, answer.url) == (200, world.address + PAGE)
    assert "You may have any number of GPUs, as no limit is set." in answer.text
    assert "<table" not in answer.text
    assert browser.cookie("_xsrf", PAGE)


@pytest.mark.parametrize(
    ("name", "reads", "edits"),
    [("root", True, True), ("ann", True, True), ("rita", True, False), ("bob", False, False)],
)
def test_rights_follow_scopes_and_hub_admins(world: World, name: str, reads: bool, edits: bool) -> None:
    """A hub admin edits without the scope, a group's role gives it, another only reads, and others see themselves."""
    browser = world.browser(name)
    me = browser.fetch("GET", f"{API}me").json
    assert (me["name"], me["mayRead"], me["mayEdit"]) == (name, reads, edits)
    assert browser.fetch("GET", f"{API}users").status == (200 if reads else 403)
    assert ("<table" in browser.open(PAGE).text) == reads
    assert browser.fetch("POST", f"{API}limits", NEW).status == (201 if edits else 403)


def test_headers_of_the_page_forbid_scripts_and_frames(world: World) -> None:
    """The policy is set on pages, REST, errors and static files."""
    browser = world.browser("bob")
    for path in (PAGE, f"{API}me", f"{API}nothing", f"{PAGE}static/style.css", f"{PAGE}oauth_callback"):
        answer = browser.fetch("GET", path)
        policy = answer.headers["Content-Security-Policy"]
        assert "frame-ancestors 'none'" in policy, path
        assert "default-src 'self'" in policy
        assert "unsafe" not in policy
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Server"] is None


class TestXsrf:
    """A page of another site, or another user's server, cannot write with the visitor's cookies."""

    def test_token_needs_no_header(self, world: World) -> None:
        """A program sends its token, which no page of another site has."""
        assert world.limits.gpu("POST", "limits", NEW).status == 201

    def test_cookie_needs_the_header(self, world: World) -> None:
        """The hub's own token is not the service's."""
        browser = world.browser("ann")
        hubs = browser.cookie("_xsrf", "/hub/")
        assert hubs
        assert browser.fetch("POST", f"{API}limits", NEW, xsrf=False).status == 403
        assert browser.fetch("POST", f"{API}limits", NEW, {"X-XSRFToken": hubs}).status == 403
        assert (
            browser.fetch("POST", f"{API}limits?_xsrf={browser.cookie('_xsrf', PAGE)}", NEW, xsrf=False).status == 403
        )
        assert browser.fetch("POST", f"{API}limits", NEW).status == 201

    @pytest.mark.parametrize("mode", ["cors", "navigate", "no-cors", "websocket", ""])
    def test_header_is_wanted_whatever_the_browser_calls_the_request(self, world: World, mode: str) -> None:
        """The hub's library trusts requests that call themselves a WebSocket."""
        browser = world.browser("ann")
        headers = {"Sec-Fetch-Mode": mode} if mode else {}
        kind = {"Content-Type": "application/json"}
        body = b'{"subject": {"kind": "User", "name": "eve"}, "set": {"max": 1}}'
        assert browser.send("POST", f"{API}limits", body, {**headers, **kind}).status == 403

    @pytest.mark.parametrize(
        "headers",
        [
            {"Sec-Fetch-Site": "cross-site"},
            {"Sec-Fetch-Site": "same-site"},
            {"Origin": "https://evil.example"},
            {"Origin": "null"},
            {"Authorization": "token bogus", "X-XSRFToken": ""},
        ],
    )
    def test_other_sites_are_refused(self, world: World, headers: dict[str, str]) -> None:
        """Even if the header is right, and also with a token that nobody knows."""
        assert world.browser("ann").fetch("POST", f"{API}limits", NEW, headers).status == 403

    @pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
    def test_only_json_is_read(self, world: World, kind: str) -> None:
        """A form of another site can have these types without asking first."""
        browser = world.browser("ann")
        answer = browser.fetch("POST", f"{API}limits", NEW, {"Content-Type": kind})
        assert answer.status in (400, 415)  # a form in parts that can't be read is refused before

    def test_reads_by_a_page_need_the_header_and_never_redirect(self, world: World) -> None:
        """Otherwise the hub's library takes the page for logged out, and its code follows redirects for ever."""
        browser = world.browser("bob")
        assert browser.fetch("GET", f"{API}me").status == 200
        refused = browser.fetch("GET", f"{API}me", xsrf=False)
        assert (refused.status, refused.json["reason"]) == (403, "NotPermitted")
        stranger = Browser(world.address).send("GET", f"{API}me", None, FETCH)
        assert stranger.status == 403


def test_server_sees_its_own_user_only(world: World) -> None:
    """The token of bob's server is bob's, and tells which server it is; it holds no scope, also not an admin's."""
    bob, root = world.server_token("bob"), world.server_token("root")
    try:
        assert bob.gpu("GET", "me").json["name"] == "bob"
        me = root.gpu("GET", "me").json
        assert (me["mayRead"], me["mayEdit"]) == (False, False)
        assert root.gpu("POST", "limits", NEW).status == 403
    finally:
        world.stop_server("bob")
        world.stop_server("root")


def test_revoked_token_writes_nothing_and_soon_reads_nothing(world: World) -> None:
    """The hub is asked before each write; its answer counts for three seconds for reads."""
    admin = world.token("ann")
    assert admin.gpu("GET", "limits").status == 200
    found = world.script.hub_api("GET", "users/ann/tokens")["api_tokens"]
    newest = max(found, key=lambda token: (token["created"], token["id"]))
    world.script.hub_api("DELETE", f"users/ann/tokens/{newest['id']}")
    begun = time.monotonic()
    assert admin.gpu("POST", "limits", NEW).status == 403
    until(lambda: admin.gpu("GET", "limits").status == 403, 10, "the token to be refused")
    assert time.monotonic() - begun < 8


def test_deleted_user_is_out(world: World) -> None:
    """A user whom the hub removed may do nothing with an old session."""
    world.script.hub_api("POST", "users/zoe")
    browser = world.browser("zoe")
    assert browser.fetch("GET", f"{API}me").status == 200
    world.script.hub_api("DELETE", "users/zoe")
    until(lambda: browser.fetch("GET", f"{API}me").status == 403, 10, "the session to end")


def test_renamed_user_signs_with_the_new_name_and_leaves_the_limit(world: World) -> None:
    """A write asks the hub, and a read soon shows the new name. The limit stays with the name that it was set for."""
    world.script.hub_api("POST", "users/zoe")
    world.script.hub_api("POST", "groups/gpu-admins/users", {"users": ["zoe"]})
    limit = {"subject": {"kind": "User", "name": "zoe", "hub": HUB}, "set": {"max": 3}}
    world.until_known(world.limits.gpu("POST", "limits", limit).json["object"])
    browser = world.browser("zoe")
    assert browser.fetch("GET", f"{API}me").json["limit"]["value"] == "3"
    world.script.hub_api("PATCH", "users/zoe", {"name": "zed"})
    try:
        made = browser.fetch("POST", f"{API}limits", NEW)
        assert (made.status, made.json["changed"]["by"]) == (201, "zed")
        until(lambda: browser.fetch("GET", f"{API}me").json["name"] == "zed", 10, "the new name")
        assert browser.fetch("GET", f"{API}me").json["limit"]["value"] == "unlimited"
        until(lambda: not world.limits.gpu("GET", "users?search=zoe").json["items"][0]["known"], SECONDS)
        (row,) = world.limits.gpu("GET", "users?search=zoe").json["items"]
        assert row["limit"]["value"] == "3"
    finally:
        world.script.hub_api("DELETE", "users/zed")


def test_open_page_goes_on_after_a_restart(world: World) -> None:
    """It reads and writes with the cookies that it has; nobody loads it again."""
    browser = world.browser("root")
    world.service.kill()
    world.service.start()
    assert browser.fetch("GET", f"{API}me").json["name"] == "root"
    assert browser.fetch("POST", f"{API}limits", NEW).status == 201


def test_page_whose_login_is_not_known_logs_in_again(world: World) -> None:
    """The answer says so; the page goes to the hub and comes back, and no one has to do anything."""
    browser = world.browser("bob")
    for item in browser.cookies:
        if (item.name, item.path) == ("service-gpu", PAGE):
            item.value = "2|1:0|10:1777802400|11:service-gpu|4:YWJj|" + "0" * 64  # signed with another secret
    refused = browser.fetch("GET", f"{API}me")
    assert (refused.status, refused.json["details"]) == (403, {"loggedIn": False})
    answer = browser.open(PAGE)
    assert (answer.status, answer.url) == (200, world.address + PAGE)
    assert browser.fetch("GET", f"{API}me").json["name"] == "bob"


def test_visitor_who_may_not_enter_is_not_sent_to_the_login(world: World) -> None:
    """It would be in vain: the hub knows the visitor."""
    stranger = world.script.gpu("GET", "me")
    assert (stranger.status, stranger.json["details"]) == (403, {"loggedIn": True})


def test_secret_of_cookies_follows_from_the_token() -> None:
    """Each token gives another."""
    assert cookie_secret("a") == cookie_secret("a") != cookie_secret("b")
    assert len(cookie_secret("a")) == 32


def test_failed_login_says_what_to_do(world: World) -> None:
    """A callback that no login began is a page with a sentence."""
    browser = world.browser("bob")
    for path in ("", "?code=x", "?code=x&state=y", "?error=denied"):
        answer = Browser(world.address).open(f"{PAGE}oauth_callback{path}")
        assert answer.status in (400, 403), path
        assert "log in again" in answer.text
    assert browser.open(PAGE).status == 200


def test_hub_waits_no_longer_than_said(world: World) -> None:
    """The health of the service is served at an address that the proxy does not have."""
    assert Browser(world.address).open("/services/gpu/healthz").status == 404
    until(lambda: world.browser("bob").open(PAGE).status == 200, SECONDS)
