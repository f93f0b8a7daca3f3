"""Turns of a loop become steps: one row for each reduction, whatever the loop does."""

from __future__ import annotations

import pytest

from stallscope.collector.recorder.format import StepRow
from stallscope.collector.recorder.loop_steps import Iteration, Reduction, StepAssembler


def turn_at(
    begin: int, *reductions: tuple[int | None, int | None], samples: int | None = 8
) -> Iteration:
    """A turn of 100 ns whose batch is there after 10; reductions count from its begin."""
    turn = Iteration(2, begin, 7)
    turn.data, turn.samples = begin + 10, samples
    for number, (ready, reduced) in enumerate(reductions):
        stamps = [None if stamp is None else begin + stamp for stamp in (ready, reduced)]
        turn.reduced(Reduction(number, *stamps))
    return turn


def rows_of(assembler: StepAssembler, *turns: Iteration) -> list[StepRow]:
    return [row for turn in turns for row in assembler.rows(turn, turn.begin + 100)]


def test_a_turn_with_a_reduction_is_a_step() -> None:
    [row] = rows_of(StepAssembler(True, False), turn_at(1000, (50, 80)))
    assert row == StepRow(0, 2, 1000, 1010, 1050, 1080, 1100, 1, 8, 7)


def test_turns_without_a_reduction_are_summed_into_the_next_one_with() -> None:
    assembler = StepAssembler(True, False)
    rows = rows_of(assembler, turn_at(1000), turn_at(1100), turn_at(1200, (50, 80)))
    # Three times 10 for the batches; all else is compute.
    assert rows == [StepRow(0, 2, 1000, 1030, 1250, 1280, 1300, 3, 24, 7)]
    assert [row.micro for row in rows_of(assembler, turn_at(1300, (50, 80)))] == [1]


def test_samples_that_one_turn_does_not_know_are_not_known_of_the_step() -> None:
    turns = turn_at(1000, samples=None), turn_at(1100, (50, 80))
    assert [row.samples for row in rows_of(StepAssembler(True, False), *turns)] == [None]


def test_each_of_several_reductions_in_a_turn_is_a_step() -> None:
    first, second = rows_of(StepAssembler(True, False), turn_at(1000, (30, 40), (70, 90)))
    assert first == StepRow(0, 2, 1000, 1010, 1030, 1040, 1040, 1, 8, 7)
    # No new batch was fetched for it.
    assert second == StepRow(0, 2, 1040, 1040, 1070, 1090, 1100, 1, 0, 7)


def test_of_reductions_with_one_cause_the_last_counts() -> None:
    turn = turn_at(1000)
    turn.reduced(Reduction(5, 1030, 1040))
    turn.reduced(Reduction(5, 1050, 1090))
    [row] = rows_of(StepAssembler(True, False), turn)
    assert (row.ready, row.reduced) == (1050, 1090)


def test_time_in_collectives_comes_after_the_last_gradient() -> None:
    turn = turn_at(1000)
    turn.reduced(Reduction(1, 1050, 1080, waited=30))
    [row] = rows_of(StepAssembler(True, False), turn)
    assert (row.data, row.ready, row.reduced) == (1010, 1020, 1080)


def test_time_in_collectives_of_earlier_turns_counts_in_the_step_that_they_make() -> None:
    last = turn_at(1100)
    last.reduced(Reduction(1, 1150, 1180, waited=90))
    [row] = rows_of(StepAssembler(True, False), turn_at(1000), last)
    # 60 of the 90 passed in the first turn.
    assert (row.data, row.ready, row.reduced, row.micro) == (1020, 1060, 1180, 2)


def test_compute_is_never_negative() -> None:
    turn = turn_at(1000)
    turn.reduced(Reduction(1, 1050, 1080, waited=70))
    [row] = rows_of(StepAssembler(True, False), turn)
    assert row.ready == row.data == 1010


def test_a_turn_may_fetch_several_batches() -> None:
    turn = turn_at(1000, (50, 80), (90, 95))
    turn.micro = 3
    rows = rows_of(StepAssembler(True, False), turn_at(900), turn)
    assert [row.micro for row in rows] == [4, 1]


@pytest.mark.parametrize("ready", [5, 120, None])
def test_gradients_of_another_turn_say_nothing(ready: int | None) -> None:
    [row] = rows_of(StepAssembler(True, False), turn_at(1000, (ready, 90)))
    assert (row.ready, row.reduced) == (None, 1090)


def test_a_single_rank_has_reduced_what_is_ready() -> None:
    [row] = rows_of(StepAssembler(True, True), turn_at(1000, (50, None)))
    assert (row.ready, row.reduced) == (1050, 1050)


def test_where_reductions_are_not_seen_every_turn_is_a_step() -> None:
    assembler = StepAssembler(False, True)
    [row] = assembler.rows(turn_at(1000), 1100, ready=1050)
    assert (row.ready, row.reduced, row.micro) == (1050, 1050, 1)
    assert assembler.give_up() == []


def test_without_any_reduction_the_turns_are_steps_in_the_end() -> None:
    assembler = StepAssembler(True, False)
    assert rows_of(assembler, *(turn_at(100 * number) for number in range(1023))) == []
    assert not assembler.lost_count
    assert rows_of(assembler, turn_at(102_300)) == []
    assert assembler.lost_count
    rows = assembler.give_up()
    assert [row.begin for row in rows] == [100 * number for number in range(1024)]
    assert {(row.micro, row.ready, row.reduced) for row in rows} == {(1, None, None)}
    assert len(rows_of(assembler, turn_at(102_400))) == 1
    assert not assembler.lost_count


def test_turns_behind_the_last_reduction_are_no_step() -> None:
    assembler = StepAssembler(True, False)
    rows_of(assembler, turn_at(1000, (50, 80)), turn_at(1100))
    assert assembler.give_up() == []
