"""Two PyTorch ranks, with Horovod and with DistributedDataParallel, have all stages of each step."""

from __future__ import annotations

import numpy as np
import pytest
from training.recorded import (
    RESOLUTION_NS,
    Fit,
    Recorded,
    check_gathered,
    check_ranks_together,
    check_sampled,
    check_slow_rank,
    check_steps,
    fits_of,
    record_cases,
)

from stallscope.parsers import read

pytestmark = [pytest.mark.horovod, pytest.mark.unmeasured]

ALL = {"placed": ["data", "ready", "reduced"], "reason": None}
#: 8·64 + 64 + 64·4 + 4 numbers.
NUMBERS = 836


@pytest.fixture(scope="module", params=["horovod", "ddp"])
def ranks(
    request: pytest.FixtureRequest,
    training_side: None,
    tmp_path_factory: pytest.TempPathFactory,
) -> Recorded:
    """Run all cases of two ranks."""
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "horovod":
        return record_cases(folder, "torch_cases.py", ranks=2)
    return record_cases(folder, "two_ranks.py", "torch_cases.py")


def is_horovod(ranks: Recorded) -> bool:
    facts = ranks.fits("plain")[0].facts
    return facts["versions"]["horovod"] is not None


@pytest.mark.parametrize(
    ("case", "steps"),
    [
        ("plain", 24),
        ("clipping", 24),
        ("scaler", 24),
        ("unused_parameters", 24),
        ("static_graph", 24),
        ("reentrant_checkpoint", 24),
        ("all_in_a_reentrant_checkpoint", 24),
        ("several_backward_passes_in_an_iteration", 24),
        ("synchronized_twice", 24),
        ("left_early", 20),
        ("validation_in_an_iteration", 12),
        ("copies", 12),
        ("compiled", 24),
        ("compiled_and_slow", 100),
        ("slow_compute", 100),
        ("slow_input", 100),
    ],
)
def test_each_step_has_all_its_stages(ranks: Recorded, case: str, steps: int) -> None:
    for fit in ranks.fits(case):
        check_steps(fit, 0, steps)
        assert set(fit.steps["micro"]) == {1}
        assert set(fit.steps["samples"]) == {16}
        assert fit.facts["stamps"] == ALL
        assert fit.facts["gradients_reduced"] is True
    check_ranks_together(ranks.run(case))
    ranks.clean(case)
    assert ranks.same_weights(case)


def test_the_last_gradient_is_seen_although_few_are_watched(ranks: Recorded) -> None:
    for rank, fit in enumerate(ranks.fits("another_gradient_comes_last")):
        result = ranks.result("another_gradient_comes_last", rank)
        check_steps(fit, 0, 60)
        early = np.array(result["last"]) - fit.steps["ready"].to_numpy()
        # After a change of order, the recorder counts the former last one until it checks a pass.
        early[20:27] = early[40:47] = 0
        assert early.max() <= RESOLUTION_NS
        hooks = result["hooks"]
        assert hooks[0] == max(hooks[20:27]) == 6
        assert min(hooks[:20]) == min(hooks[27:40]) == 1
        # The order may change again: from now on all are watched.
        assert set(hooks[46:]) == {6}
    ranks.clean("another_gradient_comes_last")


@pytest.mark.parametrize("case", ["plain", "accumulation", "recorder_breaks"])
def test_recording_does_not_change_the_weights(ranks: Recorded, case: str) -> None:
    assert all(ranks.unchanged_by_recording(case, rank) for rank in range(2))


def test_facts_of_the_model_the_rank_and_its_settings(ranks: Recorded) -> None:
    for rank, fit in enumerate(ranks.fits("plain")):
        facts = fit.facts
        assert facts["framework"] == "pytorch"
        assert facts["versions"]["torch"].startswith("2.")
        assert facts["optimizer"] == "SGD"
        assert facts["learning_rate"] == 0.1
        assert facts["learning_rate_scaled"] is None
        assert facts["parameters"] == NUMBERS
        assert facts["gradient_tensors"] == 4
        assert facts["gradient_bytes"] == 4 * NUMBERS
        assert facts["batch_size"] == 16
        assert facts["batches_per_epoch"] == 12
        assert (facts["loader_workers"], facts["persistent_workers"]) == (0, False)
        assert facts["compression"] == "none"
        assert facts["bucket_bytes"] == (None if is_horovod(ranks) else 25 << 20)
        assert facts["threads"]["intra_op"] == 1
        assert facts["devices"] == ["CPU"]
        assert (facts["rank"], facts["size"], facts["local_rank"]) == (rank, 2, rank)
        assert facts["launch"] is not None
    assert ranks.run("plain").name == "plain run"


def test_the_model_is_named_if_it_is_known(ranks: Recorded) -> None:
    model = ranks.fits("plain")[0].facts["model"]
    assert model == (None if is_horovod(ranks) else "Net")


def test_epochs_validation_and_checkpoints_are_intervals(ranks: Recorded) -> None:
    for fit in ranks.fits("plain"):
        assert fit.kinds == ["epoch", "validation", "checkpoint"] * 2 + ["end"]
        assert list(fit.intervals["step"]) == [12] * 3 + [24] * 4
        assert list(fit.of_kind("epoch")["epoch"]) == [0, 1]
        assert list(fit.steps["epoch"]) == [0] * 12 + [1] * 12


def test_a_validation_inside_an_iteration_ends_the_step_before_it(ranks: Recorded) -> None:
    for fit in ranks.fits("validation_in_an_iteration"):
        assert fit.kinds == ["validation", "checkpoint", "epoch", "end"]
        assert set(fit.steps["epoch"]) == {7}
        # It came after the sixth step.
        assert list(fit.intervals["step"]) == [6, 6, 12, 12]
        validation, checkpoint = fit.intervals.iloc[0], fit.intervals.iloc[1]
        assert fit.steps["end"][5] <= validation["begin"]
        assert validation["end"] <= checkpoint["begin"]
        assert checkpoint["end"] <= fit.steps["begin"][6]


@pytest.mark.parametrize("case", ["slow_compute", "compiled_and_slow"])
def test_slow_compute_is_found_on_its_rank(ranks: Recorded, case: str) -> None:
    check_slow_rank(ranks.run(case), "compute", milliseconds=40)


def test_slow_input_is_found_on_its_rank(ranks: Recorded) -> None:
    check_slow_rank(ranks.run("slow_input"), "input", milliseconds=40)


def test_waiting_for_a_broadcast_is_not_compute(ranks: Recorded) -> None:
    slow, patient = ranks.fits("slow_before_a_broadcast")
    check_steps(slow, 0, 12)
    check_steps(patient, 0, 12)
    assert slow.median_ms("begin", "data") > 40
    assert patient.median_ms("data", "ready") < 20
    assert patient.median_ms("ready", "reduced") > 20
    ranks.clean("slow_before_a_broadcast")


def test_a_waiting_rank_polls_under_horovod(ranks: Recorded) -> None:
    seconds = ranks.result("waits_for_a_rank")
    # A polling thread uses most of a core, even on a busy machine; a sleeping one uses nothing.
    polls = seconds["cpu_seconds"] > 0.1 * seconds["waited_seconds"]
    assert polls is is_horovod(ranks)


def test_clipping_reduced_gradients_comes_after_the_reduction(ranks: Recorded) -> None:
    for fit in ranks.fits("clipping"):
        # Ten milliseconds of sleep between the reduction and the update.
        assert (fit.steps["end"] - fit.steps["reduced"]).min() > 10e6


@pytest.mark.parametrize(
    ("case", "steps", "passes"), [("accumulation", 8, 3), ("accumulation_left_over", 4, 5)]
)
def test_accumulated_iterations_are_one_step(
    ranks: Recorded, case: str, steps: int, passes: int
) -> None:
    for fit in ranks.fits(case):
        check_steps(fit, 0, steps)
        assert set(fit.steps["micro"]) == {passes}
        assert set(fit.steps["samples"]) == {16 * passes}
        assert fit.facts["stamps"] == ALL
        assert fit.facts["backward_passes_per_step"] == passes
    check_ranks_together(ranks.run(case))
    ranks.clean(case)


def test_each_reduction_in_an_iteration_is_a_step(ranks: Recorded) -> None:
    case = "several_reductions_in_an_iteration"
    for fit in ranks.fits(case):
        check_steps(fit, 0, 48)
        assert list(fit.steps["samples"]) == [16, 0] * 24
        second = fit.steps.iloc[1::2]
        assert (second["data"] == second["begin"]).all()
    check_ranks_together(ranks.run(case))
    ranks.clean(case)


def test_loops_that_end_early_are_epochs(ranks: Recorded) -> None:
    for fit in ranks.fits("left_early"):
        assert list(fit.steps["epoch"]) == [0] * 5 + [1] * 5 + [2] * 5 + [3] * 5
        assert fit.kinds == ["epoch"] * 4 + ["end"]


@pytest.mark.parametrize("case", ["two_sessions", "unfrozen"])
def test_a_second_session_continues_the_count(ranks: Recorded, case: str) -> None:
    for fit in ranks.fits(case):
        check_steps(fit, 24 * fit.log.part, 24)
        assert fit.log.generation == 0
    assert [fit.log.part for fit in ranks.fits(case)] == [0, 1, 0, 1]
    ranks.clean(case)


def test_twice_adams_default_rate_is_scaled(ranks: Recorded) -> None:
    assert ranks.fits("two_sessions")[0].facts["learning_rate_scaled"] is True


def test_gradients_of_an_unfrozen_layer_are_counted_in_the_next_session(ranks: Recorded) -> None:
    tensors = [fit.facts["gradient_tensors"] for fit in ranks.fits("unfrozen")]
    assert tensors == [2, 4, 2, 4]


def test_of_two_loggers_the_later_one_records(ranks: Recorded) -> None:
    ranks.result("two_loggers")
    for name in ("first", "logs"):
        [run] = read(str(ranks.logs("two_loggers", name)))
        for fit in fits_of(run):
            check_steps(fit, 0, 12)
    for rank in range(2):
        assert ranks.result("two_loggers", rank)["ours"] == []
        assert "one is enough" in ranks.warning("two_loggers", rank)


def test_on_a_device_all_timestamps_are_its_own_and_the_host_does_not_wait(ranks: Recorded) -> None:
    """The device is fake: see fake_cuda.py."""
    case = "on_a_device"
    for fit in ranks.fits(case):
        check_steps(fit, 0, 24)
        stamps = fit.facts["stamps"]
        assert (stamps["placed"], stamps["reason"]) == (ALL["placed"], None)
        assert (stamps["clock"], stamps["turns_without_times"]) == ("cuda", 0)
        # The device lags 50 ms behind; epochs are in the host's time.
        assert fit.steps["begin"][0] - fit.of_kind("epoch")["begin"].iloc[0] > 49e6
    assert fits_of(ranks.run(case))[1].median_ms("data", "ready") > 40
    check_ranks_together(ranks.run(case))
    ranks.clean(case)
    assert ranks.same_weights(case)


def test_on_a_device_accumulated_iterations_are_one_step(ranks: Recorded) -> None:
    for fit in ranks.fits("accumulation_on_a_device"):
        check_steps(fit, 0, 8)
        assert set(fit.steps["micro"]) == {3}
        assert set(fit.steps["samples"]) == {48}
    ranks.clean("accumulation_on_a_device")


def check_host_only(fits: list[Fit], steps: int, reason: str) -> None:
    for fit in fits:
        check_steps(fit, 0, steps, timestamps=("data",))
        assert fit.facts["stamps"]["placed"] == ["data"]
        assert reason in fit.facts["stamps"]["reason"]


def test_without_stages_steps_are_still_counted_by_reductions(ranks: Recorded) -> None:
    fits = ranks.fits("without_stages")
    check_host_only(fits, 12, "stages=False")
    assert all(set(fit.steps["micro"]) == {2} for fit in fits)
    ranks.clean("without_stages")


def test_reductions_that_the_recorder_cannot_see_are_the_reason(ranks: Recorded) -> None:
    fits = ranks.fits("optimizer_alone")
    reason = "the optimizer is not Horovod's and the model not DistributedDataParallel"
    check_host_only(fits, 12, reason)
    assert all(fit.facts["gradients_reduced"] is None for fit in fits)
    ranks.clean("optimizer_alone")
    assert ranks.same_weights("optimizer_alone")


def test_an_optimizer_or_model_that_does_not_train_is_the_reason(ranks: Recorded) -> None:
    check_host_only(ranks.fits("wrong_object"), 24, "never reduced a gradient")
    ranks.clean("wrong_object")


def check_warning(ranks: Recorded, case: str, rank: int, expected: str) -> None:
    message = ranks.warning(case, rank)
    assert expected in message
    assert f"rank {rank} is no longer recorded, training goes on" in message


@pytest.mark.parametrize(
    ("case", "expected", "steps"),
    [("no_folder", "cannot write to", 12), ("disk_gets_full", "File too large", 100)],
)
def test_a_rank_that_cannot_write_continues_to_train(
    ranks: Recorded, case: str, expected: str, steps: int
) -> None:
    check_warning(ranks, case, 1, expected)
    assert ranks.result(case, 0)["logged"] == []
    [run] = read(str(ranks.logs(case)))
    check_steps(fits_of(run)[0], 0, steps)
    for fit in fits_of(run)[1:]:
        check_steps(fit, 0, len(fit.steps))
        assert 10 < len(fit.steps) < steps
    assert ranks.same_weights(case)


@pytest.mark.parametrize(
    ("case", "most"),
    [
        ("recorder_breaks", 4),
        ("recorder_breaks_in_its_own_thread", 4),
        ("recorder_cannot_start", 0),
    ],
)
def test_a_fault_in_the_recorder_costs_the_log_and_nothing_else(
    ranks: Recorded, case: str, most: int
) -> None:
    for rank in range(2):
        check_warning(ranks, case, rank, "ZeroDivisionError('broken on purpose')")
        assert ranks.result(case, rank)["ours"] == []
    assert ranks.same_weights(case)
    [run] = read(str(ranks.logs(case)))
    # A fault in the recorder's own thread may lose steps that are not yet written.
    fewest = 0 if case.endswith("thread") else most
    assert all(fewest <= len(fit.steps) <= most for fit in fits_of(run))
    assert len(run.ranks) == 2
    assert run.status == "open"


def test_hooks_are_removed_at_once_if_recording_cannot_start(ranks: Recorded) -> None:
    for rank in range(2):
        assert ranks.result("recorder_cannot_start", rank)["in_training"] == []


def test_ranks_without_a_shared_folder_gather_their_logs(ranks: Recorded) -> None:
    check_gathered(ranks)


def test_sampled_steps_are_recorded_in_several_files(ranks: Recorded) -> None:
    check_sampled(ranks, steps=320)
