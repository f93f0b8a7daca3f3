"""With every kind of data, each step of each rank is in the log with its stages."""

from __future__ import annotations

import pytest
from training.recorded import Recorded, check_ranks_together, check_steps

pytestmark = [pytest.mark.horovod, pytest.mark.cases, pytest.mark.unmeasured]


@pytest.mark.parametrize(
    ("case", "steps", "epochs"),
    [
        ("generator", 24, 2),
        ("sequence", 24, 2),
        ("petastorm", 24, 2),
        ("class_weight", 12, 1),
        ("structured", 12, 1),
        ("ragged", 12, 1),
    ],
)
def test_each_step_is_recorded_with_its_epoch(
    recorded_alone: Recorded, case: str, steps: int, epochs: int
) -> None:
    fit = recorded_alone.fit_of_one_process(case)
    check_steps(fit, 0, steps)
    assert set(fit.steps["micro"]) == {1}
    assert set(fit.steps["samples"]) == {16}
    assert fit.facts["batch_size"] == 16
    assert fit.facts["stamps"] == {"placed": ["data", "ready"], "reason": None}
    per_epoch = [fit.numbers[row] for row in range(0, steps, steps // epochs)]
    assert [int(step) for step in fit.steps.groupby("epoch")["step"].min()] == per_epoch
    assert list(fit.of_kind("epoch")["epoch"]) == list(range(epochs))
    assert list(fit.of_kind("epoch")["step"]) == [*per_epoch[1:], steps]


def test_the_last_batch_of_an_epoch_may_be_smaller(recorded_alone: Recorded) -> None:
    fit = recorded_alone.fit_of_one_process("arrays")
    check_steps(fit, 0, 24)
    assert list(fit.steps["samples"]) == ([16] * 11 + [5]) * 2
    assert fit.facts["batch_size"] == 16


def test_data_of_unknown_length_ends_without_an_incomplete_step(recorded_alone: Recorded) -> None:
    """Keras starts a batch that never comes, and even counts an update for it."""
    fit = recorded_alone.fit_of_one_process("unknown_length")
    check_steps(fit, 0, 20)
    assert list(fit.steps["epoch"]) == [0] * 10 + [1] * 10
    assert list(fit.of_kind("epoch")["step"]) == [10, 20]


def test_steps_before_data_ends_inside_a_call_are_recorded(recorded_alone: Recorded) -> None:
    fit = recorded_alone.fit_of_one_process("data_ends_inside_call")
    check_steps(fit, 0, 17)
    assert list(fit.steps["epoch"]) == [0] * 10 + [1] * 7


def test_a_slow_loader_is_input_of_its_rank(recorded: Recorded) -> None:
    fast, slow = recorded.fits("slow_input")
    assert slow.median_ms("begin", "data") >= 100
    assert fast.median_ms("begin", "data") < 80
    assert slow.median_ms("data", "ready") < 80
    # The other rank waits for it inside the allreduce, and not in another stage.
    assert fast.median_ms("ready", "reduced") > 50
    check_ranks_together(recorded.run("slow_input"))


def test_slow_compute_is_compute_of_its_rank(recorded: Recorded) -> None:
    fast, slow = recorded.fits("slow_compute")
    assert slow.median_ms("data", "ready") >= 100
    assert fast.median_ms("data", "ready") < 80
    assert slow.median_ms("begin", "data") < 80
    assert fast.median_ms("ready", "reduced") > 50
    check_ranks_together(recorded.run("slow_compute"))


def test_a_waiting_rank_sleeps(recorded: Recorded) -> None:
    """Horovod's PyTorch polls: see test_torch_ranks.py."""
    seconds = recorded.result("waits_for_a_rank")
    # A polling thread uses most of a core, even on a busy machine.
    assert seconds["cpu_seconds"] < 0.1 * seconds["waited_seconds"]
