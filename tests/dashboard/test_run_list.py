"""The list of runs: which runs a search finds, in which order, and how they compare."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stallscope.catalogue.where import parse_search
from stallscope.dashboard import RunStore
from stallscope.dashboard.pages.runs_page import rows_of

from .stores import Listed, listed


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("", [1, 2, 3, 4]),
        ("training 3", [3]),
        ("TRAINING", [1, 2, 3, 4]),
        ("resnet alpha input", [1, 3]),
        ("beta", [4]),
        ('"training 4"', [4]),
        ("verdict=input", [1, 3]),
        ("verdict!=input", [2, 4]),
        ("samples_per_second>=1003", [3, 4]),
        ("samples_per_second >= 1003 training 4", [4]),
        ("input>20%", [1, 2, 3, 4]),
        ("allreduce>0", []),
        ("allreduce!=0.5", [1, 2, 3, 4]),
        ("host~BETA", [4]),
        ("hosts>1", [4]),
        ("synthetic=yes", [2]),
        ("synthetic", [2]),
        ("age<1h", []),
        ("ranks>=", [1, 2, 3, 4]),
        ("lr=0.1", [3]),
        ("nothing of the kind", []),
        ("'training 4' or \"training 1\"", [1, 4]),
        ("resnet (beta or synthetic=yes)", [2, 4]),
        ("input and not synthetic", [1, 3]),
        ("resnet not (host~beta or samples_per_second<1002)", [2, 3]),
        ("bottleneck=input", [1, 3]),
        ("beta or", [4]),
        ("beta and not", [4]),
        ("beta (ranks>=", [4]),
        ("beta or (synthetic", [2, 4]),
        ('"training 4', [4]),
        ('beta model="resn', [4]),
        ("beta ) <3", []),
    ],
)
def test_words_and_conditions_find_runs(text: str, numbers: list[int]) -> None:
    store = RunStore(
        sources=[
            Listed(
                [
                    listed(1),
                    listed(2, synthetic=True),
                    listed(3, source="s3://logs/lr=0.1"),
                    listed(4, hosts=("alpha", "beta")),
                ]
            )
        ]
    )
    ids = [run.id for run in store.listing().matching(parse_search(text))]
    assert ids == [f"run-{number:05d}" for number in numbers]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("foo=1", "there is no field 'foo'; there are id, name, "),
        ("training (verdcit=input or beta)", "; did you mean verdict?"),
        ("not rank>=3", "; did you mean ranks?"),
        ("LR=0.2", "there is no field 'LR'"),
        ("verdict=imbalence training", "verdict is never 'imbalence'; did you mean 'imbalance'?"),
        ("verdict=imbalences", "verdict is never 'imbalences'; did you mean 'imbalance'?"),
    ],
)
def test_what_no_field_has_is_an_error(text: str, sentence: str) -> None:
    store = RunStore(sources=[Listed([listed(1, source="s3://logs/lr=0.1"), listed(2)])])
    block = rows_of(store, {}, text)
    assert (block.rows, block.matching) == ([], 0)
    assert sentence in str(block.error)


@pytest.mark.parametrize("text", ["verdict=", "verdict=im", "status=run", "training foo=", "LR=0."])
def test_a_condition_may_be_incomplete_while_it_is_typed(text: str) -> None:
    store = RunStore(sources=[Listed([listed(1, source="s3://logs/lr=0.1 foo="), listed(2)])])
    assert rows_of(store, {}, text).error is None


def test_lists_are_sorted_with_what_is_not_known_last() -> None:
    unknown = replace(listed(3).summary, samples_per_second=None)
    source = Listed([listed(2), listed(3, summary=unknown), listed(1)])
    listing = RunStore(sources=[source]).listing()

    def order(sort: str, reverse: bool = False) -> list[str]:
        runs = listing.matching(parse_search(""), sort, reverse=reverse)
        return [run.id[-1] for run in runs]

    assert order("throughput") == ["1", "2", "3"]
    assert order("throughput", reverse=True) == ["2", "1", "3"]
    assert order("age") == ["1", "2", "3"]
    assert order("age", reverse=True) == ["3", "2", "1"]
    assert order("name", reverse=True) == ["3", "2", "1"]
    assert order("no such column") == ["2", "3", "1"]


def test_the_gap_is_to_the_baseline_and_the_trend_ends_with_the_run() -> None:
    entries = [listed(number) for number in range(1, 20)]
    entries.append(listed(40, synthetic=True))
    listing = RunStore(sources=[Listed(entries)]).listing()
    assert listing.gap(listing["run-00001"]) == pytest.approx(1 - 1001 / 1040)
    assert listing.gap(listing["run-00040"]) is None
    # The newest run, run 1, is the slowest.
    assert listing.trend(listing["run-00001"]) == [1012.0 - number for number in range(12)]
    assert listing.trend(listing["run-00019"]) == []
    assert listing.trend(listing["run-00018"]) == [1019.0, 1018.0]
