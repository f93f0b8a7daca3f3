"""A fault in the recorder itself costs the log, and never the training."""

from __future__ import annotations

import pytest
from training.recorded import Recorded, check_steps, fits_of

from stallscope.parsers import read

pytestmark = [pytest.mark.horovod, pytest.mark.cases, pytest.mark.unmeasured]


@pytest.mark.parametrize(
    ("case", "batches"), [("recorder_breaks", 24), ("recorder_cannot_start", 12)]
)
def test_training_goes_on_after_one_warning_and_the_model_is_given_back(
    recorded: Recorded, case: str, batches: int
) -> None:
    for rank in range(2):
        result = recorded.result(case, rank)
        assert result["batches"] == result["iterations"] == batches
        [[level, message]] = result["logged"]
        assert level == "WARNING"
        assert "ZeroDivisionError('broken on purpose')" in message
        assert f"rank {rank} is no longer recorded, training goes on" in message
        assert result["ours"] == []
        assert result["reduction_is_back"] is True
    assert recorded.same_weights(case)


def test_what_was_recorded_before_the_fault_can_be_read(recorded: Recorded) -> None:
    [run] = read(str(recorded.logs("recorder_breaks")))
    for fit in fits_of(run):
        check_steps(fit, 0, len(fit.steps))
        assert 0 < len(fit.steps) <= 6
        assert not fit.log.ended
    assert run.status == "open"


def test_a_model_that_could_not_be_instrumented_is_given_back_at_once(recorded: Recorded) -> None:
    for rank in range(2):
        assert recorded.result("recorder_cannot_start", rank)["in_training"] == []


def test_a_fault_while_the_graph_is_traced_leaves_the_hosts_times_and_says_why(
    recorded: Recorded,
) -> None:
    for fit in recorded.fits("stamping_breaks"):
        check_steps(fit, 0, 12, stamps=())
        assert fit.facts["stamps"]["placed"] == []
        assert (
            "could be put into the train step: ZeroDivisionError" in fit.facts["stamps"]["reason"]
        )
        assert fit.facts["gradients_reduced"] is True
    recorded.clean("stamping_breaks")
    assert recorded.same_weights("stamping_breaks")
