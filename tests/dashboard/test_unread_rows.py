"""Of a folder of runs, the dashboard first reads what its list shows, and the rows of a run later."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from shutil import rmtree
from threading import Thread

import pytest
from support.step_logs import Job, write_job

from stallscope.batch.units import Unit
from stallscope.catalogue.entry import entry_of_run
from stallscope.collector.run_names import RunAddress
from stallscope.dashboard import RunStore
from stallscope.dashboard.app import view_at
from stallscope.dashboard.pages.runs_page import analysed_row, rows_of
from stallscope.dashboard.store import WatchedPlace
from stallscope.errors import UnreadableError
from stallscope.parsers import read
from stallscope.parsers.reader import read_head
from stallscope.run import Run

from .cases import REAL, SYNTHETIC
from .content import texts

SAMPLES = Path(__file__).parents[2] / "sample_logs"
JOB = Job(ranks=2, steps=40)


def store_of(folder: Path) -> RunStore:
    return RunStore(places=[WatchedPlace(RunAddress(str(folder)))])


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A folder with two runs."""
    for name in ("run-a", "run-b"):
        write_job(tmp_path / "runs" / name, replace(JOB, run_id=name))
    return tmp_path / "runs"


@pytest.fixture
def read_units(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Notes the folders of the runs whose rows are read."""
    names: list[str] = []

    def noted(unit: Unit, *_words: object) -> list[Run]:
        names.append(Path(unit.place).name)
        return read(unit.place)

    monkeypatch.setattr(Unit, "read", noted)
    return names


@pytest.mark.parametrize("sample", sorted(path.parent.name for path in SAMPLES.glob("*/run.json")))
def test_the_list_says_the_same_before_and_after_the_rows_are_read(sample: str) -> None:
    head = read_head(str(SAMPLES / sample))
    (whole,) = read(str(SAMPLES / sample))
    if head is None:
        assert not all(log.path.endswith(".steps.csv") for log in whole.logs)
        return
    assert entry_of_run(head, "run") == entry_of_run(whole, "run")
    assert [log.facts for log in head.logs] == [log.facts for log in whole.logs]
    assert head.rows == 0


def test_rows_are_read_when_a_run_is_opened(runs: Path, read_units: list[str]) -> None:
    store = store_of(runs)
    assert sorted(row["id"] for row in rows_of(store, {}, "").rows) == ["run-a", "run-b"]
    assert read_units == []
    assert any("40 steps" in text for text in texts(view_at(store, "/run/run-b", "").content))
    assert read_units == ["run-b"]
    view_at(store, "/run/run-b/health", "")
    store.refresh()
    assert store.verdict("run-b") == store.listing()["run-b"].verdict
    assert read_units == ["run-b"]


def test_threads_that_open_a_run_at_once_read_it_once(runs: Path, read_units: list[str]) -> None:
    store = store_of(runs)
    rows: list[int] = []
    threads = [
        Thread(target=lambda: rows.append(store.analysis("run-a").run.rows)) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert rows == [80] * 4
    assert read_units == ["run-a"]


def test_a_baseline_is_found_whichever_of_the_runs_is_read_first(tmp_path: Path) -> None:
    for name, job in (("real", REAL), ("synthetic", SYNTHETIC)):
        write_job(tmp_path / name, job)
    real, synthetic = (
        run.id for name in ("real", "synthetic") for run in read(str(tmp_path / name))
    )
    store = store_of(tmp_path)
    assert store.baseline_of(real) == synthetic
    assert analysed_row(store, real)["gap"]
    synthetic_first = store_of(tmp_path)
    analysed_row(synthetic_first, synthetic)
    assert analysed_row(synthetic_first, real) == analysed_row(store, real)


def test_a_run_whose_logs_were_deleted_before_they_were_read_says_so(runs: Path) -> None:
    store = store_of(runs)
    rmtree(runs / "run-a")
    assert (
        "logs deleted" in {row["id"]: row["about"] for row in rows_of(store, {}, "").rows}["run-a"]
    )
    with pytest.raises(UnreadableError, match="run-a"):
        store.analysis("run-a")
    assert "run-a" in analysed_row(store, "run-a")["verdict"]
    assert store.analysis("run-b").run.rows == 80


def test_rows_that_came_meanwhile_are_read(runs: Path) -> None:
    whole = {path: path.read_bytes() for path in (runs / "run-a").iterdir()}
    for path, text in whole.items():
        path.write_bytes(text[: text.index(b"\nstep,20,") + 1])
    store = store_of(runs)
    for path, text in whole.items():
        path.write_bytes(text)
    assert store.analysis("run-a").run.rows == 80
    assert store.listing()["run-a"].entry.status == "completed"


@pytest.mark.parametrize("change", ["another log", "no row", "another run", "another generation"])
def test_only_rows_tell_what_some_folders_have(runs: Path, change: str) -> None:
    folder = runs / "run-a"
    first, second = sorted(folder.iterdir())
    if change == "another log":
        (folder / "train.log").write_text("Epoch 1/2\n5/5 - 3s - loss: 1\n")
    elif change == "no row":
        second.write_bytes(second.read_bytes().partition(b"\nstep,")[0] + b"\n")
    else:
        old, new = {
            "another run": (b'"run_id":"run-a"', b'"run_id":"run-c"'),
            "another generation": (b'"generation":0', b'"generation":1'),
        }[change]
        assert old in first.read_bytes()
        first.write_bytes(first.read_bytes().replace(old, new))
    assert read_head(str(folder)) is None
    assert read_head(str(runs / "run-b")) is not None


def test_two_step_logs_in_one_file_are_two_logs(runs: Path) -> None:
    folder = runs / "run-a"
    first, second = sorted(folder.iterdir())
    first.write_bytes(first.read_bytes() + second.read_bytes())
    second.unlink()
    assert read_head(str(folder)) is None
    assert len(read(str(folder))[0].logs) == 2
