"""Pages of a run that is being recorded show it as it is when they are opened."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from shutil import rmtree

import pytest
from support.step_logs import Job, write_job

from stallscope.analysis import Analysis, analyse
from stallscope.batch.units import Unit
from stallscope.collector.run_names import RunAddress
from stallscope.dashboard import RunStore
from stallscope.dashboard.addresses import RUNS
from stallscope.dashboard.app import view_at
from stallscope.dashboard.components.notices import LOGS_DELETED, TABS
from stallscope.dashboard.pages.runs_page import analysed_row, rows_of
from stallscope.dashboard.store import WatchedPlace, refresh
from stallscope.errors import UnreadableError
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
        analysis = analyse(run, baseline, single)
        self.analysed.append(analysis.steps)
        return analysis

    def open(self, page: str = "") -> int:
        """How many steps a page speaks of."""
        said = texts(view_at(self.store, f"/run/growing{page}", "").content)
        match = re.search(r"(\d+) steps", next(text for text in said if "2 ranks on" in text))
        assert match
        return int(match[1])


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
        re.match(r"As of \d\d:\d\d:\d\d UTC: a run that grows is read again", text) for text in said
    )
    recording.grow(1.0)
    said = texts(view_at(recording.store, "/run/growing", "").content)
    assert not any(text.startswith("As of") for text in said)


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


def test_a_read_that_fails_once_is_done_again(
    recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = recording.open()
    recording.grow(1.0)

    def fail(_source: str) -> list[Run]:
        raise UnreadableError("the server is busy")

    with monkeypatch.context() as patch:
        patch.setattr(refresh, "read", fail)
        assert recording.open() == first
    assert recording.open() == 400


class Folder:
    """A folder of runs that a dashboard shows, and a clock that is set by hand."""

    def __init__(self, path: Path) -> None:
        self.path, self.now, self.steps_s = path, 0.0, 0.0
        self.add("run-a")
        self.place = WatchedPlace(RunAddress(str(path)), clock=self._clock)
        self.store = RunStore(places=[self.place])

    def _clock(self) -> float:
        self.now += self.steps_s
        return self.now

    def add(self, name: str, steps: int = 40) -> Path:
        write_job(self.path / name, Job(ranks=2, steps=steps, run_id=Path(name).name))
        return self.path / name

    def reload(self) -> dict[str, str]:
        """Reload the list of runs; return what their rows say about each."""
        view_at(self.store, RUNS, "")
        return {row["id"]: row["about"] for row in rows_of(self.store, {}, "").rows}

    def problems(self) -> str:
        return "\n".join(texts(view_at(self.store, RUNS, "").content))


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "runs")


def test_a_reload_of_the_list_has_the_runs_that_came_into_the_folder(folder: Folder) -> None:
    assert [*folder.reload()] == ["run-a"]
    folder.add("run-b")
    folder.add("deep/er/run-c")
    assert sorted(folder.reload()) == ["run-a", "run-b", "run-c"]
    assert folder.store.analysis("run-b").run.rows == 80
    # Rows and later attempts in a known folder, too.
    rmtree(folder.path / "run-b")
    folder.add("run-b", steps=60)
    folder.reload()
    assert folder.store.analysis("run-b").run.rows == 120


def test_a_run_whose_folder_was_deleted_says_so_until_it_is_back(folder: Folder) -> None:
    folder.add("run-b")
    folder.reload()
    (folder.path / "run-b").rename(folder.path.parent / "away")
    rows = folder.reload()
    assert "logs deleted" in rows["run-b"]
    assert "logs deleted" not in rows["run-a"]
    assert LOGS_DELETED in texts(view_at(folder.store, "/run/run-b", "").content)
    (folder.path.parent / "away").rename(folder.path / "moved")
    rows = folder.reload()
    assert sorted(rows) == ["run-a", "run-b"]
    assert "logs deleted" not in str(rows)
    rmtree(folder.path)
    assert str(folder.reload()).count("logs deleted") == 2


def test_a_reload_reads_no_run_that_is_known(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.add("run-b")
    folder.reload()
    before = folder.store.analysis("run-a")
    read_places: list[str] = []

    def noted(unit: Unit, *words: str | None) -> list[Run]:
        read_places.append(Path(unit.place).name)
        return read(unit.place)

    monkeypatch.setattr(Unit, "read", noted)
    folder.reload()
    assert read_places == []
    folder.add("run-c")
    folder.reload()
    assert read_places == ["run-c"]
    assert folder.store.analysis("run-a") is before


def test_a_large_folder_is_looked_at_in_a_small_share_of_the_time(folder: Folder) -> None:
    # Each look at the clock is a second later: looking takes one.
    folder.now, folder.steps_s = 100.0, 1.0
    folder.reload()
    folder.add("run-b")
    folder.steps_s = 0.0
    assert [*folder.reload()] == ["run-a"]
    folder.now += 11.0
    assert sorted(folder.reload()) == ["run-a", "run-b"]


def test_a_folder_with_too_many_folders_is_read_once_and_says_so(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refresh, "_MOST_FOLDERS", 3)
    for name in "bcd":
        folder.add(f"run-{name}")
    assert len(folder.reload()) == 4
    folder.add("run-e")
    assert len(folder.reload()) == 4
    assert "more than 3 folders" in folder.problems()


def test_what_could_not_be_read_is_read_when_it_is_whole(folder: Folder) -> None:
    whole = folder.add("run-b").rename(folder.path.parent / "whole")
    (folder.path / "run-b").mkdir()
    for log in whole.iterdir():
        (folder.path / "run-b" / log.name).touch()
    assert [*folder.reload()] == ["run-a"]
    assert "an empty step log" in folder.problems()
    # Writing into a file does not change its folder.
    for log in whole.iterdir():
        (folder.path / "run-b" / log.name).write_bytes(log.read_bytes())
    assert sorted(folder.reload()) == ["run-a", "run-b"]
    assert "an empty step log" not in folder.problems()


def test_a_log_that_is_left_alone_is_named_above_the_list(folder: Folder) -> None:
    (folder.path / "run-a" / "train.log").write_text("Epoch 1/2\n5/5 - 3s - loss: 1\n")
    assert "train.log: knows how long epochs took; left alone" in folder.problems()
