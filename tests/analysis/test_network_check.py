"""Compare the network's speed for a run's gradients with exposed allreduce."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import simulator
from support.network_checks import around, network_check, pair
from support.schemas import errors_in
from support.step_logs import Job, simulated_job

from stallscope.analysis import Analysis, analyse
from stallscope.analysis.network.network_check import median_ms, network_sentence
from stallscope.collector.netcheck.sizes import parts_of
from stallscope.parsers.formats.measurements import parse_network_check
from stallscope.reports.run.json_content import json_content
from stallscope.reports.run.network_tables import network_tables

JOB = Job(ranks=2, compute_ms=20, allreduce_ms=30, hosts=("alpha",), facts={"settings": {}})


def analysed(*checks: dict[str, Any], job: Job = JOB) -> Analysis:
    run = simulator.simulate(simulated_job(job)).run
    network_checks = [
        parse_network_check("x.netcheck.json", json.dumps(network_check(**check)).encode())
        for check in checks
    ]
    return analyse(replace(run, network_checks=tuple(network_checks)))


def test_without_a_measurement_there_is_no_result() -> None:
    analysis = analysed()
    assert analysis.network_use is None
    assert json_content(analysis)["network_check"] is None
    assert network_tables(analysis) == []


def test_what_gradients_take_is_split_into_its_parts() -> None:
    use = analysed({}).network_use
    assert use is not None
    assert use.gradients_ms is not None
    assert use.parts is not None
    assert use.gradients_ms.value == pytest.approx(12)
    parts = {name: mean.value for name, mean in vars(use.parts).items()}
    expected = {"bandwidth": 8, "latency": 0.5, "negotiation": 1.5, "fusion": 2}
    assert parts == pytest.approx(expected)
    assert sum(parts.values()) == pytest.approx(use.gradients_ms.value)


def test_where_nothing_is_negotiated_a_small_message_is_latency() -> None:
    check = {"reduced_by": "torch.distributed"}
    use = analysed(check).network_use
    assert use is not None
    assert use.parts is not None
    assert use.parts.negotiation is None
    assert use.parts.latency.value == pytest.approx(2)


def test_exposed_allreduce_that_the_network_does_not_explain_is_said() -> None:
    analysis = analysed({})
    use, entry = analysis.network_use, analysis.entry("allreduce")
    assert use is not None
    assert entry is not None
    assert use.excess_ms is not None
    assert use.excess_ms.value == pytest.approx(entry.ms - 12)
    assert "more than the network needs while nothing trains" in network_sentence(use)
    assert analysis.bottleneck.kind == "allreduce"
    assert network_sentence(use) in analysis.bottleneck.evidence


def test_exposed_allreduce_below_what_gradients_take_is_hidden() -> None:
    slow = {**network_check()["gradients"], "as_run_us": around(90_000)}
    use = analysed({"gradients": slow}).network_use
    assert use is not None
    assert network_sentence(use).endswith("as backward hides the rest.")


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        ({"size": 3, "hosts": ["alpha"] * 3}, "measured on 3 ranks, and the run has 2"),
        (
            {"hosts": ["alpha", "beta"]},
            "measured on alpha (1), beta (1), and the run was on alpha (2)",
        ),
        (
            {"settings": {"HOROVOD_FUSION_THRESHOLD": "0"}},
            "HOROVOD_FUSION_THRESHOLD was 0, and in the run it was not set",
        ),
    ],
)
def test_another_network_is_said_and_explains_nothing(
    change: dict[str, Any], difference: str
) -> None:
    use = analysed(change).network_use
    assert use is not None
    assert use.differs == (difference,)
    assert use.excess_ms is None
    assert difference in network_sentence(use)


def test_the_newest_measurement_of_the_same_network_counts() -> None:
    later = 1_800_000_000_000_000_000
    use = analysed({}, {"hosts": ["beta", "beta"], "began_wall_ns": later}).network_use
    assert use is not None
    assert use.differs == ()
    use = analysed({}, {"began_wall_ns": later}).network_use
    assert use is not None
    assert use.check.began == later


def test_a_slow_pair_of_hosts_is_marked() -> None:
    pairs = [
        pair("h1", "h2", 900),
        pair("h1", "h3", 40),
        pair("h2", "h3", 42),
        pair("h1", "h4", 880),
    ]
    more = [pair("h2", "h4", 910), pair("h3", "h4", 39)]
    analysis = analysed({"pairs": [*pairs, *more]})
    use = analysis.network_use
    assert use is not None
    slow = [pair.hosts for pair in use.pairs if pair.is_slow]
    assert slow == [("h3", "h4"), ("h1", "h3"), ("h2", "h3")]
    assert use.pairs[0].mbit_s.value == pytest.approx(39)
    table = next(table for table in network_tables(analysis) if table.title.startswith("Pairs"))
    assert table.emphasised == {0, 1, 2}


def test_the_slow_host_of_three_is_in_all_marked_pairs() -> None:
    pairs = [pair("h1", "h2", 900), pair("h1", "h3", 40), pair("h2", "h3", 42)]
    use = analysed({"pairs": pairs}).network_use
    assert use is not None
    assert [pair.hosts for pair in use.pairs if pair.is_slow] == [("h1", "h3"), ("h2", "h3")]


def test_parts_add_up_whatever_noise_does() -> None:
    for as_run, together, small, eight in ((5, 9, 2, 30), (9, 5, 2, 1), (1, 5, 2, 3)):
        parts = parts_of(as_run, together, small, eight, 8, negotiates=True)
        assert sum(part or 0.0 for part in parts) == pytest.approx(as_run)
        assert min(part or 0.0 for part in parts) >= 0


@pytest.mark.parametrize(
    ("built", "measured", "same"),
    [
        (["nccl", "gloo"], ["gloo"], True),
        (["cpu:gloo,cuda:nccl"], ["gloo"], True),
        (["undefined"], ["gloo"], True),
        (["mpi"], ["gloo"], False),
    ],
)
def test_libraries_are_those_that_the_runs_device_uses(
    built: list[str], measured: list[str], same: bool
) -> None:
    job = replace(JOB, facts={**JOB.facts, "reduces_with": built, "devices": ["CPU"]})
    use = analysed({"reduces_with": measured}, job=job).network_use
    assert use is not None
    assert (use.differs == ()) is same


def test_gradients_of_another_run_are_said() -> None:
    job = replace(JOB, facts={**JOB.facts, "gradient_bytes": 1_000_000})
    use = analysed({"run_id": "another"}, job=job).network_use
    assert use is not None
    expected = "measured for run another, with 9.64 MB of gradients, and this run has 1 MB"
    assert use.differs == (expected,)
    unknown = analysed({"run_id": "another"}).network_use
    assert unknown is not None
    assert unknown.differs == ()


def test_advice_follows_what_the_network_gives() -> None:
    alone, measured = analysed(), analysed({})
    assert any(
        "16-bit" in advice.action or "larger batch" in advice.action
        for advice in alone.bottleneck.advice
    )
    assert str(measured.bottleneck.advice[0]).startswith("Look for what delays the allreduce")


def test_two_pairs_do_not_tell_which_one_is_slow() -> None:
    use = analysed({"pairs": [pair("h1", "h2", 900), pair("h1", "h3", 40)]}).network_use
    assert use is not None
    assert not any(pair.is_slow for pair in use.pairs)


def test_json_keeps_its_schema() -> None:
    for changes in ({}, {"gradients": None}, {"pairs": [pair("a", "b", 10)]}, {"tiny": []}):
        content = json_content(analysed(changes))
        assert errors_in("report", json.loads(json.dumps(content))) == []


def test_the_interval_of_a_median_is_that_of_its_independent_values() -> None:
    """Of eleven values the second and the tenth, by the binomial law: 97.7 % of all cases."""
    shuffled = [6, 1, 9, 4, 11, 2, 8, 5, 10, 3, 7]
    median = median_ms([1000.0 * number for number in shuffled])
    assert (median.value, median.ci95) == (6.0, (2.0, 10.0))
    assert median_ms([1000.0] * 3).ci95 is None
    # Waves of eight rounds are a few values, of which nothing is known beyond their range.
    waves = 1000 * np.repeat([1.0, 2.0, 1.0, 2.0, 1.5, 1.0], 8)
    assert median_ms(waves).ci95 == (1.0, 2.0)
    assert median_ms(np.random.default_rng(1).permutation(waves)).ci95 != (1.0, 2.0)
