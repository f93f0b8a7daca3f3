"""An input probe measures in the run what faster input gains; its steps are in no other figure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import simulator
from support.schemas import errors_in
from support.step_logs import Job, simulated_job

from stallscope.analysis import Analysis, analyse
from stallscope.analysis.gains.attribution import Attribution
from stallscope.analysis.gains.input_probe import with_measured_gains
from stallscope.analysis.gains.what_if import WhatIf
from stallscope.arrays.stats import Mean
from stallscope.arrays.types import Ints
from stallscope.charts.compared_bars import paces_chart
from stallscope.reports.run.json_content import json_content
from stallscope.reports.run.network_tables import probe_table
from stallscope.text.gain_words import gains_note, how_sure, main_gain
from stallscope.words import Fix

JOB = Job(ranks=2, input_ms=1, compute_ms=20, facts={"framework": "pytorch"})
FIRST, BATCHES = 100, 20
#: Batches come 19 ms late, so a step takes 44 ms, and 25 ms without that.
LATE_MS, FIXED_MS = 19.0, 25.0


@dataclass(frozen=True)
class WhereNotAhead(simulator.Always):
    """In all steps but those whose batches were fetched ahead, or are ready after them."""

    queued: int = 0

    def weight(self, random: np.random.Generator, ranks: int, in_epoch: Ints) -> Any:
        inside = (in_epoch >= FIRST) & (in_epoch < FIRST + BATCHES + self.queued)
        return np.broadcast_to(np.where(inside, 0.0, 1.0), (ranks, len(in_epoch)))


@dataclass(frozen=True)
class WhereFetched(simulator.Always):
    """In the step that fetches them."""

    def weight(self, random: np.random.Generator, ranks: int, in_epoch: Ints) -> Any:
        return np.broadcast_to(np.where(in_epoch == FIRST, 1.0, 0.0), (ranks, len(in_epoch)))


@dataclass(frozen=True)
class Within(simulator.Always):
    """In the steps of one probe."""

    first: int = 0

    def weight(self, random: np.random.Generator, ranks: int, in_epoch: Ints) -> Any:
        inside = (in_epoch >= self.first) & (in_epoch < self.first + BATCHES)
        return np.broadcast_to(np.where(inside, 1.0, 0.0), (ranks, len(in_epoch)))


def probe_of(batch_ms: float, **changes: Any) -> dict[str, Any]:
    """Return the fact of a rank's probe."""
    described = {
        "first_step": FIRST,
        "end_step": FIRST + BATCHES,
        # They vary, as all times do.
        "fetched_us": [int(batch_ms * 1e3) + 40 * (at % 5 - 2) for at in range(BATCHES)],
        "ready": 0,
        "ended": None,
        **changes,
    }
    return {"input_probe": {"refused": None, "probes": [described]}}


def analysed(
    facts: Mapping[int, Mapping[str, Any]],
    late: tuple[int, ...] = (),
    queued: int = 0,
    **options: Any,
) -> Analysis:
    """Analyse a run with a probe.

    Args:
        facts: by rank, its fact.
        late: the ranks whose batches come late; all of them if there is none.
        queued: batches that are ready after the probe.
        options: of ``analyse``.
    """
    faults = [
        simulator.Fault("input", LATE_MS, ranks=late, when=WhereNotAhead(queued), cv=0.05),
        simulator.Fault("input", BATCHES * LATE_MS, ranks=late, when=WhereFetched(), cv=0),
    ]
    run = simulator.simulate(replace(simulated_job(JOB), faults=faults)).run
    logs = [replace(log, facts={**log.facts, **facts.get(log.rank, {})}) for log in run.logs]
    return analyse(replace(run, logs=tuple(logs)), **options)


BOTH_RANKS = {rank: probe_of(20) for rank in (0, 1)}


def gain_of(analysis: Analysis, kind: str) -> WhatIf:
    return next(gain for gain in analysis.what_if if str(gain.fix) == kind)


def test_the_gain_of_faster_input_is_measured() -> None:
    analysis = analysed(BOTH_RANKS)
    probe = analysis.input_probe
    assert probe is not None
    # All but the first two, in which ranks wait for the slowest fetch.
    assert probe.steps == BATCHES - 2
    assert probe.probed_ms.value == pytest.approx(FIXED_MS, rel=0.02)
    gain = gain_of(analysis, "input")
    assert (gain.measured, gain.bound, gain.estimate) == (True, False, None)
    assert gain.saved_ms.value == pytest.approx(LATE_MS, rel=0.03)
    repaired = analyse(simulator.simulate(simulated_job(JOB)).run).step
    assert repaired is not None
    assert gain.ci95 is not None
    assert gain.ci95[0] < probe.real_ms.value / repaired.mean < gain.ci95[1]


def test_probes_that_differ_tell_less_than_their_steps() -> None:
    """What slows down a machine for a second slows down all steps of a probe."""
    firsts = (100, 140, 180)
    slowed = simulator.Fault("compute", 4.0, when=Within(first=firsts[1]), cv=0)
    run = simulator.simulate(replace(simulated_job(JOB), faults=[slowed])).run
    (described,) = probe_of(20)["input_probe"]["probes"]
    probes = [{**described, "first_step": at, "end_step": at + BATCHES} for at in firsts]
    fact = {"input_probe": {"refused": None, "probes": probes}}
    logs = tuple(replace(log, facts={**log.facts, **fact}) for log in run.logs)
    probe = analyse(replace(run, logs=logs)).input_probe
    assert probe is not None
    assert probe.steps == 3 * (BATCHES - 2)
    assert probe.probed_ms.value > FIXED_MS + 1
    assert probe.probed_ms.ci95 is not None
    assert probe.probed_ms.ci95[0] < FIXED_MS


@pytest.mark.parametrize(("batch_ms", "passing_ms"), [(20, 1.0), (400, 0.0)])
def test_batches_that_workers_have_ready_still_have_to_be_passed_on(
    batch_ms: float, passing_ms: float
) -> None:
    # The job's own input takes 1 ms of each step. Workers that take 400 ms do not fill their queue.
    analysis, without = (
        analysed({rank: probe_of(batch_ms, ready=ready) for rank in (0, 1)}, queued=2)
        for ready in (2, 0)
    )
    probe, from_memory = analysis.input_probe, without.input_probe
    assert probe is not None
    assert from_memory is not None
    longer = probe.probed_ms.value - from_memory.probed_ms.value
    assert longer == pytest.approx(passing_ms, abs=0.2)
    assert sum(probe.by_cause_ms.values()) == pytest.approx(probe.probed_ms.value)
    assert gain_of(analysis, "input").saved_ms.value == probe.saved_ms.value
    if passing_ms:
        # Passing them on may cost less, or more, once the loader is repaired.
        assert probe.probed_ms.ci95 is not None
        assert probe.probed_ms.ci95[0] < from_memory.probed_ms.value < probe.probed_ms.ci95[1]


def test_pages_say_what_was_measured_and_what_was_not() -> None:
    analysis = analysed(BOTH_RANKS)
    evidence = analysis.bottleneck.evidence
    assert analysis.bottleneck.kind == "input"
    assert evidence.startswith("Batches arrive late on all ranks. Fixing input saves 19")
    assert evidence.endswith("per step, as measured in this run.")
    unmeasured = next(finding for finding in analysis.findings if finding.code == "no_baseline")
    assert unmeasured.evidence == (
        "The gain of faster input is measured; that of less work between steps is not."
    )
    main = main_gain(analysis)
    assert main is not None
    assert how_sure(main.what_if).startswith("measured in this run, 95% interval: 1.6")
    assert gains_note(analysis).startswith("Measured in this run: 25")
    table = probe_table(analysis)
    assert table is not None
    assert [row[0] for row in table.rows] == [
        "Loader alone (rank 0, the slowest)",
        "Steps without input stalls",
        "Real steps",
    ]
    assert chart_sentences() == [
        "Alone, the loader of rank 0 takes longer than a step without input stalls: it limits the "
        "training.",
        "Too few batches came at the loader's own pace to measure it.",
    ]
    chart = paces_chart(analysis)
    assert chart is not None
    assert [bar.label for bar in chart.bars] == [
        "loader alone",
        "without input stalls",
        "real steps",
    ]
    totals = [bar.total for bar in chart.bars]
    assert totals == pytest.approx([20, FIXED_MS, FIXED_MS + LATE_MS], rel=0.03)
    content = json.loads(json.dumps({"schema_version": 1, **json_content(analysis)}))
    assert errors_in("report", content) == []


def test_input_that_a_probe_does_not_shorten_is_no_fault() -> None:
    # It takes 10 ms in every step, also in those of the probe, and a rank is slow in something else.
    job = simulated_job(replace(JOB, input_ms=10))
    run = simulator.simulate(replace(job, faults=[simulator.Fault("compute", 6, ranks=(1,))])).run
    assert analyse(run).bottleneck.kind == "input"
    logs = [replace(log, facts={**log.facts, **probe_of(5)}) for log in run.logs]
    analysis = analyse(replace(run, logs=tuple(logs)))
    assert analysis.input_probe is not None
    assert abs(analysis.input_probe.saved_ms.value) < 1
    assert (analysis.bottleneck.kind, analysis.bottleneck.ranks) == ("imbalance", (1,))


def test_batches_are_late_on_the_ranks_whose_loaders_are_too_slow() -> None:
    def evidence(*batch_ms: float | None) -> str:
        facts = {
            rank: probe_of(ms or 0.0, **({} if ms else {"fetched_us": []}))
            for rank, ms in enumerate(batch_ms)
        }
        return analysed(facts).bottleneck.evidence

    # The steps do not show whose loader it is.
    assert evidence(44, 2).startswith("Batches arrive late on rank 0. Fixing input saves")
    assert evidence(44, 44).startswith("Batches arrive late on all ranks.")
    assert evidence(44, None).startswith("Batches arrive late on all ranks.")


@pytest.mark.parametrize("late", [(), (1,)])
def test_advice_says_what_was_measured_beside_the_line_to_copy(late: tuple[int, ...]) -> None:
    facts = {0: probe_of(20 if not late else 5), 1: probe_of(20)}
    advice = analysed(facts, late).bottleneck.advice
    # What to do about one rank has no line.
    assert bool(advice[0].line) is not bool(late)
    first, *later = [piece.gain for piece in advice]
    assert re.fullmatch(
        r"Input in time saves 1[89]\.\d \(1[67]\.\d–19\.\d\) ms of 44\S* ms per step, as measured in "
        r"this run\.",
        first,
    )
    assert not any("measured" in gain for gain in later)
    # A run without a probe has measured nothing.
    alone = analysed({}, late).bottleneck.advice
    assert not any("measured in this run" in str(piece) for piece in alone)


def chart_sentences() -> list[str]:
    """Return what charts say of a loader that is slower than training, and of an unknown one."""
    charts = (
        paces_chart(analysed({rank: probe_of(44, ready=ready) for rank in (0, 1)}))
        for ready in (0, BATCHES - 1)
    )
    return [chart.sentence for chart in charts if chart is not None]


def test_its_steps_are_in_no_other_figure_but_in_the_jobs_time() -> None:
    analysis, silent = analysed(BOTH_RANKS), analysed({})
    assert silent.input_probe is None
    assert analysis.steady is not None
    assert silent.steady is not None
    left_out = set(silent.steady.steps.tolist()) - set(analysis.steady.steps.tolist())
    # The step after them, too: it starts before its batch is fetched as usual.
    assert left_out == set(range(FIRST, FIRST + BATCHES + 1))
    assert analysis.step is not None
    assert analysis.step.mean == pytest.approx(FIXED_MS + LATE_MS, rel=0.02)
    assert analysis.job == silent.job


@pytest.mark.parametrize(
    ("ready", "fetched_ms", "steps"),
    [
        # 8 batches wait in the queue, and a step of 25 ms takes one while 25/30 of one is made.
        (8, 30.0, 1 + 48),
        # Training takes no more than the loader makes.
        (8, 20.0, 1),
        # Too few batches came at the loader's pace.
        (18, 30.0, 1 + 2 * 18),
    ],
)
def test_steps_after_a_probe_are_left_out_until_the_queue_is_as_before(
    ready: int, fetched_ms: float, steps: int
) -> None:
    facts = {rank: probe_of(fetched_ms, ready=ready) for rank in (0, 1)}
    steady = analysed(facts).steady
    assert steady is not None
    after = steady.steps[steady.steps >= FIRST]
    assert after[0] == pytest.approx(FIRST + BATCHES + steps, abs=2)


def test_a_slow_loader_of_one_rank_has_a_measured_gain() -> None:
    facts = {0: probe_of(5), 1: probe_of(20)}
    analysis = analysed(facts, late=(1,))
    assert analysis.bottleneck.ranks == (1,)
    for kind in ("input", "rank:1", "imbalance"):
        gain = gain_of(analysis, kind)
        assert (gain.measured, gain.bound) == (True, False)
        assert gain.saved_ms.value == pytest.approx(LATE_MS, rel=0.03)
    assert "as measured in this run" in analysis.bottleneck.evidence
    assert "limit is unknown" not in analysis.bottleneck.evidence


def test_ranks_that_are_late_at_times_leave_the_slow_loaders_gain_measured() -> None:
    analysis = analysed({0: probe_of(5), 1: probe_of(20)}, late=(1,))
    probe, [slow] = analysis.input_probe, analysis.stragglers
    assert probe is not None
    at_times = replace(
        slow, ranks=(), stage="compute", pattern="rotating", cost_ms=Mean(3.0, (2.0, 4.0))
    )
    predicted = [gain_of(analysis, kind) for kind in ("imbalance", "rank:1", "input")]
    unmeasured = tuple(replace(gain, measured=False, bound=True) for gain in predicted)
    attribution = with_measured_gains(
        Attribution((slow, at_times), unmeasured, unmeasured, too_few_steps=False), probe
    )
    all_ranks, rank, _ = attribution.gains
    assert all(gain.measured and not gain.bound for gain in attribution.gains)
    assert all_ranks.saved_ms.value == rank.saved_ms.value == probe.saved_ms.value
    # The first fix ends their lateness, too, which a probe's steps keep.
    assert all_ranks.saved_ms.ci95 is not None
    assert all_ranks.saved_ms.ci95[1] > probe.saved_ms.value + 3.0


@pytest.mark.parametrize(
    ("saved_ms", "is_measured"),
    [
        (Mean(6.0, (-0.3, 12.0)), False),
        # Certainly something, or certainly little.
        (Mean(6.0, (0.3, 12.0)), True),
        (Mean(0.2, (-0.5, 0.9)), True),
        (Mean(6.0, None), True),
    ],
)
def test_a_probe_that_cannot_tell_a_gain_replaces_no_prediction(
    saved_ms: Mean, is_measured: bool
) -> None:
    analysis = analysed(BOTH_RANKS)
    probe = analysis.input_probe
    assert probe is not None
    predicted = replace(gain_of(analysis, "input"), measured=False, bound=True)
    attribution = Attribution((), (predicted,), (predicted,), too_few_steps=False)
    (gain,) = with_measured_gains(attribution, replace(probe, saved_ms=saved_ms)).gains
    assert gain.measured is is_measured
    assert (gain.saved_ms == saved_ms) is is_measured


def test_the_other_loaders_limit_what_fixing_one_gains() -> None:
    facts = {0: probe_of(FIXED_MS + 9), 1: probe_of(44)}
    analysis = analysed(facts, late=(1,))
    assert gain_of(analysis, "rank:1").saved_ms.value == pytest.approx(LATE_MS - 9, rel=0.05)
    assert gain_of(analysis, "input").saved_ms.value == pytest.approx(LATE_MS, rel=0.03)


def test_ranks_without_a_probe_leave_it_unmeasured() -> None:
    analysis = analysed({1: probe_of(20)})
    assert analysis.input_probe is None
    assert not gain_of(analysis, "input").measured
    assert analysis.steady is not None
    assert FIRST not in analysis.steady.steps


def test_a_baseline_predicts_and_the_probe_stands_beside_it() -> None:
    base = simulator.simulate(
        simulated_job(replace(JOB, run_id="base", facts={**JOB.facts, "synthetic": True}))
    ).run
    analysis = analysed(BOTH_RANKS, baseline=base)
    assert analysis.predicted_from == "baseline"
    assert not gain_of(analysis, "input").measured
    note = gains_note(analysis)
    assert note.startswith("Measured in this run: 25")
    assert "with them; the baseline predicts 25" in note


@pytest.mark.parametrize(
    "fact",
    [
        *(None, 7, [], {}, {"probes": 3}, {"probes": [None, 3, {}]}),
        {"probes": [{"first_step": -1, "fetched_us": [1]}]},
        {"probes": [{"first_step": 100, "fetched_us": ["a"]}]},
        {"probes": [{"first_step": 10**30, "fetched_us": []}]},
        {"probes": [{"first_step": 100, "end_step": 100, "fetched_us": []}]},
    ],
)
def test_malformed_facts_measure_nothing(fact: Any) -> None:
    analysis = analysed({rank: {"input_probe": fact} for rank in (0, 1)})
    assert analysis.input_probe is None
    assert not gain_of(analysis, "input").measured


def test_a_killed_rank_has_trained_on_no_more_steps_than_batches() -> None:
    facts = {rank: probe_of(20, end_step=None) for rank in (0, 1)}
    probe = analysed(facts).input_probe
    assert probe is not None
    assert probe.steps == BATCHES - 2


def test_a_gain_in_turn_leaves_nothing_that_the_slow_ranks_fix_saves() -> None:
    analysis = analysed({0: probe_of(5), 1: probe_of(20)}, late=(1,))
    assert Fix("imbalance") in [gain.fix for gain in analysis.what_if]
    assert analysis.bottleneck.kind == "imbalance"
