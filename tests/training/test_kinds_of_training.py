"""With every kind of training, the log has the true stages, or null with the reason."""

from __future__ import annotations

import pytest
from training.recorded import Recorded, check_ranks_together, check_steps

pytestmark = [pytest.mark.horovod, pytest.mark.cases, pytest.mark.unmeasured]

ALL = {"placed": ["data", "ready", "reduced"], "reason": None}


@pytest.mark.parametrize(
    ("case", "steps", "tensors", "size"),
    [
        # 8·64 + 64 + 64·4 + 4 numbers of 4 bytes.
        ("eager", 4, 4, 3344),
        ("legacy_optimizer", 12, 4, 3344),
        ("schedule", 12, 4, 3344),
        ("none_gradient", 12, 4, 3344),
        # The size of an embedding's gradient depends on the batch.
        ("embeddings", 12, 5, None),
        ("embeddings_as_dense", 12, 5, None),
        ("own_train_step_on_instance", 12, 4, 3344),
        ("assigned_train_function", 12, 4, 3344),
        ("logs_by_number", 12, 4, 3344),
    ],
)
def test_each_step_has_all_its_stages(
    recorded: Recorded, case: str, steps: int, tensors: int, size: int | None
) -> None:
    for fit in recorded.fits(case):
        check_steps(fit, 0, steps)
        assert fit.facts["stamps"] == ALL
        assert fit.facts["gradients_reduced"] is True
        assert fit.facts["gradient_tensors"] == tensors
        assert fit.facts["gradient_bytes"] == size
    check_ranks_together(recorded.run(case))
    recorded.clean(case)
    assert recorded.same_weights(case)


def test_recording_does_not_change_the_weights(recorded: Recorded) -> None:
    for rank in range(2):
        assert recorded.unchanged_by_recording("plain", rank)
        assert recorded.result("plain", rank)["batches"] == 24
    assert recorded.same_weights("plain")


@pytest.mark.parametrize("case", ["plain", "legacy_optimizer"])
def test_the_recorder_restores_the_optimizers_reduction(recorded: Recorded, case: str) -> None:
    assert recorded.result(case)["reduction_is_back"] is True


@pytest.mark.parametrize("case", ["own_train_step_on_instance", "assigned_train_function"])
def test_the_recorder_restores_the_users_functions(recorded: Recorded, case: str) -> None:
    assert recorded.result(case)["own_is_back"] is True


def test_a_wrapper_of_the_train_function_stays_and_works(recorded: Recorded) -> None:
    run = recorded.run("wrapped_train_function")
    # The function is another one from the first epoch on, so that there is a second part.
    assert run.steps["step"].to_pylist() == 2 * list(range(12))
    for rank in range(2):
        result = recorded.result("wrapped_train_function", rank)
        assert (result["iterations"], result["logged"]) == (24, [])


@pytest.mark.parametrize(("case", "steps"), [("accumulation", 6), ("eager_accumulation", 2)])
def test_accumulated_passes_are_one_step(recorded: Recorded, case: str, steps: int) -> None:
    for fit in recorded.fits(case):
        check_steps(fit, 0, steps)
        assert set(fit.steps["micro"]) == {2}
        assert set(fit.steps["samples"]) == {32}
        assert fit.facts["batch_size"] == 32
        assert fit.facts["backward_passes_per_step"] == 2
        assert fit.facts["gradients_reduced"] is True
        assert fit.facts["stamps"] == ALL
    check_ranks_together(recorded.run(case))
    recorded.clean(case)


def test_a_left_over_pass_belongs_to_the_first_step_of_the_next_fit(recorded: Recorded) -> None:
    for fit in recorded.fits("accumulation_left_over"):
        assert fit.facts["batch_size"] == 32
        if fit.log.part == 0:
            check_steps(fit, 0, 3)
            assert list(fit.steps["micro"]) == [2, 2, 2]
        else:
            check_steps(fit, 3, 4)
            assert list(fit.steps["micro"]) == [1, 2, 2, 2]
    check_ranks_together(recorded.run("accumulation_left_over"))
    recorded.clean("accumulation_left_over")


def test_gradients_that_are_not_reduced_are_an_error_after_the_first_step(
    recorded: Recorded,
) -> None:
    for fit in recorded.fits("not_reduced"):
        check_steps(fit, 0, 12, timestamps=("data",))
        assert fit.facts["gradients_reduced"] is False
        assert fit.facts["stamps"]["reason"] == "the gradients are not reduced"
    for rank in range(2):
        result = recorded.result("not_reduced", rank)
        assert result["errors_after_step"] == [1] * 12
        [[level, message]] = result["logged"]
        assert level == "ERROR"
        assert "2 ranks train, but their gradients are not reduced" in message
        assert result["ours"] == []
    assert not recorded.same_weights("not_reduced")


def test_gradients_that_a_tape_reduces_have_timestamps(recorded: Recorded) -> None:
    for fit in recorded.fits("tape"):
        check_steps(fit, 0, 12)
        assert fit.facts["gradients_reduced"] is True
        assert fit.facts["stamps"] == ALL
    check_ranks_together(recorded.run("tape"))
    recorded.clean("tape")
    assert recorded.same_weights("tape")
    assert recorded.result("tape", 0)["later_tape_is_plain"]


def test_with_several_tapes_in_a_step_gradients_have_no_timestamps(recorded: Recorded) -> None:
    for fit in recorded.fits("two_tapes"):
        check_steps(fit, 0, 12, timestamps=("data",))
        assert fit.facts["gradients_reduced"] is True
        assert fit.facts["stamps"]["placed"] == ["data"]
        assert fit.facts["stamps"]["reason"] == "the train step reduces gradients several times"
        assert "gradient_tensors" not in fit.facts
    recorded.clean("two_tapes")
    assert recorded.same_weights("two_tapes")


@pytest.mark.parametrize(
    ("case", "steps", "per_call"),
    [("many_per_call", 50, 10), ("more_per_call_than_steps", 8, 10), ("tuned_per_call", 13, 1)],
)
def test_each_step_inside_a_call_of_several_is_recorded(
    recorded: Recorded, case: str, steps: int, per_call: int
) -> None:
    for fit in recorded.fits(case):
        check_steps(fit, 0, steps)
        assert set(fit.steps["micro"]) == {1}
        assert set(fit.steps["samples"]) == {16}
        assert fit.facts["steps_per_execution"] == per_call
    check_ranks_together(recorded.run(case))
    recorded.clean(case)


def test_the_recorder_restores_the_steps_per_call(recorded: Recorded) -> None:
    assert recorded.result("more_per_call_than_steps")["steps_per_execution"] == 10


def test_mixed_precision_is_recorded_through_its_loss_scaling(recorded: Recorded) -> None:
    assert recorded.result("mixed_precision")["optimizer"].startswith("LossScaleOptimizer")
    for fit in recorded.fits("mixed_precision"):
        check_steps(fit, 12 * fit.log.part, 12)
        assert fit.facts["optimizer"] == "Adam"
        assert fit.facts["learning_rate"] == pytest.approx(0.002)
    check_ranks_together(recorded.run("mixed_precision"))
    recorded.clean("mixed_precision")


def test_accumulated_passes_inside_a_call_of_several_are_steps(recorded: Recorded) -> None:
    """The reduction is then in a branch of the graph, within loss scaling."""
    case = "mixed_precision_accumulation_many_per_call"
    for fit in recorded.fits(case):
        check_steps(fit, 0, 6)
        assert set(fit.steps["micro"]) == {2}
        assert set(fit.steps["samples"]) == {32}
        assert fit.facts["steps_per_execution"] == 4
    check_ranks_together(recorded.run(case))
    recorded.clean(case)


def test_without_stages_only_the_hosts_times_are_recorded(recorded: Recorded) -> None:
    for fit in recorded.fits("no_stages"):
        check_steps(fit, 0, 12, timestamps=())
        assert fit.facts["stamps"] == {"placed": [], "reason": "switched off with stages=False"}
        assert fit.facts["batch_size"] == 16
        assert fit.facts["gradients_reduced"] is True
        assert fit.facts["gradient_tensors"] == 4
    recorded.clean("no_stages")


def test_epochs_are_counted_from_the_initial_one(recorded: Recorded) -> None:
    for fit in recorded.fits("initial_epoch"):
        check_steps(fit, 0, 24)
        assert list(fit.steps["epoch"]) == [3] * 12 + [4] * 12
        assert list(fit.of_kind("epoch")["epoch"]) == [3, 4]
    recorded.clean("initial_epoch")


@pytest.mark.parametrize(
    ("case", "steps", "ran"), [("own_train_function", 12, 0), ("two_steps_per_call", 5, 2)]
)
def test_an_unusual_train_function_has_the_hosts_times_and_the_reason(
    recorded: Recorded, case: str, steps: int, ran: int
) -> None:
    for fit in recorded.fits(case):
        check_steps(fit, 0, steps, timestamps=())
        reason = f"the first call of the train function ran train_step {ran} times"
        assert fit.facts["stamps"] == {"placed": [], "reason": reason}
    recorded.clean(case)


def test_a_new_train_function_is_recorded_from_the_next_epoch_on(
    recorded: Recorded,
) -> None:
    case = "train_function_made_again"
    for fit in recorded.fits(case):
        check_steps(fit, [0, 12][fit.log.part], [12, 24][fit.log.part])
        assert fit.facts["gradient_tensors"] == [4, 2][fit.log.part]
    check_ranks_together(recorded.run(case))
    recorded.clean(case)


def test_a_callback_on_rank_0_only_does_not_stop_the_other_rank(recorded: Recorded) -> None:
    """Horovod names a tensor after its op: ops that the recorder adds must not rename others."""
    [fit] = recorded.fits("rank_0_only", ranks=1)
    check_steps(fit, 0, 12)
    assert recorded.run("rank_0_only").missing_ranks == [1]
    recorded.clean("rank_0_only")
    assert recorded.result("rank_0_only", 1)["iterations"] == 12
    assert recorded.same_weights("rank_0_only")
