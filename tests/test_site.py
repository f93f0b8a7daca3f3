"""The documentation's site, as ``make site`` builds it."""

from __future__ import annotations

import html
import json
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from support.needing import need

ROOT = Path(__file__).parents[1]
CONFIGURATION = ROOT / "tools" / "docs_site"
_BUILD = ("-W", "--keep-going", "-q", "-c", str(CONFIGURATION), "-b", "html")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    need(find_spec("sphinx"), "there is no Sphinx: make check")
    folder = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "sphinx", *_BUILD, "-d", str(folder / "doctrees")]
    done = subprocess.run(
        [*words, str(ROOT), str(folder / "html")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder / "html"


def text_of(page: Path) -> str:
    """Return a page without its tags."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>", "", page.read_text("utf-8"))).split())


@pytest.mark.broad
@pytest.mark.any_versions
def test_the_landing_page_has_the_readmes_words(site: Path) -> None:
    first = (ROOT / "README.md").read_text("utf-8").split("\n\n")[1]
    assert " ".join(first.split()) in text_of(site / "index.html")


@pytest.mark.broad
@pytest.mark.any_versions
def test_every_page_of_the_docs_is_there_and_is_found(site: Path) -> None:
    pages = [page.relative_to(ROOT).with_suffix("") for page in (ROOT / "docs").rglob("*.md")]
    assert len(pages) > 60
    assert [page for page in pages if not (site / f"{page}.html").exists()] == []
    index = (site / "searchindex.js").read_text("utf-8")
    names = json.loads(index.removeprefix("Search.setIndex(").rstrip().removesuffix(")"))
    assert {str(page) for page in pages} <= set(names["docnames"])


@pytest.mark.broad
@pytest.mark.any_versions
@pytest.mark.parametrize("module", ["keras", "torch", "lightning", "transformers", "mxnet", "jax"])
def test_the_python_reference_has_each_recorder_with_its_arguments(site: Path, module: str) -> None:
    page = (site / "tools" / "docs_site" / "api.html").read_text("utf-8")
    assert f'id="stallscope.{module}.StepLogger"' in page
    section = page.partition(f'id="stallscope.{module}.StepLogger"')[2]
    assert "log_dir" in section[:3000]
    assert 'id="stallscope.open_run"' in page


@pytest.mark.broad
@pytest.mark.any_versions
def test_llms_txt_lists_pages_that_are_there(site: Path) -> None:
    text = (site / "llms.txt").read_text("utf-8")
    entries = re.findall(r"^- \[(.+)\]\((.+)\): (.+)$", text, re.MULTILINE)
    assert text.startswith("# Stallscope\n\n> ")
    assert len(entries) > 30
    assert [target for _, target, _ in entries if not (site / target).is_file()] == []
    # Each says in a whole sentence what its page answers.
    sentence = re.compile(r"[A-Z`][^\[\]]{20,170}\.")
    assert [text for *_, text in entries if not sentence.fullmatch(text)] == []
