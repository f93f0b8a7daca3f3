"""Watch several places, of which one does not answer."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from support.running_job import RunningJob

from stallscope.conditions.condition import parse
from stallscope.run import Run
from stallscope.watch.places import Place
from stallscope.watch.watcher import Watcher, follow

_INTERVAL_S = 0.01


def watcher_of(job: RunningJob, kind: type[Place] = Place) -> Watcher:
    watcher = Watcher(kind(str(job.folder), None, job.folder, whole=False), [parse("stopped")])
    assert watcher.first_look() == []
    return watcher


class Slow(Place):
    """Answers once, and later only when allowed."""

    may_answer = threading.Event()
    looks = 0

    def look(self) -> list[Run]:
        self.looks += 1
        if self.looks > 1:
            self.may_answer.wait()
        return super().look()


def test_a_place_that_does_not_answer_delays_no_other(tmp_path: Path) -> None:
    slow = RunningJob(tmp_path / "slow", run_id="slow")
    quick = RunningJob(tmp_path / "quick", run_id="quick")
    watchers = [watcher_of(slow, Slow), watcher_of(quick)]
    quick.wait_for_rank_1()
    reported = []
    for events in follow(watchers, _INTERVAL_S):
        reported += [(event.kind, event.run_id) for event in events]
        if reported == [("holds", "quick")]:
            quick.end()
        if ("completed", "quick") in reported and not Slow.may_answer.is_set():
            slow.end()
            Slow.may_answer.set()
    assert reported == [
        ("holds", "quick"),
        ("ceased", "quick"),
        ("completed", "quick"),
        ("completed", "slow"),
    ]


def test_a_defect_ends_watching(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watcher = watcher_of(RunningJob(tmp_path))

    def look() -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(watcher, "look", look)
    with pytest.raises(ZeroDivisionError):
        list(follow([watcher], _INTERVAL_S))


def test_completed_runs_are_not_followed(tmp_path: Path) -> None:
    job = RunningJob(tmp_path)
    job.end()
    watcher = Watcher(Place(str(tmp_path), None, tmp_path, whole=False), [parse("stopped")])
    watcher.first_look()
    assert list(follow([watcher], _INTERVAL_S)) == []
