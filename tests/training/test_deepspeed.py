"""DeepSpeed's ZeRO and pipelines on CPU ranks: time in collectives is waiting, not compute."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import ClassVar

import pytest
from training.environments import DEEPSPEED, needs
from training.recorded import Recorded, record_cases
from training.recorder_contract import Case, LeftOut, RecorderContract, loop_cases, variants

from stallscope.analysis import analyse

pytestmark = pytest.mark.frameworks

FACTS = {"gradient_tensors": 4, "parameters": 2372}
#: Of the loader that the engine makes.
OWN_LOADER = {"batch_size": 16, "batches_per_epoch": 12, "loader_workers": 2}
#: In deepspeed_pipeline_cases.py.
SLOW_RANK, MANY, MICRO_BATCHES, FETCH_MS = 2, 40, 4, 10


@pytest.mark.unmeasured
class DeepSpeedContract(RecorderContract):
    framework = "PyTorch with DeepSpeed"
    launch = "2 ranks"
    ranks = 2
    versions = ("torch",)

    @pytest.fixture(scope="class")
    @classmethod
    def recorded(cls, ranks: Recorded) -> Recorded:
        return ranks

    def test_the_engine_updates_once_per_step(self, recorded: Recorded, each: Case) -> None:
        if not each.raised:
            assert recorded.result(each.name)["updates"] == sum(each.recordings)


@pytest.fixture(scope="module")
def ranks(left_out_of: LeftOut, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Run all cases of two ranks."""
    needs(DEEPSPEED)
    words = ("two_ranks.py", "deepspeed_cases.py")
    folder = tmp_path_factory.mktemp("deepspeed")
    return record_cases(folder, *words, environment=DEEPSPEED, LEFT_OUT=left_out_of())


class TestZero(DeepSpeedContract):
    recorder = "DeepSpeed"
    cases = (
        *loop_cases("zero_2", width=32, **FACTS, sharding={"kind": "DeepSpeed"}),
        # Partitioned weights change when gradients are ready, and no other promise.
        *variants(loop_cases("zero_3", width=32, **FACTS), "accumulates"),
        *(Case(name, facts=FACTS, variant=True) for name in ("zero_0", "zero_1_in_16_bits")),
        Case("zero_1", weights=True, facts=FACTS),
        Case("zero_own_loader", weights=True, facts={**FACTS, **OWN_LOADER}),
    )


class TestBelowAccelerate(DeepSpeedContract):
    recorder = "DeepSpeed below Accelerate"
    versions = ("torch", "accelerate")
    cases = variants(loop_cases("below_accelerate", width=32, **FACTS), "accumulates", "raises")


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


def launched_stages(folder: Path, cases: Iterable[str], left_out: str = "") -> Recorded:
    """Run cases of four ranks."""
    needs(DEEPSPEED)
    words = ("two_ranks.py", "deepspeed_pipeline_cases.py")
    settings = {"RANKS": "4", "LEFT_OUT": left_out}
    return record_cases(folder, *words, cases=tuple(cases), environment=DEEPSPEED, **settings)


class TestPipeline(DeepSpeedContract):
    recorder = "DeepSpeed's pipelines"
    launch = "4 ranks"
    ranks = 4
    gradients_reduced = None
    staggered = True
    cases = variants(
        tuple(
            case
            for case in loop_cases("stages", width=64, sharding={"kind": "pipeline"})
            if case.micro == 1
        ),
        *("raises", "recorder_breaks"),
    )
    cannot: ClassVar[Mapping[str, str]] = {
        "accumulation": "each `train_batch` is a step, which sums its micro-batches"
    }

    @pytest.fixture(scope="class")
    @classmethod
    def recorded(cls, left_out_of: LeftOut, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
        names = [case.name for case in cls.cases]
        return launched_stages(tmp_path_factory.mktemp("stages"), names, left_out_of(cls))

    def test_each_rank_records_its_stage_and_groups(self, recorded: Recorded) -> None:
        schedule = {"schedule": "TrainSchedule", "micro_batches": MICRO_BATCHES, "of": 2}
        for fit in recorded.fits("stages_plain", ranks=4):
            assert fit.facts["stamps"]["ready"] == "own work"
            stage, replica = divmod(fit.log.rank, 2)
            assert fit.facts["pipeline_schedule"] == {**schedule, "stages": [stage]}
            assert fit.log.place == {"pp": stage, "dp": replica}


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Run all cases whose ranks are compared."""
    folder = tmp_path_factory.mktemp("judged")
    return launched_stages(folder, ("stages_slow", "stages_uneven", "stages_fetch"))


def test_the_slow_rank_of_a_stage_costs_most(stages: Recorded) -> None:
    analysis = analyse(stages.run("stages_slow"))
    straggler, *_ = analysis.stragglers
    assert (straggler.ranks, straggler.stage) == ((SLOW_RANK,), "compute")
    stages.clean("stages_slow", ranks=4)


def test_a_stage_with_more_layers_is_a_finding(stages: Recorded) -> None:
    analysis = analyse(stages.run("stages_uneven"))
    (finding,) = [finding for finding in analysis.findings if finding.code == "pipeline_stages"]
    assert finding.severity == "warning"
    assert "Stage 1 works" in finding.evidence
    assert finding.advice[0].action == "Move layers from stage 1 to stage 0"


def test_waits_are_added_up_by_kind_and_group(stages: Recorded) -> None:
    # The engine sends its messages in no group.
    expected = {("send", "all ranks"), ("receive", "all ranks"), ("all_reduce", "dp")}
    expected |= {("broadcast", "pp")}
    for fit in stages.fits("stages_uneven", ranks=4):
        fact = fit.facts["collectives"]
        assert {(waits["kind"], waits["group"]) for waits in fact["waits"]} >= expected
        assert 10 < fact["steps"] <= 2 * MANY


def test_micro_batches_that_the_engine_fetches_are_input(stages: Recorded) -> None:
    for fit in stages.fits("stages_fetch", ranks=4):
        waits = (fit.steps["data"] - fit.steps["begin"]) / 1e6
        slow = fit.log.rank == SLOW_RANK
        assert (waits >= MICRO_BATCHES * FETCH_MS).all() == slow
        assert fit.steps["ready"].notna().all()
        assert set(fit.steps["samples"]) == {8}
    stages.clean("stages_fetch", ranks=4)
