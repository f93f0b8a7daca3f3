"""Lightning, in one process and as two ranks with DistributedDataParallel."""

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
    check_steps,
    record_cases,
)
from training.recorder_contract import (
    ELEMENTS,
    PAUSES_IN_EPOCHS,
    RAISED,
    Case,
    LeftOut,
    RecorderContract,
    variants,
)

pytestmark = [pytest.mark.frameworks, pytest.mark.unmeasured]


def launched(
    factory: pytest.TempPathFactory, *options: str, cases: tuple[str, ...] = (), **settings: Any
) -> Recorded:
    needs(KERAS3)
    words = ("lightning_cases.py", *options)
    folder = factory.mktemp("lightning")
    return record_cases(folder, *words, cases=cases, environment=KERAS3, **settings)


class LightningContract(RecorderContract):
    framework = "Lightning and Lightning Fabric, DDP or one process"
    recorder = "Lightning"
    versions = ("torch", "lightning")
    cases = (
        Case(
            "plain",
            weights=True,
            stopwatch="computes",
            run_name="plain run",
            facts={
                "framework": "pytorch",
                "model": "Timed",
                "optimizer": "SGD",
                "epochs": 2,
                "batches_per_epoch": 12,
                "batch_size": 16,
                "loader_workers": 0,
            },
        ),
        Case("compiled"),
        Case("probed", weights=True, probed=((14, 20),)),
        Case("workers", weights=True),
        Case("repeats", elements=ELEMENTS),
        Case("accumulation", steps=8, micro=3, facts={"accumulate_grad_batches": 3}),
        Case(
            "validation_and_checkpoints",
            intervals=PAUSES_IN_EPOCHS,
        ),
        Case("slow_input", steps=12, slow="input", milliseconds=120),
        Case("slow_compute", steps=12, slow="compute", milliseconds=120),
        Case("raises", steps=5, raised=RAISED),
        Case("two_fits", steps=(24, 24)),
        Case("resumed", steps=12, first=12),
        Case("recorder_breaks", fault="broken on purpose"),
    )

    def test_the_batches_of_workers_are_found_in_their_steps(self, recorded: Recorded) -> None:
        for fit in recorded.fits("workers", self.ranks):
            check_figures(fit.facts["loader"], [12, 12], asked=22)

    def test_the_padding_of_some_batches_is_that_which_the_model_sees(
        self, recorded: Recorded
    ) -> None:
        check_padding(recorded, "padded", self.ranks)


class TestDDP(LightningContract):
    launch = "DDP"
    ranks = 2

    @pytest.fixture(scope="class")
    @classmethod
    def recorded(cls, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
        return launched(tmp_path_factory, "--ddp")


class TestOneProcess(LightningContract):
    cases = (
        *variants(LightningContract.cases, "recorder_breaks"),
        Case("by_hand"),
        Case("last_batch_smaller", steps=6, samples=(16, 16, 8) * 2),
        Case("without_stages", timestamps=("data",), reason="switched off with stages=False"),
        Case("workers_of_a_stream", weights=True),
    )
    repeated: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "test_the_batches_of_workers_are_found_in_their_steps": ("workers",),
        "test_the_padding_of_some_batches_is_that_which_the_model_sees": ("padded",),
    }

    @pytest.fixture(scope="class")
    @classmethod
    def recorded(cls, left_out_of: LeftOut, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
        return launched(tmp_path_factory, LEFT_OUT=left_out_of(cls))

    def test_copies_to_the_device_are_timed(self, recorded: Recorded) -> None:
        check_copies(recorded, "copies", in_input=False)

    def test_batches_that_lightning_takes_ahead_are_found_in_their_steps(
        self, recorded: Recorded
    ) -> None:
        # The first step takes two batches, and the last one none.
        check_figures(recorded.fit("workers_of_a_stream").facts["loader"], [24], asked=20)


def test_pytorch_lightning_is_recorded_like_lightning(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    cases = ("plain", "validation_and_checkpoints")
    recorded = launched(tmp_path_factory, cases=cases, LIGHTNING="pytorch_lightning")
    for case in cases:
        fit = recorded.fit(case)
        check_steps(fit, 0, 24)
        assert fit.facts["versions"].keys() == {"torch", "pytorch_lightning"}
