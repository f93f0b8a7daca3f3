"""A run that is watched while it is recorded."""

from __future__ import annotations

import os
import re
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from dash import no_update
from support.running_job import RunningJob
from support.step_logs import Job

from stallscope.dashboard import RunStore, run_folder
from stallscope.dashboard.app import view_at
from stallscope.dashboard.components.notices import LOGS_DELETED
from stallscope.dashboard.pages.live_page import LiveRuns, live_update
from stallscope.dashboard.pages.runs_page import rows_of
from stallscope.dashboard.run_folder import recording_folder
from stallscope.errors import NotFoundError
from stallscope.parsers import read

from .content import figure_of, of_type, texts
from .stores import GrowingLogs

JOB = Job(
    ranks=2,
    steps=200,
    epochs=2,
    slow={(1, "input"): 9.0},
    run_id="growing",
    facts={"epochs": 2, "batches_per_epoch": 100},
)


class Recording(GrowingLogs):
    """Logs that grow, a store that was opened early on, and a clock that is set by hand."""

    def __init__(self, tmp_path: Path) -> None:
        super().__init__(tmp_path, JOB, 0.5)
        self.store = RunStore(read(str(self.folder)))
        self.now = 0.0
        self.live_runs = LiveRuns(lambda: self.now)

    def look(self, number: int = 0) -> tuple[Any, ...]:
        self.now += 1.0
        return live_update(self.store, self.live_runs, {"run": "growing", "number": number})


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    return Recording(tmp_path)


def test_the_page_is_a_tab_of_runs_that_are_recorded(recording: Recording, store: RunStore) -> None:
    assert "Live" in texts(view_at(recording.store, "/run/growing", "").content)
    assert "Live" not in texts(view_at(store, "/run/real", "").content)
    content = view_at(recording.store, "/run/growing/live", "").content
    assert [interval.interval for interval in of_type(content, "Interval")] == [1000]


def test_at_the_page_of_a_run_that_has_ended_nothing_ticks(store: RunStore) -> None:
    content = view_at(store, "/run/real/live", "").content
    assert any("this run has ended" in text for text in texts(content))
    assert of_type(content, "Interval") == []


def test_it_says_how_far_the_run_is_and_who_is_slow(recording: Recording) -> None:
    words, figure, legend, ended, seen = recording.look()
    said = texts(words)
    assert "Slow rank 1" in said
    assert any(re.fullmatch(r"9\d in epoch 0", text) for text in said)
    assert any(text.endswith("of 200 steps") for text in said)
    assert any(text.startswith("about ") for text in said)
    assert (ended, seen["number"]) == (False, 1)
    assert set(figure) == {"data", "layout", "csv"}
    assert max(figure_of(figure).data[0].x) < 100
    # All that is drawn: also who waits, and the windows of the step time.
    assert {"Input", "Waiting for slow input", "median"} <= set(texts(legend))


def test_without_news_no_figure_is_sent(recording: Recording) -> None:
    *_, seen = recording.look()
    _, figure, _, _, again = recording.look(seen["number"])
    assert (figure, again) == (no_update, no_update)
    # Somebody who comes later gets them all the same.
    assert recording.look(0)[1] is not no_update


def test_new_steps_come_by_themselves_and_the_end_too(recording: Recording) -> None:
    recording.look()
    recording.grow(0.8)
    words, figure, _, ended, seen = recording.look(1)
    assert (seen["number"], ended) == (2, False)
    assert 150 < max(figure_of(figure).data[0].x) < 170
    recording.grow(1.0)
    words, _, _, ended, _ = recording.look(2)
    assert ended
    assert {"ended", "200 of 200 steps", "none"} <= set(texts(words))


def test_a_pause_is_shown(recording: Recording) -> None:
    recording.look()
    recording.grow(0.6)
    recording.look(1)
    recording.now += 20.0
    words, *_ = recording.look(1)
    assert {"recording", "no new step for 21 s"} <= set(texts(words))
    recording.now += 712.0
    words, *_ = recording.look(1)
    assert "no end in the logs" in texts(words)
    assert any("have not grown for 12 min" in text for text in texts(words))
    assert "recording" not in texts(words)


def test_a_hanging_job_is_reported_with_its_ranks(tmp_path: Path) -> None:
    job = RunningJob(tmp_path / "logs")
    store, live_runs = RunStore(read(str(job.folder))), LiveRuns()
    shown = {"run": "run-42", "number": 0}
    assert of_type(live_update(store, live_runs, shown)[0], "Alert") == []
    job.wait_for_rank_1()
    (alert,) = of_type(live_update(store, LiveRuns(), shown)[0], "Alert")
    assert alert.title.startswith("The job hangs since ")
    sentence = "".join(texts(alert))
    assert "since step 150. Rank 1 on" in sentence
    assert "waits for its batch, in batches at train.py:12" in sentence


def test_users_at_the_same_time_see_the_same(recording: Recording) -> None:
    first = recording.live_runs.latest(recording.folder, "growing")
    recording.grow(1.0)
    recording.now += 0.1
    assert recording.live_runs.latest(recording.folder, "growing").number == first.number
    recording.now += 1.0
    assert recording.live_runs.latest(recording.folder, "growing").number == first.number + 1


def test_logs_that_have_gone_are_a_sentence(recording: Recording) -> None:
    recording.look()
    for path in recording.folder.iterdir():
        path.unlink()
    recording.folder.rmdir()
    words, figures, _, ended, _ = recording.look(1)
    assert words == LOGS_DELETED
    assert (figures, ended) == (no_update, True)
    with pytest.raises(NotFoundError):
        recording.live_runs.latest(recording.folder / "nowhere", "growing")


def test_a_run_that_is_not_listed_is_a_sentence_and_the_page_stops(recording: Recording) -> None:
    shown = {"run": "deleted", "number": 0}
    words, _, _, ended, _ = live_update(recording.store, recording.live_runs, shown)
    assert (words, ended) == ("there is no run 'deleted' here", True)


def test_only_folders_on_this_machine_are_watched(recording: Recording) -> None:
    run = recording.store.analysis("growing").run
    assert recording_folder(run) == recording.folder
    assert recording_folder(replace(run, source="s3://bucket/run")) is None
    assert recording_folder(replace(run, source="/nowhere")) is None


def test_logs_that_grow_are_called_recording_everywhere(recording: Recording) -> None:
    head = texts(view_at(recording.store, "/run/growing", "").content)
    (line,) = rows_of(recording.store, {}, "").rows
    live, *_ = recording.look()
    assert "recording" in head
    assert "recording" in line["about"]
    assert "recording" in texts(live)


def test_logs_that_have_not_grown_for_long_are_not_called_recording(
    recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody had the live page open when they stopped growing."""
    grew = time.time()
    monkeypatch.setattr(run_folder, "time", SimpleNamespace(time=lambda: grew + 734))
    for path in recording.folder.iterdir():
        os.utime(path, (grew, grew))
    head = texts(view_at(recording.store, "/run/growing", "").content)
    (line,) = rows_of(recording.store, {}, "").rows
    live, *_ = recording.look()
    sentence = (
        "The logs have no end and have not grown for 12 min: the job was killed, hangs, or pauses for "
        "long."
    )
    for page in (head, texts(live)):
        assert "recording" not in page
        assert {"no end in the logs", sentence} <= set(page)
    assert not any(text.startswith("As of") for text in head)
    # The live page's own status stands below its head.
    head_of_live = texts(view_at(recording.store, "/run/growing/live", "").content)
    assert not {"recording", "no end in the logs", sentence} & set(head_of_live)
    assert "not known" in texts(live)
    assert "no end in the logs" in line["about"]
    assert "recording" not in line["about"]


def test_the_live_page_stops_to_say_recording_and_begins_again(recording: Recording) -> None:
    recording.look()
    recording.now += 734.0
    assert "recording" not in texts(recording.look(1)[0])
    recording.grow(0.8)
    assert "recording" in texts(recording.look(1)[0])
