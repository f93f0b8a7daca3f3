"""Lanes show the ledger, at every zoom."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from simulator import Between, Fault, Job, Noise, simulate
from support.generations import GROWN_AND_SHRUNK, Generation, write_generations

from stallscope.analysis import analyse
from stallscope.analysis.ledger.ledger import Ledger
from stallscope.analysis.views.lanes import BETWEEN, LANE_STAGES, Lanes, LanesView
from stallscope.parsers import read

LONGEST_PAUSE = 10**13
# Sums of float32 over thousands of steps, relative to the step: a mean of other is a part of that.
NEARLY = 2e-6

JOBS = {
    "one rank": Job(ranks=1, steps=300, noise=Noise(cv=0.3)),
    "ragged end": Job(ranks=3, steps=1021, noise=Noise(cv=0.3), ranks_per_host=2),
    "few steps": Job(ranks=4, steps=5, noise=Noise(cv=0.3)),
    "groups": Job(ranks=90, steps=523, noise=Noise(cv=0.3), ranks_per_host=8),
    "lost rows": Job(ranks=90, steps=523, noise=Noise(cv=0.3), lost_rows=0.05),
    "gaps": Job(ranks=4, steps=400, epochs=4, validation_ms=900, checkpoint_ms=90, epoch_gap_ms=9),
}


def lanes_of(job: Job) -> Lanes:
    return Lanes(analyse(simulate(job).run).generation_ledgers, LONGEST_PAUSE)


@pytest.fixture(scope="module", params=JOBS)
def lanes(request: pytest.FixtureRequest) -> Lanes:
    return lanes_of(JOBS[request.param])


def whole(lanes: Lanes, most_lanes: int = 10_000, most_cells: int = 10_000) -> LanesView:
    """Return all of a run."""
    return lanes.view(0, lanes.span, (0, len(lanes.ranks)), most_lanes, most_cells)


def expected(ledger: Ledger, ranks: np.ndarray, steps: slice) -> np.ndarray:
    """Return means of the stages and of lateness over what the ranks have measured, ms; NaN without
    any.
    """
    measured = ledger.measured[steps][:, ranks]
    late = ledger.arrival - ledger.of("arrival", ledger.reference)[:, None]
    values = [*(getattr(ledger, name) for name in LANE_STAGES), late]
    if not measured.any():
        return np.full(len(values), np.nan)
    return np.array([value[steps][:, ranks][measured].mean() / 1e6 for value in values])


@pytest.mark.parametrize("most_cells", [10_000, 300, 100, 37, 9, 1])
@pytest.mark.parametrize("most_lanes", [10_000, 30, 5, 1])
def test_a_cell_is_the_mean_of_its_ranks_and_steps(
    lanes: Lanes, most_lanes: int, most_cells: int
) -> None:
    view = whole(lanes, most_lanes, most_cells)
    assert len(view.edges) - 1 <= most_lanes
    assert len(view.first_step) <= most_cells
    scale = NEARLY * lanes.generations[0].ledger.total.max() / 1e6
    for lane in {0, len(view.edges) // 2 - 1, len(view.edges) - 2}:
        ranks = np.array(lanes.ranks)[view.edges[lane] : view.edges[lane + 1]]
        for cell in {0, len(view.first_step) // 2, len(view.first_step) - 1}:
            steps = slice(view.first_step[cell], view.last_step[cell] + 1)
            values = [*view.stages[:, lane, cell], view.late[lane, cell]]
            np.testing.assert_allclose(
                values, expected(lanes.generations[0].ledger, ranks, steps), rtol=NEARLY, atol=scale
            )


@pytest.mark.parametrize("most_cells", [10_000, 100, 9])
def test_cells_cover_every_step_once(lanes: Lanes, most_cells: int) -> None:
    view = whole(lanes, most_cells=most_cells)
    assert view.first_step[0] == 0
    assert view.last_step[-1] == len(lanes) - 1
    np.testing.assert_array_equal(view.first_step[1:], view.last_step[:-1] + 1)
    np.testing.assert_array_equal(
        np.diff(view.first_step), np.full(len(view.first_step) - 1, view.steps_per_cell)
    )


@pytest.mark.parametrize("most_cells", [64, 8, 1])
def test_cells_stay_in_place_for_any_view(lanes: Lanes, most_cells: int) -> None:
    """Panning must not change how a step looks."""
    wide = whole(lanes, most_cells=most_cells)
    part = lanes.view(lanes.span // 3, lanes.span, (0, len(lanes.ranks)), 10_000, most_cells)
    if part.steps_per_cell == wide.steps_per_cell:
        at = np.searchsorted(wide.first_step, part.first_step)
        np.testing.assert_array_equal(wide.first_step[at], part.first_step)
        np.testing.assert_array_equal(wide.stages[:, :, at], part.stages)


@pytest.mark.parametrize("rows", [(16, 17), (17, 18), (16, 18), (88, 90)])
def test_a_few_rows_show_only_their_own_ranks(rows: tuple[int, int]) -> None:
    lanes = lanes_of(JOBS["groups"])
    view = lanes.view(0, lanes.span, rows, 1, 10_000)
    for lane, (first, after) in enumerate(zip(view.edges, view.edges[1:], strict=False)):
        compute = lanes.generations[0].ledger.compute[:, lanes.ranks[first:after]].mean(axis=1)
        np.testing.assert_allclose(view.stages[2, lane], compute / 1e6, rtol=NEARLY, atol=1e-3)


def test_one_late_step_among_hundreds_is_in_its_cell() -> None:
    late = Fault("input", 400, ranks=(5,), when=Between(777, 777), cv=0)
    lanes = lanes_of(Job(ranks=64, steps=2000, noise=Noise(cv=0.02), faults=(late,)))
    view = whole(lanes, most_lanes=8, most_cells=4)
    assert view.steps_per_cell == 512
    marked = view.latest >= lanes.late_from
    assert np.argwhere(marked).tolist() == [[0, 1]]
    assert view.latest[0, 1] == pytest.approx(400, rel=0.1)
    assert view.late[0, 1] < 1


@pytest.mark.parametrize("faults", [(), (Fault("input", 60, ranks=(1,)),)])
def test_what_is_late_depends_neither_on_warm_up_nor_on_a_slow_rank(
    faults: tuple[Fault, ...],
) -> None:
    job = Job(ranks=2, steps=60, noise=Noise(cv=0.02), faults=faults)
    usual, traced = lanes_of(job), lanes_of(replace(job, tracing_ms=90_000))
    assert traced.late_from == pytest.approx(usual.late_from, rel=0.05)
    assert usual.late_from < 60


def test_unmeasured_cells_are_blank_and_not_zero() -> None:
    lanes = lanes_of(Job(ranks=40, steps=300, cut_ranks={7: 100}))
    view = whole(lanes, most_cells=75)
    blank = np.isnan(view.stages).all(axis=0)
    assert blank[7, 26:].all()
    assert not blank[7, :25].any()
    assert not np.delete(blank, 7, axis=0).any()
    np.testing.assert_array_equal(np.isnan(view.late), blank)
    np.testing.assert_array_equal(np.isnan(view.latest), blank)
    grouped = whole(lanes, most_lanes=5, most_cells=75)
    assert not np.isnan(grouped.stages).any()


def test_lanes_contain_neighbours_of_one_host_or_whole_hosts() -> None:
    lanes = lanes_of(Job(ranks=90, steps=40, ranks_per_host=8))
    for most in (90, 50, 30, 12, 7, 3, 1):
        edges = whole(lanes, most_lanes=most).edges
        assert (edges[0], edges[-1]) == (0, 90)
        assert len(edges) - 1 <= most
        for first, behind in zip(edges, edges[1:], strict=False):
            whole_hosts = first % 8 == 0 and (behind % 8 == 0 or behind == 90)
            assert whole_hosts or first // 8 == (behind - 1) // 8


def test_ranks_of_a_host_are_neighbours_whatever_their_numbers() -> None:
    (generation,) = lanes_of(Job(ranks=6, steps=60, noise=Noise(cv=0.3))).generations
    lanes = Lanes([replace(generation, hosts=("a", "b", "a", "b", "a", "c"))], LONGEST_PAUSE)
    assert lanes.ranks == (0, 2, 4, 1, 3, 5)
    assert [lanes.row_of(rank) for rank in range(6)] == [0, 3, 1, 4, 2, 5]
    assert lanes.row_of(6) is None
    view = whole(lanes)
    np.testing.assert_allclose(
        view.stages[2, 3], lanes.generations[0].ledger.compute[:, 1] / 1e6, rtol=NEARLY, atol=1e-6
    )
    assert whole(lanes, most_lanes=3).edges.tolist() == [0, 3, 5, 6]


def test_the_rank_that_was_last_most_often() -> None:
    slow = Fault("compute", 60, ranks=(2,), when=Between(100, 199))
    lanes = lanes_of(Job(ranks=4, steps=200, faults=(slow,)))
    view = whole(lanes, most_cells=2)
    assert view.last[1] == 2
    assert view.last_count[1] == 200 - view.first_step[1]
    single = whole(lanes)
    np.testing.assert_array_equal(
        np.array(lanes.ranks)[single.last], lanes.generations[0].ledger.critical
    )


def test_time_continues_through_steps_and_gaps() -> None:
    lanes = lanes_of(JOBS["gaps"])
    assert lanes.begin[0] == 0
    np.testing.assert_array_equal(lanes.end - lanes.begin, lanes.generations[0].ledger.total)
    np.testing.assert_array_equal(lanes.gap_begin[1:], lanes.end[:-1])
    gaps = lanes.gaps(0, lanes.span)
    assert len(gaps) == 3
    for gap in gaps:
        assert dict(zip(BETWEEN, gap.parts, strict=True))["validation"] / 1e6 == pytest.approx(
            900, rel=0.05
        )
    assert lanes.gaps(0, lanes.span, shortest=10**10) == []
    assert lanes.gaps(0, int(lanes.end[10])) == []


def test_a_pause_between_sessions_is_kept_and_a_foreign_clock_is_not() -> None:
    (generation,) = lanes_of(Job(ranks=2, steps=100)).generations
    for shift, pause in ((5 * 10**9, 5 * 10**9), (-(10**15), 0), (10**15, 0)):
        reduced = generation.ledger.reduced + np.where(np.arange(100) >= 60, shift, 0)
        moved = replace(generation, ledger=replace(generation.ledger, reduced=reduced))
        lanes = Lanes([moved], LONGEST_PAUSE)
        assert (np.diff(lanes.end) > 0).all()
        assert lanes.gap_begin[60] - lanes.end[59] == pause
        assert [gap.parts[0] for gap in lanes.gaps(0, lanes.span)] == [pause] * (pause > 0)


def test_the_step_at_a_time(lanes: Lanes) -> None:
    assert lanes.at(0) == 0
    assert lanes.at(-5) == 0
    assert lanes.at(lanes.span * 2) == len(lanes) - 1
    middle = len(lanes) // 2
    assert lanes.at(int(lanes.begin[middle])) == middle
    assert lanes.at(int(lanes.end[middle]) - 1) == middle
    view = lanes.view(int(lanes.begin[middle]), int(lanes.begin[middle]) + 1, (0, 1), 1, 10)
    assert view.first_step.tolist() == [middle]


def test_of_many_gaps_the_longest_are_shown() -> None:
    (generation,) = lanes_of(Job(ranks=1, steps=1200, epochs=1)).generations
    ledger = generation.ledger
    gaps = np.zeros_like(ledger.gaps)
    gaps[1:, 0] = np.arange(1, 1200) * 1000
    reduced = ledger.reduced + np.cumsum(gaps.sum(axis=1))
    moved = replace(generation, ledger=replace(ledger, reduced=reduced, gaps=gaps))
    lanes = Lanes([moved], LONGEST_PAUSE)
    longest = lanes.gaps(0, lanes.span)
    assert len(longest) == 500
    assert [gap.parts[1] for gap in longest] == [step * 1000 for step in range(700, 1200)]


def lanes_of_each(folder: Path, generations: tuple[Generation, ...] = GROWN_AND_SHRUNK) -> Lanes:
    write_generations(folder, generations)
    (run,) = read(str(folder))
    return Lanes(analyse(run).generation_ledgers, LONGEST_PAUSE)


@pytest.mark.parametrize("most_cells", [10_000, 100, 9, 3, 1])
def test_every_generation_has_the_lanes_of_its_own_ranks(tmp_path: Path, most_cells: int) -> None:
    lanes = lanes_of_each(tmp_path)
    assert list(zip(lanes.hosts, lanes.ranks, strict=True)) == [
        ("alpha", 0),
        ("beta", 1),
        ("gamma", 1),
        ("gamma", 2),
    ]
    assert [lanes.row_of(1, generation) for generation in range(3)] == [1, 1, 2]
    assert lanes.row_of(1) == 2
    view = whole(lanes, most_cells=most_cells)
    np.testing.assert_array_equal(view.members, [[1, 1, 1], [1, 1, 0], [0, 0, 1], [0, 1, 0]])
    for cell, generation in enumerate(view.generation):
        ledger = lanes.generations[generation].ledger
        start = lanes.starts[generation]
        steps = slice(view.first_step[cell] - start, view.last_step[cell] + 1 - start)
        scale = NEARLY * ledger.total.max() / 1e6
        for position, row in enumerate(lanes.rows_of(generation)):
            values = [*view.stages[:, row, cell], view.late[row, cell]]
            means = expected(ledger, np.array([position]), steps)
            np.testing.assert_allclose(values, means, rtol=NEARLY, atol=scale)
        absent = view.members[:, generation] == 0
        assert np.isnan(view.stages[:, absent, cell]).all()
        assert np.isnan(view.latest[absent, cell]).all()


def test_no_cell_has_steps_of_two_generations(tmp_path: Path) -> None:
    lanes = lanes_of_each(tmp_path)
    assert lanes.starts.tolist() == [0, 60, 130, 210]
    for most_cells in (10_000, 100, 9, 3, 1):
        view = whole(lanes, most_cells=most_cells)
        assert len(view.first_step) <= max(most_cells, 3)
        np.testing.assert_array_equal(view.generation, lanes.generation_at(view.first_step))
        np.testing.assert_array_equal(view.generation, lanes.generation_at(view.last_step))
        np.testing.assert_array_equal(view.first_step[1:], view.last_step[:-1] + 1)
        assert (view.first_step[0], view.last_step[-1]) == (0, 209)
    begin, end = int(lanes.begin[60]), int(lanes.end[129])
    view = lanes.view(begin, end, (0, 4), 10, 10_000)
    assert (view.first_step[0], view.last_step[-1]) == (60, 129)


def test_generations_begin_when_they_did(tmp_path: Path) -> None:
    lanes = lanes_of_each(tmp_path)
    begins = lanes.begin[lanes.starts[:-1]] / 1e9
    assert begins == pytest.approx([0, 12, 60], abs=0.1)


def test_generations_whose_clocks_differ_are_placed_by_wall_clock(tmp_path: Path) -> None:
    """The first rank, whose clock is that of its generation, moves to a host that is 7.3 s ahead."""
    generations = (
        Generation((("alpha", 0), ("gamma", 0)), 0.0, 0, 60),
        Generation((("beta", 0), ("gamma", 1)), 20.0, 60, 60),
    )
    lanes = lanes_of_each(tmp_path, generations)
    assert lanes.begin[60] / 1e9 == pytest.approx(20 + 7.3, abs=0.1)


def test_hosts_share_a_lane_with_those_that_came_later(tmp_path: Path) -> None:
    lanes = lanes_of_each(tmp_path)
    view = whole(lanes, most_lanes=2)
    assert view.edges.tolist() == [0, 2, 4]
    np.testing.assert_array_equal(view.members, [[2, 2, 1], [0, 1, 1]])
    first, second = lanes.generations[0].ledger, lanes.generations[1].ledger
    np.testing.assert_allclose(
        view.stages[2, 0, :60], first.compute.mean(axis=1) / 1e6, rtol=NEARLY, atol=1e-4
    )
    np.testing.assert_allclose(
        view.stages[2, 1, 60:130], second.compute[:, 2] / 1e6, rtol=NEARLY, atol=1e-4
    )
    assert np.isnan(view.stages[:, 1, :60]).all()
