"""TensorFlow's own statistics name the slow stage of a tf.data pipeline, where its version has them."""

from __future__ import annotations

from pathlib import Path

import pytest
from training.environments import ENVIRONMENT, KERAS3, needs
from training.recorded import Recorded, figures_of, reasons_of, record_cases

from stallscope.analysis import analyse

pytestmark = pytest.mark.unmeasured

#: As in pipeline_cases.py.
SLEEP_US = 8 * 3_000.0
CASES = ("slow_map", "unknown_length", "fast", "untuned")


def trained(environment: Path, folder: Path, cases: tuple[str, ...] = CASES) -> Recorded:
    needs(environment)
    settings = {"KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3"}
    words = "pipeline_cases.py"
    return record_cases(folder, words, cases=cases, environment=environment, **settings)


@pytest.mark.frameworks
class TestKeras3:
    @pytest.fixture(scope="class")
    @classmethod
    def recorded(cls, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
        return trained(KERAS3, tmp_path_factory.mktemp("pipelines"))

    @pytest.mark.parametrize("case", CASES)
    def test_recording_changes_nothing(self, recorded: Recorded, case: str) -> None:
        result = recorded.result(case)
        assert result["losses"] == result["silent"]
        assert result["logged"] == []

    @pytest.mark.parametrize("case", ["slow_map", "unknown_length"])
    def test_the_slow_stage_is_named(self, recorded: Recorded, case: str) -> None:
        figures = figures_of(recorded, case)
        assert (figures["kind"], figures["reason"]) == ("tf.data", None)
        stages = dict(figures["stages"])
        slowest = max(stages, key=stages.__getitem__)
        assert "Map" in slowest
        assert stages[slowest] >= SLEEP_US
        # The queue was looked at once a second.
        assert figures["empty"] <= figures["asked"]
        assert f"tf.data: {slowest} takes " in reasons_of(recorded, case)["loader_stage"]

    def test_a_fast_pipeline_is_accused_of_nothing(self, recorded: Recorded) -> None:
        assert reasons_of(recorded, "fast") == {}

    def test_a_pipeline_that_is_not_tuned_is_to_be_measured(self, recorded: Recorded) -> None:
        figures = figures_of(recorded, "untuned")
        assert figures["batches"] == 0
        assert figures["reason"].startswith("this pipeline counts no stages: ")
        assert "this pipeline counts no stages" in reasons_of(recorded, "untuned")["loader_hidden"]


@pytest.mark.horovod
class TestKeras2:
    @pytest.fixture(scope="class")
    @classmethod
    def recorded(cls, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
        return trained(ENVIRONMENT, tmp_path_factory.mktemp("pipelines"), ("slow_map", "fast"))

    def test_an_older_tensorflow_is_to_be_measured(self, recorded: Recorded) -> None:
        assert "counts no stages of pipelines" in figures_of(recorded, "slow_map")["reason"]
        verdict = analyse(recorded.run("slow_map")).bottleneck
        # On a machine that becomes busier meanwhile, the input has also become slower.
        assert {reason.code for reason in verdict.why} - {"loader_slower"} == {"loader_hidden"}
        assert "print(measure_input(data))" in {advice.line for advice in verdict.advice}
        assert reasons_of(recorded, "fast") == {}
