"""Autotune logs and Timelines give the settings to fix, and the job's own steps their gain."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from analysis.made_timelines import allreduce, timeline
from simulator import Between, Fault, Fixed, Job, simulate

from stallscope.analysis import Analysis, analyse
from stallscope.analysis.network.tensors import tensors
from stallscope.analysis.tuning import AutotuneFile, TimelineFile, Tuned, tune
from stallscope.analysis.tuning.recommend import TuningRounds
from stallscope.parsers.formats.autotune import AutotuneLog, parse_autotune
from stallscope.parsers.formats.horovod_timeline import open_timeline
from stallscope.reports.tuning.tuning_document import sentences

REAL = Path(__file__).parents[1] / "cli" / "tune"
HEADER = b"hierarchical_allreduce,cache_enabled,cycle_time_ms,tensor_fusion_threshold,score\n"
LINES = b"0, 1,5,4,10\n0, 1,50,32,6\n1, 1,10,8,12\n0, 1,5,4,9\n"
SETTLED = parse_autotune("log", HEADER + LINES + b"1,1,10,8,12\n")
#: Milliseconds that each line adds to a step of about 30 ms.
ADDS_MS = (4.0, 9.0, 1.0, 4.0)
WARM_UPS = 3
JOB = Job(
    ranks=2,
    steps=900,
    input_ms=1,
    compute_ms=25,
    other_ms=2,
    communication=Fixed(2.0),
    jitter_ms=0,
    tracing_ms=0,
)


def tuning_run(period: int = 51, steps: int = 900, **settings: str) -> Analysis:
    """Make a run whose autotuner tried the four lines, each for so many steps, and settled on the
    third.
    """
    begins = [period * (WARM_UPS + line) for line in range(len(ADDS_MS) + 1)]
    faults = [
        Fault("other", ms, when=Between(begin, end - 1), cv=0)
        for ms, begin, end in zip(ADDS_MS, begins, begins[1:], strict=False)
    ]
    faults.append(Fault("other", 4.0, when=Between(0, begins[0] - 1), cv=0))
    faults.append(Fault("other", ADDS_MS[2], when=Between(begins[-1], 10_000), cv=0))
    environment = {"HOROVOD_AUTOTUNE": "1", "HOROVOD_AUTOTUNE_LOG": "/logs/log.csv", **settings}
    return analysed(faults=faults, steps=steps, run_id="tuning", facts={"settings": environment})


def analysed(**changes: Any) -> Analysis:
    return analyse(simulate(replace(JOB, **changes)).run)


def tuned(
    analyses: Sequence[Analysis], log: AutotuneLog = SETTLED, name: str = "here/log.csv"
) -> Tuned:
    (outcome,) = tune([AutotuneFile(name, log)], [], analyses).tuned
    return outcome


@pytest.fixture(scope="module")
def tuning() -> Analysis:
    return tuning_run()


@pytest.fixture(scope="module")
def slower() -> Analysis:
    """Return the same job with Horovod's own settings."""
    return analysed(communication=Fixed(7.0), steps=400, seed=2, run_id="own")


# -- steps of each setting -------------------------------------------------------------------------


@pytest.mark.parametrize("period", [50, 51])
def test_steps_of_a_setting_are_surely_its_own_for_any_way_of_counting(period: int) -> None:
    outcome = tuned([tuning_run(period)])
    for tried, added in zip(outcome.tried, ADDS_MS, strict=True):
        assert tried.steps >= 40
        assert tried.step_ms is not None
        assert tried.step_ms.value == pytest.approx(30.5 + added, abs=0.7)
    assert outcome.settled_ms is not None
    assert outcome.settled_ms.value == pytest.approx(30.5 + ADDS_MS[2], abs=0.5)


def test_the_environment_sets_the_length_of_rounds() -> None:
    usual = TuningRounds.of({})
    assert (usual.steps, usual.warm_ups) == (50, 3)
    assert usual.surely(1) == (153, 200)
    assert usual.settled_from(4) == 357
    environment = {"HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE": "2", "HOROVOD_AUTOTUNE_WARMUP_SAMPLES": "1"}
    assert TuningRounds.of(environment).surely(2) == (22, 30)
    odd = {"HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE": "many", "HOROVOD_AUTOTUNE_WARMUP_SAMPLES": ""}
    assert TuningRounds.of(odd) == usual


def test_late_lines_have_no_step_surely_their_own() -> None:
    begin, end = TuningRounds.of({}).surely(48)
    assert begin >= end


# -- advice --------------------------------------------------------------------------------------


def test_settings_that_make_steps_faster_are_recommended(
    tuning: Analysis, slower: Analysis
) -> None:
    outcome = tuned([slower, tuning])
    assert outcome.verdict == "fix"
    assert outcome.run is tuning
    (compared,) = outcome.compared
    assert compared.analysis is slower
    assert compared.saved_ms.value == pytest.approx(4.0, abs=0.5)
    assert compared.ci95 is not None
    assert 1 < compared.ci95[0] < compared.speedup < compared.ci95[1]


def test_a_large_gain_is_the_share_of_a_step_that_is_saved(tuning: Analysis) -> None:
    much_slower = analysed(communication=Fixed(2000.0), steps=400, seed=2, run_id="own")
    gain = next(
        sentence for sentence in sentences(tuned([much_slower, tuning])) if "own" in sentence
    )
    assert re.search(
        r"without the autotuner: 98\.\d% shorter \(95%: 98\.\d+(–98\.\d+)?% shorter\)", gain
    )


def test_settings_without_a_gain_are_not_recommended(tuning: Analysis) -> None:
    faster = analysed(communication=Fixed(1.0), steps=400, seed=3, run_id="own")
    assert tuned([tuning, faster]).verdict == "leave"


def test_another_job_is_not_compared(tuning: Analysis) -> None:
    another_job = analysed(communication=Fixed(7.0), batch_size=64, run_id="other")
    synthetic = analysed(communication=Fixed(7.0), synthetic=True, run_id="synthetic")
    outcome = tuned([tuning, another_job, synthetic])
    assert outcome.compared == ()
    assert outcome.verdict == "insufficient_data"
    assert "no run of the same job without the autotuner" in outcome.insufficient


def test_without_step_logs_only_the_score_is_known() -> None:
    outcome = tuned([])
    assert (outcome.verdict, outcome.run, outcome.settled_ms) == ("insufficient_data", None, None)
    assert "the step log of the run that wrote it is missing" in outcome.insufficient
    assert outcome.setting == SETTLED.settled
    assert all(tried.steps == 0 for tried in outcome.tried)


def test_windows_that_are_too_short_are_insufficient() -> None:
    assert "too few independent steps ran" in tuned([tuning_run(steps=366)]).insufficient
    assert "ended before" in tuned([tuning_run(steps=340)]).insufficient


def test_a_tuner_that_is_still_trying_has_not_settled(tuning: Analysis) -> None:
    outcome = tuned([tuning], parse_autotune("log", HEADER + LINES))
    assert outcome.verdict == "tuning"
    assert outcome.setting is not None
    assert outcome.setting.score == 12
    assert outcome.settled_ms is None
    nothing = tuned([tuning], parse_autotune("log", HEADER))
    assert (nothing.verdict, nothing.setting, nothing.alike) == ("insufficient_data", None, 0)


def test_torn_lines_make_steps_uncountable(tuning: Analysis, slower: Analysis) -> None:
    torn = parse_autotune("log", HEADER + b"0, 1,5\n" + LINES + b"1,1,10,8,12\n")
    outcome = tuned([tuning, slower], torn)
    assert "torn" in outcome.insufficient
    recommendations = tune([AutotuneFile("log", torn)], [], [])
    assert recommendations.warnings == ("log: 1 line could not be read",)


def test_logs_find_their_runs_by_name(tuning: Analysis) -> None:
    second_run = tuning_run(HOROVOD_AUTOTUNE_LOG="/logs/other.csv")
    assert tuned([second_run, tuning]).run is tuning
    assert tuned([second_run, tuning], name="here/other.csv").run is second_run
    assert tuned([second_run, tuning], name="here/third.csv").run is None
    # The only one that tuned, whatever the name of its log.
    assert tuned([tuning], name="here/third.csv").run is tuning


# -- scores --------------------------------------------------------------------------------------


def test_repeats_give_the_uncertainty_of_scores() -> None:
    outcome = tuned([])
    assert outcome.noise == pytest.approx(0.1)
    # No other score is within a tenth of 12.
    assert outcome.alike == 1
    close = parse_autotune("log", HEADER + LINES + b"0, 1,20,8,11\n1,1,10,8,12\n")
    assert tuned([], close).alike == 2
    once = parse_autotune("log", HEADER + b"0, 1,5,4,10\n0, 1,50,32,6\n")
    assert tuned([], once).noise is None


def test_a_real_log_returns_to_its_settings() -> None:
    log = parse_autotune("autotune.csv", (REAL / "autotune.csv").read_bytes())
    outcome = tuned([], log)
    assert log.settled is not None
    assert (log.settled.cycle_time_ms, log.settled.fusion_mib) == (10, 8)
    assert len(outcome.tried) == 42
    # 7.29, 5.56 and 4.78 for 10 ms and 8 MiB; 8.02 and 3.77 with the cache.
    assert outcome.noise == pytest.approx(1 - 3.77417 / 8.01894)


def test_switches_without_effect_are_recognised(tuning: Analysis) -> None:
    assert "hierarchical_allreduce" in tuned([tuning]).idle
    hosts = {"ranks_per_host": 1, "run_id": "two"}
    settings = {"HOROVOD_AUTOTUNE": "1"}
    on_cpus = analysed(**hosts, facts={"settings": settings, "devices": ["CPU"]})
    assert tuned([on_cpus]).idle == ("hierarchical_allreduce", "torus_allreduce")
    on_gpus = analysed(**hosts, facts={"settings": settings, "devices": ["CPU", "GPU"]})
    assert tuned([on_gpus]).idle == ()
    assert tuned([]).idle == ()


# -- Timelines -----------------------------------------------------------------------------------


def recorded(steps: int, ticked: bool, size: int) -> TimelineFile:
    """Two tensors that two ranks reduce one after the other in every step."""
    activities, ticks = [], []
    for step, tensor in product(range(steps), (1, 2)):
        at = 10_000 * step + 1000 * tensor
        activities += [(tensor, "NEGOTIATE_ALLREDUCE", 0, at, at + 10, None)]
        activities += allreduce(tensor, at + 20, size)
        ticks += [(tensor, rank, at + rank) for rank in (0, 1) if ticked]
    return TimelineFile("timeline", tensors(timeline(activities, ticks)))


@pytest.mark.parametrize(
    ("steps", "ticked", "size", "lines"),
    [
        (20, True, 4_000_000, ["HOROVOD_CACHE_CAPACITY=1024"]),
        (20, False, 64, ["HOROVOD_AUTOTUNE=1 HOROVOD_AUTOTUNE_LOG=autotune.csv"]),
        (20, False, 4_000_000, []),
        # Every tensor's first negotiation is in full.
        (2, True, 64, []),
    ],
)
def test_timelines_give_advice_from_negotiations_and_sizes(
    steps: int, ticked: bool, size: int, lines: list[str]
) -> None:
    ((name, says),) = tune([], [recorded(steps, ticked, size)], []).timelines
    assert name == "timeline"
    assert (says.reductions, says.steps, says.tensors_each) == (2 * steps, steps, 1.0)
    assert [piece.line for piece in says.advice] == lines


def test_a_timeline_of_one_step_gives_no_advice() -> None:
    with open_timeline(REAL / "timeline.json") as timeline:
        file = TimelineFile("real", tensors(timeline))
    ((_, says),) = tune([], [file], []).timelines
    assert (says.reductions, says.advice) == (1, ())
    assert says.cycle_ms == pytest.approx(1.04, abs=0.01)
