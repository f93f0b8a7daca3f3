"""A step that takes too long is logged with its progress and the stacks of the process."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from support.waiting import PATIENCE_SECONDS, wait_until

from stallscope.collector.recorder import hangs as recorder_hangs
from stallscope.collector.recorder.hangs import (
    Position,
    StackFile,
    StepWatch,
    frames_of,
    stacks_in_user_code,
)
from stallscope.collector.recorder.job.world import World
from stallscope.collector.recorder.options import Options
from stallscope.collector.recorder.session import Session
from stallscope.collector.recorder.step_log.line_format import IntervalRow, StepRow
from stallscope.parsers import read
from stallscope.run import Log

from .rows import step_row as late_row

SECOND = 10**9
MS = 10**6
NOWHERE = Position()


def watch(steps: int = 20, stacks: StackFile | None = None) -> StepWatch:
    """A watch that has seen some steps of 10 ms."""
    step_watch = StepWatch(threading.get_ident(), 0, stacks)
    for number in range(steps):
        step_watch.row_written(step_row(number))
    return step_watch


def step_row(number: int) -> StepRow:
    begin = number * 10 * MS
    return StepRow(number, 0, begin, begin, None, None, begin + 10 * MS, 1, 1, 0)


def described(
    step_watch: StepWatch, now: int, position: Position = NOWHERE
) -> dict[str, Any] | None:
    facts = step_watch.overdue(now, 20, lambda: position)
    return None if facts is None else facts["in_flight"]


def test_a_step_within_five_seconds_is_not_described() -> None:
    assert described(watch(), 5 * SECOND) is None


def test_an_overdue_step_shows_the_last_timestamp_that_it_reached() -> None:
    end = 200 * MS
    position = Position(end + MS, end + 2 * MS, end + 3 * MS)
    fact = described(watch(), 6 * SECOND, position)
    assert fact == {
        "step": 20,
        "since_us": 200_000,
        "seen_us": 6_000_000,
        "usual_us": 10_000,
        "reached": "ready",
        "reached_us": 203_000,
    }


def test_a_timestamp_of_an_earlier_step_is_not_reached() -> None:
    fact = described(watch(), 6 * SECOND, Position(201 * MS, 202 * MS, 195 * MS))
    assert fact is not None
    assert fact["reached"] == "data"


def test_slow_steps_are_given_ten_times_as_long() -> None:
    step_watch = StepWatch(threading.get_ident(), 0, None)
    for number in range(20):
        end = (number + 1) * 2 * SECOND
        step_watch.row_written(StepRow(number, 0, end - SECOND, None, None, None, end, 1, 1, 0))
    assert described(step_watch, 40 * SECOND + 19 * SECOND) is None
    assert described(step_watch, 40 * SECOND + 21 * SECOND) is not None


def test_first_steps_are_given_longer() -> None:
    assert described(watch(steps=2), 20 * SECOND) is None
    fact = described(watch(steps=2), 40 * SECOND)
    assert fact is not None
    assert fact["usual_us"] is None


def test_validation_in_progress_is_named() -> None:
    step_watch = watch()
    step_watch.pause = ("validation", 210 * MS)
    fact = described(step_watch, 10 * SECOND)
    assert fact is not None
    assert (fact["reached"], fact["pause"]) == ("end", "validation")


def test_progress_takes_the_description_back_once() -> None:
    step_watch = watch()
    assert described(step_watch, 6 * SECOND) is not None
    step_watch.row_written(IntervalRow("validation", 20, 0, 200 * MS, 7 * SECOND, 0))
    assert step_watch.overdue(7 * SECOND, 20, Position) == {
        "in_flight": None,
        "went_on_us": 7_000_000,
    }
    assert step_watch.overdue(8 * SECOND, 20, Position) is None


def test_a_log_that_ends_takes_the_description_back_only_after_progress() -> None:
    step_watch = watch()
    assert step_watch.taken_back() is None
    assert described(step_watch, 6 * SECOND) is not None
    assert step_watch.taken_back() is None
    step_watch.row_written(IntervalRow("validation", 20, 0, 200 * MS, 7 * SECOND, 0))
    assert step_watch.taken_back() == {"in_flight": None, "went_on_us": 7_000_000}
    assert step_watch.taken_back() is None


def test_after_a_minute_descriptions_become_rare() -> None:
    step_watch = watch()
    times = [now for now in range(6, 200) if described(step_watch, now * SECOND) is not None]
    assert times[:55] == list(range(6, 61))
    assert 25 <= len(times[55:]) <= 30


def test_a_process_that_slept_says_from_when_to_when() -> None:
    step_watch = watch()
    assert step_watch.process_slept(SECOND, 2 * SECOND) is None
    assert step_watch.process_slept(2 * SECOND, 22 * SECOND) == {
        "suspended": [{"since_us": 2_000_000, "until_us": 22_000_000}]
    }


def test_after_a_suspension_time_counts_anew() -> None:
    step_watch = watch()
    step_watch.process_slept(2 * SECOND, 22 * SECOND)
    assert described(step_watch, 22 * SECOND) is None
    step_watch.process_slept(26 * SECOND, 26 * SECOND)
    # Another rank may go on later than this one.
    assert described(step_watch, 26 * SECOND) is None
    facts = described(step_watch, 28 * SECOND)
    assert facts is not None
    # The step has not finished since before the suspension.
    assert facts["since_us"] == 200_000


def test_a_step_that_fetches_many_batches_is_given_longer() -> None:
    step_watch = watch()
    step_watch.postpone(60 * SECOND)
    assert described(step_watch, 64 * SECOND) is None
    assert described(step_watch, 66 * SECOND) is not None


def test_a_look_says_since_when_the_stack_is_the_same() -> None:
    step_watch = watch(stacks=StackFile(None))

    def somewhere_else(now: int) -> dict[str, Any] | None:
        return described(step_watch, now)

    looks = (10, 11, 12)
    here = [described(step_watch, at * SECOND) for at in looks]
    assert [fact["stack_since_us"] for fact in here if fact] == [10_000_000] * 3
    elsewhere = somewhere_else(13 * SECOND)
    assert elsewhere is not None
    assert elsewhere["stack_since_us"] == 13_000_000


def test_a_process_that_is_late_again_and_again_is_described() -> None:
    step_watch = watch()
    step_watch.process_slept(2 * SECOND, 8 * SECOND)
    step_watch.process_slept(9 * SECOND, 15 * SECOND)
    assert described(step_watch, 15 * SECOND) is not None


def test_stacks_of_all_threads_are_written_twice(tmp_path: Path) -> None:
    file = StackFile(tmp_path / "rank-00000.0.0.stacks.txt")
    step_watch = watch(stacks=file)
    for now in range(6, 1000, 5):
        described(step_watch, now * SECOND)
    text = file.path.read_text() if file.path is not None else ""
    assert text.count("without progress") == 2
    assert "test_stacks_of_all_threads_are_written_twice" in text
    assert "MainThread" in text


def test_a_stack_with_a_frame_at_no_line_is_written(tmp_path: Path) -> None:
    file = StackFile(tmp_path / "stacks.txt")

    def without_lines() -> int | None:
        file.write("step 7")
        return sys._getframe().f_lineno

    code = without_lines.__code__
    without_lines.__code__ = code.replace(co_linetable=b"")
    assert without_lines() is None
    place = f"{__file__}:{code.co_firstlineno} in without_lines"
    assert place in (tmp_path / "stacks.txt").read_text()


def test_the_training_threads_stack_is_in_the_log() -> None:
    fact = described(watch(stacks=StackFile(None)), 6 * SECOND)
    assert fact is not None
    names = [name for _, _, name in fact["stack"]]
    assert "test_the_training_threads_stack_is_in_the_log" in names


def test_another_thread_in_the_users_code_shows() -> None:
    started, ends = threading.Event(), threading.Event()

    def loads_batches() -> None:
        started.set()
        ends.wait()

    thread = threading.Thread(target=loads_batches)
    thread.start()
    started.wait()
    try:
        stacks = stacks_in_user_code(except_thread=threading.get_ident())
    finally:
        ends.set()
        thread.join()
    assert any(name == "loads_batches" for stack in stacks for _, _, name in stack)


def test_a_file_of_stacks_is_bounded(tmp_path: Path) -> None:
    file = StackFile(tmp_path / "stacks.txt")
    for _ in range(2000):
        file.write("again")
    assert file.path is not None
    assert 0 < file.path.stat().st_size <= 512 * 1024


def test_times_are_relative_to_the_file_that_they_are_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder_hangs, "_OVERDUE_AT_START_NS", 1)
    world = World(0, 1, None)
    session = Session(Options(tmp_path, flush_seconds=0.01, max_file_mb=1e-6), world, {}, 0)
    row = late_row(0)
    session.step(row)

    def later_logs() -> list[Log]:
        (run,) = read(str(tmp_path))
        return [log for log in run.logs if log.part > 0 and log.facts.get("in_flight")]

    wait_until(later_logs, "a later file describes the step")
    session.close()
    for log in later_logs():
        since = log.anchor + log.facts["in_flight"]["since_us"] * 1000
        assert since == pytest.approx(row.end, abs=1000)


def test_steps_since_the_last_flush_count_before_a_step_is_overdue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    row_written, overdue = StepWatch.row_written, StepWatch.overdue

    def noted_row(self: StepWatch, row: StepRow | IntervalRow) -> None:
        order.append("row")
        row_written(self, row)

    def noted_overdue(self: StepWatch, *args: Any) -> dict[str, Any] | None:
        order.append("overdue")
        return overdue(self, *args)

    monkeypatch.setattr(StepWatch, "row_written", noted_row)
    monkeypatch.setattr(StepWatch, "overdue", noted_overdue)

    def finish_a_step() -> None:
        if "step" not in order:
            order.append("step")
            session.step(late_row(0))

    options = Options(tmp_path, flush_seconds=0.01)
    session = Session(options, World(0, 1, None), {}, 0, before_flush=finish_a_step)
    wait_until(lambda: "step" in order and "overdue" in order[order.index("step") :], "a flush")
    session.close()
    assert order[order.index("step") :][:3] == ["step", "row", "overdue"]


def test_no_frame_is_no_stack() -> None:
    assert frames_of(None) == []


KILLED = """
import os, signal, sys, time
from pathlib import Path
from stallscope.collector.recorder import hangs
from stallscope.collector.recorder.hangs import Position
from stallscope.collector.recorder.job.world import World
from stallscope.collector.recorder.options import Options
from stallscope.collector.recorder.session import Session
from stallscope.collector.recorder.step_log.line_format import StepRow

hangs._OVERDUE_NS = hangs._OVERDUE_AT_START_NS = 0
hangs._STACKS_AFTER_NS = (0, 1)
folder = Path(sys.argv[1])
session = Session(Options(folder, flush_seconds=0.01), World(0, 2, 0), {}, 0, position=Position)
for number in range(20):
    now = time.monotonic_ns()
    session.step(StepRow(number, 0, now, now, None, None, now, 1, 1, 0))
stacks = folder / "rank-00000.0.0.stacks.txt"
while not (stacks.exists() and '"step":20' in session.path.read_text()):
    time.sleep(0.01)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_kill_leaves_is_readable(tmp_path: Path) -> None:
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path)], check=False, timeout=PATIENCE_SECONDS
    )
    assert killed.returncode == -signal.SIGKILL
    (run,) = read(str(tmp_path))
    assert run.problems == ()
    assert run.steps["step"].to_pylist() == list(range(20))
    (log,) = run.logs
    assert log.facts["in_flight"]["step"] == 20
    stacks = (tmp_path / "rank-00000.0.0.stacks.txt").read_text()
    assert stacks.endswith("\n\n")
    assert "thread MainThread" in stacks
