"""Jobs with separate files for standard output and error."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.printed_steps import PROGRAMS, SIZE

from stallscope.parsers import read

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
