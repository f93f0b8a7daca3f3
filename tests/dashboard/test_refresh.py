"""Pages of a run that is being recorded show it as it is when they are opened."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from shutil import rmtree

import pytest
from support.step_logs import Job

from stallscope.analysis import Analysis, analyse
from stallscope.dashboard import RunStore
from stallscope.dashboard.components.notices import LOGS_DELETED
from stallscope.dashboard.components.run_tabs import TABS
from stallscope.dashboard.pages.runs import analysed_row, rows_of
from stallscope.dashboard.routing import view_at
from stallscope.parsers import read
from stallscope.run import Run

from .content import texts
from .stores import GrowingLogs

JOB = Job(ranks=2, steps=400, epochs=2, run_id="growing")


class Recording(GrowingLogs):
    """Logs that grow, a clock that is set by hand, and how long an analysis takes on it."""

    def __init__(self, tmp_path: Path) -> None:
        super().__init__(tmp_path, JOB, 0.25)
        self.now, self.takes = 0.0, 0.0
        self.analysed: list[int] = []
        self.store = RunStore(read(str(self.folder)), self._analyse, clock=lambda: self.now)

    def _analyse(self, run: Run, baseline: Run | None, single: Run | None) -> Analysis:
        self.now += self.takes
        found = analyse(run, baseline, single)
        self.analysed.append(found.steps)
        return found

    def open(self, page: str = "") -> int:
        """How many steps a page speaks of."""
        said = texts(view_at(self.store, f"/run/growing{page}", "").content)
        found = re.search(r"(\d+) steps", next(text for text in said if "2 ranks on" in text))
        assert found
        return int(found[1])


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    return Recording(tmp_path)


@pytest.mark.parametrize("page", ["", "/timeline", "/stragglers", "/health"])
def test_a_page_that_is_opened_again_has_the_new_steps(recording: Recording, page: str) -> None:
    first = recording.open(page)
    recording.grow(0.6)
    second = recording.open(page)
    recording.grow(1.0)
    assert first < second < recording.open(page) == 400
    assert texts(view_at(recording.store, "/run/growing/timeline", "").content)


def test_rows_that_came_between_reading_and_opening_are_read(recording: Recording) -> None:
    """The store has the run as it was read before, when its logs had fewer rows."""
    read_before = read(str(recording.folder))
    recording.grow(1.0)
    recording.store = RunStore(read_before, recording._analyse, clock=lambda: recording.now)
    assert recording.open() == 400


def test_where_nothing_was_written_nothing_is_read_or_analysed(recording: Recording) -> None:
    recording.open()
    before = recording.store.analysis("growing")
    for page in ("", "/stragglers", "/timeline", ""):
        recording.open(page)
    assert recording.store.analysis("growing") is before
    assert len(recording.analysed) == 1


def test_reading_a_long_run_takes_a_small_share_of_the_time(
    recording: Recording,
) -> None:
    recording.takes = 6.0
    first = recording.open()
    recording.grow(0.5)
    recording.now += 50.0
    assert recording.open() == first
    recording.now += 11.0
    assert recording.open() > first
    assert len(recording.analysed) == 2


def test_what_was_found_before_is_forgotten(recording: Recording) -> None:
    recording.open()
    sizes = []
    for share in (0.5, 0.7, 0.9, 1.0):
        recording.grow(share)
        recording.open()
        sizes.append(recording.store._cache.size)
    assert max(sizes) < 2 * min(sizes)
    assert len(recording.store._cache) == 1


def test_the_list_says_what_is_found_now(recording: Recording) -> None:
    def throughput() -> str:
        recording.store.refresh()
        (line,) = rows_of(recording.store, {}, "").rows
        return str(analysed_row(recording.store, line["id"])["throughput"])

    throughput()
    recording.grow(1.0)
    recording.open()
    recording.store.refresh()
    (line,) = rows_of(recording.store, {}, "").rows
    assert "no end in the logs" not in line["about"]
    assert throughput()
    assert recording.analysed[-1] == 400


def test_the_head_says_as_of_when_until_the_run_has_ended(recording: Recording) -> None:
    said = texts(view_at(recording.store, "/run/growing", "").content)
    assert any(
        re.match(r"As of \d\d:\d\d:\d\d UTC: a run that grows is read again", one) for one in said
    )
    recording.grow(1.0)
    said = texts(view_at(recording.store, "/run/growing", "").content)
    assert not any(one.startswith("As of") for one in said)


def test_logs_that_have_gone_leave_the_run_as_it_was(recording: Recording) -> None:
    before = recording.open()
    for path in recording.folder.iterdir():
        path.unlink()
    assert recording.open() == before
    recording.folder.rmdir()
    assert recording.open() == before


@pytest.mark.parametrize("share", [0.5, 1.0])
@pytest.mark.parametrize("page", [*TABS.values(), "step/20"])
def test_each_page_of_a_run_says_that_its_logs_were_deleted(
    tmp_path: Path, page: str, share: float
) -> None:
    logs = GrowingLogs(tmp_path, JOB, share)
    store = RunStore(read(str(logs.folder)))
    address = f"/run/growing/{page}".rstrip("/")
    assert LOGS_DELETED not in texts(view_at(store, address, "").content)
    rmtree(logs.folder)
    assert LOGS_DELETED in texts(view_at(store, address, "").content)
    store.refresh()
    (line,) = rows_of(store, {}, "").rows
    assert "logs deleted" in line["about"]
    assert analysed_row(store, "growing")["throughput"]


def test_runs_whose_logs_were_never_here_are_not_called_deleted(recording: Recording) -> None:
    elsewhere = replace(read(str(recording.folder))[0], source="s3://bucket/logs")
    said = texts(view_at(RunStore([elsewhere]), "/run/growing", "").content)
    assert LOGS_DELETED not in said
