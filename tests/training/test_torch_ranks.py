"""Two PyTorch ranks, with Horovod and with DistributedDataParallel, have all stages of each step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pytest
from training.recorded import (
    RESOLUTION_NS,
    TIMESTAMPS,
    Recorded,
    check_gathered,
    check_ranks_together,
    check_sampled,
    check_steps,
    fits_of,
    record_cases,
)
from training.recorder_contract import Case, LeftOut, RecorderContract, loop_cases, variants

from stallscope.parsers import read

pytestmark = [pytest.mark.horovod, pytest.mark.unmeasured]

#: 8·64 + 64 + 64·4 + 4 numbers.
NUMBERS = 836


class TorchRanks(RecorderContract):
    framework = "PyTorch with Horovod or DistributedDataParallel"
    recorder = "PyTorch"
    ranks = 2
    scored = "torch"
    versions = ("torch",)
    is_horovod = False
    facts: ClassVar[Mapping[str, Any]] = {"bucket_bytes": 25 << 20}
    cases = (
        *loop_cases(
            "torch",
            optimizer="SGD",
            learning_rate=0.1,
            learning_rate_scaled=None,
            parameters=NUMBERS,
            gradient_tensors=4,
            gradient_bytes=4 * NUMBERS,
            loader_workers=0,
            persistent_workers=False,
            compression="none",
            devices=["CPU"],
            model="Net",
        ),
        *(
            Case(name)
            for name in (
                *("clipping", "scaler", "unused_parameters", "static_graph"),
                *("reentrant_checkpoint", "all_in_a_reentrant_checkpoint"),
                *("several_backward_passes_in_an_iteration", "synchronized_twice"),
                "compiled",
            )
        ),
        Case("left_early", steps=20),
        Case("validation_in_an_iteration", steps=12),
        Case("copies", steps=12),
        Case("compiled_and_slow", steps=12, slow="compute", milliseconds=40),
        Case("accumulation_left_over", steps=4, micro=5, facts={"backward_passes_per_step": 5}),
        Case("accumulation_on_a_device", steps=8, micro=3),
        Case("several_reductions_in_an_iteration", steps=48, samples=(16, 0) * 24),
        Case("two_sessions", steps=(24, 24)),
        Case("unfrozen", steps=(24, 24)),
        *(
            Case(name, fault="ZeroDivisionError('broken on purpose')")
            for name in (
                *("recorder_breaks", "recorder_breaks_in_its_own_thread", "recorder_cannot_start"),
            )
        ),
        Case(
            "without_stages",
            steps=12,
            micro=2,
            timestamps=("data",),
            reason="switched off with stages=False",
        ),
        Case(
            "wrong_object",
            timestamps=("data",),
            reason="never reduced a gradient",
            facts={"gradients_reduced": None},
        ),
    )

    def test_the_last_gradient_is_seen_although_few_are_watched(self, recorded: Recorded) -> None:
        for rank, fit in enumerate(recorded.fits("another_gradient_comes_last")):
            result = recorded.result("another_gradient_comes_last", rank)
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
        recorded.clean("another_gradient_comes_last")

    def test_a_validation_inside_an_iteration_ends_the_step_before_it(
        self, recorded: Recorded
    ) -> None:
        for fit in recorded.fits("validation_in_an_iteration"):
            assert fit.kinds == ["validation", "checkpoint", "epoch", "end"]
            assert set(fit.steps["epoch"]) == {7}
            # It came after the sixth step.
            assert list(fit.intervals["step"]) == [6, 6, 12, 12]
            validation, checkpoint = fit.intervals.iloc[0], fit.intervals.iloc[1]
            assert fit.steps["end"][5] <= validation["begin"]
            assert validation["end"] <= checkpoint["begin"]
            assert checkpoint["end"] <= fit.steps["begin"][6]

    def test_waiting_for_a_broadcast_is_not_compute(self, recorded: Recorded) -> None:
        slow, patient = recorded.fits("slow_before_a_broadcast")
        check_steps(slow, 0, 12)
        check_steps(patient, 0, 12)
        assert slow.median_ms("begin", "data") > 40
        assert patient.median_ms("data", "ready") < 60
        assert patient.median_ms("ready", "reduced") > 60
        recorded.clean("slow_before_a_broadcast")

    def test_a_waiting_rank_polls_under_horovod(self, recorded: Recorded) -> None:
        wait = recorded.result("waits_for_a_rank")
        # A polling thread has most of a core, or gives it up all the time where others want it.
        polls = (
            wait["cpu_seconds"] > 0.1 * wait["waited_seconds"]
            or wait["switches"] > 20 * wait["waited_seconds"]
        )
        assert polls is self.is_horovod

    def test_clipping_reduced_gradients_comes_after_the_reduction(self, recorded: Recorded) -> None:
        for fit in recorded.fits("clipping"):
            # Ten milliseconds of sleep between the reduction and the update.
            assert (fit.steps["end"] - fit.steps["reduced"]).min() > 10e6

    def test_loops_that_end_early_are_epochs(self, recorded: Recorded) -> None:
        for fit in recorded.fits("left_early"):
            assert list(fit.steps["epoch"]) == [0] * 5 + [1] * 5 + [2] * 5 + [3] * 5
            assert fit.kinds == ["epoch"] * 4 + ["end"]

    def test_twice_adams_default_rate_is_scaled(self, recorded: Recorded) -> None:
        assert recorded.fits("two_sessions")[0].facts["learning_rate_scaled"] is True

    def test_gradients_of_an_unfrozen_layer_are_counted_in_the_next_session(
        self, recorded: Recorded
    ) -> None:
        tensors = [fit.facts["gradient_tensors"] for fit in recorded.fits("unfrozen")]
        assert tensors == [2, 4, 2, 4]

    def test_of_two_loggers_the_later_one_records(self, recorded: Recorded) -> None:
        recorded.result("two_loggers")
        for name in ("first", "logs"):
            [run] = read(str(recorded.logs("two_loggers", name)))
            for fit in fits_of(run):
                check_steps(fit, 0, 12)
        for rank in range(2):
            assert recorded.result("two_loggers", rank)["ours"] == []
            assert "one is enough" in recorded.warning("two_loggers", rank)

    def test_on_a_device_all_timestamps_are_its_own_and_the_host_does_not_wait(
        self, recorded: Recorded
    ) -> None:
        """The device is fake: see fake_cuda.py."""
        case = "on_a_device"
        for fit in recorded.fits(case):
            check_steps(fit, 0, 24)
            stamps = fit.facts["stamps"]
            assert (stamps["placed"], stamps["reason"]) == (list(TIMESTAMPS), None)
            assert (stamps["clock"], stamps["turns_without_times"]) == ("cuda", 0)
            # The device lags 50 ms behind; epochs are in the host's time.
            assert fit.steps["begin"][0] - fit.of_kind("epoch")["begin"].iloc[0] > 49e6
        assert fits_of(recorded.run(case))[1].median_ms("data", "ready") > 40
        check_ranks_together(recorded.run(case))
        recorded.clean(case)
        assert recorded.same_weights(case)

    def test_reductions_that_the_recorder_cannot_see_are_the_reason(
        self, recorded: Recorded
    ) -> None:
        for fit in recorded.fits("optimizer_alone"):
            check_steps(fit, 0, 12, timestamps=("data",))
            reason = "the optimizer is not Horovod's and the model not DistributedDataParallel"
            assert reason in fit.facts["stamps"]["reason"]
            assert fit.facts["gradients_reduced"] is None
        recorded.clean("optimizer_alone")
        assert recorded.same_weights("optimizer_alone")

    @pytest.mark.parametrize(
        ("case", "expected", "steps"),
        [("no_folder", "cannot write to", 12), ("disk_gets_full", "File too large", 100)],
    )
    def test_a_rank_that_cannot_write_continues_to_train(
        self, recorded: Recorded, case: str, expected: str, steps: int
    ) -> None:
        message = recorded.warning(case, 1)
        assert expected in message
        assert "rank 1 is no longer recorded, training goes on" in message
        assert recorded.result(case, 0)["logged"] == []
        [run] = read(str(recorded.logs(case)))
        check_steps(fits_of(run)[0], 0, steps)
        for fit in fits_of(run)[1:]:
            check_steps(fit, 0, len(fit.steps))
            assert 10 < len(fit.steps) < steps
        assert recorded.same_weights(case)

    @pytest.mark.parametrize(
        ("case", "steps"), [("recorder_breaks", 4), ("recorder_cannot_start", 0)]
    )
    def test_steps_before_a_fault_can_be_read(
        self, recorded: Recorded, case: str, steps: int
    ) -> None:
        [run] = read(str(recorded.logs(case)))
        assert [len(fit.steps) for fit in fits_of(run)] == [steps, steps]

    def test_hooks_are_removed_at_once_if_recording_cannot_start(self, recorded: Recorded) -> None:
        for rank in range(2):
            assert recorded.result("recorder_cannot_start", rank)["in_training"] == []

    def test_ranks_without_a_shared_folder_gather_their_logs(self, recorded: Recorded) -> None:
        check_gathered(recorded)

    def test_sampled_steps_are_recorded_in_several_files(self, recorded: Recorded) -> None:
        check_sampled(recorded, steps=320)


class TestHorovod(TorchRanks):
    launch = "Horovod"
    versions = ("torch", "horovod")
    is_horovod = True
    facts: ClassVar[Mapping[str, Any]] = {"bucket_bytes": None}

    @pytest.fixture(scope="class")
    @classmethod
    def recorded(cls, training_side: None, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
        return record_cases(tmp_path_factory.mktemp("horovod"), "torch_cases.py", ranks=2)


class TestDDP(TorchRanks):
    launch = "DDP"
    # What is not about the reduction of gradients is the same code as with Horovod.
    cases = variants(
        TorchRanks.cases,
        *("torch_accumulates", "torch_raises", "torch_recorder_breaks", "slow_backward"),
        *("unused_parameters", "static_graph", "reentrant_checkpoint"),
        *("several_backward_passes_in_an_iteration", "several_reductions_in_an_iteration"),
        *("compiled_and_slow", "wrong_object"),
    )
    repeated: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "test_the_last_gradient_is_seen_although_few_are_watched": ("another_gradient_comes_last",),
        "test_a_validation_inside_an_iteration_ends_the_step_before_it": (
            "validation_in_an_iteration",
        ),
        "test_waiting_for_a_broadcast_is_not_compute": ("slow_before_a_broadcast",),
        "test_clipping_reduced_gradients_comes_after_the_reduction": ("clipping",),
        "test_loops_that_end_early_are_epochs": ("left_early",),
        "test_twice_adams_default_rate_is_scaled": ("two_sessions",),
        "test_gradients_of_an_unfrozen_layer_are_counted_in_the_next_session": ("unfrozen",),
        "test_of_two_loggers_the_later_one_records": ("two_loggers",),
        "test_on_a_device_all_timestamps_are_its_own_and_the_host_does_not_wait": ("on_a_device",),
        "test_reductions_that_the_recorder_cannot_see_are_the_reason": ("optimizer_alone",),
        "test_a_rank_that_cannot_write_continues_to_train": ("no_folder", "disk_gets_full"),
        "test_steps_before_a_fault_can_be_read": ("recorder_breaks", "recorder_cannot_start"),
        "test_hooks_are_removed_at_once_if_recording_cannot_start": ("recorder_cannot_start",),
        "test_ranks_without_a_shared_folder_gather_their_logs": ("gathered",),
        "test_sampled_steps_are_recorded_in_several_files": ("sampled",),
    }

    @pytest.fixture(scope="class")
    @classmethod
    def recorded(
        cls, training_side: None, left_out_of: LeftOut, tmp_path_factory: pytest.TempPathFactory
    ) -> Recorded:
        words = ("two_ranks.py", "torch_cases.py")
        folder = tmp_path_factory.mktemp("ddp")
        return record_cases(folder, *words, LEFT_OUT=left_out_of(cls))
