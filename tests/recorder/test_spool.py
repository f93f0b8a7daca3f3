"""On mounts that cannot append, the log grows on the local disk and is copied as a whole."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, NoReturn

import pytest
from support.waiting import PATIENCE_SECONDS, wait_until

from stallscope.collector.recorder.job.world import World
from stallscope.collector.recorder.options import Options
from stallscope.collector.recorder.session import Session
from stallscope.collector.recorder.step_log import log_files
from stallscope.collector.recorder.step_log.log_files import needs_spooling
from stallscope.parsers import read

from .rows import step_row

NEVER = 3600.0
ALONE = World(0, 1, None)


class ObjectStore:
    """The system calls, answered like a mount that accepts whole files only."""

    def __init__(self, folder: Path, when: str) -> None:
        self.folder = str(folder)
        self.when = when
        self.refused = 0
        self._appending: set[int] = set()
        self._open, self._write = os.open, os.write

    def open(self, path: Any, flags: int, mode: int = 0o777, **more: Any) -> int:
        appends = flags & os.O_APPEND and str(path).startswith(self.folder)
        if appends and self.when == "opened":
            self.refused += 1
            raise OSError(errno.EINVAL, "Invalid argument")
        descriptor = self._open(path, flags, mode, **more)
        self._appending.discard(descriptor)
        if appends:
            self._appending.add(descriptor)
        return descriptor

    def write(self, descriptor: int, data: bytes) -> int:
        if descriptor in self._appending:
            self.refused += 1
            raise OSError(errno.EOPNOTSUPP, "Operation not supported")
        return self._write(descriptor, data)


@pytest.fixture(params=["opened", "written"])
def mount(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> ObjectStore:
    """A folder that refuses appends: when a file is opened for them, or when it is written."""
    store = ObjectStore(tmp_path / "mount", request.param)
    (tmp_path / "local").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "local"))
    monkeypatch.setattr(os, "open", store.open)
    monkeypatch.setattr(os, "write", store.write)
    return store


def session_in(folder: str | Path, flush_seconds: float = NEVER, **options: Any) -> Session:
    return Session(
        Options(folder, flush_seconds=flush_seconds, **options), ALONE, {"model": "m"}, 0
    )


def test_a_log_on_such_a_mount_is_as_whole_as_any(
    mount: ObjectStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    session = session_in(mount.folder)
    for number in range(300):
        session.step(step_row(number))
    session.close()
    assert mount.refused == 1
    (run,) = read(mount.folder)
    assert run.problems == ()
    assert run.status == "completed"
    assert run.steps.num_rows == 300
    assert str(run.fact("spooled")).startswith(str(tmp_path / "local"))
    # Nothing stays on the local disk, and there is no message.
    assert list((tmp_path / "local").iterdir()) == []
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_recorded_rows_are_on_the_mount_at_the_end_of_an_epoch(mount: ObjectStore) -> None:
    session = session_in(mount.folder, flush_seconds=0.01)
    session.step(step_row(0))
    assert session.path is not None
    begun = session.path.read_text()
    assert "step,0" not in begun
    session.interval("epoch", 0, 10, 20)
    wait_until(lambda: "epoch,1" in session.path.read_text(), "a copy of the log")
    (run,) = read(mount.folder)
    assert run.steps.num_rows == 1
    assert run.status == "open"
    session.close()


def test_a_failed_copy_is_retried(mount: ObjectStore, caplog: pytest.LogCaptureFixture) -> None:
    session = session_in(mount.folder, flush_seconds=0.01)
    assert session.path is not None
    away = Path(mount.folder).with_name("away")
    Path(mount.folder).rename(away)
    session.interval("epoch", 0, 10, 20)
    wait_until(lambda: "cannot be copied" in caplog.text, "the warning")
    away.rename(mount.folder)
    session.step(step_row(0))
    session.close()
    (run,) = read(mount.folder)
    assert run.steps.num_rows == 1
    assert caplog.text.count("cannot be copied") == 1


def test_a_log_that_cannot_be_copied_is_kept_locally(
    mount: ObjectStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    session = session_in(mount.folder)
    session.step(step_row(0))
    Path(mount.folder).rename(Path(mount.folder).with_name("away"))
    session.close()
    (kept,) = (tmp_path / "local").glob("*/*.steps.csv")
    assert str(kept) in caplog.text
    (run,) = read(str(kept))
    assert run.steps.num_rows == 1


@pytest.mark.broad
def test_rows_that_come_just_before_a_copy_are_in_the_next_one(
    mount: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_files, "COPY_SECONDS", NEVER)
    monkeypatch.setattr(log_files, "SHORTEST_COPY_SECONDS", 0.0)
    session = session_in(mount.folder, flush_seconds=0.01)
    overdue = session._watch_step
    ended = threading.Event()

    def epoch_ends_between_flush_and_copy(planned: float, now: float) -> bool:
        if not ended.is_set():
            session.step(step_row(0))
            session.interval("epoch", 0, 10, 20)
            ended.set()
        return overdue(planned, now)

    monkeypatch.setattr(session, "_watch_step", epoch_ends_between_flush_and_copy)
    assert ended.wait(PATIENCE_SECONDS)
    wait_until(lambda: "epoch,1" in session.path.read_text(), "a copy of the log")
    session.close()


def test_copied_bytes_grow_with_the_run_and_not_with_its_square(
    mount: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_files, "COPIED_PART_BYTES", 10_000)
    monkeypatch.setattr(log_files, "SHORTEST_COPY_SECONDS", 0.0)
    copied = []
    copy = shutil.copyfile

    def counted(source: str, target: str) -> object:
        # Threads of other tests may copy their files meanwhile.
        if Path(target).is_relative_to(mount.folder):
            copied.append(Path(source).stat().st_size)
        return copy(source, target)

    monkeypatch.setattr(shutil, "copyfile", counted)
    session = session_in(mount.folder, flush_seconds=0.01)
    for epoch in range(60):
        for number in range(100):
            session.step(step_row(100 * epoch + number))
        session.interval("epoch", epoch, 10, 20)
        wait_until(lambda seen=epoch: len(copied) > seen, "a further copy")
    session.close()
    (run,) = read(mount.folder)
    assert run.problems == ()
    assert run.status == "completed"
    assert run.steps["step"].to_pylist() == list(range(6_000))
    whole = sum(log.stat().st_size for log in Path(mount.folder).glob("*.steps.csv"))
    assert whole > 10 * 10_000
    assert max(copied) < 3 * 10_000
    # Copied as a whole each time, that would be thirty times the log's size.
    assert sum(copied) < 6 * whole


def test_a_folder_that_refuses_another_file_gets_the_rest_in_the_existing_one(
    mount: ObjectStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(log_files, "COPIED_PART_BYTES", 100)
    session = session_in(mount.folder, flush_seconds=0.01)

    def refused(*_: object) -> NoReturn:
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    monkeypatch.setattr(session._files, "_new_file", refused)
    session.interval("epoch", 0, 10, 20)
    wait_until(lambda: "Disk quota exceeded" in caplog.text, "the warning")
    begin = time.monotonic_ns()
    session.step(step_row(0)._replace(begin=begin, end=begin + 1000))
    session.close()
    (run,) = read(mount.folder)
    assert (run.steps.num_rows, run.status) == (1, "completed")
    # Its times count from the start of the file.
    assert abs(run.steps["begin"][0].as_py() - begin) <= 1000
    assert caplog.text.count("takes no further file") == 1


def test_a_killed_process_leaves_the_last_copy_and_the_local_file(tmp_path: Path) -> None:
    """A setting that names the mount avoids the trial."""
    program = (
        "import os, signal, sys, time\n"
        "from pathlib import Path\n"
        "from stallscope.collector.recorder.job.world import World\n"
        "from stallscope.collector.recorder.options import Options\n"
        "from stallscope.collector.recorder.session import Session\n"
        "from stallscope.collector.recorder.step_log.line_format import StepRow\n"
        "options = Options(sys.argv[1], flush_seconds=0.01)\n"
        "session = Session(options, World(0, 1, None), {}, 0)\n"
        "session.step(StepRow(0, 0, 1000, None, None, None, 2000, 1, 8, 0))\n"
        "session.interval('epoch', 0, 10, 20)\n"
        "while 'epoch,1' not in session.path.read_text(): time.sleep(0.01)\n"
        "session.step(StepRow(1, 1, 1000, None, None, None, 2000, 1, 8, 0))\n"
        "session.flush()\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    (tmp_path / "local").mkdir()
    env = {**os.environ, "STALLSCOPE_SPOOL": "1", "TMPDIR": str(tmp_path / "local")}
    logs = str(tmp_path / "logs")
    subprocess.run([sys.executable, "-c", program, logs], env=env, timeout=PATIENCE_SECONDS)
    (run,) = read(logs)
    assert run.steps["step"].to_pylist() == [0]
    (local,) = (tmp_path / "local").glob("*/*.steps.csv")
    (whole,) = read(str(local))
    assert whole.steps["step"].to_pylist() == [0, 1]


def test_other_errors_do_not_start_spooling(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = os.open

    def full(path: Any, flags: int, *more: Any, **named: Any) -> int:
        if flags & os.O_APPEND:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(path, flags, *more, **named)

    monkeypatch.setattr(os, "open", full)
    session = session_in(tmp_path / "logs")
    assert not session.recording
    assert "No space left on device" in caplog.text


@pytest.mark.parametrize(
    ("folder", "settings", "spools"),
    [
        ("/dbfs/logs", {}, True),
        ("/dbfsx/logs", {}, False),
        ("/Volumes/main/logs", {}, False),
        ("/Volumes/main/logs", {"DATABRICKS_RUNTIME_VERSION": "15.4"}, True),
        ("/home/logs", {"DATABRICKS_RUNTIME_VERSION": "15.4"}, False),
        ("/home/logs", {"STALLSCOPE_SPOOL": "1"}, True),
        ("/dbfs/logs", {"STALLSCOPE_SPOOL": "0"}, False),
    ],
)
def test_mounts_that_are_known_are_not_tried(
    folder: str, settings: dict[str, str], spools: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("STALLSCOPE_SPOOL", "DATABRICKS_RUNTIME_VERSION"):
        monkeypatch.delenv(name, raising=False)
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    assert needs_spooling(Path(folder)) is spools
