"""MXNet on Python 3.8, in one process and as two ranks with Horovod."""

from __future__ import annotations

import pytest
from training.recorded import RESOLUTION_NS, Recorded, check_steps, record_mxnet_cases
from training.recorder_contract import (
    ELEMENTS,
    RAISED,
    Case,
    LeftOut,
    RecorderContract,
    pauses_at,
    variants,
)

pytestmark = pytest.mark.frameworks

PARAMETERS = 8 * 64 + 64 + 64 * 4 + 4
PAUSES = pauses_at(12, 24, kinds=("epoch", "validation", "checkpoint"))


class MxnetContract(RecorderContract):
    framework = "MXNet with Horovod"
    recorder = "MXNet"
    versions = ("mxnet",)
    cases = (
        Case(
            "plain",
            weights=True,
            run_name="plain run",
            facts={
                "framework": "mxnet",
                "parameters": PARAMETERS,
                "gradient_tensors": 4,
                "gradient_bytes": 4 * PARAMETERS,
                "learning_rate": 0.1,
                "input_probe": {
                    "refused": "MXNet's engine makes batches after the loader has returned them, so "
                    "how long fetching takes is unknown",
                    "probes": [],
                },
            },
            intervals=PAUSES,
        ),
        # The host runs ahead of the engine where it does not wait.
        Case("timed", stopwatch="computes"),
        Case("accumulation", steps=8, micro=3),
        Case("repeats", elements=ELEMENTS),
        Case("slow_input", slow="input", milliseconds=40),
        Case("slow_compute", slow="compute", milliseconds=40),
        Case("raises", steps=5, raised=RAISED),
        Case("resumed", first=12),
        Case("recorder_breaks", fault="broken on purpose"),
    )


class TestHorovod(MxnetContract):
    launch = "Horovod"
    ranks = 2

    @pytest.fixture(scope="class")
    @classmethod
    def recorded(cls, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
        return record_mxnet_cases(tmp_path_factory.mktemp("mxnet"), ranks=2)

    def test_gradients_are_mostly_ready_before_any_are_reduced(self, recorded: Recorded) -> None:
        # The engine takes timestamps in another thread than the one that computes.
        steps = recorded.run("slow_compute").steps.to_pandas().groupby("step")
        early = steps["ready"].max() - steps["reduced"].min()
        assert early.median() <= RESOLUTION_NS

    def test_gradients_are_reduced_while_others_are_computed_as_without_a_recorder(
        self, recorded: Recorded
    ) -> None:
        for fit in recorded.fits("overlap"):
            # The trainer has counted the steps without a recorder.
            check_steps(fit, 24, 24)
        for rank in range(2):
            result = recorded.result("overlap", rank)
            # Most of 24 steps overlap, also on a busy machine.
            assert result["silent"] >= 18
            assert result["recorded"] >= 16


class TestOneProcess(MxnetContract):
    cases = (
        *variants(MxnetContract.cases, "timed", "raises", "recorder_breaks"),
        *(
            Case(name, timestamps=("data",), reason=reason)
            for name, reason in (
                ("without_stages", "switched off with stages=False"),
                ("wrong_trainer", "never reduced a gradient"),
                ("engine_takes_no_times", "takes no times"),
            )
        ),
    )

    @pytest.fixture(scope="class")
    @classmethod
    def recorded(cls, left_out_of: LeftOut, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
        return record_mxnet_cases(tmp_path_factory.mktemp("mxnet"), left_out=left_out_of(cls))

    def test_parameters_are_recorded_with_a_given_batch_size(self, recorded: Recorded) -> None:
        facts = recorded.fit("given_batch_size").facts
        assert (facts["batch_size"], facts["gradient_tensors"]) == (16, 4)
        assert facts["gradient_bytes"] == 4 * facts["parameters"] > 0

    def test_each_batch_has_as_many_samples_as_the_loop_saw(self, recorded: Recorded) -> None:
        recorded.clean("batches_of_every_size", ranks=1)
        seen = recorded.result("batches_of_every_size")["samples"]
        assert seen[:9] == [16, 16, 8, 16, 16, 16, 16, 16, 16]
        [fit] = recorded.fits("batches_of_every_size", ranks=1)
        assert list(fit.steps["samples"]) == seen

    def test_after_a_reduction_that_fails_the_other_steps_have_their_times(
        self, recorded: Recorded
    ) -> None:
        # The iteration with the failed reduction is part of the next step.
        fit = recorded.fit("reduction_fails")
        check_steps(fit, 0, 11)
        assert sorted(fit.steps["micro"]) == [1] * 10 + [2]
        assert (fit.steps["ready"] > fit.steps["data"]).all()

    def test_steps_that_an_engine_finishes_far_behind_the_host_lack_timestamps(
        self, recorded: Recorded
    ) -> None:
        fit = recorded.fit("host_far_ahead")
        assert fit.numbers == list(range(100))
        unknown = fit.steps["ready"].isna()
        # The recorder finds the last gradient when the first step has ended.
        assert not unknown[:60].any()
        assert 0 < unknown.sum() < 40
        assert not fit.steps["end"].isna().any()

    def test_errors_of_the_engine_reach_the_training_and_not_the_recorder(
        self, recorded: Recorded
    ) -> None:
        result = recorded.result("operator_fails")
        assert "potrf" in result["error"]
        assert result["logged"] == []
