"""Keras 2 in custom loops without ``fit``, on two ranks and in one process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import pytest
from training.recorded import TIMESTAMPS, Recorded, check_padding, check_steps
from training.recorder_contract import ELEMENTS, RAISED, Case, RecorderContract, pauses_at

pytestmark = [pytest.mark.horovod, pytest.mark.cases, pytest.mark.unmeasured]

STEPS = 24


class TestLoops(RecorderContract):
    framework = "Keras 2 (TensorFlow 2.12–2.15) with Horovod"
    recorder = "Keras 2 without `fit`"
    launch = "Horovod"
    ranks = 2
    versions = ("tensorflow",)
    cases = (
        *(
            Case(
                name,
                weights=True,
                stopwatch="computes",
                facts={"optimizer": "SGD", "parameters": 36, "gradient_tensors": 2},
                intervals=(
                    *pauses_at(12, 24, kinds=("epoch", "validation")),
                    ("checkpoint", 24),
                ),
                variant=name == "loop_eager",
            )
            for name in ("loop_eager", "loop_in_a_graph")
        ),
        Case("loop_with_slow_input", steps=12, slow="input", milliseconds=120),
        Case("loop_with_slow_compute", steps=12, slow="compute", milliseconds=120),
        Case("loop_repeats", elements=ELEMENTS),
        Case("loop_raises", steps=5, raised=RAISED),
        Case("loop_resumed", steps=(24, 24)),
    )
    cannot: ClassVar[Mapping[str, str]] = {
        "accumulation": "each `with log.step():` is a step",
        "fault": "a mark that fails leaves its timestamp empty, with the reason",
    }


def test_gradients_that_the_user_reduces_and_marks_have_timestamps(
    recorded: Recorded, recorded_alone: Recorded
) -> None:
    for results, count in ((recorded, 2), (recorded_alone, 1)):
        for fit in results.fits("loop_marked_by_hand", ranks=count):
            check_steps(fit, 0, 12)
            assert fit.facts["stamps"] == {"placed": list(TIMESTAMPS), "reason": None}


def test_tokens_and_padding_of_some_batches_are_counted(
    recorded: Recorded, recorded_alone: Recorded
) -> None:
    for results, case, ranks in (
        (recorded, "loop_padded", 2),
        (recorded, "loop_padded_in_a_graph", 2),
        (recorded_alone, "loop_padded_in_a_graph", 1),
        (recorded_alone, "loop_padded_with_lengths", 1),
    ):
        check_padding(results, case, ranks, steps=(0, 8, 16))


def test_batches_that_a_graph_marks_have_their_size(
    recorded: Recorded, recorded_alone: Recorded
) -> None:
    for results, count in ((recorded, 2), (recorded_alone, 1)):
        for fit in results.fits("loop_padded_in_a_graph", ranks=count):
            check_steps(fit, 0, STEPS)
            assert set(fit.steps["samples"]) == {16}


def test_each_new_shape_is_traced_unless_shapes_are_relaxed(recorded: Recorded) -> None:
    # The batches of steps 0, 3 and 6 are the first ones of their size.
    for case, traced_in, times in (
        ("loop_repeats", {0, 3, 6}, 3),
        ("loop_traced_once", {0, 3}, None),
    ):
        for fit in recorded.fits(case):
            rows = fit.interruptions[fit.interruptions["kind"] == "compilation"]
            steps = fit.steps
            inside = {
                int(step.step)
                for step in steps.itertuples()
                if ((rows["begin"] >= step.begin) & (rows["end"] <= step.end)).any()
            }
            assert inside == traced_in
            assert "compilation" in fit.facts["interruptions"]
            (reason, *_) = fit.facts["compilations"]["reasons"]
            new = f"step: new shape or type of batch: TensorSpec(shape=(16, {times}, 8)"
            assert reason.startswith(new)


def test_in_one_process_gradients_are_reduced_when_they_are_ready(recorded_alone: Recorded) -> None:
    (fit,) = recorded_alone.fits("loop_in_a_graph", ranks=1)
    check_steps(fit, 0, STEPS)
    assert (fit.steps["ready"] == fit.steps["reduced"]).all()


def test_marks_are_read_before_their_ring_is_full(recorded_alone: Recorded) -> None:
    case = "loop_of_many_steps"
    (fit,) = recorded_alone.fits(case, ranks=1)
    check_steps(fit, 0, recorded_alone.result(case)["steps"])


def test_a_later_trace_has_marks_and_keeps_them_in_the_loggers_next_recording(
    recorded_alone: Recorded,
) -> None:
    fits = recorded_alone.fits("loop_traced_before", ranks=1)
    for fit, first in zip(fits, (1, 1 + STEPS // 2), strict=True):
        check_steps(fit, first, STEPS // 2)
        assert fit.facts["stamps"] == {"placed": list(TIMESTAMPS), "reason": None}
        assert fit.facts["gradient_tensors"] == 2
    assert recorded_alone.result("loop_traced_before")["logged"] == []


def test_a_mark_that_breaks_in_a_trace_leaves_the_hosts_timestamps(
    recorded_alone: Recorded,
) -> None:
    case = "loop_with_a_mark_that_breaks"
    (fit,) = recorded_alone.fits(case, ranks=1)
    check_steps(fit, 0, STEPS, timestamps=("data",))
    reason = "no mark of gradients could be put into a graph: ZeroDivisionError"
    assert fit.facts["stamps"]["reason"].startswith(reason)
    in_a_graph = recorded_alone.result("loop_in_a_graph")
    assert recorded_alone.result(case)["weights"] == in_a_graph["weights"]
    assert recorded_alone.result(case)["logged"] == []


def test_without_marks_stages_are_missing_with_the_reason(recorded: Recorded) -> None:
    """A step that raises does not count, and steps after the logger's end are not recorded."""
    for fit in recorded.fits("loop_without_marks"):
        check_steps(fit, 0, 3, timestamps=())
        reason = "no mark of data, gradients, reduced was seen since the log began"
        assert fit.facts["stamps"]["reason"] == reason
        assert fit.facts["gradients_reduced"] is None


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ("loop_with_wrong_marks", "log.mark('gradients') in a tf.function needs the tensors"),
        ("loop_compiled_by_xla", "XLA compiles the step"),
    ],
)
def test_the_log_has_the_reason_why_a_mark_is_missing(
    recorded_alone: Recorded, case: str, reason: str
) -> None:
    (fit,) = recorded_alone.fits(case, ranks=1)
    check_steps(fit, 0, 3, timestamps=("data",))
    assert fit.facts["stamps"]["reason"].startswith(reason)
    assert recorded_alone.result(case)["logged"] == []


def test_the_recorders_cost_includes_marks(recorded_alone: Recorded) -> None:
    case = "loop_with_slow_marks"
    (fit,) = recorded_alone.fits(case, ranks=1)
    cost = fit.facts["recorder_cost"]
    assert cost["turns"] == 12
    assert cost["host_us_median"] >= 2e6 * recorded_alone.result(case)["mark_seconds"]


def test_timestamps_in_graphs_are_missing_while_the_clock_is_set(recorded_alone: Recorded) -> None:
    (fit,) = recorded_alone.fits("loop_while_the_clock_is_set", ranks=1)
    steps = fit.steps
    assert len(steps) == 48
    assert steps["data"].notna().all()
    assert steps.loc[steps["epoch"].isin([0, 3]), "ready"].notna().all()
    assert steps.loc[steps["epoch"] == 1, "ready"].isna().all()
    placed = steps[steps["ready"].notna()]
    assert ((placed["data"] <= placed["ready"]) & (placed["ready"] <= placed["end"])).all()


def test_steps_inside_a_recorded_fit_are_not_recorded_twice(recorded_alone: Recorded) -> None:
    (fit,) = recorded_alone.fits("loop_inside_fit", ranks=1)
    assert fit.numbers == [0, 1, 2]


def test_a_folder_that_cannot_be_made_is_one_warning(recorded: Recorded) -> None:
    for rank in (0, 1):
        assert "training goes on" in recorded.warning("loop_without_a_folder", rank)
        assert recorded.unchanged_by_recording("loop_without_a_folder", rank)
