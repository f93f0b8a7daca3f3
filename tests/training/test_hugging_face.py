"""Hugging Face's Trainer, Accelerate and Lightning Fabric, in one process and as two ranks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import pytest
from training.environments import KERAS3, needs
from training.recorded import (
    Recorded,
    check_copies,
    check_figures,
    check_padding,
    record_cases,
    share_of_padding,
)
from training.recorder_contract import (
    ELEMENTS,
    PAUSES_IN_EPOCHS,
    RAISED,
    Case,
    LeftOut,
    RecorderContract,
    loop_cases,
    pauses_at,
    variants,
)

from stallscope.analysis import analyse
from stallscope.analysis.comparison import compare

pytestmark = [pytest.mark.frameworks, pytest.mark.unmeasured]


def launched(factory: pytest.TempPathFactory, left_out: str, *words: str) -> Recorded:
    needs(KERAS3)
    folder = factory.mktemp("hugging-face")
    words = (*words, "hugging_face_cases.py")
    return record_cases(folder, *words, environment=KERAS3, LEFT_OUT=left_out)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory, left_out_of: LeftOut) -> Recorded:
    """Run all cases of one process."""
    return launched(tmp_path_factory, left_out_of(OneProcess))


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory, left_out_of: LeftOut) -> Recorded:
    """Run all cases of two ranks."""
    return launched(tmp_path_factory, left_out_of(TwoRanks), "two_ranks.py")


class OneProcess(RecorderContract):
    @pytest.fixture(scope="class")
    @classmethod
    def recorded(cls, alone: Recorded) -> Recorded:
        return alone


class TwoRanks(RecorderContract):
    launch = "DDP"
    ranks = 2

    @pytest.fixture(scope="class")
    @classmethod
    def recorded(cls, ranks: Recorded) -> Recorded:
        return ranks


class TrainerContract(RecorderContract):
    framework = "Hugging Face Trainer, DDP or one process"
    recorder = "Hugging Face Trainer"
    scored = "transformers"
    versions = ("torch", "transformers", "accelerate")
    cases = (
        Case(
            "plain",
            weights=True,
            stopwatch="computes",
            run_name="plain run",
            facts={
                "framework": "pytorch",
                "model": "Net",
                "optimizer": "SGD",
                "epochs": 2,
                "batches_per_epoch": 12,
                "batch_size": 16,
                "accumulate_grad_batches": 1,
            },
        ),
        Case("compiled"),
        Case("probed", weights=True, probed=((14, 20),)),
        Case("workers", weights=True),
        Case("accumulation", steps=6, micro=(5, 5, 2) * 2),
        Case(
            "repeats",
            steps=6,
            micro=(5, 5, 2) * 2,
            elements=tuple(
                sum(ELEMENTS[start:end]) for start, end in 2 * ((0, 5), (5, 10), (10, 12))
            ),
        ),
        Case(
            "evaluation_and_checkpoints",
            intervals=PAUSES_IN_EPOCHS,
        ),
        Case("slow_input", steps=12, slow="input", milliseconds=40),
        Case("slow_backward", steps=12, slow="compute", milliseconds=40),
        Case("raises", steps=5, raised=RAISED),
        Case("resumed", steps=18, first=6),
        Case("recorder_breaks", fault="broken on purpose"),
    )

    def test_the_batches_of_workers_are_found_in_their_steps(self, recorded: Recorded) -> None:
        for fit in recorded.fits("workers", self.ranks):
            # The first step takes two batches, and the last one none.
            check_figures(fit.facts["loader"], [12, 12], asked=20)
            assert fit.facts["loader"]["unmatched"] == 0

    @pytest.mark.parametrize("case", ["padded", "padded_in_workers", "grouped_by_length"])
    def test_the_padding_of_some_batches_is_that_which_the_model_sees(
        self, recorded: Recorded, case: str
    ) -> None:
        check_padding(recorded, case, self.ranks)

    def test_trainings_with_other_batches_are_compared_per_token(self, recorded: Recorded) -> None:
        first, second = (analyse(recorded.run(f"batches_of_{samples}")) for samples in (16, 32))
        comparison = compare(first, second)
        work = comparison.same_work
        assert work is not None
        assert work.unit == "token"
        # Twice as many samples, of texts that are as long.
        assert work.second.per_step.value / work.first.per_step.value == pytest.approx(2, rel=0.1)
        assert comparison.speedup is not None
        assert work.speedup.value == pytest.approx(comparison.speedup.value, rel=0.1)
        counted = [recorded.result("batches_of_16", rank)["counted"] for rank in range(self.ranks)]
        tokens = sum(batch[0] for batches in counted for batch in batches) / len(counted[0])
        assert work.first.per_step.value == pytest.approx(tokens, rel=0.1)

    def test_batches_of_similar_lengths_have_less_padding(self, recorded: Recorded) -> None:
        shares = {}
        for case in ("padded", "grouped_by_length"):
            shares[case] = share_of_padding(recorded, case)
            (groups,) = {fit.facts["groups_by_length"] for fit in recorded.fits(case, self.ranks)}
            assert groups is (case == "grouped_by_length")
        assert shares["grouped_by_length"] < shares["padded"] / 2


class TestTrainerRanks(TrainerContract, TwoRanks):
    facts: ClassVar[Mapping[str, Any]] = {"reduces_with": ["gloo"]}
    # The Trainer adds up the ranks' tokens before each step, and waits there for slow input.
    cases = (
        *TrainerContract.cases,
        Case("slow_input_with_accumulation", steps=6, micro=2, slow="input", milliseconds=40),
    )


class TestTrainerAlone(TrainerContract, OneProcess):
    cases = (
        *variants(TrainerContract.cases, "recorder_breaks"),
        Case(
            "without_stages",
            steps=8,
            micro=3,
            timestamps=("data",),
            reason="switched off with stages=False",
        ),
    )
    repeated: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "test_the_batches_of_workers_are_found_in_their_steps": ("workers",),
        "test_the_padding_of_some_batches_is_that_which_the_model_sees": ("padded_in_workers",),
        "test_trainings_with_other_batches_are_compared_per_token": (
            *("batches_of_16", "batches_of_32"),
        ),
        "test_batches_of_similar_lengths_have_less_padding": ("padded", "grouped_by_length"),
    }

    def test_a_collator_that_pads_leaves_less_padding_than_a_padded_data_set(
        self, recorded: Recorded
    ) -> None:
        cases = ("padded_beforehand", "padded_by_collator")
        for case in cases:
            check_padding(recorded, case, self.ranks)
        before, after = (share_of_padding(recorded, case) for case in cases)
        assert after < before

    def test_a_callback_without_a_trainer_warns(self, recorded: Recorded) -> None:
        assert "no Trainer of transformers 4.46 or later" in recorded.warning("no_trainer")


class AccelerateContract(RecorderContract):
    framework = "Accelerate, DDP or one process"
    recorder = "Accelerate"
    scored = "accelerate"
    versions = ("torch", "accelerate")
    cases = loop_cases("accelerate", micro=(5, 5, 2), model="Net")

    def test_a_batch_sampler_that_sorts_by_length_leaves_less_padding(
        self, recorded: Recorded
    ) -> None:
        cases = ("accelerate_padded", "accelerate_by_length")
        for case in cases:
            check_padding(recorded, case, self.ranks)
        before, after = (share_of_padding(recorded, case) for case in cases)
        assert after < before / 2


class TestAccelerateRanks(AccelerateContract, TwoRanks):
    pass


class TestAccelerateAlone(AccelerateContract, OneProcess):
    cases = variants(AccelerateContract.cases)
    repeated: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "test_a_batch_sampler_that_sorts_by_length_leaves_less_padding": (
            *("accelerate_padded", "accelerate_by_length"),
        )
    }

    def test_batches_that_are_said_to_be_full_are(self, recorded: Recorded) -> None:
        result = recorded.result("accelerate_full_batches")
        assert result["full"] > 100
        assert result["wrong"] == []

    def test_copies_to_the_device_are_timed(self, recorded: Recorded) -> None:
        check_copies(recorded, "accelerate_copies")


class FabricContract(RecorderContract):
    framework = "Lightning and Lightning Fabric, DDP or one process"
    recorder = "Lightning Fabric"
    versions = ("torch",)
    cases = loop_cases("fabric", micro=(5, 5, 2), model="Net")


class TestFabricRanks(FabricContract, TwoRanks):
    cases = (
        # Fabric's model and loaders are wrapped like Accelerate's.
        *variants(FabricContract.cases, "accumulates", "recorder_breaks"),
        Case(
            "fabric_compiled",
            intervals=pauses_at(12, 24, kinds=("epoch", "validation", "checkpoint")),
        ),
    )


class TestFabricAlone(FabricContract, OneProcess):
    cases = variants(FabricContract.cases)

    def test_copies_to_the_device_are_timed(self, recorded: Recorded) -> None:
        check_copies(recorded, "fabric_copies")
