"""The sentences that all formats share: named ranks, predicted gains, and their limits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from support.links import run_with_links
from support.reports import rendered

from stallscope.analysis import Analysis, analyse
from stallscope.analysis.gains.what_if import Bottleneck, Reason, WhatIf
from stallscope.analysis.stragglers.lateness import Straggler
from stallscope.arrays.stats import Mean
from stallscope.formatting.lists import listed
from stallscope.reports.report_formats import ReportOptions
from stallscope.reports.run.run_contents import advice
from stallscope.text import straggler_words
from stallscope.text.gain_words import (
    answers,
    fix_title,
    gains,
    how_sure,
    main_gain,
    other_gains,
    saved,
    speedup,
)
from stallscope.text.verdicts import badge, basis, headline, reason, short_verdict
from stallscope.text.vocabulary import (
    FIX_NAMES,
    FIX_TITLES,
    NAMES,
    NAMES_IN_LISTS,
    TITLES,
    VERDICT_WORDS,
)
from stallscope.words import (
    CAUSES,
    ENTRIES,
    FIX_KINDS,
    PATTERNS,
    RANK_PARTS,
    VERDICTS,
    Fix,
    Pattern,
    Verdict,
)


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([3], "rank 3"),
        ([3, 5], "ranks 3 and 5"),
        ([1, 2, 3, 4], "ranks 1, 2, 3 and 4"),
        (list(range(1, 17)), "ranks 1–16"),
    ],
)
def test_many_names_are_counted_and_not_listed(names: list[int], text: str) -> None:
    assert listed("rank", names) == text


def straggler(pattern: str, stage: str, *ranks: int, **more: Any) -> Straggler:
    time = Mean(12.0, (11.5, 12.5))
    given = {"hosts": (), "late_share": 0.9, **more}
    return Straggler(
        pattern=pattern, ranks=ranks, stage=stage, excess_ms=time, cost_ms=time, **given
    )


def test_every_word_has_its_words_for_people() -> None:
    assert {*VERDICT_WORDS} == {*VERDICTS}
    assert {*NAMES} == {*NAMES_IN_LISTS} == {*ENTRIES}
    assert {*TITLES} >= {*ENTRIES, *CAUSES, *RANK_PARTS}
    by_value = {"rank", "host", "bandwidth", "ranks"}
    assert {*FIX_NAMES} == {*FIX_KINDS} - by_value
    assert {*FIX_TITLES} == {*FIX_NAMES} - {"imbalance"}  # it names the slow ranks


@pytest.mark.parametrize("kind", VERDICTS)
@pytest.mark.parametrize("ranks", [(), (3,)])
def test_every_verdict_has_a_headline(kind: Verdict, ranks: tuple[int, ...]) -> None:
    stragglers = [straggler(name, "input", *ranks) for name in PATTERNS]
    bottleneck = Bottleneck(kind, None, "", ranks, fault=kind != "insufficient_data")
    for text in (
        badge(bottleneck),
        short_verdict(bottleneck),
        reason(bottleneck),
        headline(bottleneck, stragglers),
    ):
        assert text
        assert text != kind
        assert "{" not in text


@pytest.mark.parametrize("name", PATTERNS)
def test_every_pattern_of_lateness_has_words(name: Pattern) -> None:
    words = straggler_words.pattern(straggler(name, "input", 3))
    assert words
    assert words != name


def verdict(*stragglers: Straggler) -> Bottleneck:
    """Return the verdict of an analysis with these stragglers."""
    ranks = sorted({rank for straggler in stragglers for rank in straggler.ranks})
    hosts = [host for straggler in stragglers for host in straggler.hosts]
    named = tuple(ranks), tuple(hosts)
    return Bottleneck("imbalance", stragglers[0].stage, "", *named, fault=True)


HOST_B = straggler("persistent", "compute", 2, 3, hosts=("b",))
IN_TURN = straggler("rotating", "compute")


@pytest.mark.parametrize(
    ("slow_ranks", "text"),
    [
        ([HOST_B], "Ranks 2 and 3 of host b hold this run back: their compute is slow"),
        (
            [straggler("persistent", "other", 7)],
            "Rank 7 holds this run back: its work between steps is slow",
        ),
        (
            [HOST_B, straggler("persistent", "compute", 4, 5, hosts=("c",))],
            "Ranks 2, 3, 4 and 5 of hosts b and c hold this run back: their compute is slow",
        ),
        (
            [straggler("bursts", "input", 0), HOST_B],
            "Rank 0 and ranks 2 and 3 of host b hold this run back: their work is slow",
        ),
        (
            [straggler("bursts", "compute", 3), IN_TURN],
            "Rank 3 holds this run back: its compute is slow at times",
        ),
        (
            [straggler("ramp", "compute", 3)],
            "Rank 3 holds this run back: its compute gets slower and slower",
        ),
        (
            [straggler("persistent", "compute", 3, work=1.5)],
            "Rank 3 holds this run back: it has more to do than the others",
        ),
        ([IN_TURN], "Compute varies from rank to rank and from step to step"),
    ],
)
def test_the_headline_names_rank_and_cause(slow_ranks: list[Straggler], text: str) -> None:
    assert headline(verdict(*slow_ranks), slow_ranks) == text


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("compute", "Compute is slower than in the baseline"),
        ("insufficient_data", "These logs cannot show what holds the run back"),
    ],
)
def test_other_verdicts_name_no_rank(kind: str, text: str) -> None:
    assert headline(Bottleneck(kind, None, "", fault=kind != "insufficient_data"), []) == text


@pytest.mark.parametrize("kind", ["allreduce", "compute", "balanced", "imbalance"])
def test_a_healthy_run_is_accused_of_nothing(kind: str) -> None:
    healthy = Bottleneck(kind, None, "")
    assert (headline(healthy, []), badge(healthy)) == ("No fault found", "No fault")


def test_too_few_cores_are_a_separate_verdict() -> None:
    cores = Bottleneck("compute", "cores", "", fault=True)
    assert headline(cores, []) == "The ranks of a host share too few CPU cores"
    assert badge(cores) == "Too few cores"


def test_padding_is_a_separate_verdict() -> None:
    padding = Bottleneck("compute", "padding", "", fault=True)
    assert headline(padding, []) == "Padding in batches holds this run back"
    assert (badge(padding), reason(padding)) == ("Padding", "batches hold much padding")


def test_a_list_says_in_a_few_words_why_a_run_is_slow() -> None:
    assert reason(Bottleneck("allreduce", None, "")) == ""
    assert reason(verdict(straggler("persistent", "input", 3))) == "its input is slow"
    assert reason(verdict(HOST_B)) == "compute is slow on host b"
    assert reason(verdict(IN_TURN)) == "another rank is late in every step"
    for kind in ("input", "compute", "other", "allreduce", "balanced", "stopped"):
        assert 0 < len(reason(Bottleneck(kind, None, "", fault=True))) < 40
    assert reason(Bottleneck("insufficient_data", None, "")) == "the logs cannot show it"


def test_a_short_verdict_names_only_stragglers() -> None:
    assert short_verdict(verdict(HOST_B)) == "Slow ranks 2 and 3"
    assert short_verdict(verdict(IN_TURN)) == badge(verdict(IN_TURN)) == "Varying compute"
    assert badge(verdict(HOST_B)) == "Slow ranks"
    assert short_verdict(Bottleneck("compute", "compute", "", fault=True)) == "Compute"


@pytest.mark.parametrize(
    ("straggler", "cells"),
    [
        (HOST_B, ("host b (ranks 2 and 3)", "all the time")),
        (straggler("ramp", "compute", 3), ("rank 3", "increasing")),
        (straggler("bursts", "compute", 3), ("rank 3", "at times")),
        (IN_TURN, ("any rank", "varies from step to step")),
        (
            straggler("persistent", "compute", 3, work=1.499),
            ("rank 3", "all the time; uneven work: 1.50 times its peers' samples"),
        ),
    ],
)
def test_a_straggler_is_described_by_rank_and_pattern(
    straggler: Straggler, cells: tuple[str, str]
) -> None:
    assert (straggler_words.who(straggler), straggler_words.pattern(straggler)) == cells
    assert straggler_words.excess(straggler) == straggler_words.cost(straggler) == "12.0 ± 0.5 ms"


@pytest.mark.parametrize(
    ("fix", "text"),
    [
        ("imbalance", "With rank 3 and host a:b as fast as the others"),
        ("host:a:b", "With host a:b as fast as the others"),
        ("rank:3", "With rank 3 as fast as the others"),
        ("allreduce", "If allreduce cost nothing"),
        ("bandwidth:4", "With 4× the bandwidth"),
        ("bandwidth:1.5", "With 1.5× the bandwidth"),
        ("ranks:64", "On 64 ranks"),
        ("ranks:1", "On 1 rank"),
    ],
)
def test_a_fix_states_the_condition_of_its_gain(fix: str, text: str) -> None:
    assert fix_title(Fix.parse(fix), [Fix("rank", "3"), Fix("host", "a:b")]) == text


def test_fixing_all_is_more_than_fixing_the_named_ranks() -> None:
    title = "With rank 3 as fast as the others, and no rank late at times"
    assert fix_title(Fix("imbalance"), [Fix("rank", "3")], in_turn=True) == title
    assert fix_title(Fix("imbalance"), [], in_turn=True) == "With no rank late at times"


def test_a_slow_rank_next_to_moving_lateness_is_a_separate_fix(
    case: Callable[[str], Analysis],
) -> None:
    titles = [gain.title for gain in gains(case("a slow rank and lateness that moves around"))]
    assert titles[:2] == [
        "With rank 2 as fast as the others, and no rank late at times",
        "With rank 2 as fast as the others",
    ]


def test_a_ratio_of_throughputs_saves_no_time() -> None:
    gain = WhatIf(Fix("ranks", "64"), Mean(-3.0, None), 7.41, None, extrapolated=True)
    assert speedup(gain) == "7.41× throughput"
    assert saved(gain) is None
    assert how_sure(gain) == "no interval: too few runs or steps"
    faster = WhatIf(
        Fix("bandwidth", "4"), Mean(3.0, (2.9, 3.1)), 1.10, (1.09, 1.11), extrapolated=True
    )
    assert (speedup(faster), saved(faster)) == ("1.10×", "3.0 ± 0.1 ms")
    assert how_sure(faster) == "95% interval: 1.09–1.11×"


def test_answers_are_separate_from_fixes_and_labelled(
    case: Callable[[str], Analysis],
) -> None:
    analysis = case("everything")
    assert [gain.title for gain in answers(analysis)] == [
        "With 2× the bandwidth (extrapolated)",
        "On 64 ranks (extrapolated)",
    ]
    assert not {str(gain.what_if.fix) for gain in gains(analysis)} & {"bandwidth:2", "ranks:64"}
    assert not {str(gain.what_if.fix) for gain in other_gains(analysis)} & {
        "bandwidth:2",
        "ranks:64",
    }
    shown = replace(answers(analysis)[1].what_if, extrapolated=False)
    assert [gain.title for gain in answers(replace(analysis, what_if=(shown,)))] == ["On 64 ranks"]


def test_one_slow_rank_is_one_fix(case: Callable[[str], Analysis]) -> None:
    titles = [gain.title for gain in gains(case("a slow rank"))]
    assert titles.count("With rank 2 as fast as the others") == 1
    assert len(titles) == len(set(titles)) == 5


def test_the_main_gain_is_the_bottlenecks_and_the_others_are_worthwhile(
    case: Callable[[str], Analysis],
) -> None:
    analysis = case("a slow rank and a baseline")
    main = main_gain(analysis)
    assert main is not None
    assert str(main.what_if.fix) == "imbalance"
    others = other_gains(analysis)
    assert "allreduce" in {str(gain.what_if.fix) for gain in others}
    assert main not in others
    assert min(gain.what_if.speedup for gain in others) > 1.004


@pytest.mark.parametrize("name", ["few steps", "rank 0 only", "host stamps only"])
def test_without_evidence_in_logs_no_gain_is_predicted(
    name: str, case: Callable[[str], Analysis]
) -> None:
    analysis = case(name)
    assert analysis.bottleneck.kind == "insufficient_data"
    assert gains(analysis) == []
    assert main_gain(analysis) is None


def test_a_verdict_without_advice_uses_that_of_the_severest_finding(
    case: Callable[[str], Analysis],
) -> None:
    analysis = case("rank 0 only")
    assert analysis.bottleneck.advice == ()
    assert advice(analysis) == [*analysis.findings[0].advice]
    assert analysis.findings[0].severity == "error"
    assert advice(replace(analysis, findings=())) == ()


def test_reports_state_what_figures_are_based_on(case: Callable[[str], Analysis]) -> None:
    assert basis(case("one rank")) == "199 steady steps of 1 rank"
    assert basis(case("a missing rank")) == "199 steady steps of 3 of 4 ranks"
    assert basis(case("host stamps only")) == "200 steps without timestamps of 2 ranks"


def test_every_format_says_why_and_which_link_is_slow(
    case: Callable[[str], Analysis], options: ReportOptions
) -> None:
    reason = Reason(
        "throttled",
        "Rank 2: the cgroup was throttled in 38% of its periods (peers: 2%).",
        (2,),
        (),
        "share of throttled periods",
        "%",
        "cgroup_throttled_periods",
        38.0,
        2.0,
        (34.0, 38.0),
    )
    analysis = case("a slow rank and a baseline")
    explained = replace(analysis, bottleneck=replace(analysis.bottleneck, why=(reason,)))
    linked = analyse(run_with_links(slow=True))
    for form in ("html", "md"):
        words = "the cgroup was throttled in 38% of its periods"
        assert words in rendered(form, explained, options)
        assert "Host h3 has a slow link" in rendered(form, linked, options)
        assert "Links between hosts" in rendered(form, linked, options)


def test_names_do_without_the_noun_that_they_begin_with() -> None:
    assert listed("host", ["host-5"]) == "host-5"
    assert listed("host", ["host-5", "b"]) == "hosts host-5 and b"
    assert fix_title(Fix("host", "host-5"), ()) == "With host-5 as fast as the others"
    assert listed("rank", [3, *range(24, 32), 40]) == "ranks 3, 24–31 and 40"
