"""Keras 3 on each of its backends: timestamps are true, or missing with the reason."""

from __future__ import annotations

from pathlib import Path

import pytest
from training.environments import KERAS3, needs
from training.launching import launch
from training.recorded import Fit, Recorded, check_recorder_fault, check_steps, fits_of

from stallscope.analysis import analyse

pytestmark = [pytest.mark.frameworks, pytest.mark.unmeasured]

BACKENDS = ("tensorflow", "torch", "jax")
ALL = ["data", "ready", "reduced"]
WHOLE_STEP = "end of the whole step, which updates the weights as well"
FRAMEWORKS = {"tensorflow": "tensorflow", "torch": "pytorch", "jax": "jax"}


@pytest.fixture(scope="module")
def launched(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Recorded]:
    """Run all cases on each backend, at once: they mostly sleep."""
    needs(KERAS3)
    folder = tmp_path_factory.mktemp("keras3")
    launches = {
        backend: launch(
            folder / f"{backend}.txt",
            "keras3_cases.py",
            str(folder / backend),
            environment=KERAS3,
            KERAS_BACKEND=backend,
            OMP_NUM_THREADS="1",
        )
        for backend in BACKENDS
    }
    try:
        for job in launches.values():
            job.succeed()
    finally:
        for job in launches.values():
            job.end()
    return {name: Recorded(folder / name, job.output) for name, job in launches.items()}


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def recorded(launched: dict[str, Recorded], backend: str) -> Recorded:
    return launched[backend]


def stamps(fit: Fit) -> tuple[list[str], str | None]:
    return fit.facts["stamps"]["placed"], fit.facts["stamps"]["reason"]


@pytest.mark.parametrize(
    "case", ["plain", "slow_input", "slow_layer", "slow_callback", "eager", "dataset_of_python"]
)
def test_each_step_has_all_its_stages(recorded: Recorded, case: str) -> None:
    fit = recorded.fit(case)
    check_steps(fit, 0, 40 if case in ("slow_input", "slow_layer") else 24)
    assert stamps(fit) == (ALL, None)
    assert fit.facts["gradients_reduced"] is True
    assert set(fit.steps["samples"]) == {16}
    assert set(fit.steps["micro"]) == {1}
    assert list(fit.steps["reduced"]) == list(fit.steps["ready"])


def test_the_last_batch_of_an_epoch_has_fewer_samples(recorded: Recorded) -> None:
    assert list(recorded.fit("last_batch_smaller").steps["samples"]) == [16, 16, 8] * 2


def test_recording_does_not_change_the_weights(recorded: Recorded) -> None:
    assert recorded.unchanged_by_recording("plain")


def test_keras_still_calls_callbacks_asynchronously(recorded: Recorded, backend: str) -> None:
    # On TensorFlow it never does.
    assert recorded.result("plain")["async"] is (backend != "tensorflow")


def test_facts_of_the_model_and_its_backend(recorded: Recorded, backend: str) -> None:
    fit = recorded.fit("plain")
    facts = fit.facts
    assert facts["framework"] == FRAMEWORKS[backend]
    assert facts["versions"]["keras"].startswith("3.")
    assert facts["versions"][backend]
    assert facts["parameters"] == 8 * 16 + 16 + 16 * 4 + 4
    assert (facts["gradient_tensors"], facts["gradient_bytes"]) == (4, 4 * facts["parameters"])
    assert facts["optimizer"] == "SGD"
    assert facts["learning_rate"] == pytest.approx(0.1)
    assert (facts["batch_size"], facts["batches_per_epoch"], facts["epochs"]) == (16, 12, 2)
    assert "CPU" in facts["devices"]
    assert facts["compute_dtypes"] == ["float32"]
    assert facts["stamps"]["ready"] == (WHOLE_STEP if backend == "jax" else None)
    assert recorded.run("plain").name == "plain run"
    assert recorded.fits("dataset_of_python", ranks=1)[0].facts["synthetic"] is True


def test_epochs_validation_and_checkpoints_are_intervals(recorded: Recorded) -> None:
    fit = recorded.fit("plain")
    assert fit.kinds == ["validation", "epoch", "checkpoint"] * 2 + ["end"]
    assert list(fit.intervals["step"]) == [12] * 3 + [24] * 4
    assert list(fit.steps["epoch"]) == [0] * 12 + [1] * 12


def test_slow_input_is_input(recorded: Recorded) -> None:
    # Each batch sleeps 120 ms; a step may compute meanwhile.
    fit = recorded.fit("slow_input")
    waited = fit.median_ms("begin", "data")
    assert waited + fit.median_ms("data", "end") > 120
    analysis = analyse(recorded.run("slow_input"))
    shares = {entry.name: entry.share for entry in analysis.entries}
    assert shares["input"] > 0.5
    assert analysis.bottleneck.kind == "input"


def test_a_slow_layer_is_compute(recorded: Recorded) -> None:
    fit = recorded.fit("slow_layer")
    assert fit.median_ms("data", "ready") > 120
    analysis = analyse(recorded.run("slow_layer"))
    shares = {entry.name: entry.share for entry in analysis.entries}
    assert shares["compute"] > 0.5
    assert shares["input"] < 0.3


def test_time_in_other_callbacks_is_between_the_steps(recorded: Recorded) -> None:
    steps = recorded.fit("slow_callback").steps
    between = steps["begin"].to_numpy()[1:] - steps["end"].to_numpy()[:-1]
    # Each of them slept 120 ms before the step; the device may still have computed then.
    assert sorted(between)[len(between) // 2] > 90e6


def test_data_of_unknown_length_ends_without_an_incomplete_step(recorded: Recorded) -> None:
    check_steps(recorded.fit("unknown_length"), 0, 12)


def test_accumulated_iterations_are_one_step(recorded: Recorded) -> None:
    fit = recorded.fit("accumulation")
    check_steps(fit, 0, 8)
    assert set(fit.steps["micro"]) == {3}
    assert set(fit.steps["samples"]) == {48}


@pytest.mark.parametrize("case", ["compiled", "compiled_several_per_call", "several_per_call"])
def test_tensorflow_has_timestamps_around_a_step_that_xla_compiles(
    launched: dict[str, Recorded], case: str
) -> None:
    fit = launched["tensorflow"].fit(case)
    check_steps(fit, 0, 24)
    assert stamps(fit) == (ALL, None)
    assert fit.facts["stamps"]["ready"] == (WHOLE_STEP if "compiled" in case else None)


def test_calls_of_several_steps_are_rows_on_jax(launched: dict[str, Recorded]) -> None:
    fit = launched["jax"].fit("several_per_call")
    check_steps(fit, 0, 6, timestamps=())
    assert set(fit.steps["micro"]) == {4}
    assert set(fit.steps["samples"]) == {64}
    placed, reason = stamps(fit)
    assert placed == []
    assert "steps_per_execution=4" in str(reason)


@pytest.mark.parametrize(("name", "case"), [("tensorflow", "pipeline"), ("torch", "data_loader")])
def test_the_backends_own_loaders_are_recorded_and_measured(
    launched: dict[str, Recorded], name: str, case: str
) -> None:
    check_steps(launched[name].fit(case), 0, 24)
    result = launched[name].result(case)
    assert result["like"] == 12
    assert "Loader alone" in result["input"]


def test_synthetic_data_is_like_the_real_data(recorded: Recorded) -> None:
    result = recorded.result("dataset_of_python")
    assert result["like"] == [12, [16, 8], "float32", 0, 3]
    assert result["generated"] == [2, [16, 8]]
    assert result["arrays"] == [192, 8]
    assert "Loader alone (PyDataset)" in result["input"]


def test_without_stages_gradients_are_not_timed(recorded: Recorded, backend: str) -> None:
    fit = recorded.fit("without_stages")
    seen = () if backend == "tensorflow" else ("data",)
    check_steps(fit, 0, 24, timestamps=seen)
    assert stamps(fit) == (list(seen), "switched off with stages=False")


def test_only_the_stages_of_jax_need_a_waiting_thread(recorded: Recorded, backend: str) -> None:
    waiting = {
        name: "stallscope-jax" in recorded.result(name)["threads"]
        for name in ("slow_layer", "without_stages")
    }
    assert waiting == {"slow_layer": backend == "jax", "without_stages": False}


def test_a_fit_that_raised_does_not_stop_the_next_one(recorded: Recorded) -> None:
    result = recorded.result("several_fits")
    assert "the disk is gone" in result["raised"]
    assert result["ours"] == []
    fits = recorded.fits("several_fits", ranks=1)
    assert [len(fit.steps) for fit in fits] == [24, 5, 24]
    assert result["logged"] == []


def test_a_new_train_function_is_recorded_from_the_next_epoch_on(
    recorded: Recorded,
) -> None:
    result = recorded.result("train_function_made_again")
    first, then = recorded.fits("train_function_made_again", ranks=1)
    check_steps(first, 0, 12)
    check_steps(then, 12, 24)
    assert (result["ours"], result["logged"]) == ([], [])


def test_of_two_loggers_one_records(recorded: Recorded) -> None:
    assert "one StepLogger is enough" in recorded.warning("two_loggers")
    check_steps(fits_of(recorded.run("two_loggers"))[0], 0, 24)
    assert not recorded.logs("two_loggers", "second").exists()


def test_a_fault_in_the_recorder_costs_the_log_and_nothing_else(recorded: Recorded) -> None:
    check_recorder_fault(recorded)


def test_a_folder_that_cannot_be_written_is_one_warning(recorded: Recorded) -> None:
    assert "training goes on" in recorded.warning("no_folder")


def test_no_case_raises(launched: dict[str, Recorded]) -> None:
    for recorded in launched.values():
        errors = list(Path(recorded.out).glob("*/error-*.txt"))
        assert errors == []
