"""Invalid jobs are refused with a sentence; baselines are healthy and fit the job."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from simulator import (
    Between,
    Bursts,
    Clocks,
    EveryNth,
    Fault,
    Fixed,
    Job,
    Jump,
    Noise,
    Ramp,
    Ring,
    Slew,
    simulate,
)

HOSTS = Job(ranks=8, ranks_per_host=2, steps=50)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Job(ranks=0), "ranks is 0; it must be at least 1"),
        (lambda: Job(steps=-1), "steps is -1; it must be at least 0"),
        (lambda: Job(epochs=0), "epochs is 0"),
        (lambda: Job(compute_ms=-5), "compute_ms is -5; it must be at least 0"),
        (lambda: Job(compute_ms=float("nan")), "compute_ms is nan"),
        (lambda: Job(lost_rows=1.5), "must be between 0 and 1"),
        (lambda: Job(samples_factor={0: 0}), "must be above 0"),
        (lambda: Job(samples_factor={8: 2}), "samples_factor names rank 8; .* 0 to 7"),
        (lambda: Job(cut_ranks={1: 501}), "between 0 and 500 steps"),
        (lambda: Job(validation_ranks=(9,)), "validation_ranks names rank 9"),
        (lambda: Job(ranks=2, lost_ranks=(0, 1)), "at least one rank must have a log"),
        (lambda: Job(faults=(Fault("input", 5, ranks=(8,)),)), r"faults\[0\] names rank 8"),
        (lambda: Job(faults=(Fault("input", 5, hosts=("x",)),)), r"faults\[0\] names host 'x'"),
        (lambda: Job(host_names=("a", "b")), "2 different names for 1 hosts"),
        (lambda: Job(ranks=16, host_names=("a", "a")), "1 different names for 2 hosts"),
        (lambda: Job(clocks=Clocks(jumps=(Jump(1, 5, 3.0),))), "the hosts are 0 to 0"),
        (
            lambda: replace(HOSTS, clocks=Clocks(jumps=(Jump(0, 5, 3.0),))),
            "host 0 has the true clock",
        ),
        (lambda: replace(HOSTS, clocks=Clocks(jumps=(Jump(1, 50, 3.0),))), "the last is 49"),
        (lambda: replace(HOSTS, clocks=Clocks(offsets_ms=(0, 1))), "2 offsets for 4 hosts"),
        (lambda: Fault("sleep", 5), "no stage 'sleep'; there are input, compute, other"),
        (lambda: Fault("input", -5), "must be at least 0"),
        (lambda: Fault("input", 5, bucket=True), "late in compute, not in input"),
        (lambda: Bursts(every=0), "must be at least 1 step"),
        (lambda: Ramp(5, 5), "does not rise"),
        (lambda: EveryNth(4, phase=4), "no phase 4"),
        (lambda: Between(5, 4), "no step between 5 and 4"),
        (lambda: Noise(cv=-1), "cv is -1"),
        (lambda: Noise(phi=1.0), "phi is 1.0"),
        (lambda: Noise(tail_share=2), "share"),
        (lambda: Fixed(-1.0), "must be at least 0"),
        (lambda: Ring(100, 0.0), "bandwidth is 0.0 GB/s"),
        (lambda: Clocks(slews=(Slew(1, 6, 5, 3.0),)), "from step 6 to 5"),
        (lambda: Clocks(offset_s=-1), "must be at least 0"),
    ],
)
def test_invalid_jobs_are_refused_with_a_sentence(
    make: Callable[[], object], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence) as refused:
        make()
    assert "\n" not in str(refused.value)


def test_hosts_are_named_so_that_they_sort() -> None:
    assert HOSTS.hosts == ("host-0", "host-1", "host-2", "host-3")
    assert Job(ranks=100).hosts[:2] == ("host-00", "host-01")
    assert list(Job(ranks=1000).hosts) == sorted(Job(ranks=1000).hosts)
    named = replace(HOSTS, host_names=("d", "c", "b", "a"))
    assert [log.host for log in simulate(named).run.logs][::2] == ["d", "c", "b", "a"]


ILL = replace(
    HOSTS,
    faults=(Fault("input", 20, ranks=(7,)),),
    clocks=Clocks(drift_ppm=5, jumps=(Jump(3, 5, 3.0), Jump(1, 5, 3.0)), offsets_ms=(0, 1, 2, 3)),
    samples_factor={0: 2.0, 7: 2.0},
    checkpoint_ranks=(0, 7),
    cut_ranks={6: 10},
    lost_rows=0.1,
    lost_ranks=(5,),
    host_names=("a", "b", "c", "d"),
)


@pytest.mark.parametrize("ranks", [None, 1, 3, 8, 64])
def test_a_baseline_is_a_complete_healthy_synthetic_run(ranks: int | None) -> None:
    baseline = ILL.baseline(ranks=ranks, input_ms=0.5)
    simulated = simulate(baseline)
    assert baseline.ranks == (ranks or 8)
    assert simulated.run.steps.num_rows == baseline.ranks * 50
    assert simulated.run.synthetic
    assert simulated.run.id != ILL.run_id
    assert not any(extra.any() for extra in simulated.truth.extra.values())
    assert simulated.truth.input.mean() / 1e6 == pytest.approx(0.5, rel=0.05)
    assert baseline.seed == 1_000_004
    assert ILL.baseline(seed=7).seed == 7


def test_a_baseline_has_independent_noise() -> None:
    truth, baseline = simulate(HOSTS).truth, simulate(HOSTS.baseline()).truth
    assert not np.array_equal(truth.compute, baseline.compute)


def test_a_healthy_job_differs_by_its_faults_alone() -> None:
    assert ILL.healthy() == replace(ILL, faults=())
