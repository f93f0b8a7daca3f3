"""The run that a user means is found by its id, its name, or the start of either."""

from __future__ import annotations

from pathlib import Path

import pytest

from stallscope.collector.run_names import NamedRun, RunAddress, index_of
from stallscope.errors import NotFoundError, UsageError

RUNS = [
    NamedRun("7a7d01", "clean"),
    NamedRun("7b0012", "slow input"),
    NamedRun("clean", "an id like a name"),
    NamedRun("9c55aa", "twice"),
    NamedRun("9d66bb", "twice"),
]


@pytest.mark.parametrize(
    ("wanted", "index"),
    [
        ("7b0012", 1),
        ("clean", 2),
        ("slow input", 1),
        ("slow", 1),
        ("7a", 0),
        ("9d", 4),
        ("an id", 2),
    ],
)
def test_ids_count_before_names_and_whole_ones_before_starts(wanted: str, index: int) -> None:
    assert index_of(wanted, RUNS, "runs") == index


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ("7", 'runs: "7" may be several runs: clean #7a7d01, slow input #7b0012'),
        ("twice", 'runs: "twice" may be several runs: twice #9c55aa, twice #9d66bb'),
        ("slow imput", 'runs: no such run: "slow imput"; did you mean "slow input"?'),
        ("zzz", 'runs: no such run: "zzz"; there are clean #7a7d01, slow input #7b0012, '),
    ],
)
def test_others_get_a_sentence(wanted: str, message: str) -> None:
    with pytest.raises(NotFoundError) as error:
        index_of(wanted, RUNS, "runs")
    assert str(error.value).startswith(message)


def test_of_two_runs_with_an_id_the_newest_is_meant() -> None:
    assert index_of("a", [NamedRun("a", "first"), NamedRun("a", "second")], "runs") == 0


def test_long_lists_are_cut() -> None:
    runs = [NamedRun(f"run-{number}", f"run-{number}") for number in range(200)]
    with pytest.raises(NotFoundError, match=r"run-9, …$"):
        index_of("zzz", runs, "runs")


@pytest.mark.parametrize(
    ("text", "place", "run"),
    [
        ("logs", "logs", ""),
        ("logs#run-a", "logs", "run-a"),
        ("logs#try #3", "logs", "try #3"),
        ("exp#3", "exp#3", ""),
        ("exp#3#run-a", "exp#3", "run-a"),
        ("exp#3/*.csv", "exp#3/*.csv", ""),
        ("exp#3/*.csv#run-a", "exp#3/*.csv", "run-a"),
        ("exp#4", "exp", "4"),
        ("s3://bucket/runs#run-a", "s3://bucket/runs", "run-a"),
    ],
)
def test_existing_paths_count_before_names_of_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, place: str, run: str
) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "exp#3").mkdir()
    (tmp_path / "exp#3" / "log.csv").touch()
    monkeypatch.chdir(tmp_path)
    assert RunAddress.parse(text) == (place, run)
    assert RunAddress.parse(str(RunAddress(place, run))) == (place, run)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("logs#", '"logs#": name the run after the #'),
        ("#run-a", '"#run-a": name the store, or the folder, before the #'),
    ],
)
def test_an_empty_variable_of_a_script_is_an_error(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        RunAddress.parse(text)
