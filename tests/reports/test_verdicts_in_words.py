"""The sentences that all formats share: who is named, what is promised, and what is not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from stallscope.analysis import Analysis
from stallscope.analysis.result import Bottleneck
from stallscope.reports.contents import advice
from stallscope.wording.gains import gains, main_gain, other_gains
from stallscope.wording.verdicts import basis, fix_title, headline, listed


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([3], "rank 3"),
        ([3, 5], "ranks 3 and 5"),
        ([1, 2, 3, 4], "ranks 1, 2, 3 and 4"),
        (list(range(1, 17)), "ranks 1, 2, 3, 4 and 12 more"),
    ],
)
def test_many_names_are_counted_and_not_listed(names: list[int], text: str) -> None:
    assert listed("rank", names) == text


@pytest.mark.parametrize(
    ("bottleneck", "text"),
    [
        (
            Bottleneck("imbalance", "compute", "", ranks=(2, 3), hosts=("b",)),
            "Ranks 2 and 3 of host b hold this run back: their compute is slow",
        ),
        (
            Bottleneck("imbalance", "other", "", ranks=(7,)),
            "Rank 7 holds this run back: its work between steps is slow",
        ),
        (
            Bottleneck("insufficient_data", None, ""),
            "These logs cannot tell what holds the run back",
        ),
    ],
)
def test_the_headline_names_who_and_why(bottleneck: Bottleneck, text: str) -> None:
    assert headline(bottleneck) == text


@pytest.mark.parametrize(
    ("fix", "text"),
    [
        ("imbalance", "With rank 3 and host a:b as fast as the others"),
        ("host:a:b", "With host a:b as fast as the others"),
        ("rank:3", "With rank 3 as fast as the others"),
        ("allreduce", "If allreduce cost nothing"),
    ],
)
def test_a_fix_says_under_which_condition_it_gains(fix: str, text: str) -> None:
    assert fix_title(fix, ["rank:3", "host:a:b"]) == text


def test_one_slow_rank_is_one_fix(case: Callable[[str], Analysis]) -> None:
    titles = [gain.title for gain in gains(case("a slow rank"))]
    assert titles.count("With rank 2 as fast as the others") == 1
    assert len(titles) == len(set(titles)) == 4


def test_the_main_gain_is_the_bottlenecks_and_the_others_are_worth_it(
    case: Callable[[str], Analysis],
) -> None:
    analysis = case("a slow rank and a baseline")
    main = main_gain(analysis)
    assert main is not None
    assert main.what_if.fix == "imbalance"
    others = other_gains(analysis)
    assert others[0].what_if.fix == "allreduce"
    assert main not in others
    assert min(gain.what_if.speedup for gain in others) > 1.004


@pytest.mark.parametrize("name", ["few steps", "rank 0 only", "host stamps only"])
def test_where_the_logs_cannot_tell_nothing_is_promised(
    name: str, case: Callable[[str], Analysis]
) -> None:
    analysis = case(name)
    assert analysis.bottleneck.kind == "insufficient_data"
    assert gains(analysis) == []
    assert main_gain(analysis) is None


def test_without_advice_of_its_own_the_verdict_takes_that_of_the_severest_finding(
    case: Callable[[str], Analysis],
) -> None:
    analysis = case("rank 0 only")
    assert analysis.bottleneck.advice == ()
    assert advice(analysis) == [analysis.findings[0].advice]
    assert analysis.findings[0].severity == "error"
    assert advice(replace(analysis, findings=())) == ()


def test_readers_learn_what_figures_rest_on(case: Callable[[str], Analysis]) -> None:
    assert basis(case("one rank")) == "199 steady steps of 1 rank"
    assert basis(case("a missing rank")) == "199 steady steps of 3 of 4 ranks"
    assert basis(case("host stamps only")) == "200 unstamped steps of 2 ranks"
