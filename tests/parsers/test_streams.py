"""Jobs with separate files for standard output and error, and lines in the records of services."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from support.printed_steps import PROGRAMS, SIZE

from stallscope.arrays import arrow
from stallscope.parsers import read
from stallscope.parsers.files.unpacking import plain_text

STEPS = PROGRAMS["steps of TensorFlow"]
KERAS = "".join(
    f"Epoch {epoch}/2\n78/78 - {16 + epoch}s - 218ms/step - loss: 1.9\n" for epoch in (1, 2)
)


def write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("out", "err"),
    [
        ("1/rank.{}/stdout", "1/rank.{}/stderr"),
        ("rank.{}/stdout", "rank.{}/stderr"),
        ("attempt_0/{}/stdout.log", "attempt_0/{}/stderr.log"),
        ("prterun-host-17@1.{}.out", "prterun-host-17@1.{}.err"),
        ("job-rank{}.out", "job-rank{}.err"),
    ],
)
def test_both_streams_of_ranks_are_one_run(tmp_path: Path, out: str, err: str) -> None:
    folder = tmp_path / "straggler-2"
    for rank in range(SIZE):
        write(folder / out.format(rank), f"batch_size: 64\n{KERAS}".encode())
        write(folder / err.format(rank), STEPS.text(1 + rank))
    (run,) = read(str(folder))
    assert (run.ranks, run.size) == ([0, 1], 2)
    assert {log.path for log in run.logs} == {err.format(rank) for rank in range(SIZE)}
    assert "window" in run.intervals["kind"].to_pylist()
    left = [problem for problem in run.problems if "other stream" in problem.what]
    assert len(left) == 1
    assert out.format(1) in left[0].where
    if "rank." in out:
        assert run.name.endswith("straggler-2")


def test_a_program_that_prints_on_both_streams_has_each_step_once(tmp_path: Path) -> None:
    with_times = PROGRAMS["tf_cnn_benchmarks with glog"].text()
    write(tmp_path / "1/rank.0/stdout", PROGRAMS["tf_cnn_benchmarks"].text())
    write(tmp_path / "1/rank.0/stderr", with_times)
    (run,) = read(str(tmp_path))
    # The one with times of day counts.
    (log,) = run.logs
    assert log.path == "1/rank.0/stderr"


def test_what_only_the_other_stream_says_of_the_job_is_known(tmp_path: Path) -> None:
    write(tmp_path / "slurm-7.out", f"I am rank 0 of 8\n{KERAS}".encode())
    write(tmp_path / "slurm-7.err", STEPS.text())
    (run,) = read(str(tmp_path))
    assert (run.size, run.fact("size_from")) == (8, "what the log says")


def test_a_number_of_ranks_that_changes_is_not_that_of_the_other_stream(tmp_path: Path) -> None:
    begins = "Initializing horovod with communicator (size = {})\n"
    write(tmp_path / "rank.0/stdout", f"OMPI_COMM_WORLD_SIZE=1\n{KERAS}".encode())
    write(
        tmp_path / "rank.0/stderr",
        (begins.format(1) + begins.format(2)).encode() + STEPS.text(),
    )
    (run,) = read(str(tmp_path))
    assert run.fact("size") is None


def test_the_name_of_a_jobs_folder_tells_its_ranks(tmp_path: Path) -> None:
    write(tmp_path / "job-4workers/1/rank.0/stderr", STEPS.text())
    (run,) = read(str(tmp_path))
    assert (run.size, run.fact("size_from")) == (4, "the log's name")


def test_streams_of_two_jobs_are_two_runs(tmp_path: Path) -> None:
    for job in ("a", "b"):
        write(tmp_path / job / "stdout", KERAS.encode())
        write(tmp_path / job / "stderr", STEPS.text())
    assert len(read(str(tmp_path))) == 2


# Lines in the records of container engines and log services

LINES = [f"step {step}/600 loss {9 - step / 100:.3f} – schön" for step in range(10, 400, 10)]
TIMES = [1_790_000_000_400 + 8_400 * at for at in range(len(LINES))]


def iso(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms // 1000, UTC):%Y-%m-%dT%H:%M:%S}.{ms % 1000:03}Z"


def docker(text: str, ms: int) -> str:
    return json.dumps({"log": text, "stream": "stdout", "time": iso(ms)})


def in_two(text: str, ms: int) -> str:
    """Docker ends a record after 16 KiB; another stream may be in between."""
    pieces = [docker(text[:9], ms), docker(f"{text[9:]}\n", ms + 1)]
    return "\n".join([pieces[0], '{"log":"warning\\n","stream":"stderr","time":"x"}', pieces[1]])


RECORDS: dict[str, Callable[[], str]] = {
    "Docker": lambda: "\n".join(map(docker, [f"{line}\n" for line in LINES], TIMES)),
    "Docker, long lines": lambda: "\n".join(map(in_two, LINES, TIMES)),
    "Docker, cut off": lambda: "\n".join(map(docker, [f"{line}\n" for line in LINES], TIMES))[:-30],
    "Google Cloud": lambda: "\n".join(
        json.dumps({"insertId": "7q", "textPayload": line, "timestamp": iso(ms)})
        for line, ms in zip(LINES, TIMES, strict=True)
    ),
    "CloudWatch": lambda: "\n".join(
        json.dumps({"timestamp": ms, "message": line, "ingestionTime": ms + 900})
        for line, ms in zip(LINES, TIMES, strict=True)
    ),
    "CloudWatch's events": lambda: json.dumps(
        {
            "events": [
                {"timestamp": ms, "message": line, "ingestionTime": ms + 900}
                for line, ms in zip(LINES, TIMES, strict=True)
            ]
        },
        indent=2,
    ),
}


@pytest.mark.parametrize("name", RECORDS)
def test_lines_in_records_are_those_of_the_program(tmp_path: Path, name: str) -> None:
    (tmp_path / "train.log").write_text(RECORDS[name](), encoding="utf-8")
    (run,) = read(str(tmp_path))
    windows = run.intervals.filter(arrow.equal(run.intervals["kind"], "window"))
    begin, end, steps = (arrow.numbers(windows[column]) for column in ("begin", "end", "steps"))
    assert steps.sum() >= 340
    assert ((end - begin) / steps / 1e6).mean() == pytest.approx(840)


def test_records_of_a_training_with_a_message_stay_records() -> None:
    record = b'{"message": "train", "timestamp": 1790000000400, "step": 10, "loss": 2.1}\n'
    assert plain_text(record * 9) == record * 9
    assert (
        plain_text(b'{"log": "a\\n", "stream": "stdout"}\n')
        == b'{"log": "a\\n", "stream": "stdout"}\n'
    )
    assert plain_text(b'{"log":"a\\n","time":"T"}\nno record\n') == b"T a\nno record\n"
