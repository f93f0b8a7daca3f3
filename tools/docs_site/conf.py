"""Sphinx's settings for the documentation as a site: ``make site``.

The pages are the Markdown files of the repository, where they are; README.md is the landing page. The
navigation is the list at its end, and llms.txt is made of that list and of each page's first sentence:
no text is written twice.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import NamedTuple

from sphinx.application import Sphinx

from stallscope import __version__

ROOT = Path(__file__).parents[2]
#: Where the site will be, with a slash at the end: llms.txt then has whole addresses.
ADDRESS = os.environ.get("SITE_URL", "")
API = "tools/docs_site/api.md"

project = html_title = "Stallscope"
author = "The Stallscope developers"
version = release = __version__
root_doc = "README"
include_patterns = [
    "*.md",
    "docs/**",
    API,
    "collector/README.md",
    "collector/recorder/README.md",
    "dashboard/README.md",
    "parsers/README.md",
    "sample_logs/README.md",
    "src/stallscope/*/README.md",
]
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
# Anchors as GitHub makes them.
myst_heading_anchors = 6
# Pages that the landing page does not list are reached from others; classes share names of properties.
suppress_warnings = ["toc.not_included", "ref.python"]
# The recorders' own modules are imported, their frameworks are not.
autodoc_mock_imports = [
    *("torch", "tensorflow", "keras", "tf_keras", "mxnet", "jax", "horovod"),
    # It looks for a library of MXNet.
    "stallscope.collector.recorder.mxnet.mxnet_engine",
    *("lightning", "pytorch_lightning", "transformers"),
]
autodoc_typehints = "description"
html_theme = "furo"
html_baseurl = ADDRESS
# Assistants read these, by llms.txt.
html_copy_source = True
html_sourcelink_suffix = ""
html_show_sourcelink = False

_LINK = re.compile(r"\[([^\]]+)\]\(([^)\s]+)\)")


class NavigationList(NamedTuple):
    """A bullet of the landing page's last list: ``- Start: [a tutorial](…), …``."""

    caption: str
    #: Titles and Markdown files.
    pages: list[tuple[str, str]]


def navigation() -> list[NavigationList]:
    """Return the lists of pages that the landing page ends with."""
    more = (ROOT / "README.md").read_text("utf-8").partition("\n## More\n")[2]
    bullets = re.findall(r"^- (\w+): (.+(?:\n  .+)*)", more, re.MULTILINE)
    lists = [
        NavigationList(
            caption, [(" ".join(title.split()), target) for title, target in _LINK.findall(text)]
        )
        for caption, text in bullets
    ]
    caption, pages = lists[-1]
    return [*lists[:-1], NavigationList(caption, [*pages, ("Python reference", API)])]


def _add_navigation(_app: Sphinx, name: str, source: list[str]) -> None:
    """Append the navigation to the landing page, and turn links to folders into text elsewhere, too."""
    page = ROOT / f"{name}.md"
    if not page.exists():
        return

    def without_folder(match: re.Match[str]) -> str:
        return match[1] if (page.parent / match[2].partition("#")[0]).is_dir() else match[0]

    text = _LINK.sub(without_folder, source[0])
    if name == root_doc:
        for caption, pages in navigation():
            entries = "\n".join(
                f"{title[0].upper()}{title[1:]} <{target.removesuffix('.md')}>"
                for title, target in pages
            )
            text += f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{entries}\n```\n"
    source[0] = text


def _finish(app: Sphinx, error: Exception | None) -> None:
    """Make the landing page the folder's own page, and write llms.txt."""
    if error is not None or app.builder.name != "html":
        return
    site = Path(app.outdir)
    shutil.copy(site / f"{root_doc}.html", site / "index.html")
    (site / "llms.txt").write_text(_summary(), "utf-8")


def _summary() -> str:
    """Return the site in the form of https://llmstxt.org."""
    lines = [f"# {project}", "", f"> {_description(ROOT / 'README.md')}"]
    for caption, pages in navigation():
        lines += ["", f"## {caption}", ""]
        for title, target in pages:
            address = f"{ADDRESS}_sources/{target}"
            lines.append(f"- [{title}]({address}): {_description(ROOT / target)}")
    return "\n".join(lines) + "\n"


def _description(page: Path) -> str:
    """Return what a page answers: its first sentence, without links.

    Raises:
        ValueError: if a list, a heading or code comes before the sentence ends.
    """
    paragraph = re.split(r"\n\s*\n", page.read_text("utf-8"))[1]
    text = _LINK.sub(r"\1", " ".join(paragraph.split()))
    sentence = re.match(r"[A-Z`].*?\.(?= |$)", text)
    if sentence is None:
        raise ValueError(f"{page} does not begin with a sentence that says what it answers")
    return sentence[0]


def setup(app: Sphinx) -> None:
    app.connect("source-read", _add_navigation)
    app.connect("build-finished", _finish)
