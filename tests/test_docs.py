"""The docs name every command, option, column, fact and finding."""

from __future__ import annotations

import argparse
import importlib
import re
from pathlib import Path

import pytest
from training.pages import TABLES

from stallscope import analysis
from stallscope.analysis.findings.job_events import FAILURES, REPORTED_APART
from stallscope.cli.main import COMMANDS
from stallscope.collector.recorder.step_log.line_format import COLUMNS
from stallscope.parsers import read

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


#: Rooms with a map.
ROOMS = (
    "collector/recorder",
    "collector",
    "parsers",
    *(f"src/stallscope/{room}" for room in ("run", "analysis", "catalogue", "reports")),
    "dashboard",
)
PAGES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")),
    *(ROOT / room / "README.md" for room in ROOMS),
    *DOCS.rglob("*.md"),
]
LINK = re.compile(r"\]\(([\w./-]*)(?:#([\w-]+))?\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(page: Path) -> None:
    for target, anchor in LINK.findall(page.read_text()):
        linked = page.parent / target if target else page
        assert linked.exists(), target
        assert not anchor or anchor in _anchors(linked), f"{target}#{anchor}"


def test_pages_that_name_the_package_lead_to_how_it_is_installed() -> None:
    """What stands for the package before there is a release is said in one place."""
    names = re.compile(r"pip install [^\n]*stallscope|`stallscope\[")
    naming = [page for page in DOCS.rglob("*.md") if names.search(page.read_text())]
    assert len(naming) > 5
    assert [page for page in naming if "README.md#install)" not in page.read_text()] == []


@pytest.mark.parametrize("page", TABLES, ids=lambda page: str(page.relative_to(ROOT)))
def test_tables_of_recorders_are_what_their_contract_shows(page: Path) -> None:
    assert page.read_text() == TABLES[page](page.read_text()), "run make matrix"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_and_option_is_documented(command: str) -> None:
    section = re.split(r"^## ", (DOCS / "commands.md").read_text(), flags=re.MULTILINE)
    (command_text,) = [text for text in section if text.startswith(f"stallscope {command}\n")]
    parser = argparse.ArgumentParser()
    importlib.import_module(f"stallscope.cli.{command}").add_arguments(parser)
    for option in re.findall(r"--[a-z-]+", parser.format_help()):
        assert option in command_text or option == "--help"


def test_every_column_is_documented() -> None:
    text = (DOCS / "step-log.md").read_text()
    for column in COLUMNS:
        assert f"| `{column}` |" in text


def test_every_fact_of_a_recorded_run_is_documented() -> None:
    text = (DOCS / "step-log.md").read_text()
    documented = set(re.findall(r"`(\w+)`", text.partition("## Facts")[2]))
    (run,) = read(str(ROOT / "sample_logs" / "clean"))
    for log in run.logs:
        assert set(log.facts) <= documented


@pytest.mark.parametrize("room", ROOMS)
def test_every_file_that_a_rooms_map_names_exists(room: str) -> None:
    map_of_room = ROOT / room / "README.md"
    text = map_of_room.read_text()
    cells = re.findall(r"^\| (.+?) \| .+ \|$", text, re.MULTILINE)
    names = [name for cell in cells for name in re.findall(r"`([\w./]+)`", cell)]
    assert len(names) > 2
    assert [name for name in names if not (map_of_room.parent / name).exists()] == []
    # A map fits on a screen, and the page for developers leads to it.
    assert len(text.splitlines()) <= 40
    assert f"{room}/README.md" in (ROOT / "CONTRIBUTING.md").read_text()


def test_every_finding_is_documented() -> None:
    codes = re.findall(r'Finding\(\s+"([a-z0-9_]+)",\s+"(?:info|warning|error)"', _source())
    assert len(set(codes)) > 20
    section = (DOCS / "report.md").read_text().partition("## Findings")[2].partition("\n## ")[0]
    cells = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
    codes += {*FAILURES} - {*REPORTED_APART}
    assert sorted(set(codes)) == sorted(re.findall(r"`([a-z0-9_]+)`", " ".join(cells)))


def _source() -> str:
    """Return the source of the analysis."""
    return "".join(path.read_text() for path in Path(analysis.__file__).parent.rglob("*.py"))


def _anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}
