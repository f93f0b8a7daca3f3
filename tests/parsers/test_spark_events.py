"""Spark's event logs next to step logs: a real one, of an application with a killed executor."""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from support.step_logs import Job, run_of_job, write_job

from stallscope.analysis.findings import find
from stallscope.errors import NotFoundError
from stallscope.parsers import read
from stallscope.parsers.formats.spark import spark_events
from stallscope.parsers.inspection.inspect_files import inspect
from stallscope.parsers.runs.companion_records import with_events
from stallscope.run import Event, Log, Run

REAL = gzip.decompress((Path(__file__).parent / "neighbours" / "spark-event-log.gz").read_bytes())
NAME = "app-20261121230239-0000"
MS = 10**6
DAY = 86_400 * 10**9


def kinds(events: list[Event] | tuple[Event, ...]) -> list[str]:
    return [event.kind for event in events]


def moved(began_ns: int) -> bytes:
    """Move its stage's start to a run's."""
    by = began_ns // MS - 1795302199182
    return re.sub(
        rb"(?<!\d)17953021\d{5}(?!\d)|(?<!\d)17953022\d{5}(?!\d)",
        lambda match: b"%d" % (int(match[0]) + by),
        REAL,
    )


def began(run: Run) -> int:
    assert run.started_at is not None
    return int(run.started_at.timestamp() * 1e9)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    run = run_of_job(tmp_path, Job(ranks=2, steps=300))
    (tmp_path / NAME).write_bytes(moved(began(run)))
    return tmp_path


def test_only_the_training_stage_and_all_executors_are_reported() -> None:
    events = spark_events("log", REAL)
    assert kinds(events)[:8] == [
        "executor_added",
        "executor_added",
        "stage_submitted",
        "task_started",
        "task_started",
        "task_failed",
        "executor_lost",
        "stage_failed",
    ]
    lost = events[6]
    assert lost.what == "executor 0 was lost: Command exited with code 137"
    assert lost.hosts == ("192.0.2.2",)
    assert lost.wall_ns == 1795302201366 * MS
    assert lost.uncertainty_ns == MS
    assert events[3].what == "the task of partition 1 started on executor 0"
    assert "stage 0" not in " ".join(event.what for event in events)


def test_the_stage_of_horovods_job_group_trains_too() -> None:
    lines = REAL.replace(b'"Barrier":true', b'"Barrier":false').splitlines(keepends=True)
    changed = []
    for line in lines:
        event = json.loads(line)
        if event["Event"] == "SparkListenerJobStart":
            event["Properties"] = {"spark.jobGroup.id": f"horovod.spark.run.{event['Job ID']}"}
        changed.append(json.dumps(event, separators=(",", ":")).encode())
    event_kinds = kinds(spark_events("log", b"\n".join(changed)))
    assert event_kinds.count("stage_submitted") == 2
    assert "stage_submitted" not in kinds(spark_events("log", b"".join(lines)))


def test_next_to_step_logs_it_becomes_the_runs_events_and_a_finding(folder: Path) -> None:
    (run,) = read(str(folder))
    assert run.steps.num_rows == 600
    assert "executor_lost" in kinds(run.events)
    assert not run.problems
    (finding,) = [finding for finding in find(run, True) if finding.code == "executors_lost"]
    assert finding.severity == "error"
    # The second executor was stopped when the application ended.
    assert finding.title == "Spark lost 1 executor on 192.0.2.2"
    assert "Command exited with code 137" in finding.evidence


def test_sparks_events_at_another_time_are_not_the_runs(folder: Path) -> None:
    (folder / NAME).write_bytes(REAL)
    (run,) = read(str(folder))
    assert run.events == ()
    assert [str(problem) for problem in run.problems] == [
        f"{NAME}: describes events outside the run's time: 15 events left out"
    ]


def test_without_a_stage_that_trains_no_executor_is_missed(folder: Path) -> None:
    (run,) = read(str(folder))
    kept = tuple(event for event in run.events if event.kind != "stage_submitted")
    assert not [
        finding
        for finding in find(replace(run, events=kept), True)
        if finding.code == "executors_lost"
    ]


def test_inspect_names_it(folder: Path) -> None:
    (folder / f"{NAME}.lz4").write_bytes(b"LZ4Block")
    untrained = b'{"Event":"SparkListenerLogStart","Spark Version":"3.5.9"}\n'
    (folder / "local-1795302159182").write_bytes(untrained)
    seen = {file.path: file for file in inspect(str(folder)).files}
    assert seen[NAME].format == "spark-events"
    assert seen[NAME].used
    assert seen[NAME].span is not None
    assert "2 × task started" in seen[NAME].notes[0]
    empty = seen[f"{NAME}.lz4"]
    assert (empty.format, empty.notes) == (None, ("the compressed file is empty or damaged",))
    assert seen["local-1795302159182"].format == "spark-events"
    assert seen["local-1795302159182"].notes == ("contains no training; ignored",)


def test_of_several_runs_each_gets_the_events_of_its_time(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_job(tmp_path / name, Job(steps=100, run_id=name))
    first = read(str(tmp_path / "one"))[0]
    data = moved(began(first))
    (tmp_path / NAME).write_bytes(data)
    runs = {run.id: run for run in read(str(tmp_path))}
    # Both ran at the same time: they cannot be distinguished.
    assert not runs["one"].events
    assert any("of an unknown run" in problem.what for problem in runs["one"].problems)


def test_models_trained_one_after_another_get_their_own_events(folder: Path) -> None:
    (run,) = read(str(folder))
    later = tuple(
        replace(log, facts={**log.facts, "anchor": {**log.facts["anchor"], "wall_ns": wall(log)}})
        for log in run.logs
    )
    runs = [replace(run, events=()), replace(run, logs=later, events=())]
    stages = [event for event in run.events if event.kind.startswith(("stage", "task"))]
    elsewhere = [replace(event, where="spark/log") for event in stages]
    day_after = [replace(event, wall_ns=(event.wall_ns or 0) + DAY) for event in elsewhere]
    first, second = with_events(runs, [*elsewhere, *day_after])
    assert list(first.events) == elsewhere
    assert list(second.events) == day_after


def test_a_forced_parser_gets_no_event_logs(folder: Path) -> None:
    (run,) = read(str(folder), read_as="step-log")
    assert run.events == ()
    assert not run.problems
    seen = {file.path: file for file in inspect(str(folder), read_as="step-log").files}
    assert seen[NAME].format is None


def wall(log: Log) -> int:
    return int(log.facts["anchor"]["wall_ns"]) + DAY


def test_alone_it_is_not_a_run(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(REAL)
    with pytest.raises(NotFoundError, match="Spark's own logs and no step logs"):
        read(str(tmp_path))


@pytest.mark.parametrize(
    "line",
    [
        b'{"Event":"SparkListenerStageSubmitted"',
        b'{"Event":"SparkListenerStageSubmitted","Stage Info":7}',
        b'{"Event":"SparkListenerStageSubmitted","Stage Info":{"Stage ID":1,"RDD Info":[3]}}',
        b'{"Event":"SparkListenerExecutorRemoved","Timestamp":"x","Executor ID":[]}',
        b'{"Event":"SparkListenerExecutorAdded","Timestamp":1e400,"Executor Info":{"Host":4}}',
        b'{"Event":"SparkListenerExecutorAdded","Timestamp":99999999999999999999}',
        b'{"Event":"SparkListenerJobStart","Stage IDs":{},"Properties":[]}',
        b"{" * 100_000,
        b'{"Event":"SparkListenerExecutorAdded","a":' + b"[" * 100_000,
    ],
)
def test_no_line_crashes_it(line: bytes) -> None:
    whole = kinds(spark_events("log", REAL))
    events = spark_events("log", b'{"Event":"x"}\n' + line + b"\n" + REAL)
    assert [kind for kind in kinds(events) if kind in whole][-len(whole) :] == whole
    assert all(event.wall_ns is None or 0 < event.wall_ns < 2**63 for event in events)
