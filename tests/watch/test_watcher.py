"""A watcher's reports on runs whose logs grow."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from support.commands import collect_job
from support.running_job import RunningJob
from support.step_logs import Job, write_job

from stallscope.analysis.stopped.stopped import find_stopped
from stallscope.cli.main import main
from stallscope.conditions.condition import parse
from stallscope.errors import NotFoundError
from stallscope.watch import places
from stallscope.watch import watcher as watching
from stallscope.watch.delivery import WatchEvent
from stallscope.watch.places import Place
from stallscope.watch.watcher import Watcher

ROOT = Path(__file__).parents[2]


@pytest.fixture
def job(tmp_path: Path) -> RunningJob:
    return RunningJob(tmp_path / "logs")


def watcher_of(place: object, *conditions: str, notes: list[str] | None = None) -> Watcher:
    parsed = [parse(text) for text in conditions or ("stopped",)]
    whole = any(condition.needs_analysis for condition in parsed)
    note = (notes if notes is not None else []).append
    return Watcher(
        Place(str(place), None, Path("unused"), whole=whole, note=note), parsed, note=note
    )


def kinds(events: list[WatchEvent]) -> list[str]:
    return [event.kind for event in events]


def test_a_stop_is_reported_once_with_the_missing_ranks(job: RunningJob) -> None:
    watcher = watcher_of(job.folder)
    assert watcher.first_look() == []
    job.wait_for_rank_1()
    (event,) = watcher.look()
    assert (event.kind, event.condition, event.run_id) == ("holds", "stopped", "run-42")
    assert "run-42: stopped since 2026-09-21" in event.text
    assert "since step 150" in event.text
    assert "Rank 1 on alpha waits for its batch, in `batches` at `train.py:12`." in event.text
    assert "Ranks 0 and 2 wait in the allreduce." in event.text
    assert event.stopped is not None
    assert [rank["rank"] for rank in event.stopped["ranks"]] == [1]
    assert watcher.look() == []
    assert watcher.any_held


def test_it_reports_that_the_job_resumes_and_completes(job: RunningJob) -> None:
    watcher = watcher_of(job.folder)
    watcher.first_look()
    job.wait_for_rank_1()
    watcher.look()
    job.go_on()
    (event,) = watcher.look()
    assert event.kind == "ceased"
    assert "goes on. It hung for at least 6.00 s at step 150." in event.text
    assert not watcher.all_completed
    job.end()
    assert kinds(watcher.look()) == ["completed"]
    assert watcher.all_completed


def test_a_job_that_ends_while_stopped_does_not_resume(job: RunningJob) -> None:
    job.wait_for_rank_1()
    watcher = watcher_of(job.folder)
    assert kinds(watcher.first_look()) == ["holds"]
    job.end()
    ceased, completed = watcher.look()
    assert "run-42: ended." in ceased.text
    assert completed.kind == "completed"


def test_it_looks_again_before_it_names_missing_ranks(job: RunningJob) -> None:
    watcher = watcher_of(job.folder)
    job.hang({0: "ready"})
    assert watcher.first_look() == []
    job.hang({1: "begin", 2: "ready"})
    (event,) = watcher.look()
    assert "Rank 1 on alpha waits for its batch" in event.text


def test_a_rank_that_stays_silent_delays_it_by_two_seconds(job: RunningJob) -> None:
    watcher = watcher_of(job.folder)
    job.hang({0: "ready", 2: "ready"})
    assert watcher.first_look() == []
    job.hang({0: "ready", 2: "ready"}, 8.0)
    (event,) = watcher.look()
    assert "Rank 1 on alpha has not reported where it is." in event.text
    assert "network" not in event.text


@pytest.mark.parametrize("changes", [{"pause": "validation"}, {"usual_us": None}])
def test_validations_and_first_steps_are_not_stops(
    job: RunningJob, changes: dict[str, Any]
) -> None:
    watcher = watcher_of(job.folder)
    assert watcher.first_look() == []
    job.hang(dict.fromkeys(range(3), "end"), 90.0, **changes)
    assert watcher.look() == []
    assert watcher.look() == []
    assert not watcher.any_held


def test_logs_that_stop_are_reported_until_they_go_on(job: RunningJob) -> None:
    at = [0.0]
    watcher = Watcher(
        Place(str(job.folder), None, Path("unused"), whole=False),
        [parse("silent.seconds>60")],
        now=lambda: at[0],
    )
    assert watcher.first_look() == []
    at[0] = 61.0
    (event,) = watcher.look()
    assert (event.kind, event.condition) == ("holds", "silent.seconds>60")
    job.go_on()
    assert kinds(watcher.look()) == ["ceased"]
    at[0] = 600.0
    job.end()
    assert kinds(watcher.look()) == ["completed"]


def test_figures_of_a_printed_log_are_shown_once_a_minute_while_it_grows(tmp_path: Path) -> None:
    log, now = tmp_path / "train.log", 0.0
    lines = [f"iter {step}: loss 2.3, time {250 + step % 7}.00ms\n" for step in range(0, 900, 10)]
    place = Place(str(log), None, Path("unused"), whole=False)
    watcher = Watcher(place, [parse("stopped")], now=lambda: now)
    log.write_text("".join(lines[:40]))
    (event,) = watcher.first_look()
    assert (event.kind, event.condition) == ("steps", None)
    assert "391 steps, 253 ms each." in event.text
    log.write_text("".join(lines[:60]))
    assert watcher.look() == []
    now = 61.0
    (later,) = watcher.look()
    assert "591 steps" in later.text
    now = 122.0
    assert watcher.look() == []


def test_a_log_without_steps_so_far_is_watched(tmp_path: Path) -> None:
    log, notes = tmp_path / "train.log", list[str]()
    log.write_text("compiling the model...\n")
    watcher = watcher_of(log, notes=notes)
    assert watcher.first_look() == []
    assert "waiting for its first steps" in notes[0]
    assert not watcher.all_completed
    log.write_text("".join(f"iter {step}: loss 2.3, time 250.00ms\n" for step in range(90)))
    assert kinds(watcher.look()) == ["steps"]


def test_each_straggler_is_named_once(tmp_path: Path) -> None:
    job = RunningJob(tmp_path / "logs", slow={(1, "compute"): 20.0})
    watcher = watcher_of(job.folder, "stragglers>0")
    holds, straggler = watcher.first_look()
    assert (holds.kind, straggler.kind) == ("holds", "straggler")
    assert "rank 1" in straggler.text
    assert straggler.about != holds.about
    job.go_on()
    assert watcher.look() == []


def test_a_run_whose_lateness_varies_names_no_straggler() -> None:
    watcher = watcher_of(ROOT / "sample_logs" / "clean", "stragglers>0")
    assert kinds(watcher.first_look()) == ["completed"]


def test_an_unreadable_place_is_reported_once_and_read_again(job: RunningJob) -> None:
    watcher = watcher_of(job.folder)
    watcher.first_look()
    elsewhere = job.folder.with_name("elsewhere")
    shutil.move(job.folder, elsewhere)
    # One failure may be a file that is being replaced.
    assert watcher.look() == []
    (event,) = watcher.look()
    assert event.kind == "unreadable"
    assert "no such file or folder" in event.text
    assert watcher.look() == []
    assert not watcher.all_completed
    shutil.move(elsewhere, job.folder)
    assert kinds(watcher.look()) == ["readable"]


def test_a_place_that_is_unreadable_at_first_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        watcher_of(tmp_path / "nowhere").first_look()


def test_an_empty_folder_is_watched_if_runs_may_come(tmp_path: Path) -> None:
    folder, notes = tmp_path / "logs", list[str]()
    folder.mkdir()
    place = Place(str(folder), None, Path("unused"), whole=False, waits=True)
    watcher = Watcher(place, [parse("stopped")], note=notes.append)
    assert watcher.first_look() == watcher.look() == watcher.look() == []
    assert "waiting for its first steps" in notes[0]
    assert not watcher.all_completed
    RunningJob(folder).end()
    assert kinds(watcher.look()) == ["completed"]


def test_a_completed_run_is_analysed_again_only_if_its_logs_grow(job: RunningJob) -> None:
    analysed: list[str] = []
    place = Place(str(job.folder), None, Path("unused"), whole=True)
    watcher = Watcher(place, [], measured=lambda analysis, _: analysed.append(analysis.run.status))
    watcher.first_look()
    job.end()
    watcher.look()
    watcher.look()
    assert analysed == ["open", "completed"]
    job.go_on()
    watcher.look()
    assert analysed == ["open", "completed", "completed"]


def test_a_later_run_in_the_same_folder_is_watched(job: RunningJob) -> None:
    watcher = watcher_of(job.folder)
    watcher.first_look()
    for path in job.folder.glob("*.steps.csv"):
        path.unlink()
    later = RunningJob(job.folder, run_id="run-43", seed=2)
    assert watcher.look() == []
    later.wait_for_rank_1()
    (event,) = watcher.look()
    assert event.run_id == "run-43"


def test_a_stop_needs_no_analysis(job: RunningJob, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "analyse", None)
    job.wait_for_rank_1()
    conditions = ("stopped", "stopped.seconds>5 and not stopped.seconds>60")
    events = watcher_of(job.folder, *conditions).first_look()
    assert [event.condition for event in events] == list(conditions)
    assert "stopped.seconds is 6.00 s, over 5 s" in events[1].text


def test_other_conditions_are_evaluated_on_the_analysis(job: RunningJob) -> None:
    watcher = watcher_of(job.folder, "status=completed", "stopped", "steps.total>100")
    (event,) = watcher.first_look()
    assert event.text == "run-42: steps.total>100 holds: steps.total is 150, over 100."
    job.end()
    assert kinds(watcher.look()) == ["holds", "completed"]


def test_an_undecided_condition_is_noted_once(job: RunningJob) -> None:
    notes: list[str] = []
    watcher = watcher_of(job.folder, "input.excess>20%", notes=notes)
    watcher.first_look()
    watcher.look()
    (note,) = notes
    assert "--when input.excess>20% is undecided in run-42" in note
    assert "there is no baseline" in note


def test_open_runs_of_a_store_are_watched(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    collect_job(tmp_path, Job(run_id="ended-before"))
    job = RunningJob(tmp_path / "logs" / "open", run_id="open")
    store = tmp_path / "store"
    collect = ["collect", str(job.folder), "--to", str(store)]
    assert main(collect) == 0
    watcher = watcher_of(store)
    assert watcher.first_look() == []
    job.wait_for_rank_1()
    assert main(collect) == 0
    assert [(event.kind, event.run_id) for event in watcher.look()] == [("holds", "open")]
    job.end()
    assert main(collect) == 0
    assert kinds(watcher.look()) == ["ceased", "completed"]
    assert watcher.all_completed


@pytest.mark.parametrize("chosen", ["{store}#open", "{store}/{folder}"])
def test_one_run_of_a_store_is_watched(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], chosen: str
) -> None:
    collect_job(tmp_path, Job(run_id="other"))
    job = RunningJob(tmp_path / "logs" / "open", run_id="open")
    job.wait_for_rank_1()
    store = tmp_path / "store"
    assert main(["collect", str(job.folder), "--to", str(store)]) == 0
    (folder,) = [path.name for path in store.iterdir() if path.name.startswith("open")]
    watcher = watcher_of(chosen.format(store=store, folder=folder))
    assert [event.run_id for event in watcher.first_look()] == ["open"]


def test_all_open_runs_of_a_folder_are_watched(tmp_path: Path) -> None:
    notes: list[str] = []
    write_job(tmp_path / "logs" / "ended", Job(run_id="ended-before"))
    jobs = [RunningJob(tmp_path / "logs" / name, run_id=name) for name in ("one", "two")]
    watcher = watcher_of(tmp_path / "logs", notes=notes)
    assert watcher.first_look() == []
    jobs[0].wait_for_rank_1()
    assert [(event.kind, event.run_id) for event in watcher.look()] == [("holds", "one")]
    jobs[1].wait_for_rank_1()
    jobs[0].end()
    assert {(event.kind, event.run_id) for event in watcher.look()} == {
        *{("ceased", "one"), ("completed", "one"), ("holds", "two")}
    }
    assert not watcher.all_completed
    jobs[1].end()
    assert kinds(watcher.look()) == ["ceased", "completed"]
    assert (watcher.all_completed, notes) == (True, [])


def test_a_killed_run_whose_folder_a_later_job_uses_is_not_watched(tmp_path: Path) -> None:
    notes: list[str] = []
    killed = RunningJob(tmp_path / "logs", run_id="killed")
    killed.wait_for_rank_1()
    began_ns = 2_000_000_000_000_000_000
    later = RunningJob(
        tmp_path / "again",
        run_id="again",
        facts={"anchor": {"monotonic_ns": 10**9, "wall_ns": began_ns}},
    )
    watcher = watcher_of(tmp_path / "logs", notes=notes)
    assert kinds(watcher.first_look()) == ["holds"]
    for log in later.folder.glob("*.csv"):
        log.rename(killed.folder / f"again.{log.name}")
    assert watcher.look() == []
    (note,) = notes
    assert "not watched, because nothing was recorded since again started: killed" in note
    assert kinds(watcher_of(f"{tmp_path / 'logs'}#killed").first_look()) == ["holds"]


def test_looking_once_is_about_completed_runs_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    collect_job(tmp_path, Job(run_id="run-a"))
    write_job(tmp_path / "logs" / "run-b", Job(run_id="run-b"))
    for place in ("logs", "store"):
        words = ["watch", str(tmp_path / place), "--once", "--when", "steps.total>1"]
        capsys.readouterr()
        assert main(words) == 1
        shown = capsys.readouterr().out
        assert "run-a: steps.total>1 holds" in shown
        assert ("run-b: steps.total>1 holds" in shown) == (place == "logs")


def test_old_steps_are_dropped_and_the_state_is_the_same(
    job: RunningJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "_STEPS_HELD", 10)
    short, whole = (
        Place(str(job.folder), None, job.folder, whole=whole) for whole in (False, True)
    )
    for change in (lambda: None, job.wait_for_rank_1, job.go_on, lambda: job.end([0])):
        change()
        (short_run,), (whole_run,) = short.look(), whole.look()
        assert find_stopped(short_run) == find_stopped(whole_run)
        assert [log.facts for log in short_run.logs] == [log.facts for log in whole_run.logs]
        assert [log.ended for log in short_run.logs] == [log.ended for log in whole_run.logs]
    assert (short_run.rows, whole_run.rows) == (3 * 10, 3 * 150)
