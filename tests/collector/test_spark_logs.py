"""Step logs from the folders of Spark and of Databricks' log delivery, among any other files."""

from __future__ import annotations

import gzip
import random
from dataclasses import replace
from pathlib import Path

import pytest
from support.step_logs import Job, run_of_job, write_job

from stallscope.catalogue.collecting import collect
from stallscope.cli.main import main
from stallscope.collector.recorder.step_log.sinks import key_of, records
from stallscope.collector.source_kinds import open_source
from stallscope.collector.sources.source import Source, SourceFile
from stallscope.collector.sources.spark_layout import is_event_log, is_spark_output
from stallscope.errors import NotFoundError
from stallscope.parsers import read
from stallscope.parsers.formats import spark
from stallscope.run import Run

JOB = Job(ranks=2, steps=300)
FIRST, SECOND = "app-20261121130000-0000", "app-20261121140000-0001"
LOG4J = b"26/11/21 13:00:02 INFO TorrentBroadcast: Reading broadcast variable 1 took 89 ms\n"
EVENTS = b'{"Event":"SparkListenerLogStart","Spark Version":"3.5.9"}\n'
EVENT_LOGS = [
    FIRST,
    f"{FIRST}.inprogress",
    f"{FIRST}.zstd",
    f"{FIRST}_1.lz4.inprogress",
    "local-1795228569112",
    "application_1795228569112_0017_1.snappy",
    "spark-0123456789abcdef0123456789abcdef",
    f"eventlog_v2_{FIRST}/events_1_{FIRST}.zstd",
    f"eventlog_v2_{FIRST}/appstatus_{FIRST}.inprogress",
    "eventlog/1121-130000-abcdefgh_10_0_0_1/4711/eventlog",
    "eventlog/1121-130000-abcdefgh_10_0_0_1/4711/eventlog-2026-11-21--13-00.gz",
]
OUTPUTS = [
    "stdout",
    "driver/stderr",
    f"{FIRST}/12/stdout",
    f"{FIRST}/0/stderr--2026-11-21--13-00.gz",
    "stderr--2026-11-21--13-00-07--0123",
    "driver/log4j-active.log",
    "driver/log4j-2026-11-21-13.log.gz",
    "init_scripts/1121-130000-abcdefgh_10_0_0_1/20261121_0_install.sh.stderr.log",
]
OTHERS = [
    "rank-00000.0.0.steps.csv",
    "rank-00000.0.0.steps.csv.gz",
    "events.json",
    "app-notes.txt",
    "spark-defaults.conf",
    "stderr.old",
    "application_notes",
]


@pytest.fixture
def original(tmp_path: Path) -> Run:
    return run_of_job(tmp_path / "original", JOB)


def output(path: Path, prefix: str = "[0]<stderr>:", piece: int = 3000) -> bytes:
    """Return an executor's stderr with this step log, among Spark's own lines."""
    data = path.read_bytes()
    key, name = key_of(data.split(b"\n", 1)[0]), path.name.removesuffix(".steps.csv")
    recorded = [
        record
        for at in range(0, len(data), piece)
        for record in records(key, name, at, data[at : at + piece])
    ]
    return LOG4J + b"".join(f"{prefix}{record}\n".encode() + LOG4J for record in recorded)


def paths(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.steps.csv"))


def write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def application(work: Path, name: str, logs: Path, executors: int = 2) -> None:
    """Make a work folder with one rank on each of the first executors."""
    printed = [output(path) for path in paths(logs)]
    for number in range(executors):
        text = printed[number] if number < len(printed) else LOG4J
        write(work / name / str(number) / "stderr", text)
        write(work / name / str(number) / "stdout", b"")


def test_every_application_in_a_work_folder_is_its_run(tmp_path: Path, original: Run) -> None:
    write_job(tmp_path / "other", replace(JOB, run_id="run-b", steps=100, seed=3))
    application(tmp_path / "work", FIRST, tmp_path / "original", executors=40)
    application(tmp_path / "work", SECOND, tmp_path / "other")
    runs = {run.id: run for run in read(str(tmp_path / "work"))}
    assert set(runs) == {"run-a", "run-b"}
    assert runs["run-a"].steps.equals(original.steps)
    assert runs["run-b"].steps.num_rows == 200
    assert [run.problems for run in runs.values()] == [(), ()]


def test_rolled_and_compressed_outputs_are_one_log(tmp_path: Path, original: Run) -> None:
    folder = tmp_path / "executor" / FIRST
    for rank, path in enumerate(paths(tmp_path / "original")):
        lines = output(path, f"[1,{rank}]<stderr>:").splitlines(keepends=True)
        third = len(lines) // 3
        rolled = {
            "stderr--2026-11-21--13-00.gz": gzip.compress(b"".join(lines[:third])),
            "stderr--2026-11-21--14-00": b"".join(lines[third : 2 * third]),
            "stderr": b"".join(lines[2 * third :]),
        }
        for name, data in rolled.items():
            write(folder / str(rank) / name, data)
    (run,) = read(str(tmp_path / "executor"))
    assert run.steps.equals(original.steps)
    assert run.intervals.equals(original.intervals)
    assert run.problems == ()


@pytest.mark.parametrize("seed", range(8))
def test_outputs_are_rolled_over_in_the_middle_of_a_record(
    tmp_path: Path, original: Run, seed: int
) -> None:
    random.seed(seed)
    for rank, path in enumerate(paths(tmp_path / "original")):
        data = output(path, piece=500)
        marks = [at for at in range(len(data)) if data.startswith(b"stallscope:1:", at)]
        # Anywhere in a record: in its mark, in its numbers, in its payload.
        starts = random.sample(marks[:-1], 4)
        cuts = sorted(at + random.choice([1, 5, 12, 13, 20, 40, 60, 200]) for at in starts)
        for number, (start, end) in enumerate(zip([0, *cuts], [*cuts, len(data)], strict=True)):
            name = f"stderr--2026-11-21--13-00-{number:02d}--0001.gz"
            write(tmp_path / "work" / FIRST / str(rank) / name, gzip.compress(data[start:end]))
    (run,) = read(str(tmp_path / "work"))
    assert run.steps.equals(original.steps)
    assert run.problems == ()


def test_a_record_that_is_never_completed_is_reported(tmp_path: Path, original: Run) -> None:
    application(tmp_path / "work", FIRST, tmp_path / "original")
    stderr = tmp_path / "work" / FIRST / "0" / "stderr"
    data = stderr.read_bytes()
    stderr.write_bytes(data[: data.index(b"\n", data.rfind(b"stallscope:1:")) - 4])
    (run,) = read(str(tmp_path / "work"))
    messages = [str(problem) for problem in run.problems]
    assert f"{FIRST}/0/stderr: 1 damaged record of step logs skipped" in messages
    assert run.ranks == [0, 1]


def test_output_that_a_notebook_cuts_is_reported(tmp_path: Path, original: Run) -> None:
    lines = b"".join(
        output(path, f"[1,{rank}]<stderr>:")
        for rank, path in enumerate(paths(tmp_path / "original"))
    ).splitlines(keepends=True)
    skipped = b"*** WARNING: skipped 101016 bytes of output ***\n\n"
    write(tmp_path / "driver" / "stdout", b"".join(lines[:4]) + skipped + b"".join(lines[8:]))
    (run,) = read(str(tmp_path / "driver"))
    assert any("records are missing after byte" in problem.what for problem in run.problems)


# The file named appstatus is empty.
@pytest.mark.parametrize("name", [name for name in EVENT_LOGS if "/appstatus_" not in name])
def test_event_logs_in_the_folder_are_read_piece_by_piece(
    tmp_path: Path, original: Run, name: str
) -> None:
    line, size = b'{"Event":"x"}\n', 20_000_000
    asked: list[tuple[int, int | None]] = []

    class Beside(Source):
        where = "here"
        local = True

        def files(self) -> list[SourceFile]:
            def give(start: int, end: int | None) -> bytes:
                asked.append((start, end))
                assert end is not None
                skipped = start % len(line)
                return (line * ((end - start) // len(line) + 2))[skipped:][: end - start]

            originals = open_source(str(tmp_path / "original")).files()
            return [*originals, SourceFile(name, name, size, "1", give)]

    (run,) = read(Beside())
    assert run.steps.equals(original.steps)
    assert run.problems == ()
    assert is_event_log(name)
    assert [start for start, _ in asked] == [0, *(end for _, end in asked[:-1])]
    assert asked[-1][1] == size
    assert all(end is not None and end - start <= 8 << 20 for start, end in asked)


def test_little_is_fetched_of_a_long_remote_event_log(
    tmp_path: Path, original: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark, "_MOST_REMOTE_BYTES", 1_000_000)
    asked: list[int] = []

    class Far(Source):
        where = "far"

        def files(self) -> list[SourceFile]:
            def give(start: int, end: int | None) -> bytes:
                asked.append((end or 0) - start)
                return b'{"Event":"x"}\n' * (asked[-1] // 14) + b"\n" * (asked[-1] % 14)

            originals = open_source(str(tmp_path / "original")).files()
            return [*originals, SourceFile(f"{FIRST}", FIRST, 5_000_000_000, "1", give)]

    (run,) = read(Far())
    assert sum(asked) <= 16 << 20
    assert [problem.what[:30] for problem in run.problems] == ["only the first 1,000,000 bytes"]


@pytest.mark.parametrize("name", [*EVENT_LOGS, *OUTPUTS])
def test_names_of_spark_files(name: str) -> None:
    assert is_spark_output(name, b"")


@pytest.mark.parametrize("name", OTHERS)
def test_other_names(name: str) -> None:
    assert not is_event_log(name)
    assert not is_spark_output(name, LOG4J)


def test_an_event_log_is_recognised_by_its_start_too(tmp_path: Path, original: Run) -> None:
    write(tmp_path / "original" / "history.json", EVENTS)
    (run,) = read(str(tmp_path / "original"))
    assert run.problems == ()


def test_other_files_next_to_executors_outputs_are_still_reported(
    tmp_path: Path, original: Run
) -> None:
    application(tmp_path / "work", FIRST, tmp_path / "original")
    write(tmp_path / "work" / "notes.txt", b"tuned on Friday\n")
    (run,) = read(str(tmp_path / "work"))
    assert [problem.where for problem in run.problems] == ["notes.txt"]


@pytest.mark.parametrize(
    ("name", "data"),
    [
        (f"work/{FIRST}/0/stderr", LOG4J),
        (f"eventlogs/{FIRST}", EVENTS),
        ("driver/stdout", b"Start training.\n"),
    ],
)
def test_the_error_for_spark_logs_without_records_names_what_is_missing(
    tmp_path: Path, name: str, data: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / name, data)
    with pytest.raises(NotFoundError, match=r"Spark's own logs .* StepLogger\(None, sink='log"):
        read(str((tmp_path / name).parent))
    store = tmp_path / "store"
    assert main(["collect", str(tmp_path / name), "--to", str(store)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_collecting_a_work_folder_while_the_application_runs(tmp_path: Path, original: Run) -> None:
    application(tmp_path / "work", FIRST, tmp_path / "original")
    whole = {path: path.read_bytes() for path in (tmp_path / "work").rglob("stderr")}
    for path, data in whole.items():
        path.write_bytes(data[: data.index(b"\n", len(data) // 2) + 1])
    place = open_source(str(tmp_path / "work"))
    ((half, _),) = collect([place], tmp_path / "store").runs
    for path, data in whole.items():
        path.write_bytes(data)
    ((run, _),) = collect([place], tmp_path / "store").runs
    assert half.steps.num_rows < run.steps.num_rows
    assert run.steps.equals(original.steps)
