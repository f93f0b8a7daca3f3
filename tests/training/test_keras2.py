"""Keras 2 on two ranks and in one process: the log has the true stages, or null with the reason."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import ClassVar

import pytest
from training.launching import SECRET
from training.recorded import Recorded, check_padding, check_ranks_together, check_steps, fits_of
from training.recorder_contract import ELEMENTS, Case, RecorderContract, pauses_at

from stallscope.parsers import read

pytestmark = [pytest.mark.horovod, pytest.mark.cases, pytest.mark.unmeasured]

#: Of the model.
NUMBERS = 8 * 64 + 64 + 64 * 4 + 4

#: Cases whose train step reduces as in others: each of their settings is in another case as well.
VARIANTS = (
    *("none_gradient", "embeddings_as_dense", "eager_accumulation", "tuned_per_call"),
    "mixed_precision_accumulation_many_per_call",
)


class TestHorovod(RecorderContract):
    framework = "Keras 2 (TensorFlow 2.12–2.15) with Horovod"
    recorder = "Keras 2"
    launch = "Horovod"
    ranks = 2
    scored = "keras"
    versions = ("tensorflow", "keras", "horovod")
    cases = (
        Case(
            "plain",
            weights=True,
            stopwatch="fetches",
            run_name="plain run",
            facts={
                "framework": "tensorflow",
                "versions": {"tensorflow": "2.15.1", "keras": "2.15.0", "horovod": "0.28.1"},
                "model": "classifier",
                "parameters": NUMBERS,
                "optimizer": "Adam",
                "learning_rate": pytest.approx(0.002),
                "batch_size": 16,
                "epochs": 2,
                "batches_per_epoch": 12,
                "gradient_tensors": 4,
                "gradient_bytes": 4 * NUMBERS,
                "threads": {"intra_op": 1, "inter_op": 2},
                "cpu_count": os.cpu_count(),
                "devices": ["CPU"],
                "timeline": False,
                "first_step": 0,
                "synthetic": False,
            },
            intervals=pauses_at(12, 24, kinds=("validation", "epoch", "checkpoint")),
        ),
        *(
            Case(
                name,
                steps=steps,
                facts={"gradient_tensors": tensors, "gradient_bytes": size},
                variant=name in VARIANTS,
            )
            for name, steps, tensors, size in (
                ("eager", 4, 4, 4 * NUMBERS),
                ("legacy_optimizer", 12, 4, 4 * NUMBERS),
                ("none_gradient", 12, 4, 4 * NUMBERS),
                # The size of an embedding's gradient depends on the batch.
                ("embeddings", 12, 5, None),
                ("embeddings_as_dense", 12, 5, None),
                ("own_train_step_on_instance", 12, 4, 4 * NUMBERS),
                ("assigned_train_function", 12, 4, 4 * NUMBERS),
            )
        ),
        *(
            Case(
                name,
                steps=steps,
                facts={"steps_per_execution": per_call},
                variant=name in VARIANTS,
            )
            for name, steps, per_call in (
                ("many_per_call", 50, 10),
                ("more_per_call_than_steps", 8, 10),
                ("tuned_per_call", 13, 1),
            )
        ),
        *(
            Case(
                name,
                steps=steps,
                micro=2,
                facts={"batch_size": 32, "backward_passes_per_step": 2, **facts},
                variant=name in VARIANTS,
            )
            for name, steps, facts in (
                ("accumulation", 6, {}),
                ("eager_accumulation", 2, {}),
                # The reduction is then in a branch of the graph, within loss scaling.
                ("mixed_precision_accumulation_many_per_call", 6, {"steps_per_execution": 4}),
            )
        ),
        Case(
            "mixed_precision",
            steps=(12, 12),
            facts={"optimizer": "Adam", "learning_rate": pytest.approx(0.002)},
        ),
        Case("tape", steps=12, variant=True),
        Case("repeats", elements=ELEMENTS),
        Case("train_function_made_again", steps=(12, 24), variant=True),
        Case(
            "no_stages",
            steps=12,
            samples=None,
            timestamps=(),
            reason="switched off with stages=False",
            facts={"batch_size": 16, "gradient_tensors": 4},
        ),
        *(
            Case(
                name,
                steps=steps,
                samples=None,
                timestamps=(),
                reason=f"the first call of the train function ran train_step {ran} times",
            )
            for name, steps, ran in (("own_train_function", 12, 0), ("two_steps_per_call", 5, 2))
        ),
        Case("synthetic", facts={"synthetic": True}),
        Case(
            "validation",
            steps=36,
            intervals=(
                *pauses_at(12, kinds=("validation", "epoch")),
                ("epoch", 24),
                *pauses_at(36, kinds=("validation", "epoch")),
            ),
        ),
        Case("slow_input", steps=12, slow="input", milliseconds=100),
        Case("slow_compute", steps=12, slow="compute", milliseconds=100),
        Case("probed", weights=True, probed=((14, 20),)),
        Case("loaded_on_rank_0", first=1000, intervals=pauses_at(1012, 1024, kinds=("epoch",))),
        Case("interrupted", steps=(5, 12), raised="RuntimeError('tripped')"),
        *(
            Case(name, fault="ZeroDivisionError('broken on purpose')")
            for name in ("recorder_breaks", "recorder_cannot_start")
        ),
    )


class TestOneProcess(RecorderContract):
    framework = TestHorovod.framework
    recorder = "Keras 2"
    versions = ("tensorflow", "keras")
    cases = (
        Case("one_process", weights=True, facts={"framework": "tensorflow", "batch_size": 16}),
        *(
            Case(f"one_process_{name}", steps=12, facts={"gradient_bytes": 4 * NUMBERS})
            for name in ("legacy", "mixed_precision", "with_horovod")
        ),
        Case("callback_called_by_hand", steps=12),
        Case("repeats", elements=ELEMENTS),
        Case("nested_data", steps=12, samples=None),
        *(
            Case(name, facts={"batch_size": 16}, intervals=pauses_at(12, 24, kinds=("epoch",)))
            for name in ("generator", "sequence", "petastorm")
        ),
        *(
            Case(name, steps=12, intervals=(("epoch", 12),))
            for name in ("class_weight", "structured", "ragged")
        ),
        Case("arrays", samples=((16,) * 11 + (5,)) * 2, facts={"batch_size": 16}),
        # Keras starts a batch that never comes, and even counts an update for it.
        Case("unknown_length", steps=20, intervals=pauses_at(10, 20, kinds=("epoch",))),
        Case("data_ends_inside_call", steps=17),
        *(
            Case(f"probed_{name}", weights=True, probed=((14, 20),))
            for name in ("stream", "over_epochs", "sequence")
        ),
        Case(
            "xla_alone",
            steps=12,
            samples=None,
            timestamps=(),
            reason="jit_compile=True: XLA has no clock",
        ),
        *(
            Case(name, steps=12, timestamps=("data",), reason=reason)
            for name, reason in (
                ("xla_inside", "XLA compiles a part of the train step"),
                ("one_process_own_loop", "does not take its gradients from the optimizer"),
            )
        ),
    )
    cannot: ClassVar[Mapping[str, str]] = dict.fromkeys(
        (
            *("stopwatch", "validation", "checkpoint", "accumulation", "slow input"),
            *("slow compute", "exception", "resume", "fault"),
        ),
        "tested with ranks only",
    )

    @pytest.fixture(scope="class")
    @classmethod
    def recorded(cls, recorded_alone: Recorded) -> Recorded:
        return recorded_alone


def test_the_logs_of_both_ranks_are_one_run_with_its_name(recorded: Recorded) -> None:
    run = recorded.run("plain")
    assert run.name == "plain run"
    assert run.ranks == [0, 1]
    assert run.size == 2
    assert run.missing_ranks == []
    assert run.status == "completed"
    assert run.synthetic is False
    assert run.hosts == [socket.gethostname()]


def test_facts_of_the_rank(recorded: Recorded) -> None:
    first, second = recorded.fits("plain")
    for rank, fit in enumerate((first, second)):
        assert fit.facts["rank"] == rank
        assert fit.facts["local_rank"] == rank
        assert fit.facts["size"] == 2
        assert fit.facts["settings"]["HOROVOD_RANK"] == str(rank)
        # The process started before its log, and after the machine.
        assert 0 < fit.log.process_start < fit.log.anchor
    assert first.facts["pid"] != second.facts["pid"]
    assert first.facts["launch"] == second.facts["launch"]
    assert first.facts["clock_domain"] == second.facts["clock_domain"]


@pytest.mark.parametrize(
    ("case", "scaled"), [("plain", True), ("eager", False), ("legacy_optimizer", None)]
)
def test_whether_the_learning_rate_is_scaled_with_the_ranks_is_recorded(
    recorded: Recorded, case: str, scaled: bool | None
) -> None:
    for fit in recorded.fits(case):
        assert fit.facts["learning_rate_scaled"] is scaled


def test_the_parameters_of_a_model_that_training_builds_are_counted(
    recorded_alone: Recorded,
) -> None:
    fit = recorded_alone.fit("structured")
    assert fit.facts["parameters"] == 9 * 4 + 4


def test_no_secret_is_in_any_log(recorded: Recorded) -> None:
    for fit in recorded.fits("plain"):
        assert "HOROVOD_SECRET_TOKEN" not in fit.facts["settings"]
    logs = [path for path in recorded.out.rglob("logs/*") if path.is_file()]
    assert len(logs) > 80
    for path in logs:
        assert SECRET not in path.read_text(), path


def test_horovod_is_not_needed(recorded_alone: Recorded) -> None:
    assert recorded_alone.result("one_process")["horovod_imported"] is False
    facts = recorded_alone.fit("one_process").facts
    assert facts["versions"]["horovod"] is None
    assert facts["rank"] == 0
    assert facts["learning_rate_scaled"] is None


def test_a_waiting_rank_sleeps(recorded: Recorded) -> None:
    """Horovod's PyTorch polls: see test_torch_ranks.py."""
    seconds = recorded.result("waits_for_a_rank")
    # A polling thread uses most of a core, even on a busy machine.
    assert seconds["cpu_seconds"] < 0.1 * seconds["waited_seconds"]


@pytest.mark.parametrize("kind", ["dataset", "stream", "sequence", "generator", "arrays"])
def test_synthetic_data_has_the_structure_types_and_shapes_of_the_data(
    recorded: Recorded, kind: str
) -> None:
    real, like = recorded.result("synthetic")["shapes"][kind]
    assert like == real


def test_synthetic_data_is_as_long_as_the_data_or_endless(recorded: Recorded) -> None:
    # -1 is TensorFlow's infinite cardinality.
    lengths = recorded.result("synthetic")["lengths"]
    assert lengths == {"dataset": 12, "stream": -1, "sequence": 12}


def test_synthetic_numbers_are_random_and_labels_and_words_are_real_ones(
    recorded: Recorded,
) -> None:
    result = recorded.result("synthetic")
    assert result["same_numbers"] is False
    assert result["labels_in_range"] is True
    assert result["words"] == ["some", "words"]


def test_data_without_a_batch_is_an_error(recorded: Recorded) -> None:
    assert recorded.result("synthetic")["refused"] == "the data has no batch to take shapes from"


@pytest.mark.parametrize("case", ["plain", "legacy_optimizer"])
def test_the_recorder_restores_the_optimizers_reduction(recorded: Recorded, case: str) -> None:
    assert recorded.result(case)["reduction_is_back"] is True


@pytest.mark.parametrize("case", ["own_train_step_on_instance", "assigned_train_function"])
def test_the_recorder_restores_the_users_functions(recorded: Recorded, case: str) -> None:
    assert recorded.result(case)["own_is_back"] is True


def test_a_wrapper_of_the_train_function_stays_and_works(recorded: Recorded) -> None:
    run = recorded.run("wrapped_train_function")
    # The function is another one from the first epoch on, so that there is a second part.
    assert run.steps["step"].to_pylist() == 2 * list(range(12))
    for rank in range(2):
        result = recorded.result("wrapped_train_function", rank)
        assert (result["iterations"], result["logged"]) == (24, [])


def test_a_left_over_pass_belongs_to_the_first_step_of_the_next_fit(recorded: Recorded) -> None:
    for fit in recorded.fits("accumulation_left_over"):
        assert fit.facts["batch_size"] == 32
        if fit.log.part == 0:
            check_steps(fit, 0, 3)
            assert list(fit.steps["micro"]) == [2, 2, 2]
        else:
            check_steps(fit, 3, 4)
            assert list(fit.steps["micro"]) == [1, 2, 2, 2]
    check_ranks_together(recorded.run("accumulation_left_over"))
    recorded.clean("accumulation_left_over")


@pytest.mark.parametrize("name", ["stream", "over_epochs", "sequence"])
def test_a_probe_needs_no_new_trace(recorded_alone: Recorded, name: str) -> None:
    silent, probed = recorded_alone.result(f"probed_{name}")["traces"]
    assert probed == silent > 0


@pytest.mark.parametrize("name", ["graph", "eager"])
def test_an_error_of_the_data_comes_after_the_batches_that_were_fetched_before_it(
    recorded_alone: Recorded, name: str
) -> None:
    silent, probed = recorded_alone.result("probed_rows")[name]
    assert silent[0] == "InvalidArgumentError()"
    assert probed == silent
    [run] = read(str(recorded_alone.logs("probed_rows", name)))
    [probe] = run.logs[0].input_probes
    assert (probe.first_step, probe.end_step, len(probe.fetched_us)) == (16, 21, 5)


def test_data_that_cannot_be_fetched_ahead_is_refused_with_the_reason(
    recorded_alone: Recorded,
) -> None:
    recorded_alone.result("probe_refused")
    reasons = {}
    for name in ("generator", "synthetic", "several", "short", "loop"):
        [run] = read(str(recorded_alone.logs("probe_refused", name)))
        assert run.logs[0].facts["input_probe"]["probes"] == []
        reasons[name] = run.logs[0].facts["input_probe"]["refused"]
    assert reasons == {
        "generator": "generator is an iterator: batches fetched ahead would be lost if the loop ends "
        "early",
        "synthetic": "the data is synthetic",
        "several": "steps_per_execution: a call of the train function takes several batches",
        "short": "an epoch has only 6 batches",
        "loop": "a custom loop fetches its batches itself",
    }


def test_the_padding_of_some_batches_is_counted(
    recorded: Recorded, recorded_alone: Recorded
) -> None:
    check_padding(recorded, "padded", ranks=2, steps=(0, 8, 16))
    check_padding(recorded_alone, "padded_with_lengths", ranks=1, steps=(0, 8, 16))


def test_none_are_fetched_ahead_of_data_that_asks_for_none(recorded_alone: Recorded) -> None:
    recorded_alone.result("probe_refused")
    [run] = read(str(recorded_alone.logs("probe_refused", "none")))
    assert run.steps.num_rows == 12
    assert "input_probe" not in run.logs[0].facts


def test_gradients_that_are_not_reduced_are_an_error_after_the_first_step(
    recorded: Recorded,
) -> None:
    for fit in recorded.fits("not_reduced"):
        check_steps(fit, 0, 12, timestamps=("data",))
        assert fit.facts["gradients_reduced"] is False
        assert fit.facts["stamps"]["reason"] == "the gradients are not reduced"
    for rank in range(2):
        result = recorded.result("not_reduced", rank)
        assert result["errors_after_step"] == [1] * 12
        [[level, message]] = result["logged"]
        assert level == "ERROR"
        assert "2 ranks train, but their gradients are not reduced" in message
        assert result["ours"] == []
    assert not recorded.same_weights("not_reduced")


def test_with_several_tapes_in_a_step_gradients_have_no_timestamps(recorded: Recorded) -> None:
    for fit in recorded.fits("two_tapes"):
        check_steps(fit, 0, 12, timestamps=("data",))
        assert fit.facts["gradients_reduced"] is True
        assert fit.facts["stamps"]["placed"] == ["data"]
        assert fit.facts["stamps"]["reason"] == "the train step reduces gradients several times"
        assert "gradient_tensors" not in fit.facts
    recorded.clean("two_tapes")
    assert recorded.same_weights("two_tapes")


def test_the_recorder_restores_the_steps_per_call(recorded: Recorded) -> None:
    assert recorded.result("more_per_call_than_steps")["steps_per_execution"] == 10


def test_epochs_are_counted_from_the_initial_one(recorded: Recorded) -> None:
    for fit in recorded.fits("initial_epoch"):
        check_steps(fit, 0, 24)
        assert list(fit.steps["epoch"]) == [3] * 12 + [4] * 12
        assert list(fit.of_kind("epoch")["epoch"]) == [3, 4]
    recorded.clean("initial_epoch")


def test_a_callback_on_rank_0_only_does_not_stop_the_other_rank(recorded: Recorded) -> None:
    """Horovod names a tensor after its op: ops that the recorder adds must not rename others."""
    [fit] = recorded.fits("rank_0_only", ranks=1)
    check_steps(fit, 0, 12)
    assert recorded.run("rank_0_only").missing_ranks == [1]
    recorded.clean("rank_0_only")
    assert recorded.result("rank_0_only", 1)["iterations"] == 12
    assert recorded.same_weights("rank_0_only")


@pytest.mark.parametrize(
    ("case", "batches"), [("recorder_breaks", 24), ("recorder_cannot_start", 12)]
)
def test_after_a_fault_all_batches_train_with_the_users_reduction(
    recorded: Recorded, case: str, batches: int
) -> None:
    for rank in range(2):
        result = recorded.result(case, rank)
        assert result["batches"] == result["iterations"] == batches
        assert result["reduction_is_back"] is True


def test_steps_before_the_fault_can_be_read(recorded: Recorded) -> None:
    [run] = read(str(recorded.logs("recorder_breaks")))
    for fit in fits_of(run):
        check_steps(fit, 0, len(fit.steps))
        assert 0 < len(fit.steps) <= 6
        assert not fit.log.ended
    assert run.status == "open"


def test_after_a_fault_at_the_start_the_model_is_restored_before_training(
    recorded: Recorded,
) -> None:
    for rank in range(2):
        assert recorded.result("recorder_cannot_start", rank)["in_training"] == []


def test_after_a_fault_while_tracing_the_log_has_the_hosts_times_and_the_reason(
    recorded: Recorded,
) -> None:
    for fit in recorded.fits("stamping_breaks"):
        check_steps(fit, 0, 12, timestamps=())
        assert fit.facts["stamps"]["placed"] == []
        assert (
            "could be put into the train step: ZeroDivisionError" in fit.facts["stamps"]["reason"]
        )
        assert fit.facts["gradients_reduced"] is True
    recorded.clean("stamping_breaks")
    assert recorded.same_weights("stamping_breaks")
