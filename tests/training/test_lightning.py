"""Lightning, in one process and as two ranks with DistributedDataParallel."""

from __future__ import annotations

from typing import Any

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

from stallscope.analysis import analyse

pytestmark = [pytest.mark.frameworks, pytest.mark.unmeasured]

ALL = {"placed": ["data", "ready", "reduced"], "reason": None}


def launched(
    factory: pytest.TempPathFactory, *options: str, cases: tuple[str, ...] = (), **settings: Any
) -> Recorded:
    needs(KERAS3)
    words = ("lightning_cases.py", *options)
    folder = factory.mktemp("lightning")
    return record_cases(folder, *words, cases=cases, environment=KERAS3, **settings)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Run all cases of one process."""
    return launched(tmp_path_factory)


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Run all cases of two ranks."""
    return launched(tmp_path_factory, "--ddp")


@pytest.mark.parametrize("case", ["plain", "compiled", "by_hand", "validation_and_checkpoints"])
def test_each_step_has_all_its_stages(alone: Recorded, case: str) -> None:
    fit = alone.fit(case)
    check_steps(fit, 0, 24)
    assert fit.facts["stamps"] == ALL
    assert set(fit.steps["samples"]) == {16}
    assert list(fit.steps["epoch"]) == [0] * 12 + [1] * 12


def test_the_last_batch_of_an_epoch_has_fewer_samples(alone: Recorded) -> None:
    assert list(alone.fit("last_batch_smaller").steps["samples"]) == [16, 16, 8] * 2


def test_pytorch_lightning_is_recorded_like_lightning(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    cases = ("plain", "validation_and_checkpoints")
    recorded = launched(tmp_path_factory, cases=cases, LIGHTNING="pytorch_lightning")
    for case in cases:
        fit = recorded.fit(case)
        check_steps(fit, 0, 24)
        assert fit.facts["stamps"] == ALL
        assert fit.facts["versions"].keys() == {"torch", "pytorch_lightning"}


def test_recording_does_not_change_the_weights(alone: Recorded, ranks: Recorded) -> None:
    for recorded, rank in ((alone, 0), (ranks, 0), (ranks, 1)):
        assert recorded.unchanged_by_recording("plain", rank)
    assert ranks.same_weights("plain")


def test_facts_of_the_trainer(alone: Recorded) -> None:
    facts = alone.fit("plain").facts
    assert facts["framework"] == "pytorch"
    assert facts["versions"]["lightning"].startswith("2.")
    assert facts["versions"]["torch"].startswith("2.")
    assert (facts["model"], facts["optimizer"]) == ("Net", "SGD")
    assert (facts["epochs"], facts["batches_per_epoch"], facts["batch_size"]) == (2, 12, 16)
    assert facts["loader_workers"] == 0
    assert alone.run("plain").name == "plain run"


def test_validation_and_checkpoints_are_intervals(alone: Recorded) -> None:
    fit = alone.fit("validation_and_checkpoints")
    assert fit.kinds == [*(["validation", "checkpoint"] * 2 + ["epoch"]) * 2, "end"]
    assert list(fit.of_kind("validation")["step"]) == [6, 12, 18, 24]
    for _, validation in fit.of_kind("validation").iterrows():
        inside = (fit.steps["begin"] < validation["end"]) & (fit.steps["end"] > validation["begin"])
        assert not inside.any()


def test_slow_input_is_input(alone: Recorded) -> None:
    assert alone.fit("slow_input").median_ms("begin", "data") > 120
    analysis = analyse(alone.run("slow_input"))
    assert {entry.name: entry.share for entry in analysis.entries}["input"] > 0.5
    assert analysis.bottleneck.kind == "input"


def test_a_slow_training_step_is_compute(alone: Recorded) -> None:
    assert alone.fit("slow_compute").median_ms("data", "ready") > 120
    analysis = analyse(alone.run("slow_compute"))
    assert {entry.name: entry.share for entry in analysis.entries}["compute"] > 0.5


def test_accumulated_batches_are_one_step(alone: Recorded, ranks: Recorded) -> None:
    for fit in [alone.fit("accumulation"), *ranks.fits("accumulation")]:
        check_steps(fit, 0, 8)
        assert set(fit.steps["micro"]) == {3}
        assert set(fit.steps["samples"]) == {48}
        assert fit.facts["accumulate_grad_batches"] == 3


def test_without_stages_only_input_is_timed(alone: Recorded) -> None:
    fit = alone.fit("without_stages")
    check_steps(fit, 0, 24, timestamps=("data",))
    assert fit.facts["stamps"]["reason"] == "switched off with stages=False"


def test_a_fit_that_raises_has_recorded_its_steps(alone: Recorded) -> None:
    fit = alone.fit("raises")
    check_steps(fit, 0, 5)
    assert fit.kinds[-1] == "end"


def test_a_second_fit_continues_the_count(alone: Recorded) -> None:
    alone.clean("two_fits", ranks=1)
    for number, fit in enumerate(alone.fits("two_fits", ranks=1)):
        check_steps(fit, 24 * number, 24)


def test_a_fit_from_a_checkpoint_continues_its_count(alone: Recorded) -> None:
    check_steps(alone.fit("resumed"), 12, 12)


def test_a_fault_in_the_recorder_costs_the_log_and_nothing_else(alone: Recorded) -> None:
    check_recorder_fault(alone)


@pytest.mark.parametrize(
    "case", ["plain", "compiled", "slow_backward_on_one_rank", "slow_input_on_one_rank"]
)
def test_ranks_see_every_reduction(ranks: Recorded, case: str) -> None:
    for fit in ranks.fits(case):
        check_steps(fit, 0, 40 if case.startswith("slow") else 24)
        assert fit.facts["stamps"] == ALL
        assert fit.facts["gradients_reduced"] is True
        assert fit.facts["size"] == 2
    check_ranks_together(ranks.run(case))
    ranks.clean(case)


@pytest.mark.parametrize(
    ("case", "cause"),
    [("slow_backward_on_one_rank", "compute"), ("slow_input_on_one_rank", "input")],
)
def test_the_slow_rank_is_found(ranks: Recorded, case: str, cause: str) -> None:
    check_slow_rank(ranks.run(case), cause, milliseconds=120)
