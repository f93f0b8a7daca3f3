"""Models that four ranks share: each rank's own work is timed, and the slow one costs most."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

import pyarrow.compute as pc
import pytest
from training.environments import KERAS3, needs
from training.recorded import Recorded, record_cases
from training.recorder_contract import LeftOut, RecorderContract, loop_cases, variants

from stallscope.analysis import Analysis, analyse

pytestmark = pytest.mark.frameworks

#: In sharded_cases.py.
SLOW_RANK, MANY = 2, 40
SHARDED = {"kind": "fully_shard", "reshard_after_forward": True}


def launched(folder: Path, cases: Iterable[str], left_out: str) -> Recorded:
    """Run cases of four ranks."""
    needs(KERAS3)
    words = ("two_ranks.py", "sharded_cases.py")
    settings = {"RANKS": "4", "LEFT_OUT": left_out}
    return record_cases(folder, *words, cases=tuple(cases), environment=KERAS3, **settings)


@pytest.fixture(scope="module")
def all_recorded(left_out_of: LeftOut, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Run the cases of all contracts in one launch."""
    contracts = ShardedContract.__subclasses__()
    names = [case.name for contract in contracts for case in contract.cases]
    return launched(tmp_path_factory.mktemp("sharded"), names, left_out_of())


def dimension(name: str, first: int, stride: int) -> dict[str, object]:
    return {"name": name, "first": first, "stride": stride, "size": 2}


@pytest.mark.unmeasured
class ShardedContract(RecorderContract):
    launch = "4 ranks"
    ranks = 4
    versions = ("torch",)
    dimensions: ClassVar[tuple[str, str] | None] = None

    @pytest.fixture(scope="class")
    @classmethod
    def recorded(cls, all_recorded: Recorded) -> Recorded:
        return all_recorded

    def test_each_rank_records_its_groups(self, recorded: Recorded) -> None:
        for fit in recorded.fits(self.cases[0].name, ranks=4):
            assert fit.facts["stamps"]["ready"] == "own work"
            if self.dimensions is not None:
                across, within = self.dimensions
                row, column = divmod(fit.log.rank, 2)
                expected = [dimension(across, column, 2), dimension(within, 2 * row, 1)]
                assert [group for group in expected if group not in fit.facts["groups"]] == []


class TestExperts(ShardedContract):
    framework = "PyTorch with expert parallelism (`all_to_all_single`)"
    recorder = "Expert parallel"
    # Steps are recorded as with FSDP2 and in pipelines, which show all promises.
    cases = variants(loop_cases("experts", width=64, sharding=SHARDED), "recorder_breaks")


class TestHybrid(ShardedContract):
    framework = "PyTorch with HSDP (`fully_shard` on two dimensions)"
    recorder = "HSDP"
    dimensions = ("replicate", "shard")
    # Steps are recorded as with FSDP2 and in pipelines, which show all promises.
    cases = variants(loop_cases("hybrid", width=64, reduces_with=["gloo"]), "recorder_breaks")


class TestFsdp1(ShardedContract):
    framework = "PyTorch with FSDP 1 (`FullyShardedDataParallel`)"
    recorder = "FSDP 1"
    # Steps are recorded as with FSDP2 and in pipelines, which show all promises.
    cases = variants(
        loop_cases("fsdp_1", width=64, sharding={"kind": "FullyShardedDataParallel"}),
        "recorder_breaks",
    )


class TestTensorParallel(ShardedContract):
    framework = "PyTorch with tensor parallelism (`parallelize_module`)"
    recorder = "Tensor parallel"
    dimensions = ("dp", "tp")
    # Steps are recorded as with FSDP2 and in pipelines, which show all promises.
    cases = variants(loop_cases("tensor_parallel", width=64), "recorder_breaks")


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


KINDS = ("experts", "hybrid", "fsdp_1", "tensor_parallel", "tensor_parallel_alone", "pipeline")
SLOW_KINDS = (*KINDS, "context_parallel")
#: Other ways to share a model are recorded by the same code: make test compares ranks of these.
COMPARED = ("experts", "pipeline")


def of(kind: str, *cases: str) -> Any:
    """Return a kind as a parameter of a test that reads some of its cases."""
    marks = [pytest.mark.variant(*(f"{kind}_{case}" for case in cases))]
    return pytest.param(kind, marks=[] if kind in COMPARED else marks)


UNEVEN_EXPERTS = ("experts_uneven", "experts_uneven_by_hand")
JUDGED = (
    *(f"{kind}_{case}" for kind in SLOW_KINDS for case in ("slow", "clean")),
    *UNEVEN_EXPERTS,
    "pipeline_uneven",
)


@pytest.fixture(scope="module")
def ranks(left_out_of: LeftOut, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Run all cases whose ranks are compared."""
    return launched(tmp_path_factory.mktemp("judged"), JUDGED, left_out_of())


def analysed(recorded: Recorded, case: str) -> Analysis:
    return analyse(recorded.run(case))


@pytest.mark.parametrize("kind", [of(kind, "slow") for kind in SLOW_KINDS])
def test_the_slow_rank_costs_most(ranks: Recorded, kind: str) -> None:
    """Other ranks may be slow for a while as well, where cores are busy."""
    straggler, *_ = analysed(ranks, f"{kind}_slow").stragglers
    assert (straggler.ranks, straggler.stage) == ((SLOW_RANK,), "compute")
    ranks.clean(f"{kind}_slow", ranks=4)


@pytest.mark.parametrize("kind", [of(kind, "clean") for kind in KINDS])
def test_equal_ranks_work_equally_long(ranks: Recorded, kind: str) -> None:
    work = [fit.median_ms("data", "ready") for fit in ranks.fits(f"{kind}_clean", ranks=4)]
    assert max(work) < 1.5 * min(work)


#: Kinds and groups of the collectives of each kind.
WAITS = {
    "experts": {("all_to_all", "all ranks"), ("all_gather", "all ranks")},
    "hybrid": {("all_gather", "shard"), ("reduce_scatter", "shard"), ("all_reduce", "replicate")},
    "fsdp_1": {("all_gather", "all ranks"), ("reduce_scatter", "all ranks")},
    "tensor_parallel": {("all_gather", "dp"), ("reduce_scatter", "dp"), ("all_reduce", "tp")},
    "context_parallel": {
        *(("all_gather", "cp"), ("all_to_all", "cp"), ("all_gather", "all ranks"))
    },
    "pipeline": {("receive", "pp"), ("send", "pp"), ("all_reduce", "dp")},
}


@pytest.mark.parametrize("kind", [of(kind, "clean") for kind in WAITS])
def test_waits_are_recorded_by_kind_and_group(ranks: Recorded, kind: str) -> None:
    expected = WAITS[kind]
    for fit in ranks.fits(f"{kind}_clean", ranks=4):
        fact = fit.facts["collectives"]
        assert {(waits["kind"], waits["group"]) for waits in fact["waits"]} >= expected
        # Two epochs without the first steps; each collective is waited for in every step.
        assert 10 < fact["steps"] <= 2 * MANY
        assert all(waits["waits"] >= fact["steps"] - 1 for waits in fact["waits"])


@pytest.mark.parametrize("case", UNEVEN_EXPERTS)
def test_experts_with_more_tokens_explain_their_ranks_work(ranks: Recorded, case: str) -> None:
    analysis = analysed(ranks, case)
    causes = {cause.code: cause for cause in analysis.step_causes.causes}
    assert causes["uneven_routing"].ranks == (SLOW_RANK,)
    assert analysis.stragglers[0].ranks == (SLOW_RANK,)


def test_tokens_are_noted_in_each_step(ranks: Recorded) -> None:
    """Each of 128 tokens of a rank goes to one expert, and its gradient as well."""
    noted = ranks.run("experts_uneven").intervals
    noted = noted.filter(pc.equal(noted["kind"], "routed"))
    of_steps = noted.group_by("step").aggregate([("samples", "sum"), ("rank", "count")]).to_pylist()
    assert [row["step"] for row in of_steps] == list(range(2 * MANY))
    assert {(row["samples_sum"], row["rank_count"]) for row in of_steps} == {(2 * 4 * 128, 4)}


def test_equal_numbers_of_tokens_are_not_noted(ranks: Recorded) -> None:
    for case in ("experts_slow", "experts_clean"):
        assert "routed" not in ranks.run(case).intervals["kind"].to_pylist()
        codes = {cause.code for cause in analysed(ranks, case).step_causes.causes}
        assert "uneven_routing" not in codes


def test_a_stage_with_more_work_is_a_finding(ranks: Recorded) -> None:
    analysis = analysed(ranks, "pipeline_uneven")
    (finding,) = [finding for finding in analysis.findings if finding.code == "pipeline_stages"]
    assert finding.severity == "warning"
    assert "Stage 1 works" in finding.evidence
    assert finding.advice[0].action == "Move layers from stage 1 to stage 0"
