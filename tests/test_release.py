"""What ``make release-check`` relies on: modules to import, and links to the repository."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import tomllib

ROOT = Path(__file__).parents[1]
LINKS = ROOT / "tools" / "release_links.py"
URL = "https://git.example.org/group/stallscope"


def linked(folder: Path, url: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, str(LINKS), str(folder), url]
    return subprocess.run(words, capture_output=True, text=True, check=False)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def test_without_frameworks_every_module_of_the_app_can_be_imported() -> None:
    program = (
        "import importlib, sys\n"
        f"sys.path.append({str(ROOT / 'tools')!r})\n"
        "import release_imports\n"
        "sys.modules.update(dict.fromkeys(release_imports.FRAMEWORKS))\n"
        "for name in release_imports.app_modules():\n    importlib.import_module(name)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_release_links_to_its_repository(source: Path) -> None:
    assert linked(source, f"{URL}/").returncode == 0
    project = tomllib.loads((source / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["urls"]["Homepage"] == URL
    assert all(link.startswith(URL) for link in project["urls"].values())
    assert project["optional-dependencies"]["app"]


def test_links_of_a_releases_readme_lead_to_files_of_the_repository(source: Path) -> None:
    linked(source, URL)
    readme = (source / "README.md").read_text("utf-8")
    links = re.findall(r"\]\(([^)\s]+)\)", readme)
    assert len(links) > 40
    version = tomllib.loads((source / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    for link in links:
        kind, path = re.fullmatch(rf"{URL}/(blob|raw)/v{version}/([^#]+)(?:#.*)?", link).groups()
        assert (ROOT / path).exists(), link
        assert (kind == "raw") == path.endswith((".svg", ".png"))


def test_what_is_no_address_is_refused(source: Path) -> None:
    for url in ("git@github.com:group/stallscope", "/home/me/stallscope", 'https://a/b"\nx = "'):
        done = linked(source, url)
        assert done.returncode == 1
        assert "is no address of a repository" in done.stderr
    assert (source / "README.md").read_text("utf-8") == (ROOT / "README.md").read_text("utf-8")
