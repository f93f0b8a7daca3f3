"""Two PyTorch ranks, with Horovod and with DistributedDataParallel: every stage is there, and true."""

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
    check_steps,
    fits_of,
    record_cases,
)

from stallscope.analysis import analyse
from stallscope.parsers import read

pytestmark = [pytest.mark.horovod, pytest.mark.unmeasured]

PATIENCE_SECONDS = 480.0
ALL = {"placed": ["data", "ready", "reduced"], "reason": None}
#: 8·64 + 64 + 64·4 + 4 numbers.
NUMBERS = 836


@pytest.fixture(scope="module", params=["horovod", "ddp"])
def ranks(
    request: pytest.FixtureRequest,
    training_side: None,
    tmp_path_factory: pytest.TempPathFactory,
) -> Recorded:
    """What two ranks recorded, case by case."""
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "horovod":
        return record_cases(folder, "torch_cases.py", ranks=2, seconds=PATIENCE_SECONDS)
    return record_cases(folder, "two_ranks.py", "torch_cases.py", seconds=PATIENCE_SECONDS)


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
def test_every_stage_of_every_step_is_there(ranks: Recorded, case: str, steps: int) -> None:
    for fit in ranks.fits(case):
        check_steps(fit, 0, steps)
        assert set(fit.steps["micro"]) == {1}
        assert set(fit.steps["samples"]) == {16}
        assert fit.facts["stamps"] == ALL
        assert fit.facts["gradients_reduced"] is True
    check_ranks_together(ranks.run(case))
    ranks.clean(case)
    assert ranks.same_weights(case)


def test_few_gradients_are_watched_and_the_last_one_is_seen_all_the_same(ranks: Recorded) -> None:
    for rank, fit in enumerate(ranks.fits("another_gradient_comes_last")):
        result = ranks.result("another_gradient_comes_last", rank)
        check_steps(fit, 0, 60)
        early = np.array(result["last"]) - fit.steps["ready"].to_numpy()
        # Where the order changes, the one that used to be the last counts until a pass is looked at.
        early[20:27] = early[40:47] = 0
        assert early.max() <= RESOLUTION_NS
        hooks = result["hooks"]
        assert hooks[0] == max(hooks[20:27]) == 6
        assert min(hooks[:20]) == min(hooks[27:40]) == 1
        # It may always change again: from now on all are watched.
        assert set(hooks[46:]) == {6}
    ranks.clean("another_gradient_comes_last")


@pytest.mark.parametrize("case", ["plain", "accumulation", "recorder_breaks"])
def test_recording_does_not_change_what_is_learned(ranks: Recorded, case: str) -> None:
    for rank in range(2):
        result = ranks.result(case, rank)
        assert result["weights"] == result["silent"]


def test_facts(ranks: Recorded) -> None:
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


def test_the_model_of_ddp_is_named(ranks: Recorded) -> None:
    model = ranks.fits("plain")[0].facts["model"]
    assert model == (None if is_horovod(ranks) else "Net")


def test_epochs_validation_and_checkpoints_have_rows_of_their_own(ranks: Recorded) -> None:
    for fit in ranks.fits("plain"):
        assert fit.kinds == ["epoch", "validation", "checkpoint"] * 2 + ["end"]
        assert list(fit.intervals["step"]) == [12] * 3 + [24] * 4
        assert list(fit.of_kind("epoch")["epoch"]) == [0, 1]
        assert list(fit.steps["epoch"]) == [0] * 12 + [1] * 12


def test_a_validation_inside_a_turn_ends_the_step_before_it(ranks: Recorded) -> None:
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
    run = ranks.run(case)
    assert fits_of(run)[1].median_ms("data", "ready") > 40
    verdict = analyse(run).bottleneck
    assert (verdict.kind, verdict.cause, verdict.ranks) == ("imbalance", "compute", (1,))


def test_slow_input_is_found_on_its_rank(ranks: Recorded) -> None:
    run = ranks.run("slow_input")
    assert fits_of(run)[1].median_ms("begin", "data") > 40
    verdict = analyse(run).bottleneck
    assert (verdict.kind, verdict.cause, verdict.ranks) == ("imbalance", "input", (1,))


def test_waiting_for_a_broadcast_is_no_compute(ranks: Recorded) -> None:
    slow, patient = ranks.fits("slow_before_a_broadcast")
    check_steps(slow, 0, 12)
    check_steps(patient, 0, 12)
    assert slow.median_ms("begin", "data") > 40
    assert patient.median_ms("data", "ready") < 20
    assert patient.median_ms("ready", "reduced") > 20
    ranks.clean("slow_before_a_broadcast")


def test_a_waiting_rank_polls_under_horovod(ranks: Recorded) -> None:
    found = ranks.result("waits_for_a_rank")
    # A polling thread gets most of a core even where others work; a sleeping one gets nothing.
    polls = found["cpu_seconds"] > 0.1 * found["waited_seconds"]
    assert polls is is_horovod(ranks)


def test_what_is_done_to_reduced_gradients_is_behind_the_reduction(ranks: Recorded) -> None:
    for fit in ranks.fits("clipping"):
        # Ten milliseconds of sleep between the reduction and the update.
        assert (fit.steps["end"] - fit.steps["reduced"]).min() > 10e6


@pytest.mark.parametrize(
    ("case", "steps", "passes"), [("accumulation", 8, 3), ("accumulation_left_over", 4, 5)]
)
def test_accumulated_turns_are_one_step(
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


def test_every_reduction_in_a_turn_is_a_step(ranks: Recorded) -> None:
    case = "several_reductions_in_an_iteration"
    for fit in ranks.fits(case):
        check_steps(fit, 0, 48)
        assert list(fit.steps["samples"]) == [16, 0] * 24
        second = fit.steps.iloc[1::2]
        assert (second["data"] == second["begin"]).all()
    check_ranks_together(ranks.run(case))
    ranks.clean(case)


def test_loops_that_are_left_are_epochs(ranks: Recorded) -> None:
    for fit in ranks.fits("left_early"):
        assert list(fit.steps["epoch"]) == [0] * 5 + [1] * 5 + [2] * 5 + [3] * 5
        assert fit.kinds == ["epoch"] * 4 + ["end"]


@pytest.mark.parametrize("case", ["two_sessions", "unfrozen"])
def test_a_second_session_goes_on_with_the_count(ranks: Recorded, case: str) -> None:
    for fit in ranks.fits(case):
        check_steps(fit, 24 * fit.log.part, 24)
        assert fit.log.generation == 0
    assert [fit.log.part for fit in ranks.fits(case)] == [0, 1, 0, 1]
    ranks.clean(case)


def test_adams_default_rate_times_two_is_scaled(ranks: Recorded) -> None:
    assert ranks.fits("two_sessions")[0].facts["learning_rate_scaled"] is True


def test_gradients_that_are_frozen_at_first_are_counted_when_they_train(ranks: Recorded) -> None:
    tensors = [fit.facts["gradient_tensors"] for fit in ranks.fits("unfrozen")]
    assert tensors == [2, 4, 2, 4]


def test_of_two_loggers_the_later_one_records(ranks: Recorded) -> None:
    ranks.result("two_loggers")
    for name in ("first", "logs"):
        [run] = read(str(ranks.logs("two_loggers", name)))
        for fit in fits_of(run):
            check_steps(fit, 0, 12)
    for rank in range(2):
        result = ranks.result("two_loggers", rank)
        assert result["ours"] == []
        [[level, message]] = result["logged"]
        assert level == "WARNING"
        assert "one is enough" in message


def test_on_a_device_all_stamps_are_its_own_and_nobody_waits_for_it(ranks: Recorded) -> None:
    """The device is a pretended one: nothing here has been run on a real one."""
    case = "on_a_device"
    for fit in ranks.fits(case):
        check_steps(fit, 0, 24)
        stamps = fit.facts["stamps"]
        assert (stamps["placed"], stamps["reason"]) == (ALL["placed"], None)
        assert (stamps["clock"], stamps["turns_without_times"]) == ("cuda", 0)
        # The device does everything 50 ms later, and the host's epochs do not.
        assert fit.steps["begin"][0] - fit.of_kind("epoch")["begin"].iloc[0] > 49e6
    assert fits_of(ranks.run(case))[1].median_ms("data", "ready") > 40
    check_ranks_together(ranks.run(case))
    ranks.clean(case)
    assert ranks.same_weights(case)


def test_on_a_device_accumulated_turns_are_one_step(ranks: Recorded) -> None:
    for fit in ranks.fits("accumulation_on_a_device"):
        check_steps(fit, 0, 8)
        assert set(fit.steps["micro"]) == {3}
        assert set(fit.steps["samples"]) == {48}
    ranks.clean("accumulation_on_a_device")


def host_only(fits: list[Fit], steps: int, reason: str) -> None:
    for fit in fits:
        check_steps(fit, 0, steps, stamps=("data",))
        assert fit.facts["stamps"]["placed"] == ["data"]
        assert reason in fit.facts["stamps"]["reason"]


def test_without_stages_steps_are_still_counted_by_reductions(ranks: Recorded) -> None:
    fits = ranks.fits("without_stages")
    host_only(fits, 12, "stages=False")
    assert all(set(fit.steps["micro"]) == {2} for fit in fits)
    ranks.clean("without_stages")


def test_reductions_that_cannot_be_seen_are_said_to(ranks: Recorded) -> None:
    fits = ranks.fits("optimizer_alone")
    host_only(fits, 12, "the optimizer is not Horovod's and the model not DistributedDataParallel")
    assert all(fit.facts["gradients_reduced"] is None for fit in fits)
    ranks.clean("optimizer_alone")
    assert ranks.same_weights("optimizer_alone")


def test_an_optimizer_or_model_that_does_not_train_is_said_not_to(ranks: Recorded) -> None:
    host_only(ranks.fits("wrong_object"), 24, "never reduced a gradient")
    ranks.clean("wrong_object")


def one_warning(ranks: Recorded, case: str, rank: int, what: str) -> None:
    [[level, message]] = ranks.result(case, rank)["logged"]
    assert level == "WARNING"
    assert what in message
    assert f"rank {rank} is no longer recorded, training goes on" in message


@pytest.mark.parametrize(
    ("case", "what", "steps"),
    [("no_folder", "cannot write to", 12), ("disk_gets_full", "File too large", 100)],
)
def test_a_rank_that_cannot_write_trains_on(
    ranks: Recorded, case: str, what: str, steps: int
) -> None:
    one_warning(ranks, case, 1, what)
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
        one_warning(ranks, case, rank, "ZeroDivisionError('broken on purpose')")
        assert ranks.result(case, rank)["ours"] == []
    assert ranks.same_weights(case)
    [run] = read(str(ranks.logs(case)))
    # What breaks in the recorder's own thread may take with it what has not been written yet.
    fewest = 0 if case.endswith("thread") else most
    assert all(fewest <= len(fit.steps) <= most for fit in fits_of(run))
    assert len(run.ranks) == 2
    assert run.status == "open"


def test_hooks_are_taken_out_at_once_where_recording_cannot_start(ranks: Recorded) -> None:
    for rank in range(2):
        assert ranks.result("recorder_cannot_start", rank)["in_training"] == []


def test_ranks_that_share_no_folder_gather_their_logs(ranks: Recorded) -> None:
    check_gathered(ranks)


def test_some_steps_are_recorded_in_full_in_several_files(ranks: Recorded) -> None:
    check_sampled(ranks, steps=320)
