"""Megatron-Core on CPU ranks: groups and stages are known, and the slow rank or stage is named."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import ClassVar

import pytest
from training.environments import DEEPSPEED, needs
from training.recorded import Recorded, record_cases
from training.recorder_contract import LeftOut, RecorderContract, loop_cases, variants

from stallscope.analysis import analyse

pytestmark = pytest.mark.frameworks

#: In megatron_cases.py.
SLOW_RANK, STEPS, MANY, MICRO_BATCHES, FETCH_MS = 2, 12, 40, 4, 10
#: Where ranks share each layer, and where they are replicas: the dimension within a stage.
WITHIN = {"tensors": "tp", "replicas": "dp"}
#: Replicas are those of other pipelines, too.
REPLICAS = pytest.mark.variant(*(f"replicas_{case}" for case in ("slow", "uneven", "clean")))
LAYOUTS = ("tensors", pytest.param("replicas", marks=REPLICAS))


def launched(folder: Path, cases: Iterable[str], left_out: str) -> Recorded:
    """Run cases of four ranks."""
    needs(DEEPSPEED)
    words = ("two_ranks.py", "megatron_cases.py")
    settings = {"RANKS": "4", "LEFT_OUT": left_out}
    return record_cases(folder, *words, cases=tuple(cases), environment=DEEPSPEED, **settings)


@pytest.mark.unmeasured
class TestMegatron(RecorderContract):
    framework = "PyTorch with Megatron-Core"
    recorder = "Megatron-Core"
    launch = "4 ranks"
    ranks = 4
    versions = ("torch", "megatron-core")
    gradients_reduced = None
    staggered = True
    cases = variants(
        tuple(
            case
            for case in loop_cases(
                "gpt", width=64, sharding={"kind": "Megatron-Core"}, model="GPTModel"
            )
            if case.micro == 1
        ),
        *("raises", "recorder_breaks"),
    )
    cannot: ClassVar[Mapping[str, str]] = {
        "accumulation": "each call of the schedule is a step, which sums its micro-batches"
    }

    @pytest.fixture(scope="class")
    @classmethod
    def recorded(cls, left_out_of: LeftOut, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
        names = (*(case.name for case in cls.cases), "gpt_fetches", "interleaved")
        return launched(tmp_path_factory.mktemp("gpt"), names, left_out_of(cls))

    def test_each_rank_records_its_stage_and_groups(self, recorded: Recorded) -> None:
        for fit in recorded.fits("gpt_plain", ranks=4):
            assert fit.facts["stamps"]["ready"] == "own work"
            stage, part = divmod(fit.log.rank, 2)
            assert fit.facts["pipeline_schedule"] == {
                "schedule": "forward_backward_pipelining_without_interleaving",
                "micro_batches": MICRO_BATCHES,
                "stages": [stage],
                "of": 2,
            }
            assert fit.log.place == {"tp": part, "pp": stage}

    def test_chunks_of_a_rank_are_stages(self, recorded: Recorded) -> None:
        for fit in recorded.fits("interleaved", ranks=4):
            stage, replica = divmod(fit.log.rank, 2)
            assert fit.facts["pipeline_schedule"] == {
                "schedule": "forward_backward_pipelining_with_interleaving",
                "micro_batches": MICRO_BATCHES,
                "stages": [stage, stage + 2],
                "of": 4,
            }
            assert fit.log.place == {"pp": stage, "dp": replica}

    @pytest.mark.parametrize(("case", "chunks"), [("gpt_fetches", 1), ("interleaved", 2)])
    def test_micro_batches_that_the_schedule_fetches_are_input(
        self, recorded: Recorded, case: str, chunks: int
    ) -> None:
        for fit in recorded.fits(case, ranks=4):
            waits = (fit.steps["data"] - fit.steps["begin"]) / 1e6
            if fit.log.rank == SLOW_RANK:
                assert (waits >= chunks * MICRO_BATCHES * FETCH_MS).all()
            assert fit.steps["ready"].notna().all()
            assert set(fit.steps["samples"]) == {16}
            assert len(fit.steps) == STEPS
        recorded.clean(case, ranks=4)


@pytest.fixture(scope="module")
def compared(left_out_of: LeftOut, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Run all cases whose ranks are compared."""
    cases = [f"{layout}_{case}" for layout in WITHIN for case in ("slow", "uneven", "clean")]
    return launched(tmp_path_factory.mktemp("compared"), cases, left_out_of())


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_slow_rank_of_a_stage_costs_most(compared: Recorded, layout: str) -> None:
    analysis = analyse(compared.run(f"{layout}_slow"))
    straggler, *_ = analysis.stragglers
    assert (straggler.ranks, straggler.stage) == ((SLOW_RANK,), "compute")
    compared.clean(f"{layout}_slow", ranks=4)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_stage_with_more_work_is_a_finding(compared: Recorded, layout: str) -> None:
    analysis = analyse(compared.run(f"{layout}_uneven"))
    (finding,) = [finding for finding in analysis.findings if finding.code == "pipeline_stages"]
    assert finding.severity == "warning"
    assert "Stage 1 works" in finding.evidence
    assert finding.advice[0].action == "Move layers from stage 1 to stage 0"
    # A stage with more work is no straggler.
    assert SLOW_RANK not in {rank for straggler in analysis.stragglers for rank in straggler.ranks}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_equal_ranks_work_equally_long_and_none_is_named(compared: Recorded, layout: str) -> None:
    fits = compared.fits(f"{layout}_clean", ranks=4)
    work = [fit.median_ms("data", "ready") for fit in fits]
    for stage in (work[:2], work[2:]):
        assert max(stage) < 1.5 * min(stage)
    stragglers = analyse(compared.run(f"{layout}_clean")).stragglers
    assert [straggler.ranks for straggler in stragglers if straggler.pattern == "persistent"] == []


@pytest.mark.parametrize("layout", LAYOUTS)
def test_waits_are_added_up_by_kind_and_group(compared: Recorded, layout: str) -> None:
    expected = {("send", "pp"), ("receive", "pp"), ("all_reduce", WITHIN[layout])}
    for fit in compared.fits(f"{layout}_clean", ranks=4):
        fact = fit.facts["collectives"]
        assert {(waits["kind"], waits["group"]) for waits in fact["waits"]} >= expected
        assert 10 < fact["steps"] <= 2 * MANY
