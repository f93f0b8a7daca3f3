"""Jointly rounded sums: every figure is near its value, and all add up as printed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallscope.formatting.sums import SumColumn

MS = st.floats(-50.0, 500.0).map(lambda ms: round(ms, 4))


@given(
    stages=st.lists(st.tuples(MS, MS), min_size=3, max_size=3),
    allreduce=MS,
    decimals=st.integers(0, 2),
)
def test_parts_and_their_shares_add_up_and_stay_within_a_digit(
    stages: list[tuple[float, float]], allreduce: float, decimals: int
) -> None:
    parts, shares = (
        [work + wait for work, wait in stages] + [allreduce],
        [wait for _, wait in stages],
    )
    digits = SumColumn.of([1.0], 1.0)
    column = SumColumn(digits.scale, decimals, (), 0.0)
    total, waits = column.with_shares(parts, shares)

    typical = [part - wait for part, wait in zip(total.parts, waits.parts, strict=False)]
    exact = [*parts, *shares, *(work for work, _ in stages), sum(shares), sum(parts)]
    rounded = [*total.parts, *waits.parts, *typical, waits.total, total.total]
    last_digit = 10.0**-decimals
    for value, figure in zip(exact, rounded, strict=True):
        assert abs(figure - value) < last_digit * (1 + 1e-6)
    assert abs(total.total - sum(parts)) <= last_digit / 2 * (1 + 1e-3)
    assert total.total == pytest.approx(sum(total.parts))
    assert waits.total == pytest.approx(sum(waits.parts))


def test_rounding_alone_would_not_add_up() -> None:
    column = SumColumn.of([0.0], 10.0, (9.0, 11.0))
    assert column.decimals == 0
    total, waits = column.with_shares([1.5, 1.5, 1.5, 0.4], [0.4, 0.4, 0.4])
    assert total.total == 5.0
    assert sorted(total.parts[:3]) in ([1.0, 1.0, 2.0], [1.0, 2.0, 2.0])
    assert waits.total == 1.0


def test_a_rounded_part_is_inside_its_interval_as_printed() -> None:
    column = SumColumn.of([9000.0], 9000.0, (8990.0, 9010.0))
    assert (column.scale.unit, column.decimals) == ("s", 2)
    assert column.ends(0.15, (149.0, 151.0)) == "0.149–0.151 s"
    assert column.ends(-0.01, (-4.62, -3.26)) == "−0.01 to 0.00 s"
    assert column.ends(0.0, (11.1, 11.2)) == "0.00–0.02 s"
    shares = SumColumn.of([12.0, 1.0], 13.0, (12.9, 13.1), unit="%")
    assert shares.ends(1.0, (0.9, 1.1)) == "0.900–1.100%"
