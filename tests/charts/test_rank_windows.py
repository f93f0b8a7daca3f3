"""The lanes of ranks that print how long their steps take."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from stallscope.analysis import Analysis, analyse
from stallscope.charts.charts import named_charts
from stallscope.charts.heat_map import HeatMap
from stallscope.charts.plotly_figures import figure
from stallscope.charts.step_time import printed_ranks_chart
from stallscope.charts.svg import NARROW, WIDE, draw
from stallscope.parsers import read

STEPS = 200
METERS = "Epoch: [{}][{:4d}/{}]\tTime {:.3f} ({:.3f})\tData 0.010 (0.010)"


def analysis_of(
    folder: Path,
    ranks: int,
    *,
    every: Mapping[int, int] | None = None,
    slow: int | None = None,
    epochs: int = 3,
    changed_at: int | None = None,
) -> Analysis:
    """Analyse what ranks print through a launcher: one is slow, or all are from a step on.

    Args:
        every: by rank, after how many steps it prints; 10 for others.
    """
    lines = []
    for rank in range(ranks):
        times = 0.3 + 0.01 * np.random.default_rng(rank).random(epochs * STEPS)
        if rank == slow:
            times *= 1.5
        if changed_at is not None:
            times[changed_at:] += 0.2
        apart = (every or {}).get(rank, 10)
        for epoch, seconds in enumerate(times.reshape(epochs, STEPS)):
            lines += [
                f"[{rank}]<stdout>:"
                + METERS.format(epoch, at, STEPS, seconds[at - 1], seconds[:at].mean())
                for at in range(apart, STEPS + 1, apart)
            ]
    (folder / "train.log").write_text("\n".join(lines) + "\n")
    (run,) = read(str(folder / "train.log"))
    return analyse(run)


def chart_of(analysis: Analysis) -> HeatMap:
    chart = printed_ranks_chart(analysis)
    assert chart is not None
    return chart


def test_a_slow_rank_has_the_strongest_colour_in_its_lane(tmp_path: Path) -> None:
    chart = chart_of(analysis_of(tmp_path, 8, slow=5))
    assert [row.label for row in chart.rows] == [f"rank {rank}" for rank in range(8)]
    strong = (chart.values - chart.least) / (chart.full - chart.least) > 0.8
    assert strong[5].all()
    assert not np.delete(strong, 5, axis=0).any()
    assert chart.values[5].mean() == pytest.approx(457, abs=3)
    assert "(rank 5)" in chart.sentence


def test_epochs_and_changes_of_all_ranks_are_marked(tmp_path: Path) -> None:
    chart = chart_of(analysis_of(tmp_path, 2, changed_at=450))
    assert [label for _, label in chart.marks] == ["epoch 1", "epoch 2"]
    assert [at + 0.5 for at, _ in chart.marks] == [200, 400]
    ((at, label),) = chart.changes
    assert abs(at - 450) <= 10
    assert float(label.removesuffix(" ms")) == pytest.approx(200, abs=1)
    before = chart.edges[1:] <= 450
    assert chart.values[:, before].max() < 330
    assert chart.values[:, ~before].min() > 480


def test_ranks_that_print_at_different_steps_share_the_columns(tmp_path: Path) -> None:
    chart = chart_of(analysis_of(tmp_path, 3, every={1: 40, 2: 100}))
    # Windows that began in the warm-up are left out.
    steady = chart.values[:, chart.edges[:-1] > 99]
    assert steady.shape == (3, 50)
    # Differences of means that are rounded to the millisecond.
    assert steady == pytest.approx(np.full((3, 50), 305), abs=10)


@pytest.mark.broad
def test_of_many_ranks_a_lane_shows_its_slowest_one(tmp_path: Path) -> None:
    chart = chart_of(analysis_of(tmp_path, 1000, slow=333, epochs=1))
    rows, columns = chart.values.shape
    assert (rows, chart.rows[41].label) == (125, "ranks 328–335")
    assert rows * columns <= 12_800
    assert chart.values[41].min() > 1.3 * np.delete(chart.values, 41, axis=0).max()
    assert {*chart.most_of[41]} == {333}
    assert "the slowest of up to 8 ranks, the mean of about 10 steps" in chart.sentence


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_reports_have_the_lanes(tmp_path: Path, width: int) -> None:
    chart = chart_of(analysis_of(tmp_path, 2, slow=1))
    drawn = draw(chart, "key", width)
    assert drawn.count('class="mark"') == 2
    assert drawn.count("cells heat-") > 1
    assert chart.least_shown in drawn
    assert chart.most_shown in drawn


@pytest.mark.parametrize("dark", [False, True])
def test_pages_have_the_lanes(tmp_path: Path, dark: bool) -> None:
    chart = chart_of(analysis_of(tmp_path, 2, changed_at=450))
    drawn = figure(chart, dark=dark)
    assert drawn.layout.coloraxis.cmin == chart.least
    *epochs, change = (note.text for note in drawn.layout.annotations)
    assert epochs == ["epoch 1", "epoch 2"]
    assert change.startswith("<b>+199.8 ms")
    assert "per step on average" in drawn.data[0].hovertemplate


def test_one_rank_has_no_lanes(tmp_path: Path) -> None:
    analysis = analysis_of(tmp_path, 1)
    assert analysis.printed is not None
    assert not [chart for chart in named_charts(analysis).values() if isinstance(chart, HeatMap)]
