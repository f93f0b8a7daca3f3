"""Processes and disks fail: training continues if it can, and the logs hold the steps so far."""

from __future__ import annotations

import os
import random
import re
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.waiting import wait_until
from training.launching import Launch, launch
from training.recorded import check_ranks_together, check_steps, fits_of

from stallscope.parsers import read

pytestmark = [pytest.mark.horovod, pytest.mark.unmeasured]

#: As in failures.py.
SLOW_STEP = 30


def ended_steps(out: Path, rank: int) -> int:
    """Return how many steps a rank has ended, as the training itself noted."""
    notes = out / f"ended-{rank}.txt"
    return notes.read_text().count("\n") if notes.exists() else 0


def wait_for(condition: Callable[[], bool], launched: Launch) -> None:
    """Wait for a condition during a launch."""

    def met() -> object:
        outcome = condition()
        assert outcome or launched.process.poll() is None, f"it ended; printed:\n{launched.output}"
        return outcome

    wait_until(met, lambda: f"nothing happens; printed:\n{launched.output}")


def steps_on_disk(log: Path) -> int:
    """Return how many complete rows of steps a log has."""
    return len(re.findall(r"^step,.*\n", log.read_text(), re.MULTILINE)) if log.exists() else 0


def first_seen(log: Path, launched: Launch, before_slow: Path) -> dict[int, int]:
    """Return when each step was first on disk, from reading the log while it grows.

    Args:
        log: of a rank with a slow step.
        launched: its launch.
        before_slow: the file that lets the slow step end; written when all steps before it are on disk.
    """
    seen: dict[int, int] = {}
    wait_for(log.exists, launched)

    def ended() -> bool:
        now = time.monotonic_ns()
        text = log.read_text()
        for row in re.findall(r"^step,(\d+),.*\n", text, re.MULTILINE):
            seen.setdefault(int(row), now)
        if SLOW_STEP - 1 in seen:
            before_slow.touch()
        return "\nend," in text

    wait_for(ended, launched)
    return seen


@dataclass(frozen=True)
class Failed:
    """Two ranks after a slow step, failing disks, and a kill."""

    out: Path
    launched: Launch
    #: When each step of the first training was on disk.
    seen: dict[int, int]
    #: Ended steps before the last flush that was waited for, and steps on disk before the kill.
    due: int
    flushed: int

    def printed_by(self, rank: int) -> str:
        """Return a rank's output without horovodrun's labels."""
        label = f"[{rank}]<stderr>:"
        lines = self.launched.output.splitlines(keepends=True)
        return "".join(line.removeprefix(label) for line in lines if line.startswith(label))


@pytest.fixture(scope="module")
def failed(training_side: None, tmp_path_factory: pytest.TempPathFactory) -> Failed:
    out, rank = tmp_path_factory.mktemp("failures"), 1
    (out / "a file").write_text("no folder can be made below this\n")
    launched = launch(out / "printed.txt", "failures.py", str(out), ranks=2)
    try:
        slow = out / "slow" / "rank-00001.0.0.steps.csv"
        seen = first_seen(slow, launched, out / "seen")
        log = out / "killed" / f"rank-{rank:05d}.0.0.steps.csv"
        wait_for(lambda: ended_steps(out, rank) > 20, launched)
        due = ended_steps(out, rank)
        wait_for(lambda: steps_on_disk(log) >= due, launched)
        # The kill comes anywhere between two flushes.
        further = ended_steps(out, rank) + random.Random(1).randrange(150)
        wait_for(lambda: ended_steps(out, rank) >= further, launched)
        flushed = steps_on_disk(log)
        pid = re.search(r'"pid":(\d+)', log.read_text())
        assert pid is not None
        os.kill(int(pid.group(1)), signal.SIGKILL)
        launched.wait()
    finally:
        launched.end()
    return Failed(out, launched, seen, due, flushed)


def check_one_warning(printed: str, expected: str) -> None:
    warnings = [line for line in printed.splitlines() if "stallscope: " in line]
    assert len(warnings) == 1, warnings
    assert re.search(f"{expected}.*rank 1 is no longer recorded, training goes on", warnings[0])


def check_rank_0(folder: Path, steps: int) -> None:
    """Check that the rank with a working disk has recorded all steps."""
    fits = fits_of(read(str(folder))[0])
    assert fits[0].log.rank == 0
    check_steps(fits[0], 0, steps)
    assert fits[0].log.ended


def test_after_a_kill_the_log_holds_all_but_the_last_flush(failed: Failed) -> None:
    [run] = read(str(failed.out / "killed"))
    assert [problem for problem in run.problems if "torn" not in problem.what] == []
    assert run.ranks == [0, 1]
    assert run.status == "open"
    peer, killed = fits_of(run)
    assert not killed.log.ended
    check_steps(killed, 0, len(killed.steps))
    assert len(killed.steps) >= failed.flushed >= failed.due > 20
    # The other rank's log holds the steps until its peer's end.
    assert len(peer.steps) > 10


def test_a_slow_step_does_not_delay_the_flush_of_earlier_steps(failed: Failed) -> None:
    [run] = read(str(failed.out / "slow"))
    fit = fits_of(run)[1]
    check_steps(fit, 0, 60)
    # The first step traces as well, which may take as long on a busy machine.
    slowest = (fit.steps["data"] - fit.steps["begin"])[1:]
    assert int(slowest.idxmax()) == SLOW_STEP
    # It slept for five seconds, of which some may be before its begin: prefetching is ahead.
    assert slowest.max() > 4e9
    waited_until = fit.steps["data"][SLOW_STEP]
    assert [step for step in range(SLOW_STEP) if failed.seen[step] >= waited_until] == []
    check_ranks_together(run)


def test_a_rank_that_cannot_write_warns_once(failed: Failed) -> None:
    assert "stallscope: " not in failed.printed_by(0)
    slow, no_folder, full_disk, killed = re.split(r"-- .* --\n", failed.printed_by(1))
    assert "stallscope: " not in slow
    check_one_warning(no_folder, "cannot write to .*a file/logs")
    check_one_warning(full_disk, "cannot write .*rank-00001.0.0.steps.csv: .*File too large")
    assert "stallscope: " not in killed


def test_the_other_rank_is_recorded_if_one_has_no_folder(failed: Failed) -> None:
    check_rank_0(failed.out / "folder", 20)


def test_steps_before_a_full_disk_can_be_read_but_for_a_torn_line(failed: Failed) -> None:
    check_rank_0(failed.out / "full", 300)
    [run] = read(str(failed.out / "full"))
    full = fits_of(run)[1]
    assert full.log.size == 4000
    assert not full.log.ended
    assert full.log.torn <= 1
    check_steps(full, 0, len(full.steps))
    assert 10 < len(full.steps) < 300


def test_an_uncaught_exception_loses_no_step(training_side: None, tmp_path: Path) -> None:
    launched = launch(tmp_path / "printed.txt", "failures.py", str(tmp_path))
    assert launched.wait() == 1
    assert "crashed on purpose" in launched.output
    [run] = read(str(tmp_path / "logs"))
    [fit] = fits_of(run)
    # The exception comes in a callback after the tenth step.
    check_steps(fit, 0, 10)
    assert "stallscope: " not in launched.output
