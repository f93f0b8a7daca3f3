"""Hugging Face's Trainer, Accelerate and Lightning Fabric, in one process and as two ranks."""

from __future__ import annotations

import pytest
from training.environments import KERAS3, needs
from training.recorded import (
    Recorded,
    check_ranks_together,
    check_recorder_fault,
    check_slow_rank,
    check_steps,
    record_cases,
)

pytestmark = [pytest.mark.frameworks, pytest.mark.unmeasured]

ALL = {"placed": ["data", "ready", "reduced"], "reason": None}


def launched(factory: pytest.TempPathFactory, *words: str) -> Recorded:
    needs(KERAS3)
    folder = factory.mktemp("hugging-face")
    words = (*words, "hugging_face_cases.py")
    return record_cases(folder, *words, environment=KERAS3)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Run all cases of one process."""
    return launched(tmp_path_factory)


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Run all cases of two ranks."""
    return launched(tmp_path_factory, "two_ranks.py")


@pytest.mark.parametrize(
    "case", ["plain", "compiled", "evaluation_and_checkpoints", "accelerate_loop", "fabric_loop"]
)
def test_each_step_has_all_its_stages(alone: Recorded, case: str) -> None:
    fit = alone.fit_of_one_process(case)
    check_steps(fit, 0, 24)
    assert fit.facts["stamps"] == ALL
    assert set(fit.steps["samples"]) == {16}
    assert list(fit.steps["epoch"]) == [0] * 12 + [1] * 12


@pytest.mark.parametrize("case", ["plain", "accelerate_loop", "fabric_loop"])
def test_recording_does_not_change_the_weights(alone: Recorded, ranks: Recorded, case: str) -> None:
    for recorded, rank in ((alone, 0), (ranks, 0), (ranks, 1)):
        assert recorded.unchanged_by_recording(case, rank)
    assert ranks.same_weights(case)


def test_facts_of_the_trainer(ranks: Recorded) -> None:
    for rank, fit in enumerate(ranks.fits("plain")):
        facts = fit.facts
        assert facts["framework"] == "pytorch"
        assert facts["versions"].keys() == {"torch", "transformers", "accelerate"}
        assert (facts["model"], facts["optimizer"]) == ("Net", "SGD")
        assert (facts["epochs"], facts["batches_per_epoch"], facts["batch_size"]) == (2, 12, 16)
        assert (facts["rank"], facts["size"], facts["reduces_with"]) == (rank, 2, ["gloo"])
        assert facts["accumulate_grad_batches"] == 1
    assert ranks.run("plain").name == "plain run"


def test_facts_of_accelerate(ranks: Recorded) -> None:
    for fit in ranks.fits("accelerate_accumulates"):
        facts = fit.facts
        assert facts["versions"]["accelerate"].startswith("1.")
        assert (facts["model"], facts["optimizer"]) == ("Net", "SGD")
        assert (facts["batches_per_epoch"], facts["batch_size"]) == (12, 16)
        assert facts["backward_passes_per_step"] == 5


def test_evaluations_and_checkpoints_are_intervals(alone: Recorded) -> None:
    fit = alone.fit("evaluation_and_checkpoints")
    pauses = fit.intervals[fit.intervals["kind"].isin(["validation", "checkpoint"])]
    assert list(pauses["kind"]) == ["validation", "checkpoint"] * 4
    assert list(fit.of_kind("checkpoint")["step"]) == [6, 12, 18, 24]
    for _, pause in pauses.iterrows():
        inside = (fit.steps["begin"] < pause["end"]) & (fit.steps["end"] > pause["begin"])
        assert not inside.any()


@pytest.mark.parametrize("case", ["accumulation", "accelerate_accumulates"])
def test_accumulated_batches_are_one_step(alone: Recorded, ranks: Recorded, case: str) -> None:
    for fit in [alone.fit(case), *ranks.fits(case)]:
        check_steps(fit, 0, 6)
        assert list(fit.steps["micro"]) == [5, 5, 2] * 2
        assert list(fit.steps["samples"]) == [80, 80, 32] * 2
        assert fit.facts["stamps"] == ALL


def test_without_stages_only_input_is_timed(alone: Recorded) -> None:
    fit = alone.fit("without_stages")
    check_steps(fit, 0, 8, timestamps=("data",))
    assert set(fit.steps["micro"]) == {3}
    assert fit.facts["stamps"]["reason"] == "switched off with stages=False"


def test_a_training_that_raises_has_recorded_its_steps(alone: Recorded) -> None:
    fit = alone.fit("raises")
    check_steps(fit, 0, 5)
    assert fit.kinds[-1] == "end"


def test_a_training_from_a_checkpoint_continues_its_count(alone: Recorded) -> None:
    fit = alone.fit("resumed")
    check_steps(fit, 6, 18)
    assert list(fit.steps["epoch"]) == [0] * 6 + [1] * 12


def test_a_fault_in_the_recorder_costs_the_log_and_nothing_else(alone: Recorded) -> None:
    check_recorder_fault(alone)


def test_a_callback_without_a_trainer_warns(alone: Recorded) -> None:
    assert "no Trainer of transformers 4.46 or later" in alone.warning("no_trainer")


@pytest.mark.parametrize(
    ("case", "steps"),
    [
        ("plain", 24),
        ("compiled", 24),
        ("accumulation", 6),
        ("slow_backward", 100),
        ("slow_input", 100),
        ("slow_input_with_accumulation", 100),
        ("accelerate_loop", 24),
        ("accelerate_accumulates", 6),
        ("accelerate_slow_input", 100),
        ("accelerate_slow_backward", 100),
        ("fabric_loop", 24),
        ("fabric_compiled", 24),
        ("fabric_slow_input", 100),
    ],
)
def test_ranks_see_every_reduction(ranks: Recorded, case: str, steps: int) -> None:
    for fit in ranks.fits(case):
        check_steps(fit, 0, steps)
        assert fit.facts["stamps"] == ALL
        assert fit.facts["gradients_reduced"] is True
    check_ranks_together(ranks.run(case))
    ranks.clean(case)


@pytest.mark.parametrize(
    ("case", "cause"),
    [
        ("slow_backward", "compute"),
        ("slow_input", "input"),
        ("slow_input_with_accumulation", "input"),
        ("accelerate_slow_input", "input"),
        ("accelerate_slow_backward", "compute"),
        ("fabric_slow_input", "input"),
    ],
)
def test_the_slow_rank_is_found(ranks: Recorded, case: str, cause: str) -> None:
    check_slow_rank(ranks.run(case), cause, milliseconds=40)


def test_waiting_for_the_tokens_of_a_slow_rank_is_not_compute(ranks: Recorded) -> None:
    """The Trainer adds up the ranks' tokens before each step, and waits there for slow input."""
    for case in ("slow_input", "slow_input_with_accumulation"):
        patient, slow = ranks.fits(case)
        assert patient.median_ms("ready", "reduced") > slow.median_ms("begin", "data") / 2
        assert patient.median_ms("data", "ready") < slow.median_ms("begin", "data") / 2
