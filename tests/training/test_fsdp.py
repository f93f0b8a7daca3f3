"""FSDP2 on two ranks: time in collectives is waiting and communication, and not compute."""

from __future__ import annotations

import re

import pytest
from training.environments import KERAS3, needs
from training.recorded import Recorded, record_cases
from training.recorder_contract import Case, RecorderContract, loop_cases

pytestmark = [pytest.mark.frameworks, pytest.mark.unmeasured]


class TestFsdp(RecorderContract):
    framework = "PyTorch with FSDP2 (`fully_shard`)"
    recorder = "FSDP2"
    launch = "2 ranks"
    ranks = 2
    scored = "fsdp"
    versions = ("torch",)
    cases = (
        *loop_cases(
            "fsdp",
            width=64,
            parameters=3 * (64 * 64 + 64) + 64 * 4 + 4,
            gradient_tensors=8,
            # FSDP reduces gradients in parts of other sizes.
            gradient_bytes=None,
            gradient_sizes=None,
            reduces_with=["gloo"],
            sharding={"kind": "fully_shard", "reshard_after_forward": True},
            groups=[],
            pipeline_schedule=None,
            compression="none",
        ),
        Case("recomputed"),
        # The other rank waits in the collectives of all blocks after the slow one.
        Case("slow_forward", steps=12, slow="compute", milliseconds=40),
        Case("slow_backward_with_accumulation", steps=6, micro=2, slow="compute", milliseconds=40),
        # Waits for gathers that a block has started before.
        Case("asynchronous", steps=12, slow="compute", milliseconds=40),
        Case(
            "without_stages",
            timestamps=("data",),
            reason="switched off with stages=False",
        ),
    )

    @pytest.fixture(scope="class")
    @classmethod
    def recorded(cls, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
        needs(KERAS3)
        folder = tmp_path_factory.mktemp("fsdp")
        return record_cases(folder, "two_ranks.py", "fsdp_cases.py", environment=KERAS3)

    def test_a_step_in_flight_shows_which_rank_is_missing_from_a_collective(
        self, recorded: Recorded
    ) -> None:
        for rank, expected in enumerate(("ready", "data")):
            [log] = recorded.logs("stuck").glob(f"rank-0000{rank}.*.steps.csv")
            # Later descriptions may show what the step reached when rank 1 went on.
            first = re.search(r'"reached":"(\w+)".*"step":12,', log.read_text())
            assert first
            assert first[1] == expected
        recorded.clean("stuck")
