"""The map of step times by rank and step, against the times of single steps."""

from __future__ import annotations

import numpy as np
import pytest

from stallscope.analysis.ledger.windows import RankWindows
from stallscope.analysis.views.rank_maps import window_map


def drawn(rank: int, random: np.random.Generator, *, single: bool = False) -> RankWindows:
    """Draw windows of some lengths, with gaps between some of them."""
    count = int(random.integers(1, 40))
    steps = np.ones(count, np.int64) if single else random.integers(1, 9, count)
    gaps = random.integers(0, 6, count) * (random.random(count) < 0.2)
    step = np.cumsum(steps + gaps) - steps
    return RankWindows(rank, step, steps, random.random(count), None, None, np.zeros_like(step))


def of_steps(windows: RankWindows, first: int) -> dict[int, float]:
    """Return the time of each step, without windows that begin earlier."""
    return {
        int(begin) + at: float(ms)
        for begin, count, ms in zip(windows.step, windows.steps, windows.ms, strict=True)
        if begin >= first
        for at in range(count)
    }


def mean(times: dict[int, float], begin: int, end: int) -> float:
    values = [times[step] for step in range(begin, end) if step in times]
    return float(np.mean(values)) if values else np.nan


@pytest.mark.parametrize("seed", range(20))
def test_a_cell_is_the_mean_over_the_steps_of_the_slowest_rank(seed: int) -> None:
    random = np.random.default_rng(seed)
    ranks = [drawn(rank, random, single=seed % 4 == 0) for rank in range(5)]
    rows = [[0], [1, 2], [3, 4]]
    first = int(random.choice(ranks[0].step))
    heat_map = window_map(ranks, rows, first)
    times = [of_steps(windows, first) for windows in ranks]
    cells = list(zip(heat_map.edges[:-1].tolist(), heat_map.edges[1:].tolist(), strict=True))
    for row, average, longest, of in zip(
        rows, heat_map.mean, heat_map.most, heat_map.most_rank, strict=True
    ):
        means = np.array([[mean(times[rank], *cell) for cell in cells] for rank in row])
        np.testing.assert_allclose(average, np.fmax.reduce(means), atol=1e-9)
        assert {*of.tolist()} <= {*row}
        known = ~np.isnan(average)
        assert (longest[known] >= average[known] - 1e-9).all()
        assert np.isnan(longest[~known]).all()
    # No step is left out.
    assert heat_map.edges[0] == min(min(steps) for steps in times if steps)
    assert heat_map.edges[-1] == 1 + max(max(steps) for steps in times if steps)


def test_the_longest_window_of_a_cell_has_its_step_and_rank() -> None:
    steps = np.full(1000, 10)
    ms = [np.full(1000, 300.0) for _ in range(400)]
    ms[7][503] = 900.0
    ranks = [
        RankWindows(at, np.arange(1000) * 10, steps, rank_ms, None, None, np.zeros_like(steps))
        for at, rank_ms in enumerate(ms)
    ]
    rows = [[at, at + 1, at + 2, at + 3] for at in range(0, 400, 4)]
    heat_map = window_map(ranks, rows, 0)
    assert heat_map.mean.size <= 12_800
    row, column = np.unravel_index(heat_map.most.argmax(), heat_map.most.shape)
    assert (row, heat_map.most[row, column]) == (1, 900.0)
    assert (heat_map.most_step[row, column], heat_map.most_rank[row, column]) == (5030, 7)
    assert heat_map.edges[column] <= 5030 < heat_map.edges[column + 1]


def test_steps_that_were_made_again_count_twice() -> None:
    step = np.array([0, 10, 20, 10, 20])
    ms = np.array([100.0, 100.0, 100.0, 300.0, 300.0])
    again = RankWindows(0, step, np.full(5, 10), ms, None, None, np.zeros_like(step))
    heat_map = window_map([again], [[0]], 0)
    assert heat_map.edges.tolist() == [0, 10, 20, 30]
    assert heat_map.mean.tolist() == [[100.0, 200.0, 200.0]]
