"""One PyTorch process: ready gradients need no reduction. Synthetic data is like real data."""

from __future__ import annotations

import pytest
from training.recorded import Recorded, check_steps, record_cases

pytestmark = [pytest.mark.horovod, pytest.mark.unmeasured]


@pytest.fixture(scope="module")
def alone(training_side: None, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    folder = tmp_path_factory.mktemp("torch")
    return record_cases(folder, "torch_cases.py")


@pytest.mark.parametrize(
    ("case", "steps", "micro"),
    [
        ("one_process", 24, 1),
        ("one_process_with_horovod", 24, 1),
        ("one_process_accumulates", 8, 3),
        ("model_without_optimizer", 12, 1),
        ("old_torch", 24, 1),
        ("one_process_on_a_device", 24, 1),
        ("fewer_gradients_on_a_device", 24, 1),
        ("synthetic_run", 24, 1),
    ],
)
def test_gradients_are_reduced_when_they_are_ready(
    alone: Recorded, case: str, steps: int, micro: int
) -> None:
    fit = alone.fit_of_one_process(case)
    check_steps(fit, 0, steps)
    assert list(fit.steps["reduced"]) == list(fit.steps["ready"])
    assert set(fit.steps["micro"]) == {micro}
    assert fit.facts["stamps"]["reason"] is None


@pytest.mark.parametrize(
    ("case", "steps", "step"), [("layers_get_frozen", 36, 11), ("other_parts_train", 24, 12)]
)
def test_a_step_without_the_former_last_gradient_lacks_its_timestamps(
    alone: Recorded, case: str, steps: int, step: int
) -> None:
    fit = alone.fit_of_one_process(case)
    assert fit.numbers == list(range(steps))
    for name in ("ready", "reduced"):
        missing = fit.steps[name].isna()
        assert list(missing[missing].index) == [step]


def test_after_a_missing_gradient_all_are_watched_again(alone: Recorded) -> None:
    hooks = alone.result("other_parts_train")["hooks"]
    assert hooks[:12] == [1 + 6] * 7 + [1 + 1] * 5
    assert hooks[13] == 1 + 6


def test_all_gradients_are_watched_if_a_later_one_would_go_unseen(alone: Recorded) -> None:
    assert set(alone.result("the_end_comes_late")["hooks"]) == {1 + 6}


def test_on_a_device_only_the_last_gradient_keeps_its_hook(alone: Recorded) -> None:
    hooks = alone.result("few_hooks_on_a_device")["hooks"]
    assert hooks == [1 + 4] * 7 + [1 + 1] * (len(hooks) - 7)


def test_recording_changes_nothing_and_needs_no_horovod(alone: Recorded) -> None:
    assert alone.unchanged_by_recording("one_process")
    assert alone.result("one_process")["horovod"] is False


@pytest.mark.parametrize(
    ("case", "steps", "reason"),
    [
        ("nothing_given", 12, "neither an optimizer nor a model was given"),
        ("another_optimizer_updates", 24, "never reduced a gradient"),
        ("other_device", 6, "on META gradients are ready later than the host can see"),
    ],
)
def test_stages_that_cannot_be_measured_are_null_with_the_reason(
    alone: Recorded, case: str, steps: int, reason: str
) -> None:
    fit = alone.fit_of_one_process(case)
    check_steps(fit, 0, steps, timestamps=("data",))
    assert reason in fit.facts["stamps"]["reason"]


def test_timestamps_come_from_the_one_cuda_device_of_the_model(alone: Recorded) -> None:
    assert alone.result("devices_of_parameters")["found"] == {
        "one": [1, None],
        "two": [None, "the model is spread over several CUDA devices"],
        "mixed": [None, "on CUDA gradients are ready later than the host can see"],
        "none": [None, None],
    }


def test_petastorms_queue_is_sampled_during_training(alone: Recorded) -> None:
    fit = alone.fit_of_one_process("petastorm")
    check_steps(fit, 0, 12)
    assert set(fit.steps["samples"]) == {16}
    queue = fit.facts["petastorm"]
    assert (queue["pool"], queue["workers"], queue["room"]) == ("ThreadPool", 1, 10)
    assert queue["loader"] == "DataLoader"
    assert queue["looks"] > 0
    assert queue["waiting"] < 1


def test_the_users_batch_size_counts(alone: Recorded) -> None:
    fit = alone.fit_of_one_process("nothing_given")
    assert set(fit.steps["samples"]) == {99}
    assert fit.facts["batch_size"] == 99


def test_a_logger_records_until_it_is_closed_and_again_in_a_with_block(alone: Recorded) -> None:
    alone.clean("closed_and_entered", ranks=1)
    first, second = alone.fits("closed_and_entered", ranks=1)
    check_steps(first, 0, 12)
    check_steps(second, 12, 12)
    # A list of batches has no loader's facts.
    assert first.facts["batch_size"] == second.facts["batch_size"] == 16
    assert (first.facts["loader_workers"], second.facts["loader_workers"]) == (0, None)


def test_a_watched_loader_is_as_long_as_the_loader(alone: Recorded) -> None:
    assert alone.result("closed_and_entered")["length"] == 12


def test_invalid_arguments_raise(alone: Recorded) -> None:
    kinds = [kind for kind, _ in alone.result("bad_arguments")["raised"]]
    assert kinds == ["TypeError"] * 3 + ["ValueError"] * 3
    messages = [message for _, message in alone.result("bad_arguments")["raised"]]
    assert messages[0].startswith("log_dir is the folder for the logs")
    assert messages[-1] == "the loader has no batch to take shapes from"


def test_the_samples_of_each_kind_of_batch_are_counted(alone: Recorded) -> None:
    kinds = alone.result("kinds_of_batches")["kinds"]
    assert {name: kind["samples"] for name, kind in kinds.items()} == {
        "pair": 5,
        "named": 5,
        "dict": 7,
        "tokens": 6,
        "nested": 4,
        "packed": 2,
        "empty": 0,
        "text": None,
        "infinite": 2,
        "sparse": 3,
    }


def test_each_batch_has_as_many_samples_as_the_loop_saw(alone: Recorded) -> None:
    alone.clean("batches_of_every_size", ranks=1)
    seen = alone.result("batches_of_every_size")["samples"]
    assert seen[:3] == [16, 16, 8]
    [fit] = alone.fits("batches_of_every_size", ranks=1)
    assert list(fit.steps["samples"]) == seen


def test_synthetic_batches_are_like_real_ones(alone: Recorded) -> None:
    result = alone.result("kinds_of_batches")
    for name, kind in result["kinds"].items():
        assert kind["like"] == kind["shape"], name
        # Batches without numbers to replace are the real ones.
        assert kind["same"] is (name in ("empty", "text", "sparse")), name
    assert set(result["labels"]) <= {3, 4, 5}


def test_synthetic_data_is_as_long_as_the_real(alone: Recorded) -> None:
    result = alone.result("kinds_of_batches")
    assert result["length"] == result["batches"] == 1
    fit = alone.fit_of_one_process("synthetic_run")
    assert list(fit.steps["epoch"]) == [0] * 12 + [1] * 12
    assert fit.facts["synthetic"] is True
    assert alone.result("synthetic_run")["sampler"] == "RandomSampler"
