"""What ``make release-check`` and ``make public-examples`` rely on.

Modules to import, links to the repository, and faults that a check of examples must find.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import tomllib
from public_examples import compare_with_stopwatch

ROOT = Path(__file__).parents[1]
LINKS = ROOT / "tools" / "release_links.py"
EXAMPLES = ROOT / "tools" / "public_examples.py"
URL = "https://git.example.org/group/stallscope"


def linked(folder: Path, url: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, str(LINKS), str(folder), url]
    return subprocess.run(words, capture_output=True, text=True, check=False)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


@pytest.mark.broad
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


def test_a_release_has_one_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    citation = (ROOT / "CITATION.cff").read_text("utf-8")
    assert re.search(r"^version: (.+)$", citation, re.MULTILINE)[1] == version
    released = re.search(r"^date-released: (.+)$", citation, re.MULTILINE)[1]
    assert f"\n## [{version}] - {released}\n" in (ROOT / "CHANGELOG.md").read_text("utf-8")


def test_what_is_no_address_is_refused(source: Path) -> None:
    for url in ("git@github.com:group/stallscope", "/home/me/stallscope", 'https://a/b"\nx = "'):
        done = linked(source, url)
        assert done.returncode == 1
        assert "is no address of a repository" in done.stderr
    assert (source / "README.md").read_text("utf-8") == (ROOT / "README.md").read_text("utf-8")


def trained(*arguments: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, str(EXAMPLES), "--only", "multigpu_torchrun", *arguments]
    return subprocess.run(words, capture_output=True, text=True, check=False)


def test_an_example_that_cannot_be_read_makes_the_command_fail(tmp_path: Path) -> None:
    done = trained("--from", tmp_path.as_uri(), "--to", str(tmp_path / "out"))
    assert done.returncode == 1
    assert re.search(r"^FAILED in .*multigpu_torchrun\.py\n", done.stdout)
    assert f"{tmp_path.as_uri()}/pytorch/examples/" in done.stdout
    assert "0 of 1 examples are recorded" in done.stdout
    assert not done.stderr


def test_output_of_earlier_examples_is_kept(tmp_path: Path) -> None:
    folder = tmp_path / "pytorch-examples-distributed-ddp-tutorial-series-multigpu_torchrun-py"
    folder.mkdir()
    done = trained("--from", tmp_path.as_uri(), "--to", str(tmp_path))
    assert done.returncode == 2
    assert done.stderr.startswith(f"{folder} exists: name another folder")


@pytest.mark.parametrize(
    ("begins", "updates", "updates_per_step"),
    [
        ([10, 20, 30], [12, 22, 32], 1),
        ([10, 20, 30], [5, 12, 22, 32], 1),
        ([10, 20], [12, 13, 22, 23], 2),
    ],
    ids=["one each", "one before training", "two each"],
)
def test_steps_with_their_updates_are_right(
    begins: list[int], updates: list[int], updates_per_step: int
) -> None:
    compare_with_stopwatch(0, begins, updates, updates_per_step)


@pytest.mark.parametrize(
    ("begins", "updates"),
    [
        ([10, 30], [12, 22, 32]),
        ([10, 20, 30], [12, 32]),
        ([20, 30], [5, 12, 22, 32]),
        ([], []),
    ],
    ids=["a step that was not recorded", "a step without an update", "a late start", "no step"],
)
def test_steps_that_are_not_the_updates_are_found(begins: list[int], updates: list[int]) -> None:
    with pytest.raises(ValueError, match="rank 1"):
        compare_with_stopwatch(1, begins, updates, 1)
