"""The commands of the gallery print what its pages show."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from stallscope.cli.main import main

ROOT = Path(__file__).parents[1]
GALLERY = ROOT / "docs" / "gallery"
LOGS = GALLERY / "logs"
#: Indented lines, with empty ones between them.
BLOCK = re.compile(r"(?:^    .*\n|^\n(?=    ))+", re.MULTILINE)
#: The frames of panels.
FRAME = str.maketrans("│╭╮╰╯─", "      ")


def commands() -> list[tuple[str, str, str]]:
    """Return the pages' names, Stallscope's commands there, and the output below each."""
    shown = []
    for page in sorted(GALLERY.glob("*.md")):
        for block in BLOCK.findall(page.read_text("utf-8")):
            for part in block.split("    $ ")[1:]:
                command, _, output = part.partition("\n")
                if command.startswith("stallscope ") and output.strip():
                    shown.append((page.name, command, output))
    return shown


def words(text: str) -> str:
    """Return a text without frames and line breaks."""
    return " ".join(text.translate(FRAME).split())


@pytest.mark.any_versions
@pytest.mark.parametrize(("page", "command", "output"), commands())
def test_a_command_prints_what_its_page_shows(
    page: str,
    command: str,
    output: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "110")
    assert main(shlex.split(command)[1:]) == 0
    printed = words(capsys.readouterr().out)
    # An ellipsis on a line stands for what the page leaves out.
    for shown in filter(None, map(words, re.split(r"^ *…$", output, flags=re.MULTILINE))):
        assert shown in printed, page
        printed = printed.partition(shown)[2]


def test_every_page_shows_an_output_and_is_in_the_list() -> None:
    pages = {page.name for page in GALLERY.glob("*.md")}
    assert {page for page, _, _ in commands()} == pages
    listed = re.findall(r"\]\(gallery/([\w-]+\.md)\)", (ROOT / "docs" / "gallery.md").read_text())
    assert sorted(set(listed)) == sorted(pages)


def test_logs_are_small_and_shown() -> None:
    shown = " ".join(command for _, command, _ in commands())
    for log in LOGS.iterdir():
        assert f"docs/gallery/logs/{log.name}" in shown
    assert sum(path.stat().st_size for path in LOGS.rglob("*") if path.is_file()) < 200_000
