"""``stallscope inspect`` as a user types it: it names every file, and no file crashes it."""

from __future__ import annotations

import gzip
import json
import os
import shlex
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from support.commands import inspected
from support.step_logs import Job, write_job

from stallscope.cli.main import main
from stallscope.collector.mlflow.metrics import MlflowRecord, record_file
from stallscope.parsers.inspection.inspect_files import inspect

ROOT = Path(__file__).parents[2]
PRINTED = ROOT / "tests" / "parsers" / "printed"
JOB = Job(ranks=2, steps=300)

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def mixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a folder with step logs and all companion files."""
    monkeypatch.setenv("COLUMNS", "80")
    folder = tmp_path / "mixed"
    write_job(folder, JOB)
    shutil.copy(PRINTED / "horovodrun-stamped.txt", folder)
    shutil.copy(Path(__file__).parent / "tune" / "autotune.csv", folder)
    shutil.copy(Path(__file__).parent / "tune" / "timeline.json", folder)
    (folder / "empty").touch()
    (folder / "weights.bin").write_bytes(bytes(range(256)) * 9)
    (folder / "table.parquet").write_bytes(b"PAR1\0\0")
    (folder / "notes.txt").write_text("[bold]no log[/bold] \x1b[31m")
    with (folder / "rank-00001.0.0.steps.csv").open("a") as log:
        log.write("step,torn")
    return folder


def test_every_file_is_named_in_a_table_of_80_columns(mixed: Path, capsys: Captured) -> None:
    assert main(["inspect", str(mixed)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert max(map(len, out.splitlines())) <= 80
    printed = " ".join(out.split())
    assert (
        "no log that Stallscope knows; left alone: notes.txt, table.parquet, weights.bin" in printed
    )
    assert "stallscope tune reads it: autotune.csv, timeline.json" in printed
    assert "1 torn or unreadable line skipped: rank-00001.0.0.steps.csv" in printed
    assert "lines labelled by horovodrun over Gloo: horovodrun-stamped.txt" in printed
    assert "2 ranks, 1 host, 300 steps" in printed
    assert "known: steps, to the microsecond" in printed


def test_several_kinds_in_a_folder_are_one_run_of_the_most_detailed(
    mixed: Path, capsys: Captured
) -> None:
    document = inspected(capsys, str(mixed))
    (run,) = document["runs"]
    assert (run["id"], run["size"], run["ranks"], run["steps"]) == ("run-a", 2, 2, 300)
    assert run["span"]["zone_known"]
    files = {file["path"]: file for file in document["files"]}
    assert {path: (file["format"], file["sure"], file["used"]) for path, file in files.items()} == {
        "autotune.csv": ("autotune-log", "certain", False),
        "empty": (None, None, False),
        "horovodrun-stamped.txt": ("keras-output", "likely", False),
        "notes.txt": (None, None, False),
        "rank-00000.0.0.steps.csv": ("step-log", "certain", True),
        "rank-00001.0.0.steps.csv": ("step-log", "certain", True),
        "table.parquet": (None, None, False),
        "timeline.json": ("horovod-timeline", "certain", False),
        "weights.bin": (None, None, False),
    }
    assert files["table.parquet"]["title"] == "Parquet"
    assert files["weights.bin"]["title"] == "binary"
    assert files["empty"]["title"] == "empty"
    assert files["rank-00001.0.0.steps.csv"]["torn_lines"] == 1
    assert (files["rank-00001.0.0.steps.csv"]["steps"], files["notes.txt"]["steps"]) == (300, None)
    assert "left alone, as logs of steps are here" in str(files["horovodrun-stamped.txt"]["notes"])


def test_timestamps_without_a_zone_are_reported(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    label = "2026-11-21 02:28:{:02} - STDOUT - INFO - [1,0]<stdout>:{}\n"
    lines = [
        (1, "Epoch 1/2"),
        (4, "5/5 - 3s - loss: 1"),
        (4, "Epoch 2/2"),
        (7, "5/5 - 3s - loss: 1"),
    ]
    (tmp_path / "out.txt").write_text("".join(label.format(*line) for line in lines))
    (file,) = inspected(capsys, str(tmp_path))["files"]
    assert file["span"] == {
        "begin": "2026-11-21T02:28:01",
        "end": "2026-11-21T02:28:07",
        "zone_known": False,
    }
    assert file["precision"] == "epochs, to the second"
    assert main(["inspect", str(tmp_path)]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "times are local, of an unknown time zone: out.txt" in printed
    assert "2026-11-21 02:28:01 – 2026-11-21 02:28:07 of an unknown zone" in printed


def test_a_damaged_file_gets_its_line_and_the_others_are_read(
    mixed: Path, capsys: Captured
) -> None:
    (mixed / "old.gz").write_bytes(b"\x1f\x8bnonsense")
    (mixed / "new.steps.csv").write_bytes(b"#stallscope 7 {}\n")
    document = inspected(capsys, str(mixed))
    files = {file["path"]: file for file in document["files"]}
    assert files["old.gz"]["title"] == files["new.steps.csv"]["title"] == "cannot be read"
    assert files["old.gz"]["notes"] == ["the compressed file is empty or damaged"]
    assert "newer than this Stallscope" in files["new.steps.csv"]["notes"][0]
    assert len(document["runs"]) == 1


def test_what_cannot_be_opened_has_no_size(mixed: Path, capsys: Captured) -> None:
    os.mkfifo(mixed / "pipe.log")
    files = {file["path"]: file for file in inspected(capsys, str(mixed))["files"]}
    pipe = files.pop("pipe.log")
    assert (pipe["title"], pipe["bytes"]) == ("cannot be read", None)
    assert all(file["bytes"] is not None for file in files.values())
    main(["inspect", str(mixed)])
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("pipe.log")]
    assert line.split() == ["pipe.log", "cannot", "be", "read"]


def test_epochs_of_each_fit_count_and_so_does_each_repeat(tmp_path: Path) -> None:
    fit = "".join(f"Epoch {epoch}/2\n5/5 - 3s - loss: 1.0\n" for epoch in (1, 2))
    (tmp_path / "out.txt").write_text(fit + fit)
    (run,) = inspect(str(tmp_path)).runs
    assert (run.epochs, run.hosts, run.steps) == (4, None, None)
    repeat = "2019-11-06 0{0}:00:00 - STDOUT - INFO - REPEAT {0}\n"
    label = "2019-11-06 0{}:00:10 - STDOUT - INFO - [1,0]<stdout>:"
    text = "".join(
        repeat.format(number)
        + "".join(label.format(number) + line + "\n" for line in fit.split("\n"))
        for number in (1, 2)
    )
    (tmp_path / "out.txt").write_text(text)
    seen = inspect(str(tmp_path))
    assert [run.epochs for run in seen.runs] == [2, 2]
    assert {run.id.rpartition("-")[2] for run in seen.runs} == {"1", "2"}


def test_ranks_of_a_launcher_are_named_if_nothing_else_is_known(
    tmp_path: Path, capsys: Captured
) -> None:
    (tmp_path / "out.txt").write_text("[0] one\n[0] two\n[1] three\n[1] four\n")
    document = inspected(capsys, str(tmp_path))
    (file,) = document["files"]
    assert (file["launcher"], file["ranks"], file["format"]) == ("MPICH", [0, 1], None)
    assert document["runs"] == []


def test_a_missing_file_is_one_sentence_after_the_rest(mixed: Path, capsys: Captured) -> None:
    assert main(["inspect", "nowhere", str(mixed)]) == 2
    out, err = capsys.readouterr()
    assert "300 steps" in out
    assert err.startswith("stallscope: nowhere: ")
    assert err.count("\n") == 1
    assert main(["inspect", str(mixed), "--format", "yaml"]) == 2
    assert "inspect writes json, or a table" in capsys.readouterr().err


def test_an_empty_folder_and_other_files_are_not_errors(tmp_path: Path, capsys: Captured) -> None:
    assert main(["inspect", str(tmp_path)]) == 0
    assert "an empty folder" in capsys.readouterr().out
    (tmp_path / "a.txt").write_text("hello\n")
    document = inspected(capsys, str(tmp_path))
    assert document["runs"] == []
    assert document["files"][0]["title"] == "text"


def test_a_record_of_mlflow_does_not_deny_the_step_logs_beside_it(
    tmp_path: Path, capsys: Captured
) -> None:
    write_job(tmp_path, JOB)
    record = MlflowRecord(
        where="mlflow:abc",
        run_id="abc",
        run_name="a run",
        status="FINISHED",
        start_ms=1_795_000_000_000,
        end_ms=1_795_000_100_000,
        params={},
        training_data={},
        metric_names=["loss"],
        metrics={"loss": [(1_795_000_000_000, 0, 0.5)]},
        artifacts=2,
        possible_logs=2,
    )
    file = record_file(record)
    (tmp_path / file.name).write_bytes(file.read())
    document = inspected(capsys, str(tmp_path))
    notes = {seen["path"]: seen["notes"] for seen in document["files"]}
    assert notes[file.name] == ["shows no epochs; the run's logs are read"]
    assert document["runs"][0]["steps"] == 300


def test_large_files_are_read_at_their_start_and_end(tmp_path: Path) -> None:
    write_job(tmp_path, replace(JOB, ranks=1, steps=4000))
    (path,) = tmp_path.glob("*.steps.csv")
    whole = inspect(str(path))
    part = inspect(str(path), most_bytes=path.stat().st_size // 4)
    assert part.runs[0].steps == whole.runs[0].steps == 4000
    assert part.runs[0].span == whole.runs[0].span
    assert "only its first and last" in part.files[0].notes[0]
    assert "only the beginning and the end were looked at" in str(part.runs[0].problems)
    packed = tmp_path / "packed"
    packed.mkdir()
    (packed / "rank.csv.gz").write_bytes(gzip.compress(path.read_bytes()))
    (first,) = inspect(str(packed), most_bytes=path.stat().st_size // 4).files
    assert first.steps is not None
    assert 0 < first.steps < 4000
    assert "only its first" in first.notes[0]


@pytest.mark.parametrize("packed", [False, True])
def test_one_long_line_is_recognised_by_its_start(tmp_path: Path, packed: bool) -> None:
    data = b"\x80\x04" + bytes(100_000)
    (tmp_path / "x").write_bytes(gzip.compress(data) if packed else data)
    (seen,) = inspect(str(tmp_path), most_bytes=100 if packed else 1000).files
    assert seen.title == "a pickle"
    assert "were looked at" in seen.notes[0]


def test_many_files_are_counted_and_json_lists_all(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for number in range(50):
        (tmp_path / f"note-{number:02}.txt").write_text("hello\n")
    assert main(["inspect", str(tmp_path)]) == 0
    out, _ = capsys.readouterr()
    assert "and 10 more: 10 text" in out
    assert "note-00.txt, note-01.txt, note-02.txt and 47 more" in " ".join(out.split())
    assert len(inspected(capsys, str(tmp_path))["files"]) == 50


def test_outputs_are_sparks_only_where_spark_writes(tmp_path: Path) -> None:
    names = ("rank.0/stderr", "rank.0/stdout", "app-20261121132035-0000/0/stderr", "a.steps.csv")
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("hello\n" if name.endswith("stdout") else "")
    seen = {file.path: (file.title, file.notes) for file in inspect(str(tmp_path)).files}
    assert seen == {
        "a.steps.csv": ("empty", ("an empty step log",)),
        "app-20261121132035-0000/0/stderr": ("Spark's own log", ()),
        "rank.0/stderr": ("empty", ()),
        "rank.0/stdout": (
            "text",
            (
                "no log that Stallscope knows; left alone",
                "no step times are read: no line that repeats is known to count steps or epochs",
            ),
        ),
    }


@pytest.mark.parametrize(
    ("said", "ranks"),
    [
        ("I am rank 0 of 8\n", "8 ranks (from what the log says; 1 left logs)"),
        ("", "1 rank left a log (how many trained is not known)"),
    ],
)
def test_where_the_number_of_ranks_is_known_from(
    tmp_path: Path, capsys: Captured, said: str, ranks: str
) -> None:
    epoch = "78/78 - 17s - 218ms/step - loss: 1.9\n"
    folder = tmp_path / "job"
    folder.mkdir()
    (folder / "out.txt").write_text(f"{said}Epoch 1/2\n{epoch}Epoch 2/2\n{epoch}")
    assert main(["inspect", str(folder)]) == 0
    assert ranks in " ".join(capsys.readouterr().out.split())
    (run,) = inspected(capsys, str(folder))["runs"]
    assert run["size_known"] == bool(said)
    assert run["size_from"] == ("what the log says" if said else None)


# Unconfirmed lines about steps


def trained(folder: Path, name: str = "my run.log", rank: int = 0) -> Path:
    """Write the log of a trainer whose times nothing confirms."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = (f"'step': {step}, 'ms': {500 + rank}.5 ms, loss 2.{step}" for step in range(400))
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def commands_in(printed: str) -> list[list[str]]:
    lines = [line for line in printed.splitlines() if "stallscope report " in line]
    return [shlex.split(line) for line in lines]


def test_unconfirmed_lines_are_shown_and_their_command_works_at_once(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    path = trained(tmp_path)
    assert main(["inspect", str(path)]) == 0
    printed = capsys.readouterr().out
    text = " ".join(printed.split())
    assert "would read my run.log: 400 lines (100% of their kind), rank 0, steps 0–399" in text
    assert "500.50 ± 0.05 ms per step" in text
    assert "no runs: no file here" in text
    ((program, *words),) = commands_in(printed)
    assert (program, words[:2]) == ("stallscope", ["report", str(path)])
    assert main(words) == 0
    assert "500.50 ± 0.05 ms" in capsys.readouterr().out
    (file,) = inspected(capsys, str(path))["files"]
    reading = file["reading"]
    assert shlex.split(reading["command"]) == [program, *words]
    assert reading["read_as"] == words[-1]
    assert (reading["steps"], reading["epochs"]) == ([0, 399], None)
    assert reading["step_ms"] == pytest.approx(500.5)
    # Scripts of older versions use this name.
    assert file["proposal"] == reading
    assert (file["format"], file["used"]) == (None, False)


def test_steps_next_to_mlperfs_epochs_are_shown(tmp_path: Path, capsys: Captured) -> None:
    path = trained(tmp_path)
    event = ':::MLLOG {{"time_ms": {}, "key": "epoch_{}", "metadata": {{"epoch_num": 1}}}}\n'
    begin, end = event.format(1593140782000, "start"), event.format(1593140982000, "stop")
    path.write_text(begin + path.read_text() + end)
    (file,) = inspected(capsys, str(path))["files"]
    assert (file["format"], file["epochs"], file["steps"]) == ("mlperf", 1, None)
    assert file["reading"]["step_ms"] == pytest.approx(500.5)
    assert main(shlex.split(file["reading"]["command"])[1:]) == 0
    assert "500.50 ± 0.05 ms" in capsys.readouterr().out


def test_ranks_files_get_one_command_for_all_of_them(tmp_path: Path, capsys: Captured) -> None:
    for rank in range(5):
        trained(tmp_path / "out", f"rank.{rank}/stdout", rank)
    (tmp_path / "out" / "notes.txt").write_text("hello\n")
    assert main(["inspect", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr().out
    assert "and 2 more" in printed
    ((_, *words),) = commands_in(printed)
    assert words[1] == str(tmp_path / "out")
    document = inspected(capsys, *words[1:])
    assert document["runs"][0]["ranks"] == 5
    # What was named by the user is not proposed again.
    assert {file["reading"] for file in document["files"]} == {None}


def test_a_file_in_a_folder_is_named_in_its_command(tmp_path: Path, capsys: Captured) -> None:
    path = trained(tmp_path, "logs/a.log")
    write_job(tmp_path / "logs", JOB)
    assert main(["inspect", str(path.parent)]) == 0
    ((_, *words),) = commands_in(capsys.readouterr().out)
    assert words[1] == str(path)
    assert main(words) == 0


def test_a_year_that_is_missing_is_that_of_the_file(tmp_path: Path, capsys: Captured) -> None:
    path = tmp_path / "old.log"
    lines = (
        f"I1231 23:59:{second}.000000 7 loop.cc:93] step {second}\n" for second in range(10, 60)
    )
    path.write_text("".join(lines))
    written = datetime(2019, 1, 2, tzinfo=UTC).timestamp()
    os.utime(path, (written, written))
    (file,) = inspected(capsys, str(path))["files"]
    proposal = file["reading"]
    assert proposal["span"]["begin"] == "2018-12-31T23:59:10"
    assert "the timestamps have no year: the first is assumed to be of 2018" in proposal["notes"]
    (file,) = inspected(capsys, str(path), "--read-as", proposal["read_as"])["files"]
    assert "is assumed to be of 2018" in str(file["notes"])
    assert main(["report", str(path), "--read-as", proposal["read_as"]]) == 0
    out, _ = capsys.readouterr()
    assert "is assumed to be of 2018" in " ".join(out.split())


def test_text_in_utf_16_is_read_too(tmp_path: Path, capsys: Captured) -> None:
    path = trained(tmp_path)
    path.write_text(path.read_text(), encoding="utf-16")
    assert inspected(capsys, str(path))["files"][0]["proposal"]["lines"] == 400


def test_on_a_terminal_it_shows_progress(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        (tmp_path / f"note-{number}.txt").write_text("hello\n")
    seen: list[object] = []

    @contextmanager
    def watching(what: str, count: int) -> Iterator[Callable[[int], None]]:
        seen.append((what, count))
        yield seen.append

    monkeypatch.setattr("stallscope.cli.inspect.show_progress", watching)
    assert main(["inspect", str(tmp_path), str(tmp_path / "note-1.txt")]) == 0
    assert seen == [("reading", 3), 0, 1, 2, ("reading", 1), 0]


def test_a_report_names_all_files_that_are_no_logs_in_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_job(tmp_path / "logs", Job(ranks=2, steps=60))
    for number in range(12):
        (tmp_path / "logs" / f"note-{number:02}.txt").write_text("remember the milk")
    assert main(["report", str(tmp_path / "logs"), "--format", "json"]) == 0
    (document,) = json.loads(capsys.readouterr().out)
    assert [warning for warning in document["warnings"] if "left alone" in warning] == [
        "12 files: no log that Stallscope knows; left alone: note-00.txt, note-01.txt, note-02.txt, "
        "note-03.txt and 8 more"
    ]


def test_excerpts_have_the_figures_and_no_names(tmp_path: Path, capsys: Captured) -> None:
    log = tmp_path / "train.log"
    first = ["alice@secret-host17.acme.com started AcmeNet on 10.1.2.3"] * 25
    steps = [
        f"2026-11-21 02:28:{number:02d},250 | INFO | acme.py:{number} | globalStep: {number}/300, "
        f"iter_time: 0.842s, loss: 5.8, 3.1k tokens/sec/gpu, run=alice-{number}"
        for number in range(10, 50)
    ]
    log.write_text("\n".join(first + steps))
    assert main(["inspect", str(log), "--excerpt"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:20] == ["xxxxx@xxxxxx-host17.xxxx.xxx started xxxxxxx on 00.0.0.0"] * 20
    assert lines[20:22] == [
        "…",
        "2026-11-21 02:28:10,250 | INFO | xxxx.py:10 | globalStep: 10/300, iter_time: 0.842s, "
        "loss: 5.8, 3.1k tokens/sec/gpu, xxx=xxxxx-10",
    ]
    assert len(lines) == 20 + 1 + 30
    assert main(["inspect", str(tmp_path / "no.log"), "--excerpt"]) == 2
    assert "no.log: cannot be read: No such file" in capsys.readouterr().err
