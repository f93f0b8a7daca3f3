"""Iterations of a loop become steps: one row for each reduction."""

from __future__ import annotations

import pytest

from stallscope.collector.recorder.loop_steps import Iteration, Reduction, StepAssembler
from stallscope.collector.recorder.step_log.line_format import StepRow


def iteration_at(
    begin: int, *reductions: tuple[int | None, int | None], samples: int | None = 8
) -> Iteration:
    """Return an iteration of 100 ns with its batch after 10; reductions count from its start."""
    iteration = Iteration(2, begin, 7)
    iteration.data, iteration.samples = begin + 10, samples
    for number, (ready, reduced) in enumerate(reductions):
        times = [None if ns is None else begin + ns for ns in (ready, reduced)]
        iteration.reduced(Reduction(number, *times))
    return iteration


def rows_of(assembler: StepAssembler, *iterations: Iteration) -> list[StepRow]:
    return [
        row for iteration in iterations for row in assembler.rows(iteration, iteration.begin + 100)
    ]


def test_an_iteration_with_a_reduction_is_a_step() -> None:
    [row] = rows_of(StepAssembler(True, False), iteration_at(1000, (50, 80)))
    assert row == StepRow(0, 2, 1000, 1010, 1050, 1080, 1100, 1, 8, 7)


def test_iterations_without_a_reduction_are_added_to_the_next_one_with_a_reduction() -> None:
    assembler = StepAssembler(True, False)
    rows = rows_of(assembler, iteration_at(1000), iteration_at(1100), iteration_at(1200, (50, 80)))
    # Three times 10 for the batches; the rest is compute.
    assert rows == [StepRow(0, 2, 1000, 1030, 1250, 1280, 1300, 3, 24, 7)]
    assert [row.micro for row in rows_of(assembler, iteration_at(1300, (50, 80)))] == [1]


def test_a_step_with_an_unknown_number_of_samples_in_one_iteration_has_none() -> None:
    iterations = iteration_at(1000, samples=None), iteration_at(1100, (50, 80))
    assert [row.samples for row in rows_of(StepAssembler(True, False), *iterations)] == [None]


def test_each_of_several_reductions_in_an_iteration_is_a_step() -> None:
    first, second = rows_of(StepAssembler(True, False), iteration_at(1000, (30, 40), (70, 90)))
    assert first == StepRow(0, 2, 1000, 1010, 1030, 1040, 1040, 1, 8, 7)
    # No new batch was fetched for it.
    assert second == StepRow(0, 2, 1040, 1040, 1070, 1090, 1100, 1, 0, 7)


def test_the_last_of_several_reductions_with_one_cause_counts() -> None:
    iteration = iteration_at(1000)
    iteration.reduced(Reduction(5, 1030, 1040))
    iteration.reduced(Reduction(5, 1050, 1090))
    [row] = rows_of(StepAssembler(True, False), iteration)
    assert (row.ready, row.reduced) == (1050, 1090)


def test_time_in_collectives_comes_after_the_last_gradient() -> None:
    iteration = iteration_at(1000)
    iteration.reduced(Reduction(1, 1050, 1080, waited=30))
    [row] = rows_of(StepAssembler(True, False), iteration)
    assert (row.data, row.ready, row.reduced) == (1010, 1020, 1080)


def test_time_in_collectives_of_earlier_iterations_counts_in_their_step() -> None:
    last = iteration_at(1100)
    last.reduced(Reduction(1, 1150, 1180, waited=90))
    [row] = rows_of(StepAssembler(True, False), iteration_at(1000), last)
    # 60 of the 90 are in the first iteration.
    assert (row.data, row.ready, row.reduced, row.micro) == (1020, 1060, 1180, 2)


def test_compute_is_never_negative() -> None:
    iteration = iteration_at(1000)
    iteration.reduced(Reduction(1, 1050, 1080, waited=70))
    [row] = rows_of(StepAssembler(True, False), iteration)
    assert row.ready == row.data == 1010


def test_an_iteration_may_fetch_several_batches() -> None:
    iteration = iteration_at(1000, (50, 80), (90, 95))
    iteration.micro = 3
    rows = rows_of(StepAssembler(True, False), iteration_at(900), iteration)
    assert [row.micro for row in rows] == [4, 1]


@pytest.mark.parametrize("ready", [5, 120, None])
def test_gradients_of_another_iteration_give_no_timestamp(ready: int | None) -> None:
    [row] = rows_of(StepAssembler(True, False), iteration_at(1000, (ready, 90)))
    assert (row.ready, row.reduced) == (None, 1090)


def test_a_single_rank_has_reduced_gradients_when_they_are_ready() -> None:
    [row] = rows_of(StepAssembler(True, True), iteration_at(1000, (50, None)))
    assert (row.ready, row.reduced) == (1050, 1050)


def test_if_reductions_cannot_be_seen_each_iteration_is_a_step() -> None:
    assembler = StepAssembler(False, True)
    [row] = assembler.rows(iteration_at(1000), 1100, ready=1050)
    assert (row.ready, row.reduced, row.micro) == (1050, 1050, 1)
    assert assembler.give_up() == []


def test_without_any_reduction_the_iterations_become_steps_in_the_end() -> None:
    assembler = StepAssembler(True, False)
    assert rows_of(assembler, *(iteration_at(100 * number) for number in range(1023))) == []
    assert not assembler.lost_count
    assert rows_of(assembler, iteration_at(102_300)) == []
    assert assembler.lost_count
    rows = assembler.give_up()
    assert [row.begin for row in rows] == [100 * number for number in range(1024)]
    assert {(row.micro, row.ready, row.reduced) for row in rows} == {(1, None, None)}
    assert len(rows_of(assembler, iteration_at(102_400))) == 1
    assert not assembler.lost_count


def test_iterations_after_the_last_reduction_are_no_step() -> None:
    assembler = StepAssembler(True, False)
    rows_of(assembler, iteration_at(1000, (50, 80)), iteration_at(1100))
    assert assembler.give_up() == []
