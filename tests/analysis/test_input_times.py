"""Loader alone, synthetic and real: three rates that show where input time goes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import simulator
from support.input_times import measured
from support.schemas import errors_in
from support.step_logs import Job, simulated_job

from stallscope.analysis import Analysis, analyse
from stallscope.analysis.findings.imbalance import longest_stage
from stallscope.analysis.gains.baseline import step_with
from stallscope.analysis.gains.what_if import in_words
from stallscope.parsers.formats.measurements import parse_input_times
from stallscope.reports.run.json_content import json_content
from stallscope.run import LoaderTrial

#: 20 ms of input on every rank, of a step of 45 ms: 711 samples/s, and 1,185 with 2 ms of it.
LATE = Job(ranks=2, input_ms=20, compute_ms=20, facts={"framework": "tensorflow"})
SYNTHETIC = replace(LATE, input_ms=1, run_id="base", facts={"synthetic": True})


def analysed(job: Job, *changes: dict[str, Any], baseline: Job | None = None) -> Analysis:
    run = simulator.simulate(simulated_job(job)).run
    input_times = [
        parse_input_times("x.input.json", json.dumps(measured(size=2, **change)).encode())
        for change in changes
    ]
    base = None if baseline is None else simulator.simulate(simulated_job(baseline)).run
    return analyse(replace(run, input_times=tuple(input_times)), base)


def slow(rank: int, **changes: Any) -> dict[str, Any]:
    """Make a loader that gives a batch of 32 in 40 ms: 800 samples/s."""
    return {"rank": rank, "ms": 40.0, "ci95_ms": [39.0, 41.0], **changes}


def test_without_a_measurement_there_is_no_result() -> None:
    analysis = analysed(LATE)
    assert analysis.input_rates is None
    assert json_content(analysis)["input"] is None
    assert "Run alone" not in analysis.bottleneck.evidence


def test_three_rates_are_compared() -> None:
    analysis = analysed(LATE, slow(0), slow(1), baseline=SYNTHETIC)
    rates = analysis.input_rates
    assert rates is not None
    assert rates.alone is not None
    assert rates.alone.value == pytest.approx(800)
    assert rates.alone.ci95 == pytest.approx((780.5, 820.5), abs=0.1)
    assert rates.real == pytest.approx(32 / 0.044, rel=0.03)
    assert rates.synthetic == rates.needed == pytest.approx(32 / 0.025, rel=0.03)
    assert (rates.enough, rates.at_once) == (False, True)


def test_the_verdict_names_the_longest_stage_and_advises_on_it() -> None:
    verdict = analysed(LATE, slow(0), slow(1), baseline=SYNTHETIC).bottleneck
    assert verdict.kind == "input"
    assert "Run alone, the loader of rank 0 gives 800 samples/s (95 %: 780–821), less than the" in (
        verdict.evidence
    )
    assert "that a rank trains on synthetic data" in verdict.evidence
    assert "longest stage is augment: Map(flip), 6.5 ms of a batch's 40 ms." in verdict.evidence
    assert str(verdict.advice[0]).startswith("Augmentation takes longest")


def test_a_rate_below_one_sample_per_second_is_not_zero() -> None:
    late = replace(LATE, steps=60, input_ms=40_000)
    verdict = analysed(late, slow(0, ms=80e3, ci95_ms=[78e3, 82e3])).bottleneck
    assert "the loader of rank 0 gives 0.400 samples/s (95 %: 0.390–0.410)" in verdict.evidence


def test_without_a_baseline_the_needed_rate_is_replayed() -> None:
    rates = analysed(LATE, slow(0), slow(1)).input_rates
    assert rates is not None
    assert rates.synthetic is None
    assert rates.real is not None
    assert rates.needed is not None
    assert rates.needed > 1.4 * rates.real


def test_a_loader_that_is_fast_enough_alone_is_late_during_training() -> None:
    verdict = analysed(LATE, {"rank": 0}, {"rank": 1}, baseline=SYNTHETIC).bottleneck
    assert "gives 4,000 samples/s" in verdict.evidence
    assert "it is late only during training" in verdict.evidence


def test_an_interval_with_the_needed_rate_is_inconclusive() -> None:
    near = slow(0, ms=25.0, ci95_ms=[20.0, 30.0])
    analysis = analysed(LATE, near, {**near, "rank": 1}, baseline=SYNTHETIC)
    assert analysis.input_rates is not None
    assert analysis.input_rates.enough is None
    assert "cannot be distinguished from the" in analysis.bottleneck.evidence


def test_the_slowest_rank_counts_by_its_last_measurement() -> None:
    later = {"rank": 1, "ms": 60.0, "ci95_ms": None, "began_wall_ns": 1_700_000_000_000_000_100}
    rates = analysed(LATE, slow(0), {"rank": 1}, later).input_rates
    assert rates is not None
    assert rates.slowest.rank == 1
    assert [rank.ms for rank in rates.ranks] == [40.0, 60.0]
    # Too few batches for an interval: it cannot be compared with what is needed.
    assert rates.enough is None


@pytest.mark.parametrize(
    "changes", [[slow(0)], [slow(0), slow(1, began_wall_ns=1_800_000_000_000_000_000)]]
)
def test_ranks_that_did_not_measure_together_are_reported(changes: list[dict[str, Any]]) -> None:
    analysis = analysed(LATE, *changes)
    assert analysis.input_rates is not None
    assert not analysis.input_rates.at_once
    assert "Not all ranks measured at the same time" in analysis.bottleneck.evidence


def test_a_slow_loader_is_a_finding_if_the_verdict_is_another_one() -> None:
    waits = replace(LATE, input_ms=1, slow={(1, "compute"): 40.0})
    analysis = analysed(waits, slow(0, ms=400.0, ci95_ms=[390.0, 410.0]))
    assert analysis.bottleneck.kind == "imbalance"
    (finding,) = [
        finding for finding in analysis.findings if finding.code == "input_too_slow_alone"
    ]
    assert "gives 80.0 samples/s" in finding.evidence
    assert "augmentation" in in_words(finding.advice)
    fast = analysed(waits, {"rank": 0}, {"rank": 1})
    assert "input_too_slow_alone" not in [finding.code for finding in fast.findings]


def test_batches_without_samples_give_no_rate() -> None:
    analysis = analysed(LATE, slow(0, samples_per_batch=None), slow(1, samples_per_batch=None))
    assert analysis.input_rates is not None
    assert analysis.input_rates.alone is None
    assert "Run alone" not in analysis.bottleneck.evidence


def test_an_unknown_stage_changes_no_advice() -> None:
    shuffled = [{"kind": "shuffle", "name": "Shuffle", "ms": 30.0, "ci95_ms": None}]
    analysis = analysed(LATE, slow(0, stages=shuffled), slow(1, stages=shuffled))
    assert analysis.bottleneck.advice == analysed(LATE).bottleneck.advice
    unknown = [{"kind": "other", "name": "Map(work)", "ms": 30.0, "ci95_ms": None}]
    assert longest_stage(analysed(LATE, slow(0, stages=unknown)).input_rates) == "decode"


def test_the_report_has_all_of_it_by_its_schema() -> None:
    content = json_content(analysed(LATE, slow(0), slow(1, error="it raised"), baseline=SYNTHETIC))
    loaded = json.loads(json.dumps(content))
    assert errors_in("report", loaded) == []
    assert loaded["input"]["enough"] is False
    assert [rank["rank"] for rank in loaded["input"]["ranks"]] == [0, 1]
    assert loaded["input"]["ranks"][0]["stages"][1]["name"] == "Map(flip)"


def trial(workers: int, prefetch: int, ms: float, half: float = 0.3) -> dict[str, Any]:
    return {"workers": workers, "prefetch": prefetch, "ms": ms, "ci95_ms": [ms - half, ms + half]}


# A batch of 32 is needed every 25 ms.
TRIALS = [trial(1, 2, 80.0), trial(2, 2, 40.0), trial(4, 2, 20.0), trial(8, 2, 10.0)]


def proposed(trials: list[dict[str, Any]]) -> tuple[int, int] | None:
    rates = analysed(LATE, slow(0, trials=trials), baseline=SYNTHETIC).input_rates
    assert rates is not None
    return rates.proposed and (rates.proposed.workers, rates.proposed.prefetch)


def test_the_smallest_setting_that_keeps_up_is_proposed() -> None:
    analysis = analysed(LATE, slow(0, trials=TRIALS), baseline=SYNTHETIC)
    assert analysis.input_rates is not None
    assert analysis.input_rates.proposed is not None
    assert analysis.input_rates.proposed.workers == 4
    assert str(analysis.bottleneck.advice[0]).startswith(
        "Give the loader 4 workers that prefetch 2 batches"
    )
    content = json_content(analysis)
    assert errors_in("report", content) == []
    assert content["input"]["proposed"] == TRIALS[2]
    late = step_with(LoaderTrial(4, 2, 19.75, None, (5.0,) * 19 + (300.0,)), 25.0)
    # Eight batches of 25 ms are ready before it.
    assert late == pytest.approx(25.0 + (300.0 - 8 * 25.0) / 20, abs=1.0)
    assert content["input"]["ranks"][0]["trials"] == TRIALS


def bursts(workers: int, prefetch: int) -> dict[str, Any]:
    """A loader of which every twentieth batch takes 300 ms, while a worker does no other."""
    batches = [*[5_000] * 19, 300_000] * 10
    return {**trial(workers, prefetch, 19.75), "batches_us": batches}


@pytest.mark.parametrize(
    ("trials", "expected"),
    [
        ([], None),
        # The mean keeps up with 25 ms; twelve batches bridge what takes 300.
        ([bursts(2, 2), bursts(2, 4), bursts(2, 8), bursts(4, 2), bursts(8, 2)], (2, 8)),
        ([bursts(2, 2), bursts(4, 2)], None),
        (TRIALS[:2], None),
        # Its interval does not tell.
        ([trial(4, 2, 24.0, 6.0), trial(8, 2, 12.0)], (8, 2)),
        # Deeper queues, rather than more workers.
        ([trial(4, 2, 40.0), trial(4, 8, 20.0), trial(8, 2, 20.0)], (4, 8)),
    ],
)
def test_only_what_keeps_up_for_certain_is_proposed(
    trials: list[dict[str, Any]], expected: tuple[int, int] | None
) -> None:
    assert proposed(trials) == expected
