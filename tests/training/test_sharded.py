"""Models that four ranks share: each rank's own work is timed, and the slow one costs most."""

from __future__ import annotations

from typing import ClassVar

import pytest
from training.environments import KERAS3, needs
from training.recorded import Recorded, record_cases
from training.recorder_contract import RecorderContract, loop_cases

from stallscope.analysis import Analysis, analyse

pytestmark = [pytest.mark.frameworks, pytest.mark.unmeasured]

#: In sharded_cases.py.
SLOW_RANK, MANY = 2, 40


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Run all cases of four ranks."""
    needs(KERAS3)
    folder = tmp_path_factory.mktemp("sharded")
    words = ("two_ranks.py", "sharded_cases.py")
    return record_cases(folder, *words, environment=KERAS3, RANKS="4")


def dimension(name: str, first: int, stride: int) -> dict[str, object]:
    return {"name": name, "first": first, "stride": stride, "size": 2}


class ShardedContract(RecorderContract):
    launch = "4 ranks"
    ranks = 4
    versions = ("torch",)
    dimensions: ClassVar[tuple[str, str] | None] = None

    @pytest.fixture(scope="class")
    @classmethod
    def recorded(cls, ranks: Recorded) -> Recorded:
        return ranks

    def test_each_rank_records_its_groups(self, recorded: Recorded) -> None:
        for fit in recorded.fits(self.cases[0].name, ranks=4):
            assert fit.facts["stamps"]["ready"] == "own work"
            if self.dimensions is not None:
                across, within = self.dimensions
                row, column = divmod(fit.log.rank, 2)
                expected = [dimension(across, column, 2), dimension(within, 2 * row, 1)]
                assert [group for group in expected if group not in fit.facts["groups"]] == []


class TestHybrid(ShardedContract):
    framework = "PyTorch with HSDP (`fully_shard` on two dimensions)"
    recorder = "HSDP"
    dimensions = ("replicate", "shard")
    cases = loop_cases("hybrid", width=64, reduces_with=["gloo"])


class TestFsdp1(ShardedContract):
    framework = "PyTorch with FSDP 1 (`FullyShardedDataParallel`)"
    recorder = "FSDP 1"
    cases = loop_cases("fsdp_1", width=64, sharding={"kind": "FullyShardedDataParallel"})


class TestTensorParallel(ShardedContract):
    framework = "PyTorch with tensor parallelism (`parallelize_module`)"
    recorder = "Tensor parallel"
    dimensions = ("dp", "tp")
    cases = loop_cases("tensor_parallel", width=64)


class TestPipeline(ShardedContract):
    framework = "PyTorch with pipelines (`torch.distributed.pipelining`)"
    recorder = "Pipelines"
    gradients_reduced = None
    staggered = True
    dimensions = ("pp", "dp")
    cases = loop_cases("pipeline", width=64)

    def test_each_rank_records_its_stage(self, recorded: Recorded) -> None:
        expected = {"schedule": "Schedule1F1B", "micro_batches": 4, "of": 2}
        for fit in recorded.fits("pipeline_plain", ranks=4):
            stages = [fit.log.rank // 2]
            assert fit.facts["pipeline_schedule"] == {**expected, "stages": stages}


KINDS = ("hybrid", "fsdp_1", "tensor_parallel", "tensor_parallel_alone", "pipeline")


def analysed(recorded: Recorded, case: str) -> Analysis:
    return analyse(recorded.run(case))


@pytest.mark.parametrize("kind", KINDS)
def test_the_slow_rank_costs_most(ranks: Recorded, kind: str) -> None:
    """Other ranks may be slow for a while as well, where cores are busy."""
    straggler, *_ = analysed(ranks, f"{kind}_slow").stragglers
    assert (straggler.ranks, straggler.stage) == ((SLOW_RANK,), "compute")
    ranks.clean(f"{kind}_slow", ranks=4)


@pytest.mark.parametrize("kind", KINDS)
def test_equal_ranks_work_equally_long(ranks: Recorded, kind: str) -> None:
    work = [fit.median_ms("data", "ready") for fit in ranks.fits(f"{kind}_clean", ranks=4)]
    assert max(work) < 1.5 * min(work)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (
            "hybrid",
            {("all_gather", "shard"), ("reduce_scatter", "shard"), ("all_reduce", "replicate")},
        ),
        ("fsdp_1", {("all_gather", "all ranks"), ("reduce_scatter", "all ranks")}),
        ("tensor_parallel", {("all_gather", "dp"), ("reduce_scatter", "dp"), ("all_reduce", "tp")}),
        ("pipeline", {("receive", "pp"), ("send", "pp"), ("all_reduce", "dp")}),
    ],
)
def test_waits_are_recorded_by_kind_and_group(
    ranks: Recorded, kind: str, expected: set[tuple[str, str]]
) -> None:
    for fit in ranks.fits(f"{kind}_clean", ranks=4):
        fact = fit.facts["collectives"]
        assert {(waits["kind"], waits["group"]) for waits in fact["waits"]} >= expected
        # Two epochs without the first steps; each collective is waited for in every step.
        assert 10 < fact["steps"] <= 2 * MANY
        assert all(waits["waits"] >= fact["steps"] - 1 for waits in fact["waits"])


def test_a_stage_with_more_work_is_a_finding(ranks: Recorded) -> None:
    analysis = analysed(ranks, "pipeline_uneven")
    (finding,) = [finding for finding in analysis.findings if finding.code == "pipeline_stages"]
    assert finding.severity == "warning"
    assert "Stage 1 works" in finding.evidence
    assert finding.advice[0].action == "Move layers from stage 1 to stage 0"
