"""Runs of a catalogue are found by their facts, and sorted."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.catalogues import collected

from stallscope.catalogue.index import Catalogue
from stallscope.catalogue.where import parse_search, parse_where
from stallscope.errors import (
    UsageError,
)


@pytest.fixture
def filled(store: Path) -> Iterator[Catalogue]:
    """Make runs with different facts, from rows only."""
    entry = collected(store)
    facts = [
        {"id": "a", "model": "resnet50", "ranks": 8, "framework": "torch"},
        {"id": "b", "model": "resnet50", "ranks": 64, "framework": "tensorflow"},
        {"id": "c", "model": "BERT large", "ranks": 64, "synthetic": True},
        {"id": "d", "model": None, "ranks": 1, "hosts": ("gpu-7", "gpu-8")},
    ]
    summaries = [
        {"verdict": "input", "shares": {"input": 0.5, "compute": 0.5}, "samples_per_second": 100.0},
        {"verdict": "imbalance", "named_ranks": (3, 5), "samples_per_second": 3.0},
        {"verdict": "allreduce", "shares": {"input": 0.1, "compute": 0.9}},
        {},
    ]
    with Catalogue.open(store, follow=False) as catalogue:
        catalogue.remove(entry.id)
        for number, (fields, summary) in enumerate(zip(facts, summaries, strict=True)):
            run_entry = replace(
                entry,
                folder=str(fields["id"]),
                started_at=f"2026-11-0{number + 1}T00:00:00.000Z",
                summary=replace(entry.summary, **summary),
                **fields,
            )
            (store / run_entry.folder).mkdir()
            catalogue.add(run_entry)
        yield catalogue


@pytest.mark.parametrize(
    ("where", "ids"),
    [
        ("", "abcd"),
        ("model=resnet50", "ab"),
        ("model=resnet50 ranks>=64", "b"),
        ("  ranks  >=  64  ", "bc"),
        ("model='BERT large'", "c"),
        ('model="BERT large" synthetic=yes', "c"),
        ("model~bert", "c"),
        ("model!=resnet50", "cd"),
        ("synthetic=no", "abd"),
        ("verdict=input", "a"),
        ("verdict!=input", "bcd"),
        ("input>20%", "a"),
        ("input>=0.1 compute<0.6", "a"),
        ("samples_per_second<50", "b"),
        ("host~GPU-7", "d"),
        ("host~'gpu-7 gpu-8'", "d"),
        ("host~'['", ""),
        ("hosts>=2", "d"),
        ("started_at>=2026-11-03", "cd"),
        ("started_at<2026-11-02T00:00:00+01:00", "a"),
        ("age>1s", "abcd"),
        ("bytes<1GB bytes>100B", "abcd"),
        ("id='; DROP TABLE runs; --'", ""),
        ("id~%", ""),
        ("model~''", "abcd"),
        ("model==resnet50 and ranks>=64", "b"),
        ("model=resnet50 or synthetic=yes", "abc"),
        ("ranks>=64 model=resnet50 or hosts>=2", "bd"),
        ("ranks>=64 (model=resnet50 or synthetic=yes)", "bc"),
        ("not(ranks>=64)", "ad"),
        ("not verdict=input not (ranks=1 or model~bert)", "b"),
        ("(model='BERT large')", "c"),
        ("(id=a or id=(b))", "a"),
        ("bottleneck=input", "a"),
        ("bottleneck~IMB size=64", "b"),
        ("input.share>20%", "a"),
        ("step_ms.mean<1h", ""),
        ("ranks>=1,0", "bc"),
        ("age<99w", "abcd"),
    ],
)
def test_filters(filled: Catalogue, where: str, ids: str) -> None:
    assert {entry.id for entry in filled.entries(parse_where(where))} == set(ids)
    assert filled.count(parse_where(where)) == len(ids)
    # The dashboard's search filters entries in memory.
    assert {entry.id for entry in filled.entries() if parse_where(where).finds(entry)} == set(ids)


@pytest.mark.parametrize(
    ("where", "sentence"),
    [
        ("rank=3", "there is no field 'rank'; there are id, name,"),
        ("rank=3", "; did you mean ranks?"),
        ("verdcit=input", "; did you mean verdict?"),
        ("ranks", "'ranks' is not a condition: give field, operator and value"),
        ("ranks => 3", "'ranks => 3' is not a condition"),
        ("model=x OR 1=1", "'OR 1=1' is not a condition"),
        ("model=x or", "column 11: the text ends where a condition is missing"),
        ("(model=x", "column 9: the ( of column 1 is not closed"),
        ("model='x')", "column 10: ')' is not a condition"),
        ("name='open", "is not a condition"),
    ],
)
def test_an_invalid_condition_is_an_error_of_one_sentence(where: str, sentence: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_where(where)
    assert sentence in str(error.value)


@pytest.mark.parametrize(
    ("where", "sentence"),
    [
        ("ranks>=many", "ranks>=many: ranks takes a whole number"),
        ("ranks=99999999999999999999", "ranks takes a whole number"),
        ("step_ms<nan", "step_ms takes a number"),
        ("synthetic=maybe", "synthetic takes yes or no"),
        ("bytes>3furlongs", "bytes takes a size"),
        ("started_at>yesterday", "started_at takes a time"),
        ("age>3", "age takes a span"),
        ("age>99999999999d", "age takes a span"),
        ("age=3d", "an age is compared by < or >"),
        ("model>3", "model can be =, != or, in words, ~"),
        ("ranks~3", "~ looks into words"),
        ("host=a", "use host~a"),
        ("age=3", "age takes a span"),
        ("step_ms<20%", "step_ms takes a number"),
        ("not (ranks>1 or ranks=x)", "ranks=x: ranks takes a whole number"),
        ("ranks>1 " * 51, "more than 50 conditions"),
        ("(" * 31, "more than 30 levels within each other"),
        ("verdict=imbalence", "verdict is never 'imbalence'; did you mean 'imbalance'?"),
        ("verdict!=Input", "verdict is never 'Input'; did you mean 'input'?"),
        ("bottleneck=slow", "bottleneck is never 'slow': it is one of input, compute, other, "),
        (
            "cause=disk",
            "cause is never 'disk': it is one of input, compute, other, allreduce, collective, "
            "network, cores",
        ),
        ("status=finished", "status is never 'finished': it is one of completed, open"),
    ],
)
def test_invalid_filters_and_searches_are_errors_of_one_sentence(where: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=r"^--where: ") as error:
        parse_where(where)
    assert sentence in str(error.value)
    with pytest.raises(UsageError) as error:
        parse_search(f"resnet {where}")
    assert "--where" not in str(error.value)
    assert sentence in str(error.value)


@pytest.mark.parametrize(
    ("order", "reverse", "ids"),
    [
        ("age", False, "dcba"),
        ("age", True, "abcd"),
        ("ranks", False, "bcad"),
        ("samples_per_second", False, "abcd"),
        ("samples_per_second", True, "bacd"),
        ("model", False, "cabd"),
        ("model", True, "abcd"),
    ],
)
def test_orders_put_unknown_values_last(
    filled: Catalogue, order: str, reverse: bool, ids: str
) -> None:
    assert "".join(entry.id for entry in filled.entries(order=order, reverse=reverse)) == ids
    two = filled.entries(order=order, reverse=reverse, limit=2)
    assert "".join(entry.id for entry in two) == ids[:2]


def test_an_order_by_something_else_is_refused(filled: Catalogue) -> None:
    with pytest.raises(UsageError, match="--sort: there is no field 'rank; DROP'"):
        filled.entries(order="rank; DROP")


def test_runs_of_one_id_are_distinguished_by_their_folders(store: Path) -> None:
    entry = collected(store)
    shutil.copytree(store / "run-a", store / "copy")
    with Catalogue.open(store) as catalogue:
        assert {entry.folder for entry in catalogue.find_all("run-a")} == {"run-a", "copy"}
        assert catalogue.remove("run-a", "copy") == 1
        assert catalogue.find("run-a") == entry
        assert catalogue.find("nonsense") is None
