"""Keras 2 without ``fit``: loops of the user's own, on two real ranks and in one process."""

from __future__ import annotations

import pytest
from training.recorded import TIMESTAMPS, Recorded, check_ranks_together, check_steps, record_cases

pytestmark = [pytest.mark.horovod, pytest.mark.unmeasured]

PATIENCE_SECONDS = 240.0
STEPS = 24
SLOW_MS = 120.0


@pytest.fixture(scope="module")
def ranks(training_side: None, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    folder = tmp_path_factory.mktemp("ranks")
    return record_cases(folder, "own_loop_cases.py", ranks=2, seconds=PATIENCE_SECONDS)


@pytest.fixture(scope="module")
def alone(training_side: None, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    folder = tmp_path_factory.mktemp("alone")
    return record_cases(folder, "own_loop_cases.py", seconds=PATIENCE_SECONDS)


@pytest.mark.parametrize("case", ["eager", "graph"])
def test_every_stage_of_every_step_is_there(ranks: Recorded, case: str) -> None:
    for fit in ranks.fits(case):
        check_steps(fit, 0, STEPS)
        assert set(fit.steps["samples"]) == {16}
        assert fit.facts["stamps"] == {"placed": list(TIMESTAMPS), "reason": None}
        assert (fit.facts["gradients_reduced"], fit.facts["gradient_tensors"]) == (True, 2)
        assert (fit.facts["optimizer"], fit.facts["parameters"]) == ("SGD", 36)
        assert fit.kinds == ["epoch", "validation", "epoch", "validation", "checkpoint", "end"]
    check_ranks_together(ranks.run(case))
    assert ranks.result(case)["said"] == []


def test_recording_does_not_change_what_is_learned(ranks: Recorded) -> None:
    plain = ranks.result("unrecorded")["weights"]
    for case in ("eager", "graph", "slow_input", "no_folder"):
        assert [ranks.result(case, rank)["weights"] for rank in (0, 1)] == [plain, plain]


def test_slow_input_is_input_of_its_rank(ranks: Recorded) -> None:
    slow, fast = ranks.fits("slow_input")
    assert slow.median_ms("begin", "data") > SLOW_MS > fast.median_ms("begin", "data")
    assert slow.median_ms("data", "ready") < SLOW_MS


def test_slow_computing_is_compute_of_its_rank(ranks: Recorded) -> None:
    slow, fast = ranks.fits("slow_compute")
    assert slow.median_ms("data", "ready") > SLOW_MS > fast.median_ms("data", "ready")
    assert fast.median_ms("ready", "reduced") > SLOW_MS > slow.median_ms("ready", "reduced")


def test_who_reduces_himself_marks_himself(ranks: Recorded, alone: Recorded) -> None:
    for recorded, count in ((ranks, 2), (alone, 1)):
        for fit in recorded.fits("marked_by_hand", ranks=count):
            check_steps(fit, 0, 12)
            assert fit.facts["stamps"] == {"placed": list(TIMESTAMPS), "reason": None}


def test_one_process_has_reduced_what_is_ready(alone: Recorded) -> None:
    (fit,) = alone.fits("graph", ranks=1)
    check_steps(fit, 0, STEPS)
    assert (fit.steps["ready"] == fit.steps["reduced"]).all()


def test_marks_are_read_before_there_are_too_many(alone: Recorded) -> None:
    (fit,) = alone.fits("many_steps", ranks=1)
    check_steps(fit, 0, alone.result("many_steps")["weights"])


def test_what_is_not_marked_is_missing_with_the_reason(ranks: Recorded) -> None:
    """A step that raises is none; what comes after the logger's end is not recorded."""
    for fit in ranks.fits("only_steps"):
        check_steps(fit, 0, 3, stamps=())
        reason = "no mark of data, gradients, reduced was seen since the log began"
        assert fit.facts["stamps"]["reason"] == reason
        assert fit.facts["gradients_reduced"] is None


def test_marks_that_cannot_be_are_said_in_the_log(alone: Recorded) -> None:
    for case, reason in (
        ("wrong_marks", "log.mark('gradients') in a tf.function needs the tensors"),
        ("compiled_by_xla", "XLA compiles the step"),
    ):
        (fit,) = alone.fits(case, ranks=1)
        check_steps(fit, 0, 3, stamps=("data",))
        assert fit.facts["stamps"]["reason"].startswith(reason)
        assert alone.result(case)["said"] == []


def test_what_marks_cost_is_in_the_cost_that_the_log_tells(alone: Recorded) -> None:
    (fit,) = alone.fits("slow_marks", ranks=1)
    cost = fit.facts["recorder_cost"]
    assert cost["turns"] == 12
    assert cost["host_us_median"] >= 2e6 * alone.result("slow_marks")["weights"]


def test_where_the_clock_is_set_stamps_of_graphs_are_missing_and_not_wrong(
    alone: Recorded,
) -> None:
    (fit,) = alone.fits("clock_set", ranks=1)
    steps = fit.steps
    assert len(steps) == 48
    assert steps["data"].notna().all()
    assert steps.loc[steps["epoch"].isin([0, 3]), "ready"].notna().all()
    assert steps.loc[steps["epoch"] == 1, "ready"].isna().all()
    placed = steps[steps["ready"].notna()]
    assert ((placed["data"] <= placed["ready"]) & (placed["ready"] <= placed["end"])).all()


def test_a_fit_that_is_recorded_has_no_steps_inside(alone: Recorded) -> None:
    (fit,) = alone.fits("inside_fit", ranks=1)
    assert fit.numbers == [0, 1, 2]


def test_a_folder_that_cannot_be_made_is_one_warning(ranks: Recorded) -> None:
    for rank in (0, 1):
        (said,) = ranks.result("no_folder", rank)["said"]
        assert "training goes on" in said
