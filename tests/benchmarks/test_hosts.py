"""Slow hosts of the scorecard: the plan is balanced, and scores tell right from wrong."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import simulator
from support.benchmarks import benchmark

from stallscope.analysis.steps.alignment import align

planning = benchmark("hosts_plan", "scorecard")
scoring = benchmark("hosts_scores", "scorecard")

CLEAN, CLOCK, REASONS = planning.CLEAN, planning.CLOCK, planning.REASONS
RIGHT = {"rank": 1, "ranks": [1], "on_hosts": [], "cause": "compute", "why": ["throttled"]}


def run(what: str = "throttled", **changes: Any) -> dict[str, Any]:
    known = {
        "name": "torch-s1-000-x-2",
        "framework": "torch",
        "hosts": 3,
        "size": 0.3,
        "kind": "imbalance",
        "clocks_ms": [[0.1, 0.2]],
        "evidence": "Rank 1 is last.",
    }
    return {**known, "what": what, **RIGHT, **changes}


LINK = {"cause": "network", "ranks": [], "on_hosts": ["h2"], "why": []}
CLEAN_RUN = {"rank": None, "ranks": [], "on_hosts": [], "why": []}


def test_every_fault_comes_equally_often_with_sizes_in_its_range() -> None:
    cases = planning.plan(planning.FRAMEWORKS, 120, seed=1)
    assert cases == planning.plan(planning.FRAMEWORKS, 120, seed=1)
    assert len({case.name for case in cases}) == 135
    numbers = Counter(case.what for case in cases)
    assert numbers.pop(CLOCK) == 15
    assert set(numbers.values()) == {20}
    for case in cases:
        if case.what == CLEAN:
            assert case.rank is None
            continue
        assert case.hosts in {**planning.FAULTS, CLOCK: planning.CLOCK_HOSTS}[case.what]
        assert case.rank in range(case.hosts)
        low, high = planning.SIZES[case.what]
        assert low <= case.size <= high


@pytest.mark.parametrize(
    ("score", "right"),
    [
        (run(), True),
        (run(on_hosts=["h2"]), True),
        (run(ranks=[]), False),
        (run(ranks=[0]), False),
        (run(ranks=[0, 1]), False),
        (run(on_hosts=["h1"]), False),
        (run("link", **LINK), True),
        (run("link", **{**LINK, "cause": None}), False),
        (run("link", **{**LINK, "on_hosts": []}), False),
        (run("link", **{**LINK, "ranks": [0]}), False),
        (run(CLEAN, **CLEAN_RUN), True),
        (run(CLEAN, **{**CLEAN_RUN, "ranks": [0]}), False),
        (run(CLEAN, **{**CLEAN_RUN, "on_hosts": ["h1"]}), False),
        (run(CLOCK, **{**CLEAN_RUN, "rank": 1}), True),
        (run(CLOCK, **{**CLEAN_RUN, "rank": 1, "ranks": [1]}), False),
    ],
)
def test_a_host_is_right_if_it_alone_is_named(score: dict[str, Any], right: bool) -> None:
    assert scoring.host_right(score) is right


@pytest.mark.parametrize("what", REASONS)
def test_the_first_reason_counts(what: str) -> None:
    for code in REASONS[what]:
        assert scoring.why_right(run(what, why=[code, "other"]))
        assert not scoring.why_right(run(what, why=["other", code]))
    assert not scoring.why_right(run(what, why=[]))


def test_clocks_are_within_their_bounds_or_not() -> None:
    assert scoring.clocks_within(run(clocks_ms=[[0.1, 0.2], [-0.3, 0.2], [0.0, 0.0]])) == [
        True,
        False,
        True,
    ]


def test_the_error_of_a_clock_is_its_mean_over_the_steps() -> None:
    """Rank 1's clock is 5 s ahead, and its machine was started a day earlier."""
    clocks = simulator.Clocks(offsets_ms=[0.0, 5_000.0])
    job = simulator.Job(ranks=2, ranks_per_host=1, steps=300, clocks=clocks)
    aligned = align(simulator.simulate(job).run, 0)
    begin, end = int(aligned.begin[0, 0]), int(aligned.begin[-1, 0])

    def errors(ahead_at_begin_ms: float, ahead_at_end_ms: float) -> list[float]:
        moments = ((begin, ahead_at_begin_ms), (end, ahead_at_end_ms))
        ahead = [[at + round(ms * 1e6), at + 86_400 * 10**9] for at, ms in moments]
        errors_ms: list[float] = scoring.clock_errors_ms(aligned, [[[begin] * 2, [end] * 2], ahead])
        return errors_ms

    assert errors(5_000, 5_000) == [0.0, pytest.approx(0.0, abs=0.2)]
    assert errors(5_000, 5_000)[1] - errors(5_020, 5_020)[1] == pytest.approx(20.0)
    # It is estimated not to drift.
    drifts = errors(5_000, 5_000)[1] - errors(5_000, 5_010)[1]
    passed = (aligned.begin[:, 0] - begin) / (end - begin)
    assert drifts == pytest.approx(10.0 * passed.mean(), rel=0.01)


def test_the_page_has_the_misses() -> None:
    good = [run(), run("link", **LINK), run(CLEAN, **CLEAN_RUN)]
    bad = [run(why=["disk"]), run(CLEAN, **{**CLEAN_RUN, "ranks": [0]}, clocks_ms=[[9.0, 1.0]])]
    assert [bar.passed for bar in scoring.host_bars(good)] == [True] * 5
    assert [bar.passed for bar in scoring.host_bars(good + bad)] == [
        True,
        False,
        True,
        False,
        False,
    ]
    text = scoring.page({"made_on": {"cores": 2}, "runs": good + bad})
    assert "its cgroup has 0.3 cores. Found: disk." in text
    assert "Errors of clocks: 9 ms of ± 1 ms." in text
    assert "make hosts" in scoring.page({"made_on": {}, "runs": []})
