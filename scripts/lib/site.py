"""Hooks of MkDocs: files from outside docs/ and notebooks become pages, and links between all of them hold.

The sources are written for GitHub, where people read them as well, so their links are relative paths in the repository.
"""

import json
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
OUTSIDE = {
    "README.md": "overview.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changes.md",
    "LICENSE": "LICENSE.txt",
    "binder/demo.ipynb": "examples/demo.ipynb",
}
"""Paths in the site of files from outside docs/."""
_INSIDE = {there: here for here, there in OUTSIDE.items()}
_LINK = re.compile(r"(\]\(|\b(?:src|srcset|href)=\")([^)\s\"#]+)")
_PICTURE = re.compile(
    r"<picture>.*?srcset=\"([^\"]+)\".*?src=\"([^\"]+)\" alt=\"([^\"]*)\"([^>]*)>.*?</picture>", re.DOTALL
)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what lies outside docs/, and a page for each notebook."""
    for source, target in OUTSIDE.items():
        files.append(File.generated(config, target, content=(ROOT / source).read_text(encoding="utf-8")))
    for file in list(files):
        if file.src_uri.endswith(".ipynb"):
            text = notebook_page(file.content_string)
            files.append(File.generated(config, page_of(file.src_uri), content=text))
    return files


def on_page_markdown(markdown: str, page: Page, files: Files, **_: object) -> str:
    """Turn paths in the repository into paths in the site, and pictures of two themes into what the theme shows."""
    pictures = _PICTURE.sub(r'<img src="\2#only-light" alt="\3"\4><img src="\1#only-dark" alt="\3"\4>', markdown)
    linked = _LINK.sub(lambda match: match[1] + link(page.file.src_uri, match[2]), pictures)
    notebook = page.file.src_uri.removesuffix(".md") + ".ipynb"
    if files.get_file_from_path(notebook):
        linked += f"\n\n[Download this notebook]({posixpath.basename(notebook)}){{: download }}\n"
    return linked


def link(page: str, target: str) -> str:
    """Return where ``target``, as the source of ``page`` has it, leads in the site."""
    if re.match(r"[a-z]+:", target):
        return target
    source = _INSIDE.get(page) or _INSIDE.get(page.replace(".md", ".ipynb")) or f"docs/{page}"
    path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
    there = OUTSIDE.get(path) or path.removeprefix("docs/")
    return posixpath.relpath(page_of(there), posixpath.dirname(page) or ".")


def page_of(uri: str) -> str:
    """Return the page that shows a file: a notebook has one of its own."""
    return uri.removesuffix(".ipynb") + ".md" if uri.endswith(".ipynb") else uri


def notebook_page(text: str) -> str:
    """Return a notebook as Markdown: words, code, and below it what the code says."""
    parts = []
    for cell in json.loads(text)["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else fence("python", source))
        parts += [fence('text title="Output"', said) for said in map(output_text, cell.get("outputs", ())) if said]
    return "\n\n".join(parts)


def fence(info: str, text: str) -> str:
    """Return a code block."""
    return f"```{{.{info}}}\n{text.rstrip()}\n```"


def output_text(output: dict[str, Any]) -> str:
    """Return the text of a cell's output."""
    return "".join(output.get("text") or output["data"]["text/plain"])
