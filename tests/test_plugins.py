"""Packages bring parsers, report formats, export formats and kinds of places by entry points."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RUN = ROOT / "sample_logs" / "clean"
CODE = """
import re
from pathlib import Path

from stallscope.collector.sources.files import Files
from stallscope.exports import Export
from stallscope.parsers import Parser
from stallscope.parsers.epochs_only import epochs_log, in_one_file
from stallscope.reports import ReportFormat

_LINE = re.compile(rb"our step: (\\d+\\.\\d) ms")


class OurParser(Parser):
    name = "ours"
    title = "steps that our trainer prints"
    suffix = ".log"
    has_steps = False

    def recognises(self, file_name, head):
        return _LINE.search(head) is not None

    def parse(self, path, data):
        times = [float(text) for text in _LINE.findall(data)]
        if b"broken" in data:
            raise RuntimeError("an error of the plug-in")
        facts = {
            "known_from": "what our trainer printed",
            "precision": f"a mean over {len(times)} steps",
            "step_ms": sum(times) / len(times),
            "step_precision_ms": 0.05,
        }
        return in_one_file([epochs_log(path, rank=0, facts=facts, ended=False)], len(data))


class Unsure(OurParser):
    # Says that formats that are found later come first.

    gives_way = True

    def recognises(self, file_name, head):
        return b"maybe ours" in head


class Greedy(Parser):
    name = "greedy"
    title = "a parser that raises an error on every file"
    suffix = ".x"

    def recognises(self, file_name, head):
        raise RuntimeError("an error of the plug-in")

    def parse(self, path, data):
        raise RuntimeError("an error of the plug-in")


def loud(parts, options):
    return "LOUD " + str(parts.content()["run"]["id"]) + "\\n"


LOUD = ReportFormat("loud", ".loud", loud)
LINES = Export("lines", lambda exported, file: file.write(b"a line of ours\\n"))


class Vault(Files):
    def __init__(self, text):
        super().__init__(text.replace("vault://", ""))
"""
ENTRIES = """
[stallscope.parsers]
ours = brings_formats:OurParser
greedy = brings_formats:Greedy
unsure = brings_formats:Unsure
kineto = brings_formats:OurParser
missing = not_installed_anywhere:Parser
wrong = brings_formats:LOUD

[stallscope.reports]
loud = brings_formats:LOUD
louder = brings_formats:LOUD

[stallscope.exports]
lines = brings_formats:LINES

[stallscope.sources]
vault = brings_formats:Vault
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install a package with a plug-in of each kind, as an installer would leave it."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "brings_formats.py").write_text(CODE)
    metadata = folder / "brings_formats-1.5.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: brings-formats\nVersion: 1.5\n"
    )
    (metadata / "entry_points.txt").write_text(ENTRIES)
    return folder


def stallscope(site: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "stallscope", *map(str, words)]
    environment = {**os.environ, "PYTHONPATH": str(site), "COLUMNS": "200"}
    return subprocess.run(command, capture_output=True, text=True, env=environment)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "train.log"
    path.write_text("our step: 12.0 ms\nour step: 14.0 ms\n")
    return path


@pytest.mark.broad
def test_a_parser_reads_its_files_and_inspect_lists_it(site: Path, log: Path) -> None:
    looked = stallscope(site, "inspect", log)
    assert looked.returncode == 0, looked.stderr
    assert "train.log  ours" in " ".join(looked.stdout.split(" " * 3)) or " ours " in looked.stdout
    assert "known: a mean over 2 steps" in looked.stdout
    assert "ours (brings-formats 1.5)" in looked.stdout
    reported = stallscope(site, "report", log, "--read-as", "ours")
    assert reported.returncode == 0, reported.stderr
    assert "13" in reported.stdout


@pytest.mark.broad
def test_what_cannot_be_used_is_left_out_with_a_warning(site: Path, log: Path) -> None:
    warnings = stallscope(site, "inspect", log).stderr
    package = "brings-formats 1.5"
    assert f"{package}: kineto of stallscope.parsers is left out: Stallscope has one" in warnings
    assert f"{package}: missing of stallscope.parsers is left out: ModuleNotFoundError" in warnings
    assert (
        f"{package}: wrong of stallscope.parsers is left out: brings_formats:LOUD is no" in warnings
    )
    assert "Traceback" not in warnings


@pytest.mark.broad
def test_an_error_of_a_parser_is_an_error_of_its_file(site: Path, log: Path) -> None:
    (log.parent / "other.log").write_text("our step: 12.0 ms\nbroken\n")
    looked = stallscope(site, "inspect", log.parent)
    assert looked.returncode == 0, looked.stderr
    assert "the parser ours failed: RuntimeError: an error of the plug-in" in looked.stdout
    assert "known: a mean over 2 steps" in looked.stdout


@pytest.mark.broad
def test_a_report_format_writes_reports(site: Path, tmp_path: Path) -> None:
    done = stallscope(site, "report", RUN, "--format", "loud", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    (report,) = tmp_path.rglob("*.loud")
    assert report.read_text().startswith("LOUD ")
    unknown = stallscope(site, "report", RUN, "--format", "quiet", "--out", tmp_path)
    assert unknown.returncode == 2
    assert "there are html, md, json, csv, openmetrics, loud, louder" in unknown.stderr


def test_a_format_has_the_name_of_its_entry_point(site: Path, tmp_path: Path) -> None:
    done = stallscope(site, "report", RUN, "--format", "louder", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    assert [*tmp_path.rglob("*.loud")]


@pytest.mark.broad
def test_what_a_parser_says_of_itself_counts(site: Path) -> None:
    program = (
        "from stallscope.parsers.registry import by_name;"
        "print(*(by_name(name).gives_way for name in ('ours', 'unsure')))"
    )
    environment = {**os.environ, "PYTHONPATH": str(site)}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment
    )
    assert done.stdout == "False True\n"


@pytest.mark.broad
def test_an_export_format_writes_exports(site: Path, tmp_path: Path) -> None:
    place = tmp_path / "lines.txt"
    done = stallscope(site, "export", RUN, "--format", "lines", "--out", place)
    assert done.returncode == 0, done.stderr
    assert place.read_text() == "a line of ours\n"


@pytest.mark.broad
def test_a_kind_of_place_is_opened_by_its_scheme(site: Path) -> None:
    done = stallscope(site, "report", f"vault://{RUN}")
    assert done.returncode == 0, done.stderr
    assert "No fault found" in done.stdout


@pytest.mark.broad
def test_without_plug_ins_nothing_is_said(tmp_path: Path, log: Path) -> None:
    looked = stallscope(tmp_path, "inspect", log)
    assert "plug-in" not in looked.stdout + looked.stderr
