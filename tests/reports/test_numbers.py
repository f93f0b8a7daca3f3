"""Numbers in reports: few digits, readable units, and no zero that was not measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pytest

from stallscope.formatting.lists import counted, ranks_in_words
from stallscope.formatting.numbers import (
    Cells,
    amount,
    between,
    faster,
    faster_between,
    faster_in_short,
    faster_in_words,
    fixed,
    interval,
    percent,
    percent_ends,
    plus_minus,
    rate,
    share,
    signed,
    significant,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (9.698765, "9.70"),
        (38.21, "38.2"),
        (9.999, "10.0"),
        (0.000321, "0.000321"),
        (1234.5, "1,234"),
        (-3.2, "−3.20"),
        (999.96, "1,000"),
    ],
)
def test_three_digits_are_enough(value: float, text: str) -> None:
    assert significant(value) == text


@pytest.mark.parametrize(
    ("value", "total", "text"),
    [(0.639, 54.1, "0.64"), (0.0105, 54.1, "0.01"), (0.0007, 54.1, "<0.01"), (0.0, 54.1, "0")],
)
def test_small_figures_next_to_large_ones_have_no_needless_digits(
    value: float, total: float, text: str
) -> None:
    assert significant(value, total) == text


@pytest.mark.parametrize(
    ("value", "text"), [(3.0, "+3.00"), (-0.639, "−0.64"), (0.0, "0"), (-0.0001, "0.00")]
)
def test_an_excess_has_a_sign(value: float, text: str) -> None:
    assert signed(value, total=54.1) == text


def test_an_excess_has_its_interval() -> None:
    assert signed(12.5, total=54.1, ci95=(12.4, 12.6)) == "+12.5 ± 0.1"
    assert signed(-0.5, ci95=(-0.7, -0.3)) == "−0.5 ± 0.2"


@pytest.mark.parametrize(
    ("value", "ci95", "text"),
    [
        (38.21, (37.6, 38.82), "38.2 ± 0.6"),
        (30.03, (29.96, 30.10), "30.03 ± 0.07"),
        (0.773, (0.707, 0.839), "0.77 ± 0.07"),
        (120.0, (100.0, 140.0), "120 ± 20"),
        (5.0, (5.0, 5.0), "5.00 ± 0.00"),
        (38.2, (38.2 - 1e-9, 38.2 + 1e-9), "38.200 ± <0.001"),
        (38.2, None, "38.2"),
        (19.5, (16.9, 19.7), "19.5 (16.9–19.7)"),
        (8_000.0, (5_000.0, 9_000.0), "8,000 (5,000–9,000)"),
        (41_234.0, (40_322.0, 42_146.0), "41,200 ± 900"),
        (41_234.0, (41_216.0, 41_252.0), "41,230 ± 20"),
        (123_456.0, (100_000.0, 146_912.0), "123,000 ± 23,000"),
        (359.0, (261.0, 457.0), "359 ± 98"),
        (1_234.0, (1_233.6, 1_234.4), "1,234.0 ± 0.4"),
    ],
)
def test_an_interval_determines_the_digits(
    value: float, ci95: tuple[float, float] | None, text: str
) -> None:
    assert plus_minus(value, ci95) == text


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (1.25, 1.31, "1.25–1.31"),
        (1.1287, 1.1297, "1.129–1.130"),
        (1.1288, 1.1289, "1.129"),
        (1.0, 1.0, "1.000"),
        (-0.5, 0.25, "−0.500 to 0.250"),
    ],
)
def test_ends_of_an_interval_differ_as_printed(low: float, high: float, text: str) -> None:
    assert between(low, high) == text


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.0523, "ms", "52.3 µs"),
        (0.369, "ms", "0.369 ms"),
        (1240.0, "ms", "1.24 s"),
        (13.28, "s", "13.3 s"),
        (0.12, "s", "120 ms"),
        (1500.0, "s", "25.0 min"),
        (30_000.0, "s", "8.33 h"),
        (1e6, "s", "11.6 d"),
        (0.0, "ms", "0 ms"),
        (-1240.0, "ms", "−1.24 s"),
    ],
)
def test_times_have_a_readable_unit(value: float, unit: str, text: str) -> None:
    assert amount(value, unit) == text


@pytest.mark.parametrize("value", [None, math.nan, math.inf])
def test_unmeasured_values_are_not_zero(value: float | None) -> None:
    assert amount(value, "ms") == "not measured"


@pytest.mark.parametrize("write", [significant, percent, signed, lambda value: fixed(value, 2)])
def test_no_function_writes_nan(write: Callable[[float], str]) -> None:
    assert {write(value) for value in (math.nan, math.inf, -math.inf)} == {"not measured"}


@pytest.mark.parametrize(
    ("fraction", "text"),
    [
        (0.515, "51.5%"),
        (1.0, "100%"),
        (0.0, "0.0%"),
        (0.0001, "<0.1%"),
        (-0.05, "−5.0%"),
        (-0.0004, "−0.04%"),
        (-1e-6, "0.0%"),
        (28.4, "2,840%"),
    ],
)
def test_shares_are_percentages(fraction: float, text: str) -> None:
    assert percent(fraction) == text


@pytest.mark.parametrize(
    ("ends", "text"),
    [
        ((0.4, 0.415), "40.0% to 41.5%"),
        ((-0.01, 1.0), "−1.0% to 100%"),
        ((0.96662, 0.96741), "96.66% to 96.74%"),
        ((0.96662, 0.96663), "96.66%"),
    ],
)
def test_ends_of_an_interval_of_a_share_differ_as_printed(
    ends: tuple[float, float], text: str
) -> None:
    assert percent_ends(ends) == text


def test_an_interval_has_a_readable_unit() -> None:
    assert interval((37.6, 38.8), "ms") == "37.6–38.8 ms"
    assert interval((1240.0, 1310.0), "ms") == "1.24–1.31 s"
    assert interval(None, "ms") == "too few steps"


def test_an_unmeasured_share_or_rate_is_marked() -> None:
    assert (share(0.25), share(None)) == ("25.0%", "not measured")
    assert (rate(1234.5), rate(None)) == ("1,234 samples/s", "not measured")


def test_cells_have_one_unit_and_no_more_digits_than_the_largest() -> None:
    cells = Cells.for_all([None, 0.0105, 1240.0, math.nan])
    assert cells.unit == "s"
    assert (cells.plain(1240.0), cells.plain(0.0105)) == ("1.24", "<0.001")
    assert cells.mean(1240.0, (1230.0, 1250.0)) == "1.24 ± 0.01"
    assert cells.excess(30.0, (20.0, 40.0)) == "+0.03 ± 0.01"
    assert {cells.plain(None), cells.mean(None, None), cells.excess(math.nan)} == {"not measured"}
    assert Cells.for_all([]).plain(12.0) == "12.0"


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ([3], "rank 3"),
        ([0, 2], "ranks 0 and 2"),
        (range(8), "ranks 0–7"),
        ([1, 4, *range(6, 10)], "ranks 1, 4, 6–9"),
        (range(3, 60, 2), "ranks 3, 5, 7, 9, 11, 13, 15, 17 and 21 more"),
        ([*range(0, 80, 10), *range(100, 200)], "ranks 0, 10, 20, 30, 40, 50, 60, 70 and 100 more"),
    ],
)
def test_long_lists_of_ranks_are_cut(ranks: Sequence[int], text: str) -> None:
    assert ranks_in_words(ranks) == text


def test_one_thing_is_no_plural() -> None:
    assert (counted(1, "step"), counted(1000, "step")) == ("1 step", "1,000 steps")
    assert counted(2, "batch", "batches") == "2 batches"


def test_a_speed_up_of_more_than_20_is_the_share_that_is_saved() -> None:
    assert faster(1.25, (1.24, 1.26)) == ("1.25×", "as fast")
    assert faster(68.148, None) == ("98.5%", "shorter")
    assert faster(8.0, (4.0, 1e9)) == ("87.5%", "shorter")
    assert faster_between(8.0, (4.0, 1e9)) == "75.0–100.0% shorter"
    assert faster_in_short(1.25, None) == "1.25×"
    assert faster_in_words(1.25, (1.24, 1.26)) == "1.25× as fast"
    assert faster_in_words(68.148, None) == "98.5% shorter"
    assert faster_in_short(18_569_909_091.0, None) == "100% shorter"
