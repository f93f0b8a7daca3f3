"""Several fits continue one run, and fits without the callback are not recorded."""

from __future__ import annotations

import pytest
from training.recorded import Recorded, check_steps, fits_of

from stallscope.parsers import read

pytestmark = [pytest.mark.horovod, pytest.mark.cases, pytest.mark.unmeasured]

RAISED = "RuntimeError('tripped')"


@pytest.mark.parametrize("case", ["mixed_precision", "optimizer_that_counts_nothing"])
def test_a_second_fit_continues_the_run(recorded: Recorded, case: str) -> None:
    fits = recorded.fits(case)
    assert [(fit.log.rank, fit.log.generation, fit.log.part) for fit in fits] == [
        (0, 0, 0),
        (0, 0, 1),
        (1, 0, 0),
        (1, 0, 1),
    ]
    for fit in fits:
        assert fit.numbers == list(range(12 * fit.log.part, 12 * fit.log.part + 12))
        assert fit.facts["first_step"] == 12 * fit.log.part
    recorded.clean(case)


def test_the_same_callback_serves_two_fits(recorded: Recorded) -> None:
    for fit in recorded.fits("second_fit_same_logger"):
        first = fit.log.part == 0
        check_steps(fit, 0 if first else 12, 12 if first else 24)
        assert set(fit.steps["samples"]) == {16 if first else 8}
        assert fit.facts["batch_size"] == (16 if first else 8)
    recorded.clean("second_fit_same_logger")


def test_fits_without_the_callback_train_and_write_nothing(recorded: Recorded) -> None:
    for fit in recorded.fits("silent_fits"):
        # The 5 steps in between are counted, but in no log.
        check_steps(fit, 17 * fit.log.part, 12)
    for rank in range(2):
        result = recorded.result("silent_fits", rank)
        assert result["own"] == 2
        assert result["trained"] is True
        assert result["iterations"] == 12 + 5 + 12 + 5
    recorded.clean("silent_fits")


def test_repeated_steps_are_a_new_generation_of_the_run(recorded: Recorded) -> None:
    fits = recorded.fits("compiled_again")
    assert [(fit.log.rank, fit.log.generation) for fit in fits] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    for fit in fits:
        check_steps(fit, 0, 12)
    recorded.clean("compiled_again")


def test_after_an_exception_in_a_callback_the_next_fit_has_all_intervals(
    recorded: Recorded,
) -> None:
    kinds = [sorted(fit.kinds) for fit in recorded.fits("interrupted")]
    assert kinds == [["end"], ["checkpoint", "end", "epoch"]] * 2


def test_after_an_exception_a_fit_without_the_callback_is_not_recorded(
    recorded: Recorded,
) -> None:
    for fit in recorded.fits("interrupted_then_silent"):
        check_steps(fit, 0, 5)
    for rank in range(2):
        result = recorded.result("interrupted_then_silent", rank)
        assert result["raised"] == RAISED
        assert result["iterations"] == 5 + 12
    recorded.clean("interrupted_then_silent")


def test_after_an_exception_the_next_fit_of_any_model_closes_the_log(recorded: Recorded) -> None:
    case = "interrupted_then_another_model"
    for fit in recorded.fits(case):
        check_steps(fit, 0, 5)
    [second_run] = read(str(recorded.logs(case, "other")))
    for fit in fits_of(second_run):
        check_steps(fit, 0, 12)
    assert recorded.result(case)["raised"] == RAISED
    recorded.clean(case)


def test_a_fit_inside_a_fit_has_its_own_log(recorded: Recorded) -> None:
    for fit in recorded.fits("fit_inside_fit"):
        check_steps(fit, 0, 24)
    [inner] = read(str(recorded.logs("fit_inside_fit", "inner")))
    assert [fit.numbers for fit in fits_of(inner)] == [[0, 1, 2, 3], [4, 5, 6, 7]] * 2
    recorded.clean("fit_inside_fit")


def test_a_second_callback_in_one_fit_records_nothing_and_warns(recorded: Recorded) -> None:
    for fit in recorded.fits("two_loggers"):
        check_steps(fit, 0, 12)
    assert not recorded.logs("two_loggers", "second").exists()
    for rank in range(2):
        assert "one StepLogger is enough" in recorded.warning("two_loggers", rank)
        assert recorded.result("two_loggers", rank)["ours"] == []
