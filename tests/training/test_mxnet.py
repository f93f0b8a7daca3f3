"""MXNet on Python 3.8, in one process and as two ranks with Horovod."""

from __future__ import annotations

import pytest
from training.recorded import (
    RESOLUTION_NS,
    Recorded,
    check_recorder_fault,
    check_slow_rank,
    check_steps,
    record_mxnet_cases,
)

from stallscope.analysis import analyse

pytestmark = pytest.mark.frameworks

ALL = {"placed": ["data", "ready", "reduced"], "reason": None}


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Run all cases of one process."""
    return record_mxnet_cases(tmp_path_factory.mktemp("mxnet"))


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Run all cases of two ranks."""
    return record_mxnet_cases(tmp_path_factory.mktemp("mxnet"), ranks=2)


@pytest.mark.parametrize(("case", "steps"), [("plain", 24), ("slow_compute", 120)])
def test_ranks_see_every_reduction(ranks: Recorded, case: str, steps: int) -> None:
    for fit in ranks.fits(case):
        check_steps(fit, 0, steps)
        assert fit.facts["stamps"] == ALL
        assert fit.facts["gradients_reduced"] is True
        assert set(fit.steps["samples"]) == {16}
    ranks.clean(case)
    assert ranks.same_weights(case)


def test_gradients_are_mostly_ready_before_any_are_reduced(ranks: Recorded) -> None:
    # The engine takes timestamps in another thread than the one that computes.
    steps = ranks.run("slow_compute").steps.to_pandas().groupby("step")
    early = steps["ready"].max() - steps["reduced"].min()
    assert early.median() <= RESOLUTION_NS


def test_the_rank_with_the_slow_backward_pass_is_found(ranks: Recorded) -> None:
    # The engine sleeps 10 ms in it; the host does not wait.
    check_slow_rank(ranks.run("slow_compute"), "compute", milliseconds=10)


def test_recording_does_not_change_the_weights(alone: Recorded, ranks: Recorded) -> None:
    for recorded, rank in ((alone, 0), (ranks, 0), (ranks, 1)):
        assert recorded.unchanged_by_recording("plain", rank)


def test_one_process_needs_no_reduction(alone: Recorded) -> None:
    fit = alone.fit("plain")
    check_steps(fit, 0, 24)
    assert list(fit.steps["reduced"]) == list(fit.steps["ready"])
    facts = fit.facts
    assert facts["framework"] == "mxnet"
    assert facts["versions"]["mxnet"] == "1.9.1"
    assert facts["parameters"] == 8 * 64 + 64 + 64 * 4 + 4
    assert (facts["gradient_tensors"], facts["gradient_bytes"]) == (4, 4 * facts["parameters"])
    assert facts["learning_rate"] == 0.1
    assert facts["python"].startswith("3.8.")


def test_parameters_are_recorded_with_a_given_batch_size(alone: Recorded) -> None:
    facts = alone.fit("given_batch_size").facts
    assert (facts["batch_size"], facts["gradient_tensors"]) == (16, 4)
    assert facts["gradient_bytes"] == 4 * facts["parameters"] > 0


def test_accumulated_iterations_are_one_step(alone: Recorded, ranks: Recorded) -> None:
    for fit in [alone.fit("accumulation"), *ranks.fits("accumulation")]:
        check_steps(fit, 0, 8)
        assert set(fit.steps["micro"]) == {3}
        assert set(fit.steps["samples"]) == {48}


def test_slow_input_is_input(alone: Recorded) -> None:
    assert alone.fit("slow_input").median_ms("begin", "data") > 30
    analysis = analyse(alone.run("slow_input"))
    assert {entry.name: entry.share for entry in analysis.entries}["input"] > 0.5
    assert analysis.bottleneck.kind == "input"


def test_epochs_validation_and_checkpoints_are_intervals(alone: Recorded) -> None:
    fit = alone.fit("validation_and_checkpoint")
    assert fit.kinds == ["epoch", "validation", "checkpoint"] * 2 + ["end"]
    assert list(fit.intervals["step"]) == [12] * 3 + [24] * 4


def test_without_stages_only_input_is_timed(alone: Recorded) -> None:
    fit = alone.fit("without_stages")
    check_steps(fit, 0, 24, timestamps=("data",))
    assert fit.facts["stamps"]["reason"] == "switched off with stages=False"


def test_each_batch_has_as_many_samples_as_the_loop_saw(alone: Recorded) -> None:
    alone.clean("batches_of_every_size", ranks=1)
    seen = alone.result("batches_of_every_size")["samples"]
    assert seen[:9] == [16, 16, 8, 16, 16, 16, 16, 16, 16]
    [fit] = alone.fits("batches_of_every_size", ranks=1)
    assert list(fit.steps["samples"]) == seen


def test_a_trainer_that_does_not_train_is_the_reason(alone: Recorded) -> None:
    fit = alone.fit("wrong_trainer")
    check_steps(fit, 0, 24, timestamps=("data",))
    assert "never reduced a gradient" in fit.facts["stamps"]["reason"]


def test_a_fault_in_the_recorder_costs_the_log_and_nothing_else(alone: Recorded) -> None:
    check_recorder_fault(alone)


def test_after_a_reduction_that_fails_the_other_steps_have_their_times(alone: Recorded) -> None:
    # The iteration with the failed reduction is part of the next step.
    fit = alone.fit("reduction_fails")
    check_steps(fit, 0, 11)
    assert sorted(fit.steps["micro"]) == [1] * 10 + [2]
    assert (fit.steps["ready"] > fit.steps["data"]).all()


def test_steps_that_an_engine_finishes_far_behind_the_host_lack_timestamps(alone: Recorded) -> None:
    fit = alone.fit("host_far_ahead")
    assert fit.numbers == list(range(100))
    unknown = fit.steps["ready"].isna()
    # The recorder finds the last gradient when the first step has ended.
    assert not unknown[:60].any()
    assert 0 < unknown.sum() < 40
    assert not fit.steps["end"].isna().any()


def test_without_the_engines_timestamps_gradients_have_none(alone: Recorded) -> None:
    fit = alone.fit("engine_takes_no_times")
    check_steps(fit, 0, 24, timestamps=("data",))
    assert "takes no times" in fit.facts["stamps"]["reason"]


def test_errors_of_the_engine_reach_the_training_and_not_the_recorder(alone: Recorded) -> None:
    result = alone.result("operator_fails")
    assert "potrf" in result["error"]
    assert result["logged"] == []
