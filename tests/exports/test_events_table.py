"""The table of events from other logs, for spreadsheets."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import pytest
import simulator

from stallscope.exports.exported_run import Selection, exported_run
from stallscope.run import Event, Run

from .decoding import ALL, JOB, exported

S = 10**9


@pytest.fixture(scope="module")
def run() -> Run:
    return simulator.simulate(JOB).run


def with_events(run: Run, *events: Event) -> Run:
    return replace(run, events=events)


def zero(run: Run) -> int:
    wall = exported_run(run, ALL).wall_ns
    assert wall is not None
    return wall


def rows(run: Run, folder: Path, selection: Selection = ALL) -> list[dict[str, str]]:
    path = exported(run, "events-csv", folder, selection)
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_an_event_is_a_row_with_all_its_facts(run: Run, tmp_path: Path) -> None:
    local = 1_605_950_400 * S + 5_000
    lost = Event(
        "executor_lost",
        "log",
        "executor 1 was lost: killed",
        ranks=(1, 3),
        hosts=("a", "b"),
        wall_ns=zero(run) + 2 * S,
        uncertainty_ns=1_000_000,
    )
    stall = Event("stall", "out.txt", "ranks wait", local_ns=local, waited_ns=60 * S)
    early = replace(lost, kind="executor_added", wall_ns=zero(run) - S, ranks=())
    events = rows(with_events(run, stall, lost, early), tmp_path)
    assert [row["kind"] for row in events] == ["executor_added", "executor_lost", "stall"]
    wall = events[1].pop("utc")
    assert wall.startswith("2026-")
    assert wall.endswith("Z")
    assert events[1] == {
        "run_id": run.id,
        "at_ns": f"{2 * S}",
        "uncertainty_ns": "1000000",
        "waited_ns": "",
        "local": "",
        "kind": "executor_lost",
        "what": "executor 1 was lost: killed",
        "ranks": "1 3",
        "hosts": "a b",
        "file": "log",
    }
    assert events[0]["at_ns"] == f"{-S}"
    assert (events[2]["at_ns"], events[2]["utc"]) == ("", "")
    assert (events[2]["local"], events[2]["waited_ns"]) == (
        "2020-11-21T09:20:00.000005",
        f"{60 * S}",
    )


def test_unknown_times_of_events_are_empty(run: Run, tmp_path: Path) -> None:
    (row,) = rows(with_events(run, Event("rank_exited", "out.txt", "rank 1 exited")), tmp_path)
    assert {row[name] for name in ("at_ns", "uncertainty_ns", "utc", "local", "ranks")} == {""}


def test_without_events_there_are_only_names(run: Run, tmp_path: Path) -> None:
    assert rows(run, tmp_path) == []


def test_a_selection_leaves_out_other_ranks_and_times(run: Run, tmp_path: Path) -> None:
    def at(seconds: float, *ranks: int) -> Event:
        wall = zero(run) + round(seconds * S)
        return Event("stall", "x", f"at {seconds} {ranks}", ranks=ranks, wall_ns=wall)

    run_with_events = with_events(
        run, at(-5), at(0.001), at(0.001, 1), at(0.001, 3), at(500), Event("a", "", "")
    )

    def shown(selection: Selection) -> list[str]:
        (tmp_path / "out").unlink(missing_ok=True)
        return [row["what"] for row in rows(run_with_events, tmp_path, selection)]

    assert shown(Selection(ranks=frozenset({1}))) == [
        *("at -5 ()", "at 0.001 ()", "at 0.001 (1,)", "at 500 ()", "")
    ]
    assert shown(Selection(0, 3)) == ["at 0.001 ()", "at 0.001 (1,)", "at 0.001 (3,)"]
    assert shown(Selection(100)) == []


@pytest.mark.parametrize("evil", ["=1+1", "@a", '=a","b"\r\n'])
def test_text_from_logs_is_not_a_formula(run: Run, evil: str, tmp_path: Path) -> None:
    event = Event(evil, evil, evil, hosts=(evil,))
    (row,) = rows(replace(with_events(run, event), id=evil), tmp_path)
    for name in ("run_id", "kind", "what", "hosts", "file"):
        assert row[name].startswith("'")
