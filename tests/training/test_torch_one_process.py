"""One PyTorch process: ready gradients need no reduction. Synthetic data is like real data."""

from __future__ import annotations

import pytest
from training.recorded import Recorded, check_steps, fits_of, record_cases
from training.recorder_contract import Case, RecorderContract, loop_cases

from stallscope.parsers import read

pytestmark = [pytest.mark.horovod, pytest.mark.unmeasured]


class TestOneProcess(RecorderContract):
    framework = "PyTorch with Horovod or DistributedDataParallel"
    recorder = "PyTorch"
    versions = ("torch",)
    cases = (
        *loop_cases("torch", gradient_tensors=4),
        Case("one_process_with_horovod"),
        Case("model_without_optimizer", steps=12),
        Case("old_torch"),
        Case("one_process_on_a_device"),
        Case("fewer_gradients_on_a_device"),
        Case("synthetic_run", facts={"synthetic": True}),
        *(
            Case(
                name,
                steps=steps,
                samples=samples,
                timestamps=("data",),
                reason=reason,
                facts={"batch_size": samples},
            )
            for name, steps, samples, reason in (
                ("nothing_given", 12, 99, "neither an optimizer nor a model was given"),
                ("another_optimizer_updates", 24, 16, "never reduced a gradient"),
            )
        ),
        Case(
            "other_device",
            steps=6,
            micro=2,
            timestamps=("data",),
            reason="on META gradients are ready later than the host can see",
        ),
    )

    @pytest.fixture(scope="class")
    @classmethod
    def recorded(cls, training_side: None, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
        return record_cases(tmp_path_factory.mktemp("torch"), "torch_cases.py")

    def test_elements_are_recorded_where_they_are_not_as_usual(self, recorded: Recorded) -> None:
        fit = recorded.fit("lengths_that_change")
        lengths = [8, 8, 8, 12, 12, 8, 20, 20, 8, 12, 8, 8]
        assert fit.facts["sample_elements"] == 8
        assert list(fit.steps["elements"]) == [16 * length for length in lengths]
        # Only the other ones take up bytes.
        text = (recorded.logs("lengths_that_change") / fit.log.path).read_text()
        assert text.count(f",{16 * 8}\n") == 0
        assert recorded.fit("torch_plain").steps["elements"].isna().all()

    def test_compilations_are_recorded_with_torchs_reasons(self, recorded: Recorded) -> None:
        fit = recorded.fit("lengths_that_change")
        rows = fit.interruptions[fit.interruptions["kind"] == "compilation"]
        compiled_in = {
            int(step.step)
            for step in fit.steps.itertuples()
            if ((rows["begin"] >= step.begin) & (rows["end"] <= step.end)).any()
        }
        # Where a length comes for the first time.
        assert compiled_in == {0, 3, 6}
        assert fit.facts["compilations"]["count"] >= 3
        assert any("size mismatch" in reason for reason in fit.facts["compilations"]["reasons"])

    def test_saves_are_recorded_where_they_happen(self, recorded: Recorded) -> None:
        fit = recorded.fit("saves_of_all_kinds")

        def steps_with(kind: str) -> set[int]:
            rows = fit.interruptions[fit.interruptions["kind"] == kind]
            return {
                int(step.step)
                for step in fit.steps.itertuples()
                if ((rows["begin"] >= step.begin) & (rows["begin"] <= step.end)).any()
            }

        # An asynchronous save first copies on the training thread. A save in a pause is a checkpoint.
        assert steps_with("saving") == {2, 6}
        assert steps_with("background_saving") == {4, 6}
        assert list(fit.intervals["kind"]).count("checkpoint") == 1
        assert {"saving", "background_saving"} <= set(fit.facts["interruptions"])
        assert fit.facts["saves"]["count"] == 2

    def test_waits_for_another_thread_are_recorded(self, recorded: Recorded) -> None:
        fit = recorded.fit("another_thread_computes")
        rows = fit.interruptions[fit.interruptions["kind"] == "interpreter"]
        # A row has the looks that found the same wait.
        assert rows["steps"].sum() >= 20
        first, last = fit.steps["begin"].iloc[0], fit.steps["end"].iloc[-1]
        assert ((rows["begin"] >= first) & (rows["begin"] <= last)).all()
        assert fit.facts["interpreter"]["waits"] >= 20
        most = fit.facts["interpreter"]["threads"][0]
        assert (most["name"], most["function"]) == ("feeder", "compute")

    def test_an_evaluation_on_another_thread_is_beside_the_steps(self, recorded: Recorded) -> None:
        fit = recorded.fit("evaluates_beside_training")
        check_steps(fit, 0, len(fit.steps))
        assert list(fit.intervals["kind"]).count("validation") == 1
        assert not list(fit.intervals["kind"]).count("checkpoint")
        [evaluation] = fit.interruptions[
            fit.interruptions["kind"] == "background_evaluation"
        ].itertuples()
        within = (fit.steps["begin"] < evaluation.end) & (fit.steps["end"] > evaluation.begin)
        assert list(fit.steps["step"][within]) == [2, 3, 4, 5]
        assert list(fit.interruptions["kind"]).count("background_saving") == 1
        assert fit.facts["background_evaluations"]["count"] == 1

    def test_horovod_is_not_imported(self, recorded: Recorded) -> None:
        assert recorded.result("synthetic_run")["horovod"] is False

    @pytest.mark.parametrize(
        ("case", "steps", "step"), [("layers_get_frozen", 36, 11), ("other_parts_train", 24, 12)]
    )
    def test_a_step_without_the_former_last_gradient_lacks_its_timestamps(
        self, recorded: Recorded, case: str, steps: int, step: int
    ) -> None:
        fit = recorded.fit(case)
        assert fit.numbers == list(range(steps))
        for name in ("ready", "reduced"):
            missing = fit.steps[name].isna()
            assert list(missing[missing].index) == [step]

    def test_after_a_missing_gradient_all_are_watched_again(self, recorded: Recorded) -> None:
        hooks = recorded.result("other_parts_train")["hooks"]
        assert hooks[:12] == [1 + 6] * 7 + [1 + 1] * 5
        assert hooks[13] == 1 + 6

    def test_all_gradients_are_watched_if_a_later_one_would_go_unseen(
        self, recorded: Recorded
    ) -> None:
        assert set(recorded.result("the_end_comes_late")["hooks"]) == {1 + 6}

    def test_on_a_device_only_the_last_gradient_keeps_its_hook(self, recorded: Recorded) -> None:
        hooks = recorded.result("few_hooks_on_a_device")["hooks"]
        assert hooks == [1 + 4] * 7 + [1 + 1] * (len(hooks) - 7)

    def test_timestamps_come_from_the_one_cuda_device_of_the_model(
        self, recorded: Recorded
    ) -> None:
        assert recorded.result("devices_of_parameters")["found"] == {
            "one": [1, None],
            "two": [None, "the model is spread over several CUDA devices"],
            "mixed": [None, "on CUDA gradients are ready later than the host can see"],
            "none": [None, None],
        }

    def test_petastorms_queue_is_sampled_during_training(self, recorded: Recorded) -> None:
        fit = recorded.fit("petastorm")
        check_steps(fit, 0, 12)
        assert set(fit.steps["samples"]) == {16}
        queue = fit.facts["petastorm"]
        assert (queue["pool"], queue["workers"], queue["room"]) == ("ThreadPool", 1, 10)
        assert queue["loader"] == "DataLoader"
        assert queue["looks"] > 0
        assert queue["waiting"] < 1

    def test_a_logger_records_until_it_is_closed_and_again_in_a_with_block(
        self, recorded: Recorded
    ) -> None:
        recorded.clean("closed_and_entered", ranks=1)
        first, second = recorded.fits("closed_and_entered", ranks=1)
        check_steps(first, 0, 12)
        check_steps(second, 12, 12)
        # A list of batches has no loader's facts.
        assert first.facts["batch_size"] == second.facts["batch_size"] == 16
        assert (first.facts["loader_workers"], second.facts["loader_workers"]) == (0, None)

    def test_a_watched_loader_is_as_long_as_the_loader(self, recorded: Recorded) -> None:
        assert recorded.result("closed_and_entered")["length"] == 12

    def test_loaders_that_cannot_be_fetched_ahead_are_refused(self, recorded: Recorded) -> None:
        result = recorded.result("probed_loaders")
        lost = "is an iterator: batches fetched ahead would be lost if the loop ends early"
        assert result["refused"] == {
            "loader": None,
            "list": None,
            "iterator": f"_SingleProcessDataLoaderIter {lost}",
            "stream": f"_Stream {lost}",
            "stateful": "a checkpoint of DataLoader would count batches that were fetched and not "
            "trained",
            "synthetic": "the data is synthetic",
            "other": "Training is no DataLoader; log.watch(loader, probe_input=20) names it",
        }
        assert result["named"] is None

    def test_the_memory_of_batches_is_counted_once(self, recorded: Recorded) -> None:
        result = recorded.result("probed_loaders")
        assert result["ready"] == [0, 6]
        sparse = 32 * (4 + 2 * 8)
        assert result["bytes"] == {
            "tensors": 160,
            "views of one": 128,
            "array in an object": 128,
            "sparse": sparse,
            "words": 0,
        }

    def test_a_probe_does_not_change_who_draws_which_random_numbers(
        self, recorded: Recorded
    ) -> None:
        weights = recorded.result("probed_with_random_numbers")["weights"]
        assert {workers: silent == probed for workers, (silent, probed) in weights.items()} == {
            "0": True,
            "1": True,
        }
        logs = [
            recorded.logs("probed_with_random_numbers", f"logs-{workers}") for workers in (0, 1)
        ]
        here, in_workers = (
            [fit.log for run in read(str(log)) for fit in fits_of(run)] for log in logs
        )
        assert [len(log.input_probes) for log in (*here, *in_workers)] == [0, 1]
        assert here[0].facts["input_probe"]["refused"].startswith("the loader draws random numbers")

    def test_invalid_arguments_raise(self, recorded: Recorded) -> None:
        kinds = [kind for kind, _ in recorded.result("bad_arguments")["raised"]]
        assert kinds == ["TypeError"] * 3 + ["ValueError"] * 3
        messages = [message for _, message in recorded.result("bad_arguments")["raised"]]
        assert messages[0].startswith("log_dir is the folder for the logs")
        assert messages[-1] == "the loader has no batch to take shapes from"

    def test_the_samples_of_each_kind_of_batch_are_counted(self, recorded: Recorded) -> None:
        kinds = recorded.result("kinds_of_batches")["kinds"]
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

    def test_a_mapping_whose_labels_come_first_has_the_size_of_its_samples(
        self, recorded: Recorded
    ) -> None:
        assert recorded.result("kinds_of_batches")["shapes"] == {
            "labels first": [2, 5],
            "labels first, of a tokenizer": [2, 5],
            "labels first, and edges": [2],
            "labels alone": [2],
            "labels first in a list": [2],
        }

    def test_tokens_and_padding_are_counted_where_a_batch_tells_them(
        self, recorded: Recorded
    ) -> None:
        unknown = [-1, -1]
        assert recorded.result("kinds_of_batches")["padding"] == {
            "mask": [8, 2],
            "of a tokenizer": [8, 2],
            "lengths": [8, 2],
            "of something else": unknown,
            "for each pair of places": unknown,
            "added to scores": unknown,
            "elsewhere": unknown,
            "of KerasHub": [8, 2],
            "of fairseq": unknown,
            "of NumPy": [8, 2],
            "none": unknown,
            "a tensor": unknown,
        }

    def test_each_batch_has_as_many_samples_as_the_loop_saw(self, recorded: Recorded) -> None:
        recorded.clean("batches_of_every_size", ranks=1)
        seen = recorded.result("batches_of_every_size")["samples"]
        assert seen[:3] == [16, 16, 8]
        [fit] = recorded.fits("batches_of_every_size", ranks=1)
        assert list(fit.steps["samples"]) == seen

    def test_synthetic_batches_are_like_real_ones(self, recorded: Recorded) -> None:
        result = recorded.result("kinds_of_batches")
        for name, kind in result["kinds"].items():
            assert kind["like"] == kind["shape"], name
            # Batches without numbers to replace are the real ones.
            assert kind["same"] is (name in ("empty", "text", "sparse")), name
        assert set(result["labels"]) <= {3, 4, 5}

    def test_synthetic_data_is_as_long_as_the_real(self, recorded: Recorded) -> None:
        result = recorded.result("kinds_of_batches")
        assert result["length"] == result["batches"] == 1
        fit = recorded.fit("synthetic_run")
        assert list(fit.steps["epoch"]) == [0] * 12 + [1] * 12
        assert fit.facts["synthetic"] is True
        assert recorded.result("synthetic_run")["sampler"] == "RandomSampler"
