"""Name the repository in a release: in the package's links, and in those of its README.

    python release_links.py FOLDER URL

A package index shows the README away from the repository, so that relative links lead nowhere there.
Changes pyproject.toml and README.md in FOLDER, a copy of the source tree. URL is where the repository is
read on the web, as in https://github.com/OWNER/NAME.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import tomllib

#: An address on the web, without what a URL may have after its path.
_ADDRESS = re.compile(r"https://[\w.-]+(/[\w.~-]+)+")
#: A link or an image of Markdown that is relative to the repository's root.
RELATIVE = re.compile(r"(?P<image>!?)\[(?P<text>[^\]]*)\]\((?!\w+:|#)(?P<path>[^)\s]+)\)")
_BEFORE = "[project.optional-dependencies]\n"


def project_urls(url: str, version: str) -> str:
    """Return the table of a project's links for pyproject.toml."""
    links = {
        "Homepage": url,
        "Documentation": f"{url}/tree/v{version}/docs",
        "Changelog": f"{url}/blob/v{version}/CHANGELOG.md",
        "Issues": f"{url}/issues",
    }
    lines = [f'{name} = "{link}"' for name, link in links.items()]
    return "\n".join(["[project.urls]", *lines, "", ""])


def absolute(readme: str, url: str, version: str) -> str:
    """Return a README whose links and images lead to the repository, as of this version."""

    def link(match: re.Match[str]) -> str:
        kind = "raw" if match["image"] else "blob"
        return f"{match['image']}[{match['text']}]({url}/{kind}/v{version}/{match['path']})"

    return RELATIVE.sub(link, readme)


def main() -> None:
    folder, url = Path(sys.argv[1]), sys.argv[2].rstrip("/")
    if not _ADDRESS.fullmatch(url):
        sys.exit(f"release_links: {url!r} is no address of a repository: https://HOST/OWNER/NAME")
    project, readme = folder / "pyproject.toml", folder / "README.md"
    text = project.read_text("utf-8")
    version = tomllib.loads(text)["project"]["version"]
    project.write_text(text.replace(_BEFORE, project_urls(url, version) + _BEFORE, 1), "utf-8")
    readme.write_text(absolute(readme.read_text("utf-8"), url, version), "utf-8")


if __name__ == "__main__":
    main()
