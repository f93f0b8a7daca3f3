"""DeepSpeed's ZeRO on two CPU ranks: time in collectives is waiting and communication, not compute."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import pytest
from training.environments import DEEPSPEED, needs
from training.recorded import Recorded, record_cases
from training.recorder_contract import Case, RecorderContract, loop_cases

pytestmark = [pytest.mark.frameworks, pytest.mark.unmeasured]

FACTS = {"gradient_tensors": 4, "parameters": 2372}


class DeepSpeedContract(RecorderContract):
    framework = "PyTorch with DeepSpeed"
    launch = "2 ranks"
    ranks = 2
    versions = ("torch",)

    @pytest.fixture(scope="class")
    @classmethod
    def recorded(cls, ranks: Recorded) -> Recorded:
        return ranks

    def test_the_engine_updates_once_per_step(self, recorded: Recorded) -> None:
        for case in self.cases:
            if not case.raised:
                assert recorded.result(case.name)["updates"] == 24 // case.micro_of(1)[0]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Run all cases of two ranks."""
    needs(DEEPSPEED)
    words = ("two_ranks.py", "deepspeed_cases.py")
    folder = tmp_path_factory.mktemp("deepspeed")
    return record_cases(folder, *words, environment=DEEPSPEED)


class TestZero(DeepSpeedContract):
    recorder = "DeepSpeed"
    cases = (
        *loop_cases("zero_2", width=32, **FACTS, sharding={"kind": "DeepSpeed"}),
        *loop_cases("zero_3", width=32, **FACTS),
        *(Case(name, facts=FACTS) for name in ("zero_0", "zero_1_in_16_bits")),
        Case("zero_1", weights=True, facts=FACTS),
    )


class TestBelowAccelerate(DeepSpeedContract):
    recorder = "DeepSpeed below Accelerate"
    versions = ("torch", "accelerate")
    cases = loop_cases("below_accelerate", width=32, **FACTS)


class TestBelowTrainer(DeepSpeedContract):
    recorder = "DeepSpeed below the Trainer"
    versions = ("torch", "transformers")
    cases = (
        Case("below_trainer", weights=True, facts=FACTS, slow="input", milliseconds=40),
        Case("below_trainer_accumulates", steps=8, micro=3, weights=True),
    )
    cannot: ClassVar[Mapping[str, str]] = dict.fromkeys(
        (
            *("stopwatch", "validation", "checkpoint", "slow compute", "exception", "resume"),
            *("work", "fault"),
        ),
        "tested without DeepSpeed, below which the Trainer calls the same callback",
    )
