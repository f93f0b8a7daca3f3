"""Causes inside steps cost what the job gains without them, and clean runs have none."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from simulator import Job, simulate
from simulator.clocks import Clocks
from simulator.faults import Bursts, EveryNth, Fault
from simulator.logs import write_logs
from support.schemas import errors_in
from support.simulated import padded, routed

from stallscope.analysis import Analysis, analyse
from stallscope.analysis.findings.step_causes import StepCause
from stallscope.analysis.steps.alignment import align
from stallscope.analysis.views.lanes import Lanes
from stallscope.analysis.views.one_step import (
    PauseOnAxis,
    find_step,
    pauses_by_step,
    pauses_of_step,
    pauses_on_axis,
)
from stallscope.conditions.condition import parse
from stallscope.formatting.numbers import plus_minus
from stallscope.parsers import read
from stallscope.reports.run.json_content import json_content
from stallscope.reports.run.step_tables import causes_table
from stallscope.run import Run
from stallscope.text.job_words import throughput

JOB = Job(ranks=4, steps=600, compute_ms=50.0, input_ms=2.0, other_ms=2.0)
COLLECTIONS = Fault("compute", 100.0, ranks=[1], when=EveryNth(20), cause="garbage_collection")
COMPILATIONS = Fault("compute", 900.0, when=Bursts(60, 1), cause="compilation")
WORK = Fault("compute", 10.0, cv=1.0, cause="work")
NOTED = {"interruptions": ["garbage_collection", "compilation"]}


def run_of(*faults: Fault, **changes: object) -> Run:
    return simulate(replace(JOB, faults=faults, facts=NOTED, **changes)).run  # type: ignore[arg-type]


def step_ms(analysis: Analysis) -> float:
    assert analysis.step is not None
    return analysis.step.mean


def causes_of(run: Run) -> dict[str, StepCause]:
    return {cause.code: cause for cause in analyse(run).step_causes.causes}


@pytest.mark.parametrize(
    ("fault", "ranks"),
    [
        (COLLECTIONS, (1,)),
        (replace(COLLECTIONS, ranks=(), rotating=1), (0, 1, 2, 3)),
        (COMPILATIONS, (0, 1, 2, 3)),
    ],
    ids=["one-rank", "rotating", "all-ranks"],
)
def test_a_pause_costs_what_the_job_gains_without_it(fault: Fault, ranks: tuple[int, ...]) -> None:
    faulty, healthy = analyse(run_of(fault)), analyse(run_of())
    (cause,) = faulty.step_causes.causes
    assert cause.code == fault.cause
    assert cause.ranks == ranks
    gained = step_ms(faulty) - step_ms(healthy)
    assert cause.saved_ms.value == pytest.approx(gained, rel=0.03)
    assert cause.share == pytest.approx(gained / step_ms(faulty), rel=0.03)
    assert cause.saved_ms.ci95 is not None
    assert cause.saved_ms.ci95[0] < gained < cause.saved_ms.ci95[1]


def test_pauses_are_counted_and_timed() -> None:
    cause = causes_of(run_of(COLLECTIONS))["garbage_collection"]
    # One in 20 of 600 steps, and the first ones are warm-up.
    assert cause.count in (29, 30)
    assert cause.took_ms == pytest.approx(100, rel=0.05)


def test_a_pause_while_its_rank_waits_costs_nothing() -> None:
    # Rank 0 always comes last, so rank 1 has 40 ms to spare.
    slow = Fault("compute", 60.0, ranks=[0], cv=0.0)
    assert not causes_of(run_of(slow, replace(COLLECTIONS, ms=20.0)))


def test_pauses_are_found_on_clocks_that_differ() -> None:
    on_hosts = run_of(
        COLLECTIONS, ranks_per_host=1, clocks=Clocks(offsets_ms=(0.0, 900.0, -400.0, 5.0))
    )
    saved_ms = [
        causes_of(run)["garbage_collection"].saved_ms.value
        for run in (on_hosts, run_of(COLLECTIONS))
    ]
    assert saved_ms[0] == pytest.approx(saved_ms[1], rel=0.02)


def test_nested_compilations_count_once() -> None:
    run = run_of(COMPILATIONS)
    inner = run.intervals.filter(pc.equal(run.intervals["kind"], "compilation"))
    middle = pc.divide(pc.add(inner["begin"], inner["end"]), 2)
    inner = inner.set_column(inner.schema.get_field_index("begin"), "begin", middle)
    twice = pa.concat_tables([run.intervals, inner])
    once = causes_of(run)["compilation"]
    assert causes_of(replace(run, intervals=twice))["compilation"].saved_ms == once.saved_ms


def equal_work_gain_ms(run: Run) -> float:
    """Return what the true delays of unequal batches cost, from the simulation."""
    truth = simulate(replace(JOB, faults=(WORK,), facts=NOTED)).truth
    delays = truth.extra["compute"]
    arrival = (truth.other + truth.input + truth.compute).astype(np.float64)
    equal = arrival - delays + delays.mean(axis=1, keepdims=True)
    return float((arrival.max(axis=1) - equal.max(axis=1))[20:].mean()) / 1e6


def test_equal_batches_gain_what_unequal_ones_cost() -> None:
    run = run_of(WORK)
    cause = causes_of(run)["unequal_work"]
    assert cause.saved_ms.value == pytest.approx(equal_work_gain_ms(run), rel=0.05)
    assert cause.ranks == ()
    assert cause.of_imbalance is not None
    assert cause.of_imbalance > 0.5


def test_the_rank_with_larger_batches_is_named_and_not_called_slow_hardware() -> None:
    cause = causes_of(run_of(replace(WORK, ranks=[3])))["unequal_work"]
    assert cause.ranks == (3,)
    assert "rank 3" in cause.text
    assert "larger" in cause.text


@pytest.mark.broad
def test_no_rank_is_named_whose_batches_are_larger_by_chance() -> None:
    """In few steps, the mean batches of ranks differ by more than a few percent."""
    unequal = replace(WORK, ms=30.0)
    named = [
        seed
        for seed in range(1, 31)
        if (cause := causes_of(run_of(unequal, seed=seed, steps=100)).get("unequal_work"))
        and cause.ranks
    ]
    assert named == []


def test_even_routing_gains_what_uneven_routing_costs() -> None:
    run = run_of(WORK)
    cause = causes_of(routed(run))["uneven_routing"]
    # Experts' tokens are analysed as elements of batches are.
    batches = causes_of(run)["unequal_work"]
    assert cause.saved_ms == batches.saved_ms
    assert cause.ranks == ()
    assert "changes from step to step" in cause.text


def test_the_rank_whose_experts_get_more_tokens_is_named_in_the_verdict() -> None:
    analysis = analyse(routed(run_of(replace(WORK, ms=30.0, ranks=[3]))))
    (cause,) = analysis.step_causes.causes
    assert (cause.code, cause.ranks) == ("uneven_routing", (3,))
    assert "the experts of rank 3 get" in cause.text
    verdict = analysis.bottleneck
    assert verdict.ranks == (3,)
    assert [reason.code for reason in verdict.why] == ["uneven_routing"]
    assert verdict.advice[0].action.startswith("Let the router")
    content = json.loads(json.dumps(json_content(analysis), default=str))
    assert errors_in("report", content) == []
    assert [cause["name"] for cause in content["causes"]] == ["uneven_routing"]
    assert parse("causes.uneven_routing.share>2%").check(analysis).held
    assert parse("causes.uneven_routing.share>2%").check(analyse(run_of(WORK))).held is None


def test_tokens_of_experts_that_cost_no_time_are_no_cause() -> None:
    rng = np.random.default_rng(1)
    run = run_of(replace(WORK, ms=0.0))
    at = run.steps.schema.get_field_index("elements")
    elements = pa.array(rng.integers(20_000, 40_000, run.rows))
    steps = run.steps.set_column(at, run.steps.schema.field("elements"), [elements])
    assert not causes_of(routed(replace(run, steps=steps)))


def test_tokens_that_a_rank_has_not_noted_tell_nothing() -> None:
    run = routed(run_of(WORK))
    known = pc.not_equal(run.intervals["rank"], 2)
    assert not causes_of(replace(run, intervals=run.intervals.filter(known)))


def test_both_causes_are_told_apart() -> None:
    causes = causes_of(run_of(WORK, COLLECTIONS))
    assert set(causes) == {"unequal_work", "garbage_collection"}
    alone = causes_of(run_of(WORK))["unequal_work"]
    assert causes["unequal_work"].saved_ms.value == pytest.approx(alone.saved_ms.value, rel=0.1)


@pytest.mark.parametrize("seed", range(1, 21))
def test_clean_and_merely_slow_runs_have_no_cause(seed: int) -> None:
    """Batches that vary without an effect, and a slow rank whose batches are like the others'."""
    slow = Fault("compute", 10.0, ranks=[1])
    run = run_of(replace(WORK, ms=0.0), slow, seed=seed)
    rng = np.random.default_rng(seed)
    elements = rng.integers(20_000, 40_000, run.rows)
    at = run.steps.schema.get_field_index("elements")
    steps = run.steps.set_column(at, run.steps.schema.field("elements"), [elements])
    analysis = analyse(replace(run, steps=steps))
    assert analysis.step_causes.causes == ()
    assert analysis.step_causes.explained is None


def test_a_cause_on_the_slow_rank_is_a_reason_with_advice() -> None:
    often = replace(COLLECTIONS, ms=30.0, when=EveryNth(2))
    analysis = analyse(run_of(often))
    verdict = analysis.bottleneck
    assert verdict.ranks == (1,)
    assert [reason.code for reason in verdict.why] == ["garbage_collection"]
    assert "gc.freeze()" in str(verdict.advice[0])
    assert "garbage_collection" not in {finding.code for finding in analysis.findings}


def test_another_cause_is_a_finding() -> None:
    analysis = analyse(run_of(COMPILATIONS, Fault("input", 60.0)))
    assert analysis.bottleneck.kind == "input"
    (finding,) = (each for each in analysis.findings if each.code == "compilation")
    assert "dynamic=True" in str(finding.advice[0])


@pytest.mark.parametrize(
    ("framework", "line"),
    [
        ("pytorch", "torch.compile(model, dynamic=True)"),
        ("tensorflow", "@tf.function(reduce_retracing=True)"),
        ("jax", ""),
    ],
)
def test_compilations_have_their_reason_and_the_frameworks_advice(
    framework: str, line: str
) -> None:
    compilations = {"count": 3, "reasons": ["new shape (16, 3), before (16, 2)", "another one"]}
    facts = {**NOTED, "framework": framework, "compilations": compilations}
    run = simulate(replace(JOB, faults=(COMPILATIONS,), facts=facts)).run
    (cause,) = analyse(run).step_causes.causes
    assert cause.text.endswith(
        "The first reason: new shape (16, 3), before (16, 2), and 1 other reason."
    )
    (advice,) = cause.advice
    assert advice.line == line


def test_json_table_and_conditions_have_them() -> None:
    analysis = analyse(run_of(WORK, COLLECTIONS))
    content = json.loads(json.dumps(json_content(analysis), default=str))
    assert errors_in("report", content) == []
    assert [cause["name"] for cause in content["causes"]] == ["unequal_work", "garbage_collection"]
    assert 0.5 < content["explained"] <= 1
    table = causes_table(analysis)
    assert table is not None
    assert [row[1] for row in table.rows] == ["in turn", "1"]
    assert parse("causes.garbage_collection.share>2%").check(analysis).held
    assert not parse("causes.compilation.share>1%").check(analysis).held


def test_what_a_recorder_does_not_note_is_unknown() -> None:
    run = simulate(JOB).run
    outcome = parse("causes.compilation.share<1%").check(analyse(run))
    assert outcome.held is None
    assert "noted no compilation" in outcome.why


def test_logs_that_were_written_tell_the_same(tmp_path: Path) -> None:
    simulated = simulate(replace(JOB, faults=(WORK, COLLECTIONS), facts=NOTED))
    write_logs(simulated, tmp_path)
    (run,) = read(str(tmp_path))
    assert analyse(run).step_causes == analyse(simulated.run).step_causes


# -- padding ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("ranks", [1, 4])
def test_padding_costs_what_its_tokens_take(ranks: int) -> None:
    share = 0.25
    analysis = analyse(padded(run_of(WORK, ranks=ranks), share))
    (cause,) = (each for each in analysis.step_causes.causes if each.code == "padding")
    truth = simulate(replace(JOB, faults=(WORK,), facts=NOTED, ranks=ranks)).truth
    arrival = (truth.other + truth.input + truth.compute).astype(np.float64)
    # Elements take time in proportion to the compute time without the fault.
    sizes = JOB.compute_ms * 1e6 + truth.extra["compute"]
    gained = (arrival.max(axis=1) - (arrival - share * sizes).max(axis=1))[20:].mean() / 1e6
    assert cause.saved_ms.value == pytest.approx(gained, rel=0.1)
    assert cause.saved_ms.ci95 is not None
    assert cause.saved_ms.ci95[0] < gained < cause.saved_ms.ci95[1]
    assert cause.of_imbalance is None
    padding = analysis.step_causes.padding
    assert padding is not None
    assert padding.share.value == pytest.approx(share, abs=0.001)
    assert dict(padding.of_ranks) == pytest.approx(dict.fromkeys(range(ranks), share), abs=0.001)


def test_more_padding_than_half_costs_at_least_what_half_of_the_places_take() -> None:
    known, most = (
        next(cause for cause in analyse(run).step_causes.causes if cause.code == "padding")
        for run in (padded(run_of(WORK), share) for share in (0.4, 0.7))
    )
    assert most.saved_ms.value == pytest.approx(known.saved_ms.value * 0.5 / 0.4, rel=0.02)
    assert "would save at least " in most.text
    assert "at least" not in known.text


def test_no_more_than_half_of_the_compute_time_goes_with_half_of_the_places() -> None:
    # Time that grows faster than size, as attention's does, has too steep a slope for small batches.
    run = run_of(WORK)
    at = run.steps.schema.get_field_index("elements")
    elements = run.steps["elements"].to_numpy()
    closer = np.rint(elements.mean() + (elements - elements.mean()) / 4).astype(np.int64)
    steep = replace(
        run,
        steps=run.steps.set_column(at, run.steps.schema.field("elements"), [pa.array(closer)]),
    )
    in_proportion, capped = (
        next(cause for cause in analyse(padded(each, 0.7)).step_causes.causes)
        for each in (run, steep)
    )
    assert in_proportion.code == capped.code == "padding"
    assert capped.saved_ms.value == pytest.approx(in_proportion.saved_ms.value, rel=0.02)


def test_few_counted_batches_that_resemble_the_one_before_tell_the_cost() -> None:
    run = run_of(WORK, ranks=1, steps=230)
    rng, shares = np.random.default_rng(6), [0.25]
    while len(shares) < 29:
        shares.append(0.25 + 0.5 * (shares[-1] - 0.25) + rng.normal(0, 0.02))
    analysis = analyse(padded(run, np.array(shares)))
    (cause,) = (each for each in analysis.step_causes.causes if each.code == "padding")
    assert cause.saved_ms.ci95 is not None


def test_throughput_is_told_in_tokens() -> None:
    analysis = analyse(padded(run_of(), 0.25))
    rate = analysis.tokens_per_second
    assert rate is not None
    expected = 4 * 0.75 * 40_000 / step_ms(analysis) * 1e3
    assert rate.value == pytest.approx(expected, rel=0.01)
    # The step's error is in that of the rate.
    step = analysis.step
    assert rate.ci95 is not None
    assert step is not None
    assert step.ci95 is not None
    errors = [
        (high - low) / 2 / value
        for (low, high), value in ((rate.ci95, rate.value), (step.ci95, step.mean))
    ]
    assert errors[0] >= 0.99 * errors[1]
    assert f"{plus_minus(rate.value, rate.ci95)} tokens/s" in throughput(analysis)
    assert parse("tokens_per_second>1").check(analysis).held
    assert parse("tokens_per_second>1").check(analyse(run_of())).held is None
    content = json_content(analysis)
    assert content["run"]["tokens_per_second"] == rate.value
    assert content["padding"]["tokens_per_second"] == rate.value


#: Batches of different sizes, of which no rank waits long for another.
SIMILAR_WORK = replace(WORK, ms=3.0)


def test_padding_is_the_verdict_where_there_is_no_other_fault() -> None:
    analysis = analyse(padded(run_of(SIMILAR_WORK), 0.25))
    verdict = analysis.bottleneck
    assert (verdict.kind, verdict.cause, verdict.ranks) == ("compute", "padding", ())
    assert verdict.fault
    (finding,) = (each for each in analysis.findings if each.code == "padding")
    assert verdict.advice == finding.advice != ()
    assert errors_in("report", json_content(analysis)) == []


@pytest.mark.parametrize(
    ("faults", "share", "is_fault"),
    [
        # It costs too little.
        ((SIMILAR_WORK,), 0.03, False),
        # Another fault is named first.
        ((SIMILAR_WORK, Fault("input", 60.0, ranks=[1])), 0.25, True),
        # What it costs is unknown.
        ((), 0.4, False),
    ],
)
def test_padding_is_no_verdict_otherwise(
    faults: tuple[Fault, ...], share: float, is_fault: bool
) -> None:
    analysis = analyse(padded(run_of(*faults), share))
    assert analysis.bottleneck.fault == is_fault
    assert analysis.bottleneck.cause != "padding"
    assert "padding" in {finding.code for finding in analysis.findings}


def test_what_padding_costs_is_unknown_if_all_batches_have_one_size() -> None:
    analysis = analyse(padded(run_of(), 0.4))
    assert analysis.step_causes.causes == ()
    (finding,) = (each for each in analysis.findings if each.code == "padding")
    assert finding.severity == "info"
    assert "40.0%" in finding.evidence
    assert "same size" in finding.evidence
    content = json.loads(json.dumps(json_content(analysis), default=str))
    assert errors_in("report", content) == []
    assert content["padding"]["saved_ms"] is None
    assert "same size" in content["padding"]["reason"]


def test_sizes_without_an_effect_tell_no_cost_of_padding() -> None:
    # Batches vary, and take no longer for it.
    run = run_of(replace(WORK, ms=0.0))
    rng = np.random.default_rng(1)
    at = run.steps.schema.get_field_index("elements")
    elements = pa.array(rng.integers(20_000, 40_000, run.rows))
    steps = run.steps.set_column(at, run.steps.schema.field("elements"), [elements])
    analysis = analyse(padded(replace(run, steps=steps), 0.4))
    assert analysis.step_causes.causes == ()
    padding = analysis.step_causes.padding
    assert padding is not None
    assert padding.saved_ms is None
    assert padding.unknown == "whether larger batches take longer does not show"


def test_little_padding_of_unknown_cost_is_no_finding() -> None:
    analysis = analyse(padded(run_of(), 0.05))
    assert "padding" not in {finding.code for finding in analysis.findings}


@pytest.mark.parametrize(
    ("facts", "line"),
    [
        ({"framework": "pytorch"}, "batch_sampler=batches_by_length"),
        ({"framework": "jax"}, "a few buckets by length"),
        (
            {"versions": {"transformers": "5.24.0"}, "groups_by_length": False},
            'train_sampling_strategy="group_by_length"',
        ),
        (
            {"versions": {"transformers": "4.46.3"}, "groups_by_length": False},
            "group_by_length=True",
        ),
        (
            {"versions": {"transformers": "5.24.0"}, "groups_by_length": True},
            "DataCollatorWithPadding",
        ),
    ],
)
def test_the_advice_on_padding_is_for_the_users_framework(
    facts: dict[str, object], line: str
) -> None:
    analysis = analyse(padded(run_of(), 0.4, **facts))
    (finding,) = (each for each in analysis.findings if each.code == "padding")
    assert line in str(finding.advice[0])


def test_conditions_and_the_table_have_padding() -> None:
    analysis = analyse(padded(run_of(WORK), 0.25))
    assert parse("causes.padding.share>5%").check(analysis).held
    assert parse("causes.padding.share>1%").check(analyse(run_of(WORK))).held is None
    table = causes_table(analysis)
    assert table is not None
    assert ("Padding", "all") in [row[:2] for row in table.rows]


@pytest.mark.parametrize("offset_ms", [0.0, 700.0])
def test_a_step_tells_its_own_pauses(offset_ms: float) -> None:
    clocks = Clocks(offsets_ms=(0.0, offset_ms))
    run = run_of(COLLECTIONS, ranks_per_host=2, clocks=clocks)
    analysis = analyse(run)
    step = find_step(analysis, 40)
    assert step is not None
    ((kind, rank, ms),) = pauses_of_step(run, step)
    assert (kind, rank) == ("garbage_collection", 1)
    assert ms == pytest.approx(100, rel=0.5)
    after = find_step(analysis, 41)
    assert after is not None
    assert pauses_of_step(run, after) == ()


@pytest.mark.parametrize("offset_ms", [0.0, 700.0])
def test_pauses_are_placed_in_their_steps_on_the_axis(offset_ms: float) -> None:
    clocks = Clocks(offsets_ms=(0.0, offset_ms))
    run = run_of(COLLECTIONS, ranks_per_host=2, clocks=clocks)
    lanes = Lanes(analyse(run).generation_ledgers, 10**12)
    pauses = pauses_on_axis(run, lanes, 1000)
    assert {pause.row for pause in pauses} == {lanes.row_of(1)}
    steps = [int(lanes.steps[lanes.at(pause.begin)]) for pause in pauses]
    assert steps == [step for step in range(600) if step % 20 == 0 and step >= steps[0]]

    def length(pause: PauseOnAxis) -> int:
        return pause.end - pause.begin

    (longest,) = pauses_on_axis(run, lanes, 1)
    assert longest == max(pauses, key=length)


@pytest.mark.parametrize("offset_ms", [0.0, 700.0])
def test_each_step_of_a_rank_has_the_time_of_its_pauses(offset_ms: float) -> None:
    clocks = Clocks(offsets_ms=(0.0, offset_ms))
    run = run_of(COLLECTIONS, ranks_per_host=2, clocks=clocks)
    aligned = align(run, 0)
    spent = pauses_by_step(run, aligned, 1)
    assert not spent["compilation"].any()
    collections = spent["garbage_collection"]
    assert [*np.flatnonzero(collections)] == [*range(0, 600, 20)]
    noted = run.intervals.filter(pc.equal(run.intervals["kind"], "garbage_collection"))
    whole = pc.sum(pc.subtract(noted["end"], noted["begin"])).as_py()
    assert collections.sum() == pytest.approx(whole, rel=0.01)
    assert not pauses_by_step(run, aligned, 0)["garbage_collection"].any()


def test_pauses_that_are_not_noted_are_missing() -> None:
    run = simulate(JOB).run
    assert pauses_by_step(run, align(run, 0), 0) == {}
