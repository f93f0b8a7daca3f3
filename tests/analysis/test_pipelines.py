"""Ranks of a pipeline are compared with those of the same stage, and stages with each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow.compute as pc
import pytest
from simulator import Fault, Fixed, Job, Noise, simulate

from stallscope.analysis import Analysis, analyse
from stallscope.analysis.findings.finding import Finding
from stallscope.reports.run.json_content import json_content
from stallscope.reports.run.network_tables import network_tables
from stallscope.reports.run.run_tables import places_table
from stallscope.run import TIMESTAMPS, Run

JOB = Job(ranks=8, steps=400, noise=Noise(cv=0.02))
#: Four stages, each on two ranks.
STAGES = tuple((rank // 2,) for rank in range(8))
#: The third stage works longer than the others.
LONGER = tuple(Fault("compute", 30, ranks=(rank,)) for rank in (4, 5))


def analysis_of_pipeline(
    job: Job,
    stages: Sequence[tuple[int, ...]] = STAGES,
    schedule: str = "Schedule1F1B",
    micro_batches: int = 8,
) -> Analysis:
    """Simulate a job whose ranks have these stages, and analyse its run."""
    return analyse(with_stages(simulate(job).run, stages, schedule, micro_batches))


def with_stages(
    run: Run,
    stages: Sequence[tuple[int, ...]],
    schedule: str = "Schedule1F1B",
    micro_batches: int = 8,
) -> Run:
    """Return the run as ranks with these stages would have recorded it."""
    logs = []
    for log in run.logs:
        part = {
            "schedule": schedule,
            "micro_batches": micro_batches,
            "stages": list(stages[log.rank]),
            "of": 1 + max(map(max, stages)),
        }
        stamps = {"placed": ["data", "ready", "reduced"], "reason": None, "ready": "own work"}
        facts = {**log.facts, "stamps": stamps, "pipeline_schedule": part}
        logs.append(replace(log, facts=facts))
    return replace(run, logs=tuple(logs))


def stages_of(analysis: Analysis) -> Finding:
    (finding,) = [finding for finding in analysis.findings if finding.code == "pipeline_stages"]
    return finding


def named(analysis: Analysis) -> list[tuple[int, ...]]:
    return [straggler.ranks for straggler in analysis.stragglers]


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_longer_stage_is_no_straggler(replicas: int) -> None:
    stages = STAGES if replicas == 2 else tuple((rank,) for rank in range(8))
    faults = LONGER if replicas == 2 else LONGER[:1]
    analysis = analysis_of_pipeline(replace(JOB, faults=faults), stages)
    assert named(analysis) == []
    finding = stages_of(analysis)
    assert (finding.severity, finding.title) == ("warning", "Unequal pipeline stages")
    longest = stages[4][0]
    assert f"Stage {longest} works " in finding.evidence
    assert finding.advice[0].action.startswith(f"Move layers from stage {longest} to stage ")


def test_equal_stages_save_what_the_longest_works_beyond_the_mean() -> None:
    finding = stages_of(analysis_of_pipeline(replace(JOB, faults=LONGER)))
    # 30 ms less a quarter of it, in all micro-batches but the one that fills the pipeline.
    saved = 30 * 3 / 4 * 7 / 8
    words = finding.evidence.partition("save up to ")[2].split(" ")
    assert float(words[0]) == pytest.approx(saved, rel=0.05)


def test_equal_stages_are_described_without_a_warning() -> None:
    finding = stages_of(analysis_of_pipeline(JOB))
    assert (finding.severity, finding.title) == ("info", "Pipeline stages")
    # Three of eleven rounds fill and drain four stages with eight micro-batches.
    assert "lets equal stages wait 27.3% of a step" in finding.evidence
    assert [advice.line for advice in finding.advice] == [
        "Schedule1F1B(stage, n_microbatches=16, loss_fn=loss_fn)"
    ]


@pytest.mark.parametrize(
    ("schedule", "line"),
    [
        ("TrainSchedule", '"gradient_accumulation_steps": 16'),
        (
            "forward_backward_pipelining_without_interleaving",
            "forward_backward_func(num_microbatches=16, ...)",
        ),
    ],
)
def test_each_library_has_its_own_setting_for_micro_batches(schedule: str, line: str) -> None:
    finding = stages_of(analysis_of_pipeline(JOB, schedule=schedule))
    assert f"{schedule} with 8 micro-batches lets equal stages wait 27.3%" in finding.evidence
    assert [advice.line for advice in finding.advice] == [line]


@pytest.mark.parametrize(
    ("schedule", "stages", "share"),
    [
        (
            "ScheduleInterleaved1F1B",
            tuple((rank // 2, 4 + rank // 2) for rank in range(8)),
            "15.8%",
        ),
        ("ScheduleZBVZeroBubble", STAGES, None),
    ],
)
def test_a_schedules_bubble_is_told_where_it_is_known(
    schedule: str, stages: tuple[tuple[int, ...], ...], share: str | None
) -> None:
    evidence = stages_of(analysis_of_pipeline(JOB, stages, schedule)).evidence
    assert ("lets equal stages wait" in evidence) is (share is not None)
    assert share is None or f"wait {share} of a step" in evidence


def test_a_slow_rank_is_named_among_those_of_its_stage() -> None:
    faults = (*LONGER, Fault("compute", 20, ranks=(3,)))
    analysis = analysis_of_pipeline(replace(JOB, faults=faults))
    assert named(analysis) == [(3,)]
    (straggler,) = analysis.stragglers
    assert straggler.stage == "compute"
    assert straggler.excess_ms.value == pytest.approx(20, rel=0.1)
    # Stages with less work hide a part of the delay.
    (gain,) = [gain for gain in analysis.what_if if str(gain.fix) == "rank:3"]
    assert gain.bound
    assert gain.ci95 is None


def test_own_work_is_the_same_where_later_stages_end_before_the_first_is_ready() -> None:
    faults = tuple(Fault("compute", 40, ranks=(rank,)) for rank in (0, 1))
    together = with_stages(simulate(replace(JOB, faults=faults)).run, STAGES)
    later = pc.greater(together.steps["rank"], 1)
    steps = together.steps
    for name in TIMESTAMPS:
        times = steps[name]
        shifted = pc.if_else(later, pc.subtract(times, 30_000_000), times)
        steps = steps.set_column(steps.column_names.index(name), name, shifted)
    apart = replace(together, steps=steps)
    for expected, rank in zip(analyse(together).ranks, analyse(apart).ranks, strict=True):
        assert rank.other_ms == pytest.approx(expected.other_ms, abs=0.1)
        assert rank.compute_ms == pytest.approx(expected.compute_ms, abs=0.1)


def test_ranks_without_a_pipeline_have_no_such_finding() -> None:
    assert "pipeline_stages" not in {
        finding.code for finding in analyse(simulate(JOB).run).findings
    }


def in_mesh(run: Run, across: str, within: str, columns: int = 2) -> Run:
    """Return the run as ranks in rows and columns would have recorded it."""
    logs = []
    for log in run.logs:
        row, column = divmod(log.rank, columns)
        groups = [
            {"name": across, "first": column, "stride": columns, "size": run.size // columns},
            {"name": within, "first": columns * row, "stride": 1, "size": columns},
            {"name": "undefined", "first": 0, "stride": 3, "size": 2},
        ]
        logs.append(replace(log, facts={**log.facts, "groups": groups}))
    return replace(run, logs=tuple(logs))


def test_a_slow_rank_is_placed_in_the_mesh() -> None:
    run = simulate(replace(JOB, faults=(Fault("compute", 30, ranks=(5,)),))).run
    analysis = analyse(in_mesh(run, "pp", "dp"))
    assert named(analysis) == [(5,)]
    assert "In the mesh it is pp 2 and dp 1." in analysis.bottleneck.evidence


@pytest.mark.parametrize("ms", [10, 30])
@pytest.mark.parametrize(
    ("columns", "slow", "place"), [(4, (4, 5, 6, 7), "replica 1"), (2, (2, 3), "replica 1")]
)
def test_all_ranks_of_a_slow_replica_are_one_straggler(
    ms: int, columns: int, slow: tuple[int, ...], place: str
) -> None:
    """Half of the ranks may be slow: no rank alone is slower than most others."""
    faults = tuple(Fault("compute", ms, ranks=(rank,)) for rank in slow)
    run = simulate(replace(JOB, faults=faults)).run
    analysis = analyse(in_mesh(run, "replica", "shard", columns))
    (straggler,) = analysis.stragglers
    assert (straggler.ranks, straggler.place, straggler.hosts) == (slow, place, ())
    assert straggler.excess_ms.value == pytest.approx(ms, rel=0.1)
    assert analysis.bottleneck.ranks == slow
    assert analysis.bottleneck.evidence.startswith(f"All of {place} (ranks {slow[0]}")
    assert f"Fixing {place} saves" in analysis.bottleneck.evidence
    # One of its ranks alone gains nothing.
    assert "rank" not in {gain.fix.kind for gain in analysis.what_if}


def test_reports_arrange_ranks_by_place() -> None:
    faults = tuple(Fault("compute", 20, ranks=(rank,)) for rank in (4, 5, 6, 7))
    run = simulate(replace(JOB, faults=faults)).run
    analysis = analyse(in_mesh(run, "replica", "shard", 4))
    table = places_table(analysis)
    assert table is not None
    rows = {str(row[0]): row for row in table.rows}
    assert [*rows] == [f"replica {place}" for place in (0, 1)] + [
        f"shard {place}" for place in range(4)
    ]
    assert rows["replica 1"][1] == "ranks 4–7"
    assert rows["shard 2"][1] == "ranks 2 and 6"
    compute, last = table.columns.index("Compute, ms"), len(table.columns) - 1
    more = float(str(rows["replica 1"][compute])) - float(str(rows["replica 0"][compute]))
    assert more == pytest.approx(20, rel=0.1)
    assert rows["replica 1"][last] == "100%"
    assert table.emphasised == {1}
    (straggler,) = json_content(analysis)["stragglers"]
    assert (straggler["place"], straggler["hosts"]) == ("replica 1", [])
    assert places_table(analyse(run)) is None


def test_time_inside_collectives_is_by_kind_and_group() -> None:
    """Rank 2 comes last: the others of its group wait for it."""
    run = simulate(JOB).run
    logs = []
    for log in run.logs:
        gathers = {"kind": "all_gather", "group": "shard", "waits": 200}
        gathers["waited_us"] = 50_000 if log.rank == 2 else 1_000_000
        reduces = {"kind": "all_reduce", "group": "replica", "waits": 100, "waited_us": 300_000}
        fact = {"steps": 100, "waits": [reduces, gathers, {"kind": "damaged"}, None]}
        logs.append(replace(log, facts={**log.facts, "collectives": fact}))
    analysis = analyse(replace(run, logs=tuple(logs)))
    gathered, reduced = json_content(analysis)["collectives"]
    assert (gathered["kind"], gathered["group"], gathered["waits"]) == ("all_gather", "shard", 2.0)
    assert gathered["ms"] == pytest.approx((7 * 10 + 0.5) / 8)
    assert (gathered["least_rank"], gathered["least_ms"], gathered["most_ms"]) == (2, 0.5, 10.0)
    assert (reduced["group"], reduced["ms"], reduced["ranks"]) == ("replica", 3.0, 8)
    table = next(table for table in network_tables(analysis) if table.title == "Inside collectives")
    assert [row[:2] for row in table.rows] == [("all-gather", "shard"), ("all-reduce", "replica")]
    assert "(rank 2)" in str(table.rows[0][5])
    assert json_content(analyse(run))["collectives"] == []


def test_a_slow_replica_of_a_pipeline_is_no_longer_stage() -> None:
    slow = (1, 3, 5, 7)
    faults = (*LONGER, *(Fault("compute", 20, ranks=(rank,)) for rank in slow))
    run = with_stages(simulate(replace(JOB, faults=faults)).run, STAGES)
    analysis = analyse(in_mesh(run, "pp", "dp"))
    assert [straggler.place for straggler in analysis.stragglers] == ["dp 1"]
    assert named(analysis) == [slow]
    assert "Stage 2 works " in stages_of(analysis).evidence


@pytest.mark.parametrize("seed", range(8))
def test_no_place_is_named_without_a_fault(seed: int) -> None:
    job = replace(JOB, noise=Noise(cv=0.1), seed=seed)
    assert named(analyse(in_mesh(simulate(job).run, "replica", "shard", 4))) == []


def test_waiting_in_a_pipeline_is_no_slow_network() -> None:
    job = replace(JOB, communication=Fixed(200.0))
    assert analyse(simulate(job).run).bottleneck.kind == "allreduce"
    analysis = analysis_of_pipeline(job)
    assert analysis.bottleneck.kind != "allreduce"
    assert "allreduce" not in {gain.fix.kind for gain in analysis.what_if}
