"""The kernel's counters of the ranks' connections name the slow link between hosts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from support.links import HOSTS, row, run_with_links

from stallscope.analysis import analyse
from stallscope.analysis.gains.what_if import Bottleneck
from stallscope.analysis.reasons import with_slow_links
from stallscope.analysis.steps.alignment import align
from stallscope.analysis.steps.links import Link, links, slow_links


def link(
    sender: str,
    receiver: str,
    mbit_s: float,
    trip_ms: float = 0.1,
    lost: float = 0.0,
    spread: float = 0.1,
) -> Link:
    rates = (mbit_s * (1 - spread), mbit_s, mbit_s * (1 + spread))
    trips = (trip_ms * 0.8, trip_ms, trip_ms * 1.2)
    return Link(HOSTS.index(sender), sender, receiver, 500.0, rates, trips, lost)


def ring(hosts: Sequence[str], **slow: float) -> list[Link]:
    """Return the links of a ring, of which those of some hosts are slow, with a queue before them."""
    pairs = zip(hosts, [*hosts[1:], hosts[0]], strict=True)
    return [
        link(sender, receiver, min(slow.get(sender, 1e4), slow.get(receiver, 1e4)), 30.0)
        if {sender, receiver} & set(slow)
        else link(sender, receiver, 1e4)
        for sender, receiver in pairs
    ]


@pytest.mark.parametrize("host", HOSTS)
def test_a_host_with_only_slow_links_is_named(host: str) -> None:
    slow = slow_links(ring(HOSTS, **{host: 40.0}))
    assert slow is not None
    assert slow.host == host
    assert (slow.mbit_s, slow.others_mbit_s) == (40.0, 1e4)
    assert all(host in (link.sender, link.receiver) for link in slow.links)
    assert len(slow.links) == 2


def test_in_a_ring_of_three_the_host_of_both_slow_links_is_named() -> None:
    slow = slow_links(ring(HOSTS[:3], h3=40.0))
    assert slow is not None
    assert slow.host == "h3"


def test_one_way_between_two_hosts_names_none_of_them() -> None:
    slow = slow_links([link("h1", "h2", 1e4), link("h2", "h3", 40.0, 30.0), link("h3", "h1", 1e4)])
    assert slow is not None
    assert [(link.sender, link.receiver) for link in slow.links] == [("h2", "h3")]
    assert slow.host is None
    verdict = with_slow_links(Bottleneck("allreduce", None, "It is exposed."), slow)
    assert "Link h2 → h3 is slow: 40.0 Mbit/s while it is busy, the others" in verdict.evidence
    assert (verdict.cause, verdict.hosts, verdict.links) == ("network", (), slow.links)
    assert str(verdict.advice[0]).startswith("Look at the network between h2 and h3:")


def test_links_that_wait_for_a_slow_one_are_not_slow_themselves() -> None:
    """As in rings of ranks with small messages, whose rates are of round trips."""
    of_slow_host = [link("h1", "h2", 16.0, 3.4), link("h2", "h1", 18.0, 2.5)]
    of_slow_host += [link("h2", "h3", 17.0, 1.6), link("h3", "h2", 18.0, 1.6)]
    waiting = [link("h4", "h1", 30.0, 0.6), link("h4", "h3", 32.0, 0.9)]
    fast = [link("h1", "h4", 65.0, 0.3), link("h3", "h4", 67.0, 0.3)]
    slow = slow_links([*of_slow_host, *waiting, *fast])
    assert slow is not None
    assert (slow.host, len(slow.links)) == ("h2", 4)
    assert slow_links([*waiting, *fast]) is None


def test_links_that_are_alike_are_not_slow() -> None:
    assert slow_links(ring(HOSTS)) is None
    assert slow_links([link("h1", "h2", 40.0, 30.0), link("h2", "h1", 45.0, 30.0)]) is None
    assert slow_links([]) is None


def test_rates_that_overlap_in_time_are_not_told_apart() -> None:
    two_links = [link("h1", "h2", 1e4, spread=0.9), link("h2", "h3", 2e3, 30.0, spread=0.9)]
    assert slow_links([*two_links, link("h3", "h1", 1e4)]) is None


def test_bytes_that_a_late_rank_acknowledges_late_are_no_slow_link() -> None:
    # There is no queue: a round trip is as short as anywhere.
    assert slow_links([link("h1", "h2", 100.0, 0.7), link("h2", "h1", 3000.0, 0.06)]) is None


def test_a_link_that_loses_segments_needs_no_queue() -> None:
    slow = slow_links(
        [link("h1", "h2", 1e4), link("h2", "h3", 50.0, lost=0.03), link("h3", "h1", 1e4)]
    )
    assert slow is not None
    assert slow.links[0].receiver == "h3"


def test_links_are_read_from_the_facts_of_all_ranks() -> None:
    measured_links = links(run_with_links(slow=True))
    assert [(link.rank, link.sender, link.receiver) for link in measured_links] == [
        (0, "h1", "h3"),
        (1, "h2", "h1"),
        (2, "h3", "h2"),
    ]
    assert measured_links[0].mbit_s == pytest.approx((32.0, 36.0, 38.4))
    assert measured_links[0].round_trip_ms == pytest.approx((14.0, 27.0, 46.0))
    assert measured_links[0].sent_mb == 200.0


@pytest.mark.parametrize(
    "rows",
    [
        None,
        {},
        ["text"],
        [row("h1", "h2", rate_kb_s=[1, 2])],
        [row("h1", "h2", sent_kb="many")],
        [row("h1", "h2", round_trip_us=None)],
        [row("h1", "h2", sent_kb=-5)],
        # Messages, not gradients.
        [row("h1", "h2", sent_kb=300)],
    ],
)
def test_facts_that_tell_nothing_are_left_out(rows: Any) -> None:
    run = run_with_links(slow=False)
    logs = [replace(log, facts={**log.facts, "connections": rows}) for log in run.logs]
    assert links(replace(run, logs=tuple(logs))) == ()


def test_a_slow_link_is_the_cause_of_exposed_allreduce() -> None:
    verdict = analyse(run_with_links(slow=True)).bottleneck
    assert (verdict.kind, verdict.cause, verdict.hosts) == ("allreduce", "network", ("h3",))
    assert "Host h3 has a slow link: 36.0 Mbit/s while it is busy, the others" in verdict.evidence
    assert "a round trip takes 27.0 ms, theirs 0.100 ms" in verdict.evidence
    assert "network of host h3" in str(verdict.advice[0])
    assert len(verdict.links) == 2


def test_a_slow_link_is_a_finding_beside_another_verdict() -> None:
    analysis = analyse(run_with_links(slow=True, compute_ms=200.0))
    assert (analysis.bottleneck.kind, analysis.bottleneck.ranks) == ("imbalance", (1,))
    (finding,) = [
        finding for finding in analysis.further_findings if finding.code == "link_is_slow"
    ]
    assert finding.evidence.startswith("Host h3 has a slow link: 36.0 Mbit/s while it is busy")
    assert "network of host h3" in str(finding.advice[0])


def test_the_verdict_on_a_slow_link_needs_no_finding() -> None:
    for slow in (True, False):
        findings = analyse(run_with_links(slow=slow)).further_findings
        assert "link_is_slow" not in {finding.code for finding in findings}


def test_without_a_slow_link_nobody_is_named() -> None:
    verdict = analyse(run_with_links(slow=False)).bottleneck
    assert (verdict.kind, verdict.cause, verdict.hosts, verdict.links) == (
        "allreduce",
        None,
        (),
        (),
    )


@pytest.mark.parametrize("wall_ms", [0.0, 3.0])
def test_behind_a_slow_link_wall_clocks_align_the_hosts(wall_ms: float) -> None:
    aligned = align(run_with_links(slow=True, wall_ms=wall_ms, skew_ms=48.0), 0)
    assert aligned.clocks.method == "wall clocks"
    offsets = aligned.clocks.mean_offset / 1e6
    # Completions alone say 548 ms.
    assert offsets[1] == pytest.approx(500.0 - wall_ms, abs=0.1)
    # A third of the gradients at the link's rate, and a round trip.
    assert 48.0 < aligned.clocks.uncertainty[1] / 1e6 < 200.0


@pytest.mark.parametrize("wall_ms", [0.0, 7300.0])
def test_what_completes_late_behind_a_slow_link_is_allreduce(wall_ms: float) -> None:
    late = analyse(run_with_links(slow=True, wall_ms=wall_ms, skew_ms=48.0))
    usual = analyse(run_with_links(slow=True))
    for before, after in zip(usual.by_cause, late.by_cause, strict=True):
        longer = 48.0 if before.name == "allreduce" else 0.0
        assert after.ms - before.ms == pytest.approx(longer, abs=0.2), before.name
    assert late.bottleneck.kind == "allreduce"
    assert not late.stragglers
    for rank in late.ranks:
        assert rank.other_ms == pytest.approx(usual.ranks[rank.rank].other_ms, abs=0.2)


def test_wall_clocks_that_a_slow_link_cannot_explain_are_not_believed() -> None:
    aligned = align(run_with_links(slow=True, wall_ms=7300.0), 0)
    assert aligned.clocks.mean_offset[1] / 1e6 == pytest.approx(500.0, abs=1.0)
    assert aligned.clocks.uncertainty[1] / 1e6 > 48.0


def test_without_a_slow_link_completions_align_the_hosts() -> None:
    aligned = align(run_with_links(slow=False, wall_ms=3.0), 0)
    assert aligned.clocks.method == "completions"
    assert aligned.clocks.mean_offset[1] / 1e6 == pytest.approx(500.0, abs=0.1)
