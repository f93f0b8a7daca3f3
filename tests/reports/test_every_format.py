"""Properties of every format and every kind of run."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from support.reports import rendered

from stallscope.analysis import Analysis
from stallscope.errors import UsageError
from stallscope.reports import registry
from stallscope.reports.base import ReportOptions
from stallscope.reports.registry import ReportFormat

from .cases import CASES

every_case = pytest.mark.parametrize("name", CASES)
every_report = pytest.mark.parametrize("report", registry.FORMATS, ids=lambda report: report.name)


@every_case
@every_report
def test_every_run_can_be_reported(
    report: ReportFormat, name: str, case: Callable[[str], Analysis], options: ReportOptions
) -> None:
    text = rendered(report.name, case(name), options)
    assert text.encode("utf-8").decode("utf-8") == text
    # Neither Python's nor numpy's words for "nothing" reach a reader.
    assert not re.search(r"\b(None|nan|NaN|inf|Infinity|np\.float64)\b", text)


@every_report
def test_a_report_is_the_same_every_time(
    report: ReportFormat, case: Callable[[str], Analysis], options: ReportOptions
) -> None:
    analysis = case("a slow rank and a baseline")
    assert rendered(report.name, analysis, options) == rendered(report.name, analysis, options)


@pytest.mark.parametrize("name", ["html", "md"])
def test_reports_show_when_and_by_which_version_they_were_made(
    name: str, case: Callable[[str], Analysis], options: ReportOptions
) -> None:
    text = rendered(name, case("two ranks"), options)
    assert "Stallscope 1.2.3, 2026-11-21 06:30 UTC" in text


def test_formats_are_found_by_name() -> None:
    assert registry.names() == ["html", "md", "json", "csv", "openmetrics"]
    assert [registry.by_name(name).suffix for name in registry.names()] == [
        ".html",
        ".md",
        ".json",
        ".csv",
        ".prom",
    ]


def test_an_unknown_format_lists_the_known_ones() -> None:
    with pytest.raises(UsageError, match="'pdf': there are html, md, json, csv"):
        registry.by_name("pdf")


def test_a_list_of_formats_contains_each_once() -> None:
    assert registry.parse("md, HTML,md,") == ["md", "html"]


@pytest.mark.parametrize("text", ["", " , ", "html,pdf"])
def test_a_list_with_no_format_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="there are html, md, json, csv"):
        registry.parse(text)
