"""TensorBoard's event files: real ones of Keras' callback and of PyTorch's writer."""

from __future__ import annotations

import gzip
import struct
from datetime import UTC, datetime
from pathlib import Path

import pytest
from support.step_logs import Job, write_job

from stallscope.errors import UnreadableError
from stallscope.parsers import read
from stallscope.parsers.formats.tensorboard import TensorboardParser
from stallscope.parsers.inspection.inspect_files import inspect
from stallscope.run import Run

HERE = Path(__file__).parent / "neighbours"
KERAS, TORCH = (
    gzip.decompress((HERE / f"tfevents-{name}.gz").read_bytes()) for name in ("keras", "torch")
)
NAME = "events.out.tfevents.1795301412.node-0.v2"


def run_of_events(folder: Path, data: bytes = KERAS, name: str = f"train/{NAME}") -> Run:
    """Write an event file into a folder and read the folder."""
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_bytes(data)
    (run,) = read(str(folder))
    return run


def test_epochs_end_when_their_scalars_were_written(tmp_path: Path) -> None:
    run = run_of_events(tmp_path)
    epochs = run.intervals.to_pylist()
    # The start of the first one is not recorded.
    assert [row["epoch"] for row in epochs] == [1, 2, 3]
    assert [round((row["end"] - row["begin"]) / 1e6) for row in epochs] == [53, 160, 173]
    assert run.started_at == datetime(2026, 11, 21, 22, 50, 12, 926000, UTC)
    assert run.steps.num_rows == 0


def test_a_steps_mean_is_keras_measurement_of_whole_epochs(tmp_path: Path) -> None:
    run = run_of_events(tmp_path)
    rates = [struct.unpack("<f", KERAS[at + 30 : at + 34])[0] for at in rates_at()]
    assert len(rates) == 4
    assert run.fact("step_ms") == pytest.approx(sum(1e3 / rate for rate in rates[1:]) / 3)
    assert "epoch_steps_per_second" in run.fact("precision")


def rates_at() -> list[int]:
    """Return where the tag of each epoch's rate starts; its float is 30 bytes further."""
    tag = b"epoch_steps_per_second"
    positions, at = [], KERAS.find(tag)
    while at >= 0:
        positions.append(at)
        at = KERAS.find(tag, at + 1)
    return positions


def test_pytorchs_writer_is_read_too(tmp_path: Path) -> None:
    run = run_of_events(tmp_path, TORCH, "events.out.tfevents.1795301417.node-0")
    lengths = [(row["end"] - row["begin"]) / 1e6 for row in run.intervals.to_pylist()]
    assert lengths == [pytest.approx(300, abs=3)] * 2


def test_validation_scalars_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "validation").mkdir()
    (tmp_path / "validation" / NAME).write_bytes(KERAS)
    run = run_of_events(tmp_path)
    assert [log.path for log in run.logs] == [f"train/{NAME}"]


def test_a_torn_file_gives_what_comes_before(tmp_path: Path) -> None:
    run = run_of_events(tmp_path, KERAS[:-10])
    assert [row["epoch"] for row in run.intervals.to_pylist()] == [1, 2, 3]
    (problem,) = run.problems
    assert problem.what.endswith("bytes are torn or damaged, and were left out")


def test_next_to_step_logs_it_is_left_alone(tmp_path: Path) -> None:
    write_job(tmp_path, Job(ranks=1, steps=50))
    run = run_of_events(tmp_path)
    assert run.steps.num_rows == 50
    assert any("left alone" in problem.what for problem in run.problems)


def test_inspect_names_it(tmp_path: Path) -> None:
    run_of_events(tmp_path)
    (seen,) = inspect(str(tmp_path)).files
    assert (seen.format, seen.epochs, seen.used) == ("tensorboard", 3, True)
    assert seen.span is not None
    assert seen.span.zone_known


def test_without_scalars_of_epochs_the_error_names_the_others() -> None:
    first = 16 + int.from_bytes(KERAS[:8], "little")
    with pytest.raises(
        UnreadableError, match=r"log: .* without scalars of epochs or steps: there are none"
    ):
        TensorboardParser().parse("log", KERAS[:first])
