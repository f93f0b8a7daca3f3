"""One process without ranks: ready gradients need no reduction."""

from __future__ import annotations

import pytest
from training.recorded import Recorded, check_steps

pytestmark = [pytest.mark.horovod, pytest.mark.cases, pytest.mark.unmeasured]


@pytest.mark.parametrize(
    ("case", "steps"),
    [
        ("one_process", 24),
        ("one_process_legacy", 12),
        ("one_process_mixed_precision", 12),
        ("one_process_with_horovod", 12),
        ("nested_data", 12),
        ("callback_called_by_hand", 12),
    ],
)
def test_gradients_are_reduced_when_they_are_ready(
    recorded_alone: Recorded, case: str, steps: int
) -> None:
    fit = recorded_alone.fit_of_one_process(case)
    check_steps(fit, 0, steps)
    assert list(fit.steps["reduced"]) == list(fit.steps["ready"])
    assert fit.facts["gradient_bytes"] == 3344
    assert fit.facts["stamps"]["reason"] is None


def test_horovod_is_not_needed(recorded_alone: Recorded) -> None:
    assert recorded_alone.result("one_process")["horovod_imported"] is False
    facts = recorded_alone.fit_of_one_process("one_process").facts
    assert facts["versions"]["horovod"] is None
    assert facts["rank"] == 0
    assert facts["learning_rate_scaled"] is None


def test_with_xla_the_log_has_the_hosts_times_and_the_reason(recorded_alone: Recorded) -> None:
    fit = recorded_alone.fit_of_one_process("xla_alone")
    check_steps(fit, 0, 12, timestamps=())
    assert fit.facts["stamps"] == {"placed": [], "reason": "jit_compile=True: XLA has no clock"}


def test_with_xla_inside_a_train_step_timestamps_before_it_stay(recorded_alone: Recorded) -> None:
    fit = recorded_alone.fit_of_one_process("xla_inside")
    check_steps(fit, 0, 12, timestamps=("data",))
    assert fit.facts["stamps"]["placed"] == ["data"]
    assert "XLA compiles a part of the train step" in fit.facts["stamps"]["reason"]


def test_gradients_that_bypass_the_optimizer_are_the_reason(recorded_alone: Recorded) -> None:
    fit = recorded_alone.fit_of_one_process("one_process_own_loop")
    check_steps(fit, 0, 12, timestamps=("data",))
    assert "does not take its gradients from the optimizer" in fit.facts["stamps"]["reason"]


def test_batches_without_a_size_have_no_number_of_samples(recorded_alone: Recorded) -> None:
    fit = recorded_alone.fit_of_one_process("nested_data")
    assert fit.steps["samples"].isna().all()
    assert fit.facts.get("batch_size") is None
