"""One process without ranks: what is ready needs no reducing."""

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


def test_xla_leaves_the_hosts_times_and_says_why(recorded_alone: Recorded) -> None:
    fit = recorded_alone.fit_of_one_process("xla_alone")
    check_steps(fit, 0, 12, stamps=())
    assert fit.facts["stamps"] == {"placed": [], "reason": "jit_compile=True: XLA has no clock"}


def test_xla_inside_a_train_step_leaves_the_stamps_in_front_of_it(recorded_alone: Recorded) -> None:
    fit = recorded_alone.fit_of_one_process("xla_inside")
    check_steps(fit, 0, 12, stamps=("data",))
    assert fit.facts["stamps"]["placed"] == ["data"]
    assert "XLA compiles a part of the train step" in fit.facts["stamps"]["reason"]


def test_gradients_that_pass_by_the_optimizer_are_said_to(recorded_alone: Recorded) -> None:
    fit = recorded_alone.fit_of_one_process("one_process_own_loop")
    check_steps(fit, 0, 12, stamps=("data",))
    assert "does not take its gradients from the optimizer" in fit.facts["stamps"]["reason"]


def test_a_batch_without_a_number_of_samples_has_none(recorded_alone: Recorded) -> None:
    fit = recorded_alone.fit_of_one_process("nested_data")
    assert fit.steps["samples"].isna().all()
    assert fit.facts.get("batch_size") is None
