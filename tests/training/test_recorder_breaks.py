"""A fault in the recorder costs the log, and never the training."""

from __future__ import annotations

import pytest
from training.recorded import Recorded, check_steps, fits_of

from stallscope.parsers import read

pytestmark = [pytest.mark.horovod, pytest.mark.cases, pytest.mark.unmeasured]


@pytest.mark.parametrize(
    ("case", "batches"), [("recorder_breaks", 24), ("recorder_cannot_start", 12)]
)
def test_after_a_fault_training_continues_with_one_warning_and_a_restored_model(
    recorded: Recorded, case: str, batches: int
) -> None:
    for rank in range(2):
        result = recorded.result(case, rank)
        assert result["batches"] == result["iterations"] == batches
        message = recorded.warning(case, rank)
        assert "ZeroDivisionError('broken on purpose')" in message
        assert f"rank {rank} is no longer recorded, training goes on" in message
        assert result["ours"] == []
        assert result["reduction_is_back"] is True
    assert recorded.same_weights(case)


def test_steps_before_the_fault_can_be_read(recorded: Recorded) -> None:
    [run] = read(str(recorded.logs("recorder_breaks")))
    for fit in fits_of(run):
        check_steps(fit, 0, len(fit.steps))
        assert 0 < len(fit.steps) <= 6
        assert not fit.log.ended
    assert run.status == "open"


def test_after_a_fault_at_the_start_the_model_is_restored_before_training(
    recorded: Recorded,
) -> None:
    for rank in range(2):
        assert recorded.result("recorder_cannot_start", rank)["in_training"] == []


def test_after_a_fault_while_tracing_the_log_has_the_hosts_times_and_the_reason(
    recorded: Recorded,
) -> None:
    for fit in recorded.fits("stamping_breaks"):
        check_steps(fit, 0, 12, timestamps=())
        assert fit.facts["stamps"]["placed"] == []
        assert (
            "could be put into the train step: ZeroDivisionError" in fit.facts["stamps"]["reason"]
        )
        assert fit.facts["gradients_reduced"] is True
    recorded.clean("stamping_breaks")
    assert recorded.same_weights("stamping_breaks")
