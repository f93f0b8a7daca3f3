"""Computed tables of the docs match the code."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.benchmarks import benchmark

from stallscope.collector.recorder.step_log import log_files

pages = benchmark("pages")


@pytest.mark.parametrize(
    ("name", "lines"),
    [("scale", pages.scale_table), ("scorecard/projections", pages.projections_table)],
)
def test_the_page_has_the_table(name: str, lines: Callable[[], list[str]]) -> None:
    text = (pages.DOCS / f"{name}.md").read_text()
    assert pages.with_table(text, lines()) == text, "python benchmarks/pages.py writes it"


def test_a_page_without_its_markers_is_an_error() -> None:
    with pytest.raises(ValueError, match="<!-- table -->"):
        pages.with_table("# Scale\n", [])


def test_the_page_names_the_limits() -> None:
    text = " ".join((pages.DOCS / "scale.md").read_text().split())
    for sentence in (
        f"every {log_files.COPY_SECONDS:.0f} s and at the ends of epochs",
        f"never twice within {log_files.SHORTEST_COPY_SECONDS:.0f} s",
        f"after {log_files.FIRST_UPLOAD_SECONDS:.0f} s, then",
        f"up to {log_files.UPLOAD_SECONDS:.0f} s, or up to 1/{1 / log_files.UPLOAD_SHARE:.0f} of",
        f"{log_files.REQUESTS_PER_SECOND:.0f} per second",
        f"within {log_files.LONGEST_LAST_TURN_SECONDS:.0f} s",
        f"at {log_files.COPIED_PART_BYTES >> 20} MiB",
    ):
        assert sentence in text


@pytest.mark.parametrize("size", pages.SIZES)
def test_all_ranks_together_keep_to_the_limit(size: int) -> None:
    most = pages.requests_in_busiest_minute(size)
    assert most <= 60 * log_files.REQUESTS_PER_SECOND * 1.01


def test_copied_bytes_match_the_formula() -> None:
    grown = pages.BYTES_PER_ROW * pages.STEPS_PER_SECOND * pages.copy_seconds(64)
    copied, part = 0.0, 0.0
    for _ in range(round(pages.HOURS * 3_600 / pages.copy_seconds(64))):
        part += grown
        copied += part
        if part >= log_files.COPIED_PART_BYTES:
            part = 0.0
    assert pages.copied_bytes(64) == pytest.approx(copied, rel=0.05)
