"""Timestamps without a year are in the latest year in which they are not in the future."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallscope.parsers.formats.line_pattern import LinePatternParser
from stallscope.parsers.lines.line_blocks import Column, LineBlock
from stallscope.parsers.lines.timestamp_columns import (
    dated_columns,
    in_assumed_years,
    moments_of,
    timestamp_at,
)
from stallscope.parsers.lines.timestamps import (
    Timestamp,
    assumed_year,
    read_dated,
    read_moment,
    read_without_year,
)


def ns_of(text: str) -> int:
    return round(datetime.fromisoformat(f"{text}+00:00").timestamp() * 1e6) * 1000


def without_year(text: str) -> Timestamp:
    stamp = read_without_year(text.encode())
    assert stamp is not None
    return stamp


@pytest.mark.parametrize(
    ("text", "moment", "resolution_ns"),
    [
        ("I0906 02:52:05.102637 4758 main.cc:93] x", "2023-09-06 02:52:05.102637", 1000),
        ("[W1121 02:28:01", "2023-11-21 02:28:01", 10**9),
        ("Nov 21 02:28:01 host kernel: x", "2023-11-21 02:28:01", 10**9),
        ("[11/21 02:28:01 d2.utils.events]: x", "2023-11-21 02:28:01", 10**9),
        ("Nov  1 02:28:01.250", "2023-11-01 02:28:01.250", 10**6),
    ],
)
def test_stamps_of_glog_and_syslog_are_read_in_a_given_year(
    text: str, moment: str, resolution_ns: int
) -> None:
    assert read_without_year(text.encode(), 2023) == Timestamp(
        ns_of(moment), False, resolution_ns, year_known=False
    )


@pytest.mark.parametrize("text", ["I1306 02:52:05", "Nov 31 02:28:01", "Feb 29 02:28:01", "Nov 1"])
def test_days_that_the_year_does_not_have_are_no_stamps(text: str) -> None:
    assert read_without_year(text.encode(), 2023) is None


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("I20210906 02:52:05.102637", "2021-09-06 02:52:05.102637"),
        ("2021/09/06 02:52:05.5", "2021-09-06 02:52:05.500"),
        ("21-09-06 02:52:05.123 - INFO", "2021-09-06 02:52:05.123"),
        ("[09.06.21|02:52:05] Done.", "2021-09-06 02:52:05"),
        ("1593140782.28", "2020-06-26 03:06:22.280"),
        ("1593140782282", "2020-06-26 03:06:22.282"),
    ],
)
def test_stamps_with_a_year_need_no_assumption(text: str, moment: str) -> None:
    stamp = read_moment(text.encode())
    assert stamp is not None
    assert (stamp.ns, stamp.year_known) == (ns_of(moment), True)


@pytest.mark.parametrize(
    ("last", "now", "year"),
    [
        ("Nov 21 02:28:01", "2026-11-26 00:00:00", 2026),
        ("Nov 28 02:28:01", "2026-11-26 00:00:00", 2025),
        ("Jan  1 08:00:00", "2026-12-31 20:00:00", 2027),
        ("Feb 29 08:00:00", "2026-11-26 00:00:00", 2024),
        ("Feb 29 08:00:00", "2103-11-26 00:00:00", 2096),
    ],
    ids=["this year", "last year", "a zone ahead", "a leap year", "eight years ago"],
)
def test_the_latest_year_that_is_not_in_the_future_is_assumed(
    last: str, now: str, year: int
) -> None:
    assert assumed_year(without_year(last), ns_of(now)) == year


@pytest.mark.parametrize(
    ("stamps", "moments"),
    [
        (("Nov 21", "Nov 22"), ("2026-11-21", "2026-11-22")),
        (("Dec 31", "Jan 01"), ("2025-12-31", "2026-01-01")),
        (("Dec 31", "Jan 01", "Dec 31", "Jan 02"), ("2025-12-31", "2026-01-01") * 2),
        (("Mar 03", "Nov 04", "Nov 03"), ("2026-03-03", "2026-11-04", "2026-11-03")),
        (("Feb 28", "Feb 29", "Mar 01"), ("2024-02-28", "2024-02-29", "2024-03-01")),
        (("Dec 31", "Feb 29"), ("2023-12-31", "2024-02-29")),
        (("Feb 29", "Dec 31", "Mar 01"), ("2024-02-29", "2024-12-31", "2025-03-01")),
        ((), ()),
    ],
)
def test_a_year_begins_where_stamps_go_back_by_months(
    stamps: tuple[str, ...], moments: tuple[str, ...]
) -> None:
    ns = np.array([without_year(f"{stamp} 08:00:00").ns for stamp in stamps], np.int64)
    moved = in_assumed_years(ns, ns_of("2026-11-26 00:00:00"))
    expected = list(moments)
    if len(stamps) == 4:
        expected[-1] = "2026-01-02"
    assert moved.tolist() == [ns_of(f"{moment} 08:00:00") for moment in expected]


def test_a_clock_that_jumps_about_keeps_one_year() -> None:
    months = ("Jan", "Jun", "Dec") * 60
    ns = np.array([without_year(f"{month} 05 08:00:00").ns for month in months])
    moved = in_assumed_years(ns, ns_of("2026-11-26 00:00:00"))
    assert {datetime.fromtimestamp(stamp // 10**9, UTC).year for stamp in moved.tolist()} == {2025}


def test_a_pattern_reads_stamps_without_a_year_and_says_that_it_is_assumed() -> None:
    line = "I{}0{} 02:52:05.102637 47580729335424 loop.py:93] step = {}\n"
    data = "".join(
        line.format(month, day, step)
        for step, (month, day) in enumerate([("12", 8), ("12", 9), ("01", 1), ("01", 2)])
    )
    log = LinePatternParser("{time} {}step = {step}").parse("run.log", data.encode()).log
    began = datetime.fromisoformat(str(log.facts["began_local"]))
    assert began <= datetime.now(UTC).replace(tzinfo=None)
    assert (began.month, began.day) == (12, 8)
    assert log.facts["year_assumed"] is True
    assert "the year is assumed, the lines have none" in str(log.facts["clock"])
    assert log.facts["step_ms"] == pytest.approx(25 * 86_400_000 / 3)


# Of eight to fourteen digits; those of seconds have ten, and begin with 1 or 2.
whole_seconds = st.one_of(
    st.integers(10**9, 3 * 10**9 - 1).map(str),
    st.text("0123456789", min_size=8, max_size=14),
    st.sampled_from(["0999999999", "2999999999", "3000000000", "7258118400"]),
)
fractions = st.one_of(
    st.just(""),
    st.text("0123456789", max_size=14).map(".{}".format),
    st.text("0123456789", max_size=3).map(",{}".format),
)
seconds_before_lines = st.tuples(
    st.sampled_from(["", "", "[", " [", " " * 7 + "[", " " * 8 + "[", "[" * 9, "-", "+"]),
    whole_seconds,
    fractions,
    st.sampled_from(
        [" epoch 1", "\tepoch 1", "] epoch 1", "\r", ": epoch 1", "x", "e3 ", ". ", ""]
    ),
).map("".join)


@given(st.lists(seconds_before_lines, min_size=1, max_size=20), st.integers(0, 40))
def test_seconds_before_lines_are_read_at_once_as_one_by_one(lines: list[str], cut: int) -> None:
    texts = [line.encode() for line in lines]
    starts = np.cumsum([0, *(len(text) + 1 for text in texts[:-1])])
    ends = starts + [min(len(text), cut) for text in texts]
    columns = dated_columns(LineBlock(b"\n".join(texts) + b"\n"), starts, ends, most=160)
    assert read_from(columns) == [read_dated(text[:cut].lstrip()) for text in texts]


def read_from(columns: Mapping[str, Column]) -> list[Timestamp | None]:
    """Return the timestamps in columns."""
    return [
        timestamp_at(columns, at) if timed else None
        for at, timed in enumerate(columns["timed"].tolist())
    ]


FORMS = (
    *("2026-11-21 02:28:01", "2026/11/21T02:28:01.123456", "2026-11-21 02:28:01,12 34"),
    *("2026-11-21 02:28:01.123456789+05:45", "2026-11-21 02:28:01-0130", "26/11/21 02:28:01"),
    *("11/21/2026 02:28:01", "Sat Nov 21 02:28:01 2026", "Nov  1 02:28:01.250", "11/21 02:28:01"),
    *("I0906 02:52:05.102637", "I20260906 02:52:05.1", "1790000000.123456789012", "1790000000"),
    *("1790000000123", "no timestamp", ""),
)
texts_of_forms = st.tuples(
    st.sampled_from(["", "", "[", "  [", "ERROR|", " " * 9]),
    st.sampled_from(FORMS),
    st.sampled_from(["", "]", " x", ",5", "Z", " 7", " " * 60]),
).map("".join)


@pytest.mark.broad
@given(st.lists(texts_of_forms, min_size=1, max_size=5), st.randoms(use_true_random=False))
def test_timestamps_of_many_lines_are_read_as_single_ones(
    forms: list[str], noise: random.Random
) -> None:
    digits = re.compile(r"\d")

    def other_digit(match: re.Match[str]) -> str:
        return str(noise.randrange(10)) if noise.random() < 0.2 else match[0]

    texts = [digits.sub(other_digit, form).encode() for form in forms for _ in range(6)]
    ends = np.cumsum([len(text) + 1 for text in texts]) - 1
    starts = ends - [len(text) for text in texts]
    columns = dated_columns(LineBlock(b"\n".join(texts) + b"\n"), starts, ends, most=160)
    assert read_from(columns) == [read_dated(text.lstrip()) for text in texts]
    texts = [text.strip() for text in texts]
    assert read_from(moments_of(pa.array(texts, pa.binary()))) == [
        read_moment(text) for text in texts
    ]
