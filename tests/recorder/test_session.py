"""Rows reach one file as whole lines, in time, and without errors in training."""

from __future__ import annotations

import errno
import logging
import os
import threading
from pathlib import Path

import pytest
from support.waiting import PATIENCE_SECONDS, wait_until

import stallscope
from stallscope.collector.recorder import session as session_module
from stallscope.collector.recorder.guards import Cost
from stallscope.collector.recorder.session import Session
from stallscope.parsers import read

from .conftest import Opener
from .rows import step_row


def lines_of(session: Session) -> list[str]:
    assert session.path is not None
    return session.path.read_text().splitlines()


def rows_of(session: Session) -> list[str]:
    """Return the rows, without the header and the lines between rows."""
    rows = [line for line in lines_of(session) if not line.startswith("#")]
    return rows[1:]


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_session_is_read_back_as_it_was_recorded(open_session: Opener, tmp_path: Path) -> None:
    session = open_session(5)
    session.facts({"batch_size": 8})
    for number in range(5, 8):
        session.step(step_row(number))
    session.interval("epoch", 0, 10, 20)
    session.close()
    [run] = read(str(tmp_path / "logs"))
    assert run.problems == ()
    assert run.status == "completed"
    assert run.fact("batch_size") == 8
    assert run.fact("first_step") == 5
    assert run.steps["step"].to_pylist() == [5, 6, 7]
    assert run.intervals.select(["kind", "step"]).to_pylist() == [
        {"kind": "epoch", "step": 8},
        {"kind": "end", "step": 8},
    ]


def test_a_session_that_closes_while_it_starts_ends_quietly(
    open_session: Opener, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    starting: list[Session] = []
    opened = Session._open

    def open_and_note(session: Session) -> str:
        starting.append(session)
        return opened(session)

    def close_early(*_arguments: object) -> None:
        # As a signal's handler does that ends training.
        starting[0].close()

    monkeypatch.setattr(Session, "_open", open_and_note)
    monkeypatch.setattr(session_module.input_times, "recording_started", close_early)
    session = open_session(0)
    assert (session.closed, session.recording) == (True, False)
    assert rows_of(session)[-1].startswith("end,")
    assert warnings_in(caplog) == []


def test_without_another_thread_training_goes_on(
    open_session: Opener, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        session = open_session(0)
    assert not session.recording
    session.step(step_row(0))
    session.close()
    assert [text.partition(";")[0] for text in warnings_in(caplog)] == [
        """stallscope: recording failed: RuntimeError("can't start new thread")"""
    ]


def _pauses_of(session: Session, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the list of the flushing thread's pauses, seconds, which grows."""
    pauses: list[float] = []
    wait = session._stop.wait

    def pause(seconds: float) -> bool:
        pauses.append(seconds)
        return wait(seconds)

    monkeypatch.setattr(session._stop, "wait", pause)
    return pauses


def test_rows_are_on_disk_in_time_without_a_flush_by_the_caller(
    open_session: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = open_session(flush_seconds=0.05)
    pauses = _pauses_of(session, monkeypatch)
    wait_until(lambda: pauses, "a pause of the flushing thread")
    session.step(step_row(0))
    wait_until(lambda: lines_of(session)[-1].startswith("step,0"), "the row on disk")
    assert max(pauses) <= 0.05


def test_many_steps_a_second_are_written_more_often(
    open_session: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = open_session(flush_seconds=0.4)
    pauses = _pauses_of(session, monkeypatch)
    for step in range(50_000):
        session.step(step_row(step))
    wait_until(lambda: min(pauses, default=1) < 0.1, "a shorter pause")
    # Without steps, the pauses are as long as before.
    wait_until(lambda: pauses[-1] > 0.2, "a long pause")


def test_rows_pending_elsewhere_are_fetched_before_every_flush(open_session: Opener) -> None:
    fetched: list[int] = []

    def fetch() -> None:
        if not fetched:
            fetched.append(0)
            session.step(step_row(0))

    session = open_session(flush_seconds=0.05, before_flush=fetch)
    wait_until(lambda: lines_of(session)[-1].startswith("step,0"), "the row on disk")


def test_rows_pending_elsewhere_are_fetched_at_the_end(open_session: Opener) -> None:
    session = open_session(before_flush=lambda: session.step(step_row(0)))
    session.close()
    assert [line.split(",")[0] for line in rows_of(session)] == ["step", "end"]


def test_a_log_ends_with_the_cost_of_recording(open_session: Opener, tmp_path: Path) -> None:
    session = open_session(machine=False)
    for nanoseconds in (90_000, 10_000, 11_000):
        session.cost.count_iteration(nanoseconds)
        session.step(step_row(session.next_step))
    session.flush()
    session.close()
    *_, facts_line, end = lines_of(session)
    assert end.startswith("end,")
    [run] = read(str(tmp_path / "logs"))
    cost = run.recorder_cost[0]
    assert (cost["turns"], cost["host_us_median"], cost["host_us_mean"]) == (3, 11.0, 37.0)
    # The header is one write, and the steps are another one.
    assert cost["flushes"] == 2
    assert session.path is not None
    before = session.path.read_text().index(facts_line)
    assert cost["bytes"] == before
    assert run.fact("recorder") == stallscope.__version__


def test_the_median_cost_is_that_of_the_last_iterations() -> None:
    cost = Cost()
    for _ in range(600):
        cost.count_iteration(50_000)
    for _ in range(512):
        cost.count_iteration(7_000)
    assert cost.fact()["host_us_median"] == 7.0
    assert Cost().fact()["host_us_median"] is None


def test_work_between_iterations_is_in_the_mean_and_not_in_the_median(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = iter([1_000, 41_000])
    monkeypatch.setattr("stallscope.collector.recorder.guards.monotonic_ns", lambda: next(now))
    cost = Cost()
    for _ in range(4):
        cost.count_iteration(5_000)
    with cost.outside_iterations():
        pass
    assert (cost.fact()["host_us_mean"], cost.fact()["host_us_median"]) == (15.0, 5.0)


def test_no_row_is_lost_between_training_and_flushing(open_session: Opener, tmp_path: Path) -> None:
    session = open_session(flush_seconds=0.001)
    count = 20_000
    for number in range(count):
        session.step(step_row(number))
    session.close()
    [run] = read(str(tmp_path / "logs"))
    assert run.steps["step"].to_pylist() == list(range(count))


def test_every_write_is_whole_lines_even_if_the_system_splits_them(
    open_session: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write
    monkeypatch.setattr(
        session_module.os, "write", lambda descriptor, data: write(descriptor, data[:7])
    )
    session = open_session()
    for number in range(50):
        session.step(step_row(number))
    session.close()
    assert [line.split(",")[1] for line in rows_of(session)[:-1]] == [
        str(number) for number in range(50)
    ]


@pytest.mark.parametrize(
    ("elements", "written"),
    [
        # Eight samples each: as many elements per sample as in the first step take no bytes.
        ([16, 16, 24], ["", "", "24"]),
        ([16, None, 24], ["", "-1", "24"]),
        # Steps before the first known number would seem to have the usual one.
        ([None, 16, 24], ["", "", ""]),
        ([None, None, None], ["", "", ""]),
    ],
)
def test_elements_are_read_back_as_they_were_known(
    open_session: Opener, tmp_path: Path, elements: list[int | None], written: list[str]
) -> None:
    session = open_session()
    for number, count in enumerate(elements):
        session.step(step_row(number)._replace(elements=count))
    session.close()
    rows = [row.rpartition(",")[2] for row in rows_of(session) if row.startswith("step,")]
    assert rows == written
    [run] = read(str(tmp_path / "logs"))
    assert run.steps["elements"].to_pylist() == (elements if any(written) else [None] * 3)


def fill_disk(monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    """Make the disk accept ``free`` more bytes, and then none."""
    write = os.write
    left = [free]

    def write_some(descriptor: int, data: bytes) -> int:
        if not left[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        done = write(descriptor, data[: left[0]])
        left[0] -= done
        return done

    monkeypatch.setattr(session_module.os, "write", write_some)


def test_a_full_disk_is_one_warning_and_the_log_can_be_read_up_to_there(
    open_session: Opener,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    session = open_session(flush_seconds=0.005)
    session.step(step_row(0))
    session.flush()
    fill_disk(monkeypatch, free=30)
    for number in range(1, 10):
        session.step(step_row(number))
    wait_until(lambda: not session.recording, "the end of recording")
    session.step(step_row(10))
    session.flush()
    session.close()
    [message] = warnings_in(caplog)
    assert "No space left on device; rank 0 is no longer recorded, training goes on" in message
    monkeypatch.undo()
    [run] = read(str(tmp_path / "logs"))
    assert run.steps["step"].to_pylist() == [0]
    assert run.status == "open"
    assert run.logs[0].torn == 1


def test_a_disk_that_is_full_from_the_start_is_one_warning(
    open_session: Opener, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fill_disk(monkeypatch, free=10)
    session = open_session()
    assert not session.recording
    session.step(step_row(0))
    session.flush()
    session.close()
    assert len(warnings_in(caplog)) == 1


def test_a_folder_that_cannot_be_made_is_one_warning(
    open_session: Opener, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    session = open_session(folder=tmp_path / "file" / "logs")
    assert not session.recording
    session.close()
    [message] = warnings_in(caplog)
    assert "file/logs" in message
    assert "Not a directory" in message


def test_the_warning_says_that_a_folder_is_a_file(
    open_session: Opener, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    session = open_session(folder=tmp_path / "file")
    session.close()
    [message] = warnings_in(caplog)
    assert f"cannot write to {tmp_path / 'file'}: it is a file, not a folder" in message


def test_two_threads_that_fail_at_once_warn_once(
    open_session: Opener, caplog: pytest.LogCaptureFixture
) -> None:
    session = open_session()
    together = threading.Barrier(8)

    def fail() -> None:
        together.wait()
        session.fail("broken")

    threads = [threading.Thread(target=fail) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(warnings_in(caplog)) == 1


def test_an_error_while_fetching_ends_the_recording_and_nothing_else(
    open_session: Opener, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> None:
        raise ZeroDivisionError("broken on purpose")

    session = open_session(flush_seconds=0.005, before_flush=broken)
    wait_until(lambda: not session.recording, "the end of recording")
    session.close()
    [message] = warnings_in(caplog)
    assert "recording failed: ZeroDivisionError('broken on purpose')" in message


def test_a_row_that_cannot_be_written_as_a_line_ends_the_recording(
    open_session: Opener, caplog: pytest.LogCaptureFixture
) -> None:
    session = open_session()
    session.step(step_row(0)._replace(end="never"))  # type: ignore[arg-type]
    session.flush()
    assert not session.recording
    assert len(warnings_in(caplog)) == 1


def test_a_file_system_that_hangs_does_not_block_the_end_of_training(
    open_session: Opener, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(session_module, "_PATIENCE_SECONDS", 0.05)
    session = open_session(flush_seconds=0.005)
    release = threading.Event()
    write = os.write

    def hang(descriptor: int, data: bytes) -> int:
        release.wait()
        return write(descriptor, data)

    monkeypatch.setattr(session_module.os, "write", hang)
    session.step(step_row(0))
    wait_until(session._write_lock.locked, "a write that hangs")
    closing = threading.Thread(target=session.close)
    closing.start()
    closing.join(PATIENCE_SECONDS)
    held = closing.is_alive()
    release.set()
    assert not held
    [message] = warnings_in(caplog)
    assert "accepts no more lines" in message


def test_closing_twice_writes_one_end(open_session: Opener) -> None:
    session = open_session()
    session.close()
    session.close()
    assert [line.split(",")[0] for line in rows_of(session)] == ["end"]


def test_a_forked_child_leaves_the_log_to_its_parent(
    open_session: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = open_session()
    with monkeypatch.context() as child:
        child.setattr(session_module.os, "getpid", lambda: -1)
        session.close()
    assert session.recording
    session.close()
    assert [line.split(",")[0] for line in rows_of(session)] == ["end"]


def test_an_existing_log_is_never_changed(open_session: Opener, tmp_path: Path) -> None:
    existing = tmp_path / "logs" / "rank-00000.0.0.steps.csv"
    existing.parent.mkdir()
    existing.write_text("of somebody else")
    session = open_session()
    assert session.path is not None
    assert session.path.name == "rank-00000.0.1.steps.csv"
    assert existing.read_text() == "of somebody else"


def test_the_first_step_can_be_renumbered_before_it_is_recorded(open_session: Opener) -> None:
    session = open_session(0)
    session.renumber(1000)
    session.interval("checkpoint", 0, 10, 20)
    session.close()
    [run] = read(str(session.path))
    assert run.fact("first_step") == 1000
    assert run.intervals["step"].to_pylist() == [1000, 1000]
