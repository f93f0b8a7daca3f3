"""Destinations of step logs: files, and records of Python's logging."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest

from stallscope.collector.recorder.job.world import World
from stallscope.collector.recorder.options import Options
from stallscope.collector.recorder.session import Session
from stallscope.collector.recorder.step_log.line_format import StepRow
from stallscope.collector.recorder.step_log.sinks import check_sink
from stallscope.parsers import read

ALONE = World(0, 1, 0)
_PROGRAM = """
import sys
from pathlib import Path
from stallscope.collector.recorder.job.world import World
from stallscope.collector.recorder.options import Options
from stallscope.collector.recorder.session import Session
session = Session(Options(sys.argv[1], sink="logging"), World(0, 1, 0), {"model": "m"}, 0)
session.facts({"tensors": 3})
session.close()
"""


def arguments(**changed: object) -> dict[str, object]:
    usual = {
        "run_name": None,
        "synthetic": False,
        "batch_size": None,
        "mlflow_run_id": None,
        "sink": "file",
        "flush_seconds": 1.0,
        "stages": True,
    }
    return {**usual, **changed}


def test_records_need_no_folder(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "nowhere"
    with caplog.at_level(logging.INFO, logger="stallscope.steps"):
        session = Session(
            Options(folder, sink="logging", flush_seconds=60), ALONE, {"model": "m"}, 0
        )
        assert session.recording
        session.facts({"tensors": 3})
        session.close()
    assert not folder.exists()
    (tmp_path / "stderr").write_text("\n".join(record.getMessage() for record in caplog.records))
    (run,) = read(str(tmp_path / "stderr"))
    assert (run.fact("model"), run.fact("tensors"), run.status) == ("m", 3, "completed")


def test_a_program_without_logging_setup_prints_them_too(tmp_path: Path) -> None:
    words = [sys.executable, "-c", _PROGRAM, str(tmp_path / "nowhere")]
    done = subprocess.run(words, capture_output=True, check=True)
    (tmp_path / "stderr").write_bytes(done.stderr)
    assert done.stdout == b""
    assert read(str(tmp_path / "stderr"))[0].status == "completed"


def test_both_write_the_same(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="stallscope.steps"):
        session = Session(
            Options(tmp_path / "logs", sink="both", flush_seconds=60), ALONE, {"model": "m"}, 0
        )
        session.flush()
        session.facts({"tensors": 3})
        session.close()
    (tmp_path / "stderr").write_text("\n".join(record.getMessage() for record in caplog.records))
    (written,), (recorded,) = read(str(tmp_path / "logs")), read(str(tmp_path / "stderr"))
    assert recorded.logs[0].facts == written.logs[0].facts
    assert recorded.intervals.equals(written.intervals)


def test_a_failing_handler_ends_recording_and_not_training(tmp_path: Path) -> None:
    class Broken(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise OSError("the log service has gone")

    steps = logging.getLogger("stallscope.steps")
    broken = Broken()
    steps.addHandler(broken)
    try:
        session = Session(
            Options(tmp_path, sink="logging", flush_seconds=60), ALONE, {"model": "m"}, 0
        )
        assert not session.recording
        session.close()
    finally:
        steps.removeHandler(broken)


def test_a_log_that_is_removed_is_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Without this check, lines would go to a deleted file without any error."""
    session = Session(Options(tmp_path, flush_seconds=60), ALONE, {"model": "m"}, 0)
    assert session.path is not None
    session.path.unlink()
    for number in range(2):
        session.step(StepRow(number, 0, 1000, None, None, None, 2000, 1, 8, 0))
        session.flush()
    session.close()
    assert not session.recording
    # Threads of other tests may log, too.
    (message,) = [record.getMessage() for record in caplog.records if record.name == "stallscope"]
    assert message == (
        f"stallscope: cannot write {session.path}: the file was removed; "
        "rank 0 is no longer recorded, training goes on"
    )


def test_mistakes_are_reported_at_construction() -> None:
    with pytest.raises(ValueError, match="sink='disk': use one of 'file', 'logging', 'both'"):
        check_sink("disk")
    with pytest.raises(TypeError, match="log_dir is the folder for the logs, not None"):
        Options(None, **arguments())
    with pytest.raises(TypeError, match="log_dir is the folder for the logs, not ''"):
        Options("", **arguments())
    assert Options(None, **arguments(sink="logging")).sink == "logging"
