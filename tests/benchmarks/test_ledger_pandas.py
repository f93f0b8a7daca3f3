"""A plain pandas groupby finds the same ledger."""

from __future__ import annotations

import numpy as np
import pytest
from simulator import Fault, Job, Noise, simulate
from support.benchmarks import benchmark

ledger_pandas = benchmark("ledger_pandas")


@pytest.mark.parametrize("ranks", [1, 2, 5, 8])
def test_both_ledgers_agree_to_the_nanosecond(ranks: int) -> None:
    job = Job(
        ranks=ranks,
        steps=60,
        ranks_per_host=ranks,
        noise=Noise(cv=0.1),
        faults=[Fault("compute", 40, ranks=(ranks - 1,))],
    )
    run = simulate(job).run
    ledger, frame = ledger_pandas.ours(run), ledger_pandas.by_pandas(run)
    assert list(frame.index) == list(ledger.steps)
    for name in ("input", "compute", "other", "imbalance", "allreduce"):
        np.testing.assert_array_equal(ledger.entry(name), frame[name].to_numpy(), name)


def test_times_from_disk_are_a_separate_line_and_may_be_the_only_one() -> None:
    timed = [
        ledger_pandas.Timed(1_000_000, 0.01, 1.0, 0.1),
        ledger_pandas.Timed(100_000_000, None, None, 10.0),
    ]
    svg = ledger_pandas.picture(timed)
    assert svg.count("<polyline") == 3
    assert "1,000,000 rows: 0.01 s, from disk 0.1 s, pandas 1 s" in svg
    assert "100,000,000 rows: from disk 10 s." in svg


def test_the_chart_has_both_lines_and_describes_them_for_screen_readers() -> None:
    timed = [ledger_pandas.Timed(rows, rows / 1e8, rows / 1e6) for rows in (10_000, 1_000_000)]
    svg = ledger_pandas.picture(timed)
    assert svg.count("<polyline") == 2
    assert "1,000,000 rows: 0.01 s, pandas 1 s" in svg
