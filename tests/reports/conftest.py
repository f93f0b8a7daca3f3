"""Each case is simulated and analysed once for all tests of reports."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache

import pytest

from stallscope.analysis import Analysis
from stallscope.reports.report_formats import ReportOptions

from .cases import CASES, analysis_of


@pytest.fixture(scope="session")
def case(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Analysis]:
    """Return the analysis of a case, by its name."""

    @cache
    def named(name: str) -> Analysis:
        return analysis_of(tmp_path_factory.mktemp("case"), CASES[name])

    return named


@pytest.fixture
def options() -> ReportOptions:
    return ReportOptions(generated_at=datetime(2026, 11, 21, 6, 30, tzinfo=UTC), version="1.2.3")
