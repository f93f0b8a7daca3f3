"""The kernel's counters explain slow ranks if they differ from their peers'."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from simulator import Bursts, Clocks, Fault, Job, simulate

from stallscope.analysis import Analysis, analyse
from stallscope.arrays.types import Bools, Ints
from stallscope.run import Run, Series
from stallscope.text.machine_words import why

S = 1_000_000_000
RANKS = 4
HOSTS = ("alpha", "beta")
UNITS = {"process_cpu": "cores", "host_cpu": "cores", "cgroup_io_pressure": "%"}
#: Values of healthy ranks, per quantity.
USUAL = {
    "process_cpu": 0.8,
    "process_waiting_for_cores": 0.05,
    "process_major_faults": 0.0,
    "cgroup_periods": 10.0,
    "cgroup_throttled_periods": 0.0,
    "cgroup_io_pressure": 1.0,
    "cgroup_memory_pressure": 0.0,
    "gpu_clock": 1700.0,
    "gpu_power_capped": 10.0,
    "gpu_too_hot": 0.0,
    "host_cpu": 1.7,
    "host_stolen": 0.0,
}


def measured(
    of_rank: Mapping[str, float] | None = None,
    of_all: Mapping[str, float] | None = None,
    of_beta: Mapping[str, float] | None = None,
    faults: tuple[Fault, ...] = (Fault("compute", 20.0, ranks=(3,)),),
    spread: float = 0.1,
    steps: int = 1200,
    while_late: Mapping[str, float] | None = None,
) -> Run:
    """A job of four ranks on two hosts, with figures of each second.

    Args:
        of_rank: values of rank 3; rank 2 is on the same host.
        of_all: values of all ranks.
        of_beta: values of the second host.
        faults: of the job.
        spread: the coefficient of variation of all figures.
        steps: how many.
        while_late: values of rank 3 in seconds with one of its late steps.
    """
    job = Job(
        ranks=RANKS,
        ranks_per_host=2,
        steps=steps,
        input_ms=0.5,
        other_ms=0.5,
        compute_ms=40.0,
        faults=list(faults),
        host_names=HOSTS,
        clocks=Clocks(offsets_ms=[0.0, 3_600_000.0]),
    )
    run = simulate(job).run
    random = np.random.default_rng(5)
    series = []
    for log in run.logs:
        rank_steps = run.steps.filter(run.steps["log"].to_numpy() == run.logs.index(log))
        begin, end = (
            int(rank_steps[name].to_numpy()[at]) for name, at in (("begin", 0), ("end", -1))
        )
        walls = np.arange(begin, end, S) + log.wall_minus_monotonic
        on_rank = of_rank if log.rank == 3 else None
        figures = {**USUAL, **(of_all or {}), **(on_rank or {})}
        if log.host == "beta":
            figures |= of_beta or {}
        late = late_seconds(rank_steps, walls - log.wall_minus_monotonic) & (log.rank == 3)
        for name, usual in figures.items():
            if name.startswith("host_") and log.rank % 2:
                continue
            value = np.where(late, (while_late or {}).get(name, usual), usual)
            values = np.maximum(value * (1 + spread * random.standard_normal(len(walls))), 0.0)
            rank = None if name.startswith("host_") else log.rank
            series.append(
                Series(name, UNITS.get(name, ""), log.host, rank, log.path, walls, values)
            )
    return replace(run, series=tuple(series))


def late_seconds(steps: pa.Table, seconds: Ints) -> Bools:
    """Return whether one of a rank's steps was late in the second before each time."""
    ready, data = (steps[name].to_numpy() for name in ("ready", "data"))
    late = ready[ready - data > 1.5 * np.median(ready - data)]
    return np.searchsorted(late, seconds) > np.searchsorted(late, seconds - S)


def codes(analysis: Analysis) -> list[str]:
    return [reason.code for reason in analysis.bottleneck.why]


@pytest.mark.parametrize(
    ("figures", "code", "words"),
    [
        (
            {"cgroup_throttled_periods": 3.8},
            "throttled",
            "Rank 3: the cgroup was throttled in 3",
        ),
        ({"cgroup_io_pressure": 61.0}, "disk", "Rank 3: processes waited for the disk 6"),
        ({"process_major_faults": 250.0}, "major_faults", "pages are read from disk again, 2"),
        ({"cgroup_memory_pressure": 30.0}, "memory_pressure", "waited for memory"),
        ({"gpu_power_capped": 80.0}, "gpu_power_cap", "the power cap held the GPU's clocks down"),
        ({"gpu_too_hot": 60.0}, "gpu_heat", "heat held"),
        ({"gpu_clock": 1100.0}, "gpu_clock", "below the fastest rank's"),
        ({"process_waiting_for_cores": 0.9}, "waits_for_cores", "had no core (peers: 0.05"),
    ],
)
def test_what_differs_on_the_slow_rank_explains_it(
    figures: dict[str, float], code: str, words: str
) -> None:
    analysis = analyse(measured(figures))
    assert analysis.bottleneck.ranks == (3,)
    assert codes(analysis) == [code]
    (reason,) = analysis.bottleneck.why
    assert words in reason.text
    assert reason.ranks == (3,)
    assert reason.peers is not None
    (low, high), difference = reason.ci95, reason.value - reason.peers
    assert low < difference < high


def test_waiting_for_cores_follows_from_throttling_and_is_left_out() -> None:
    figures = {"cgroup_throttled_periods": 9.0, "process_waiting_for_cores": 2.0}
    analysis = analyse(measured(figures))
    assert codes(analysis) == ["throttled"]
    assert str(analysis.bottleneck.advice[0]).startswith("Raise the CPU limit of rank 3 ")


def test_a_host_is_not_to_be_replaced_for_the_jobs_own_limit() -> None:
    faults = (Fault("compute", 20.0, ranks=(2, 3)),)
    throttled = analyse(measured(of_beta={"cgroup_throttled_periods": 9.0}, faults=faults))
    assert set(codes(throttled)) == {"throttled"}
    first, *others = map(str, throttled.bottleneck.advice)
    assert first.startswith("Raise the CPU limit of ")
    assert not any("Replace host" in text for text in others)
    unexplained = analyse(measured(faults=faults))
    assert any("Replace host beta" in str(advice) for advice in unexplained.bottleneck.advice)


def test_a_slow_host_is_explained_by_what_else_runs_there() -> None:
    faults = (Fault("compute", 20.0, ranks=(2, 3)),)
    busy = {"host_cpu": 3.6, "process_waiting_for_cores": 0.8}
    analysis = analyse(measured(of_beta=busy, faults=faults))
    assert sorted(codes(analysis)) == ["other_processes", "waits_for_cores"]
    reason = next(reason for reason in analysis.bottleneck.why if reason.code == "other_processes")
    assert reason.hosts == ("beta",)
    # Less the ranks' own.
    assert reason.value == pytest.approx(2.0, abs=0.1)
    assert reason.peers == pytest.approx(0.1, abs=0.1)


def test_what_a_whole_host_does_does_not_explain_one_of_its_ranks() -> None:
    analysis = analyse(measured(of_beta={"host_stolen": 1.0}))
    assert analysis.bottleneck.ranks == (3,)
    assert codes(analysis) == []


def test_more_cpu_time_is_a_reason_where_nothing_else_differs() -> None:
    # A step takes some 60 ms.
    analysis = analyse(measured({"process_cpu": 1.2}))
    assert codes(analysis) == ["more_cpu_time"]


def test_where_nothing_differs_it_says_so() -> None:
    analysis = analyse(measured())
    assert analysis.bottleneck.ranks == (3,)
    assert codes(analysis) == []
    (sentence,) = why(analysis)
    assert sentence.startswith("Nothing that the kernel counts")


def test_without_figures_nothing_is_said() -> None:
    analysis = analyse(replace(measured(), series=()))
    assert analysis.bottleneck.ranks == (3,)
    assert why(analysis) == ()


def test_few_seconds_explain_nothing() -> None:
    slow = (Fault("compute", 80.0, ranks=(3,)),)
    analysis = analyse(measured({"cgroup_throttled_periods": 9.0}, faults=slow, steps=60))
    assert analysis.bottleneck.ranks == (3,)
    assert codes(analysis) == []


# Nine seconds.
SHORT_STEPS = 120


def test_a_short_run_is_explained_by_figures_that_scatter() -> None:
    slow = (Fault("compute", 20.0, ranks=(3,)),)
    waits = {"process_waiting_for_cores": 0.4}
    analysis = analyse(measured(waits, faults=slow, spread=0.8, steps=SHORT_STEPS))
    assert codes(analysis) == ["waits_for_cores"]
    usual = analyse(measured(faults=slow, spread=0.8, steps=SHORT_STEPS))
    assert usual.bottleneck.ranks == (3,)
    assert codes(usual) == []


def test_what_all_ranks_have_too_much_of_explains_a_stage_of_all() -> None:
    slow = (Fault("input", 60.0, ranks=(0, 1, 2, 3)),)
    analysis = analyse(measured(of_all={"cgroup_io_pressure": 55.0}, faults=slow))
    assert analysis.bottleneck.kind == "input"
    (reason,) = analysis.bottleneck.why
    assert (reason.code, reason.ranks, reason.peers) == ("disk", (), None)
    assert reason.value == pytest.approx(55.0, abs=1.0)
    assert reason.text.startswith("All ranks: processes waited for the disk 55")


def test_one_rank_does_not_stand_for_all() -> None:
    slow = (Fault("input", 60.0, ranks=(0, 1, 2, 3)),)
    analysis = analyse(measured({"cgroup_io_pressure": 90.0}, faults=slow))
    assert (analysis.bottleneck.kind, analysis.bottleneck.why) == ("input", ())


def test_a_clean_run_has_no_reasons() -> None:
    analysis = analyse(measured(of_all={"cgroup_io_pressure": 55.0}, faults=()))
    assert not analysis.bottleneck.ranks
    assert analysis.bottleneck.why == ()


BURSTS = (Fault("compute", 40.0, ranks=(3,), when=Bursts(300, 40)),)


def test_a_rank_that_is_late_at_times_is_explained_by_what_happens_then() -> None:
    run = measured(faults=BURSTS, steps=3000, while_late={"cgroup_throttled_periods": 0.9})
    analysis = analyse(run)
    assert [straggler.pattern for straggler in analysis.stragglers] == ["bursts"]
    (reason,) = analysis.bottleneck.why
    assert (reason.code, reason.ranks, reason.while_late) == ("throttled", (3,), True)
    assert reason.peers is not None
    assert reason.value > 5 > reason.peers
    assert "of its periods while late (otherwise: " in reason.text


@pytest.mark.broad
def test_what_is_the_same_while_a_rank_is_late_explains_nothing() -> None:
    analysis = analyse(measured(faults=BURSTS, steps=3000))
    assert [straggler.pattern for straggler in analysis.stragglers] == ["bursts"]
    assert codes(analysis) == []


@pytest.mark.broad
def test_what_happens_on_all_ranks_while_one_is_late_explains_nothing() -> None:
    run = measured(faults=BURSTS, steps=3000, while_late={"cgroup_io_pressure": 40.0})
    of_late = next(
        series for series in run.series if (series.name, series.rank) == ("cgroup_io_pressure", 3)
    )
    everywhere = [
        replace(series, value=np.resize(of_late.value, len(series.value)))
        if series.name == "cgroup_io_pressure"
        else series
        for series in run.series
    ]
    assert codes(analyse(run)) == ["disk"]
    assert codes(analyse(replace(run, series=tuple(everywhere)))) == []
