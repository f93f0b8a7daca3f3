"""Input that becomes slower at one step on all ranks of a host is named as a reason."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from simulator import Between, Fault, Job, Noise
from support.simulated import analysis_of_job

from stallscope.analysis import Analysis
from stallscope.analysis.gains.what_if import Reason

SLOWER = Between(300, 599)


def analysis_with(*faults: Fault, cv: float = 0.05) -> Analysis:
    """Analyse a job on two hosts of two ranks each, with faults."""
    job = Job(ranks=4, ranks_per_host=2, steps=600, noise=Noise(cv=cv), faults=faults)
    return analysis_of_job(job)


def slower_of(analysis: Analysis) -> Reason | None:
    why = analysis.bottleneck.why
    return next((reason for reason in why if reason.code == "loader_slower"), None)


@pytest.mark.parametrize("cv", [0.02, 0.1])
@pytest.mark.parametrize(("ranks", "hosts"), [((2, 3), 1), ((0, 1, 2, 3), 2)])
def test_the_hosts_and_the_step_are_named(ranks: Sequence[int], hosts: int, cv: float) -> None:
    analysis = analysis_with(Fault("input", 60, ranks=tuple(ranks), when=SLOWER), cv=cv)
    reason = slower_of(analysis)
    assert reason is not None
    assert reason.ranks == tuple(ranks)
    assert len(reason.hosts) == hosts
    (change,) = analysis.changes
    assert f"from step {change.step} on" in reason.text
    assert reason.peers is not None
    assert reason.value - reason.peers == pytest.approx(60, rel=0.15)
    assert reason.text.startswith("All hosts") is (hosts == 2)
    assert analysis.bottleneck.advice[0].action.startswith("Look at the storage")


@pytest.mark.parametrize(
    "fault",
    [
        # Always slow, on a part of the host, for a while, and not the input.
        Fault("input", 60, ranks=(2, 3)),
        Fault("input", 60, ranks=(3,), when=SLOWER),
        Fault("input", 600, ranks=(2, 3), when=Between(300, 310)),
        Fault("compute", 60, ranks=(2, 3), when=SLOWER),
        Fault("input", 60, ranks=(2, 3), when=Between(0, 299)),
    ],
)
def test_other_faults_are_none(fault: Fault) -> None:
    assert slower_of(analysis_with(fault)) is None


def test_a_clean_run_has_none() -> None:
    assert slower_of(analysis_with()) is None
