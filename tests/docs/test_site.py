"""The documentation as a site: it builds without a broken link, and loads nothing from a network."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.docs.gallery import notebooks

ROOT = Path(__file__).parents[2]


def build(target: Path, *, config: Path = ROOT / "mkdocs.yml") -> subprocess.CompletedProcess[str]:
    """Build the site as scripts/docs does; a warning is an error."""
    words = ["mkdocs", "build", "--strict", "--config-file", str(config), "--site-dir", str(target)]
    return subprocess.run([sys.executable, "-m", *words], cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site; return its folder."""
    target = tmp_path_factory.mktemp("site")
    done = build(target)
    assert done.returncode == 0, done.stderr
    return target


class Loads(HTMLParser):
    """Collects the addresses that a browser fetches to show a page."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect what an element fetches; links that people follow and canonical addresses are not fetched."""
        values = {name: value or "" for name, value in attrs}
        if tag in ("script", "img", "iframe", "source") and "src" in values:
            self.found.append(values["src"])
        if tag == "link" and values.get("rel") in ("stylesheet", "icon", "preload", "preconnect"):
            self.found.append(values["href"])


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    """All fonts, scripts, styles and pictures come from this server, and exist."""
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 15
    for page in pages:
        found = Loads(page).found
        assert found
        base = site if page.name == "404.html" else page.parent
        for address in found:
            assert not re.match(r"(?:[a-z]+:)?//", address), f"{page.name} loads {address}"
            assert (base / address.lstrip("/").partition("#")[0].partition("?")[0]).is_file(), f"{page}: {address}"
    for style in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(?:https?:)?//", style.read_text(encoding="utf-8")), style


def test_every_notebook_is_a_page(site: Path) -> None:
    """It shows the outputs, and can be downloaded."""
    for path in [*notebooks(), ROOT / "binder" / "demo.ipynb"]:
        page = (site / "examples" / f"{path.stem}.html").read_text(encoding="utf-8")
        assert f'href="{path.name}"' in page
        assert (site / "examples" / path.name).read_text(encoding="utf-8") == path.read_text(encoding="utf-8")
        assert ("4 GPUs attached" in page) == (path.stem != "demo"), "a stored output"


def test_both_palettes_have_their_picture(site: Path) -> None:
    """The screenshot follows the reader's palette."""
    page = (site / "index.html").read_text(encoding="utf-8")
    for ending in ("images/light.png#only-light", "images/dark.png#only-dark"):
        assert f'src="{ending}"' in page
    assert 'data-md-color-scheme="slate"' in page


@pytest.mark.parametrize("link", ["no-such-page.md", "user-guide.md#no-such-heading", "../no-such-file"])
def test_broken_link_is_an_error(tmp_path: Path, link: str) -> None:
    """This holds for a missing page, a missing heading, and a missing file outside docs/."""
    docs = shutil.copytree(ROOT / "docs", tmp_path / "docs")
    config = tmp_path / "mkdocs.yml"
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    config.write_text(settings.replace("- scripts/lib/site.py", f"- {ROOT}/scripts/lib/site.py"), encoding="utf-8")
    with (docs / "index.md").open("a", encoding="utf-8") as page:
        page.write(f"\n[Broken]({link})\n")
    done = build(tmp_path / "site", config=config)
    assert done.returncode == 1
    warnings = re.findall(r"WARNING +-  (.*)", done.stderr)
    assert len(warnings) == 1
    assert f"'{link.removeprefix('../')}'" in warnings[0] or link.partition("#")[2] in warnings[0]


PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_lists_render_alike_on_github_and_the_site(page: Path) -> None:
    """A further paragraph of a list item is indented by four spaces, and an empty line stands before a list."""
    text = re.sub(r"^( *)```.*?^\1```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    assert not re.findall(r"\n\n {1,3}\S.*", text)
    assert not re.findall(r"^(?!- |\d+\. | |#|\||$).*\n- .*", text, re.MULTILINE)
