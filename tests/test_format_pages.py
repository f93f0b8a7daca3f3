"""Every format has a page that docs/logs.md names, with an example that is read as documented."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest
from support.parser_contract import holds

from stallscope.parsers import PARSERS
from stallscope.parsers.formats.autotune import parse_autotune
from stallscope.parsers.formats.flight_recorder import parse_dump
from stallscope.parsers.formats.measurements import parse_input_times
from stallscope.parsers.lines.timestamps import read_moment
from stallscope.parsers.registry import by_name

DOCS = Path(__file__).parents[1] / "docs"
LOGS = (DOCS / "logs.md").read_text()
#: In the sentence on names, each page is followed by its names in parentheses.
NAMED = re.findall(r"\]\(([\w./-]+\.md)[^)]*\)\s+\(((?:`[\w-]+`,?\s*)+)\)", LOGS)
PAGES = {name: page for page, names in NAMED for name in re.findall(r"[\w-]+", names)}
#: Pages of several formats have a section for each.
SHARED = {page for page in PAGES.values() if list(PAGES.values()).count(page) > 1}
#: Binary formats cannot be shown on a page.
BINARY = {"tensorboard"}
BLOCK = re.compile(r"(?:^    .*\n)+", re.MULTILINE)


def examples(page: str, section: str = "") -> list[bytes]:
    """Return the indented blocks of a page, or of one of its sections."""
    text = (DOCS / page).read_text()
    if section:
        text = text.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    return [textwrap.dedent(block).encode() for block in BLOCK.findall(text)]


def test_every_parser_has_a_page_or_a_section() -> None:
    assert set(PAGES) == {parser.name for parser in PARSERS}
    for page in SHARED:
        sections = re.findall(r"^## (.+)$", (DOCS / page).read_text(), re.MULTILINE)
        assert sorted(sections) == sorted(name for name in PAGES if PAGES[name] == page)


@pytest.mark.parametrize("name", sorted(PAGES.keys() - BINARY))
def test_the_example_of_each_page_is_recognised_and_read(name: str) -> None:
    parser = by_name(name)
    shown = examples(PAGES[name], name if PAGES[name] in SHARED else "")
    data = next(example for example in shown if parser.recognises("log", example))
    first = next(candidate for candidate in PARSERS if candidate.recognises("log", data))
    assert first.name == parser.name
    logs = holds(parser, data)
    assert any(parsed.steps.num_rows or "known_from" in parsed.log.facts for parsed in logs)


def test_the_example_of_a_pattern_is_read_by_its_patterns() -> None:
    text = (DOCS / "formats" / "line-pattern.md").read_text()
    data = examples("formats/line-pattern.md")[0]
    patterns = re.findall(r"--read-as '(pattern:[^']+)'", text)
    for pattern in patterns:
        (log,) = holds(by_name(pattern), data)
        assert log.log.facts["step_ms"] == 25.0
        assert log.intervals["kind"].to_pylist() == ["window", "window", "window", "epoch"]


def test_the_timestamps_of_the_page_of_patterns_are_read() -> None:
    stamps = examples("formats/line-pattern.md")[2].decode().splitlines()
    read = [read_moment(re.split(r"  +", stamp)[0].encode()) for stamp in stamps]
    assert len(read) == 10
    assert all(read)
    assert [moment.year_known for moment in read if moment] == [True] * 5 + [False] * 3 + [True] * 2


def test_examples_of_companion_files_are_read() -> None:
    assert parse_input_times("it", examples("input.md", "The file")[0]).batches == 4
    assert parse_autotune("it", examples("tune.md", "The autotune log")[0]).samples
    dump = parse_dump("it", examples("formats/flight-recorder.md")[0], prefix="", rank=0)
    assert [entry.title for entry in dump.entries] == ["all_reduce 7"]


@pytest.mark.parametrize(
    "page", sorted((DOCS / "formats").glob("*.md")), ids=lambda page: page.stem
)
def test_pages_are_linked_and_list_what_the_format_has_and_lacks(page: Path) -> None:
    assert f"](formats/{page.name})" in LOGS
    text = page.read_text()
    assert BLOCK.search(text)
    assert re.search(r"^\| --- \|", text, re.MULTILINE)
