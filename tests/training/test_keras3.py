"""Keras 3 on each of its backends: timestamps are true, or missing with the reason."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
from training.environments import KERAS3, needs
from training.launching import launch
from training.recorded import Recorded, check_padding, check_steps, fits_of
from training.recorder_contract import (
    ELEMENTS,
    RAISED,
    Case,
    LeftOut,
    RecorderContract,
    pauses_at,
    variants,
)

pytestmark = [pytest.mark.frameworks, pytest.mark.unmeasured]

BACKENDS = ("tensorflow", "torch", "jax")
ITERATOR = "generator is an iterator: batches fetched ahead would be lost if the loop ends early"
WHOLE_STEP = "end of the whole step, which updates the weights as well"


@pytest.fixture(scope="module")
def launched(tmp_path_factory: pytest.TempPathFactory, left_out_of: LeftOut) -> dict[str, Recorded]:
    """Run all cases on each backend, at once: they mostly sleep."""
    needs(KERAS3)
    folder = tmp_path_factory.mktemp("keras3")
    contracts = {contract.backend: contract for contract in Keras3Contract.__subclasses__()}
    launches = {
        backend: launch(
            folder / f"{backend}.txt",
            "keras3_cases.py",
            str(folder / backend),
            environment=KERAS3,
            KERAS_BACKEND=backend,
            OMP_NUM_THREADS="1",
            LEFT_OUT=left_out_of(contracts[backend]),
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


class Keras3Contract(RecorderContract):
    framework = "Keras 3 on TensorFlow, torch or JAX"
    backend: ClassVar[str]
    cases = (
        Case(
            "plain",
            weights=True,
            run_name="plain run",
            facts={
                "parameters": 8 * 16 + 16 + 16 * 4 + 4,
                "gradient_tensors": 4,
                "gradient_bytes": 4 * (8 * 16 + 16 + 16 * 4 + 4),
                "optimizer": "SGD",
                "learning_rate": pytest.approx(0.1),
                "batch_size": 16,
                "batches_per_epoch": 12,
                "epochs": 2,
                "devices": ["CPU"],
                "compute_dtypes": ["float32"],
            },
            intervals=pauses_at(12, 24, kinds=("validation", "epoch", "checkpoint")),
        ),
        Case("timed", stopwatch="fetches"),
        Case("dataset_of_python", facts={"synthetic": True}),
        Case("eager"),
        Case("slow_callback", steps=12),
        Case("unknown_length", steps=12),
        Case("last_batch_smaller", steps=6, samples=(16, 16, 8) * 2),
        Case("accumulation", steps=8, micro=3),
        Case("repeats", elements=ELEMENTS),
        # A batch is fetched while the step before it computes.
        Case("slow_input", steps=12, slow="input", milliseconds=60),
        Case("slow_layer", steps=12, slow="compute", milliseconds=120),
        Case("raises", steps=5, raised=RAISED),
        Case("second_fit", steps=(24, 24)),
        Case("train_function_made_again", steps=(12, 24)),
        Case("recorder_breaks", fault="broken on purpose"),
        Case("probed", weights=True, probed=((14, 20),)),
        Case("probed_over_epochs", weights=True, probed=((14, 20),)),
        Case("probe_refused", facts={"input_probe": {"refused": ITERATOR, "probes": []}}),
    )

    @pytest.fixture(scope="class")
    @classmethod
    def recorded(cls, launched: dict[str, Recorded]) -> Recorded:
        return launched[cls.backend]

    def check_own_loader(self, recorded: Recorded, case: str) -> None:
        result = recorded.result(case)
        assert result["like"] == 12
        assert "Loader alone" in result["input"]

    def test_the_end_of_a_compiled_step_is_said_to_be_its_last_gradient(
        self, recorded: Recorded
    ) -> None:
        for case in {"plain", "compiled"} & {declared.name for declared in self.cases}:
            is_compiled = case == "compiled" or self.backend == "jax"
            ready = recorded.fit(case).facts["stamps"]["ready"]
            assert ready == (WHOLE_STEP if is_compiled else None)

    def test_keras_still_calls_callbacks_asynchronously(self, recorded: Recorded) -> None:
        # On TensorFlow it never does.
        assert recorded.result("plain")["async"] is (self.backend != "tensorflow")

    def test_time_in_other_callbacks_is_between_the_steps(self, recorded: Recorded) -> None:
        steps = recorded.fit("slow_callback").steps
        between = steps["begin"].to_numpy()[1:] - steps["end"].to_numpy()[:-1]
        # Each of them slept 120 ms before the step; the device may still have computed then.
        assert sorted(between)[len(between) // 2] > 60e6

    def test_synthetic_data_is_like_the_real_data(self, recorded: Recorded) -> None:
        result = recorded.result("dataset_of_python")
        assert result["like"] == [12, [16, 8], "float32", 0, 3]
        assert result["generated"] == [2, [16, 8]]
        assert result["arrays"] == [192, 8]
        assert "Loader alone (PyDataset)" in result["input"]

    def test_only_the_stages_of_jax_need_a_waiting_thread(self, recorded: Recorded) -> None:
        waiting = {
            name: "stallscope-jax" in recorded.result(name)["threads"]
            for name in ("slow_layer", "without_stages")
        }
        assert waiting == {"slow_layer": self.backend == "jax", "without_stages": False}

    def test_of_two_loggers_one_records(self, recorded: Recorded) -> None:
        assert "one StepLogger is enough" in recorded.warning("two_loggers")
        check_steps(fits_of(recorded.run("two_loggers"))[0], 0, 24)
        assert not recorded.logs("two_loggers", "second").exists()

    def test_a_folder_that_cannot_be_written_is_one_warning(self, recorded: Recorded) -> None:
        assert "training goes on" in recorded.warning("no_folder")


#: Ends of the names of cases that show a backend's stages, and what it does with errors.
OF_BACKENDS = (
    *("timed", "eager", "accumulation", "slow_input", "slow_layer", "raises", "recorder_breaks"),
)
#: By test that shows the same on TensorFlow: its cases.
REPEATED_ON_BACKENDS = {
    "test_time_in_other_callbacks_is_between_the_steps": ("slow_callback",),
    "test_synthetic_data_is_like_the_real_data": ("dataset_of_python",),
    "test_of_two_loggers_one_records": ("two_loggers",),
    "test_a_folder_that_cannot_be_written_is_one_warning": ("no_folder",),
}
WITHOUT_STAGES = "switched off with stages=False"


class TestTensorFlow(Keras3Contract):
    recorder = "Keras 3 on TensorFlow"
    backend = "tensorflow"
    versions = ("keras", "tensorflow")
    facts: ClassVar[Mapping[str, Any]] = {"framework": "tensorflow"}
    cases = (
        *Keras3Contract.cases,
        Case("without_stages", samples=None, timestamps=(), reason=WITHOUT_STAGES),
        *(Case(name) for name in ("compiled", "compiled_several_per_call", "several_per_call")),
        Case("pipeline"),
        Case("probed_loader", weights=True, probed=((14, 20),)),
    )

    def test_data_sets_are_measured(self, recorded: Recorded) -> None:
        self.check_own_loader(recorded, "pipeline")


class TestTorch(Keras3Contract):
    recorder = "Keras 3 on torch"
    backend = "torch"
    versions = ("keras", "torch")
    facts: ClassVar[Mapping[str, Any]] = {"framework": "pytorch"}
    repeated = REPEATED_ON_BACKENDS
    cases = (
        # The callback is the same on all backends: what reaches its stages stays.
        *variants(Keras3Contract.cases, *OF_BACKENDS),
        Case("without_stages", timestamps=("data",), reason=WITHOUT_STAGES),
        Case("data_loader"),
        Case("probed_loader", weights=True, probed=((14, 20),)),
    )

    def test_loaders_are_measured(self, recorded: Recorded) -> None:
        self.check_own_loader(recorded, "data_loader")


class TestJax(Keras3Contract):
    recorder = "Keras 3 on JAX"
    backend = "jax"
    versions = ("keras", "jax")
    facts: ClassVar[Mapping[str, Any]] = {"framework": "jax"}
    repeated = REPEATED_ON_BACKENDS
    cases = (
        # The callback is the same on all backends: what reaches its stages stays.
        *variants(Keras3Contract.cases, *OF_BACKENDS),
        Case("without_stages", timestamps=("data",), reason=WITHOUT_STAGES),
        # A call of several steps is a row.
        Case("results_seen_late", intervals=pauses_at(12, 24, kinds=("validation", "epoch"))),
        Case("several_per_call", steps=6, micro=4, timestamps=(), reason="steps_per_execution=4"),
    )


@pytest.mark.parametrize(
    ("backend", "steps"),
    # TensorFlow counts in the graph, whose steps are numbered.
    [("torch", (0, 8, 12, 20)), ("jax", (0, 8, 12, 20)), ("tensorflow", (0, 8, 16))],
)
def test_the_padding_of_some_batches_is_counted(
    launched: dict[str, Recorded], backend: str, steps: tuple[int, ...]
) -> None:
    check_padding(launched[backend], "padded", ranks=1, steps=steps)


def test_no_case_raises(launched: dict[str, Recorded]) -> None:
    for recorded in launched.values():
        errors = list(Path(recorded.out).glob("*/error-*.txt"))
        assert errors == []
