"""Something bad happens: training goes on where it can, and the logs hold what was."""

from __future__ import annotations

import os
import random
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.waiting import wait_until
from training.launching import Launch
from training.recorded import check_ranks_together, check_steps, fits_of

from stallscope.parsers import read

pytestmark = pytest.mark.horovod

Starter = Callable[..., Launch]

PATIENCE_SECONDS = 120.0


def ended_steps(path: Path) -> dict[int, int]:
    """When each step ended, as the training itself wrote down: step to monotonic nanoseconds."""
    whole = [line.split() for line in path.read_text().splitlines(keepends=True) if "\n" in line]
    return {int(step): int(moment) for step, moment in whole}


def wait_for(condition: Callable[[], bool], launched: Launch) -> None:
    """Wait for something that a launch does while it runs."""

    def met() -> object:
        found = condition()
        assert found or launched.process.poll() is None, f"it ended; printed:\n{launched.output}"
        return found

    wait_until(met, lambda: f"nothing happens; printed:\n{launched.output}", PATIENCE_SECONDS)


def steps_on_disk(log: Path) -> int:
    """How many whole rows of steps a log has."""
    return len(re.findall(r"^step,.*\n", log.read_text(), re.MULTILINE))


def pid_of(log: Path) -> int:
    found = re.search(r'"pid":(\d+)', log.read_text())
    assert found is not None
    return int(found.group(1))


@pytest.mark.unmeasured
def test_after_kill_9_the_log_holds_all_but_the_last_flush(start: Starter, tmp_path: Path) -> None:
    dice, rank = random.Random(1), 1
    launched = start("failures.py", "killed", str(tmp_path), ranks=2)
    truth = tmp_path / f"ended-{rank}.txt"
    log = tmp_path / "logs" / f"rank-{rank:05d}.0.0.steps.csv"
    wait_for(lambda: truth.exists() and len(ended_steps(truth)) > 20, launched)
    pid = pid_of(log)

    # A flush comes without anybody asking; the kill comes anywhere between two of them.
    due = len(ended_steps(truth))
    wait_for(lambda: steps_on_disk(log) >= due, launched)
    further = len(ended_steps(truth)) + dice.randrange(150)
    wait_for(lambda: len(ended_steps(truth)) >= further, launched)
    flushed = steps_on_disk(log)
    os.kill(pid, signal.SIGKILL)
    launched.wait()

    [run] = read(str(tmp_path / "logs"))
    assert [problem for problem in run.problems if "torn" not in problem.what] == []
    assert run.ranks == [0, 1]
    assert run.status == "open"
    fit = fits_of(run)[rank]
    assert not fit.log.ended
    check_steps(fit, 0, len(fit.steps))
    assert len(fit.steps) >= flushed >= due > 20
    # The other rank's log is as good, up to where its peer was gone.
    assert len(fits_of(run)[1 - rank].steps) > 10


@pytest.mark.unmeasured
def test_slow_steps_and_bad_disks(start: Starter, tmp_path: Path) -> None:
    (tmp_path / "a file").write_text("no folder can be made below this\n")
    launched = start("failures.py", "disk", str(tmp_path), ranks=2)
    seen = watch(tmp_path / "slow" / "rank-00001.0.0.steps.csv", launched)
    launched.succeed()

    check_slow_step(tmp_path / "slow", seen)
    assert "stallscope: " not in printed_by(launched, rank=0)
    slow, no_folder, full_disk, after = re.split(r"-- .* --\n", printed_by(launched, rank=1))
    assert "stallscope: " not in slow
    check_one_warning(no_folder, "cannot write to .*a file/logs")
    check_one_warning(full_disk, "cannot write .*rank-00001.0.0.steps.csv: .*File too large")
    assert "stallscope: " not in after
    check_other_rank(tmp_path / "folder", 20)
    check_full_disk(tmp_path / "full")


def watch(log: Path, launched: Launch) -> dict[int, int]:
    """When each step was first on disk, as somebody sees who looks at the file while it grows."""
    seen: dict[int, int] = {}
    wait_for(log.exists, launched)

    def ended() -> bool:
        now = time.monotonic_ns()
        text = log.read_text()
        for row in re.findall(r"^step,(\d+),.*\n", text, re.MULTILINE):
            seen.setdefault(int(row), now)
        return "\nend," in text

    wait_for(ended, launched)
    return seen


def check_slow_step(folder: Path, seen: dict[int, int]) -> None:
    """A step of 5 s does not hold back those before it."""
    [run] = read(str(folder))
    fit = fits_of(run)[1]
    check_steps(fit, 0, 60)
    # The first step traces as well, which takes as long on a busy machine.
    slowest = (fit.steps["data"] - fit.steps["begin"])[1:]
    assert int(slowest.idxmax()) == 30
    assert slowest.max() > 4.9e9
    # They are on disk while it still waits for its batch.
    waited_until = fit.steps["data"][30]
    assert [step for step in range(30) if seen[step] >= waited_until] == []
    check_ranks_together(run)


def printed_by(launched: Launch, rank: int) -> str:
    """What one rank has printed, without what horovodrun puts before every line."""
    mark = f"[{rank}]<stderr>:"
    lines = launched.output.splitlines(keepends=True)
    return "".join(line.removeprefix(mark) for line in lines if line.startswith(mark))


def check_one_warning(printed: str, what: str) -> None:
    warnings = [line for line in printed.splitlines() if "stallscope: " in line]
    assert len(warnings) == 1, warnings
    assert re.search(f"{what}.*rank 1 is no longer recorded, training goes on", warnings[0])


def check_other_rank(folder: Path, steps: int) -> None:
    """The rank whose disk is fine records all of it."""
    fits = fits_of(read(str(folder))[0])
    assert fits[0].log.rank == 0
    check_steps(fits[0], 0, steps)
    assert fits[0].log.ended


def check_full_disk(folder: Path) -> None:
    """What was written before the disk was full can be read, but for the line that was torn."""
    check_other_rank(folder, 300)
    [run] = read(str(folder))
    full = fits_of(run)[1]
    assert full.log.size == 4000
    assert not full.log.ended
    assert full.log.torn <= 1
    check_steps(full, 0, len(full.steps))
    assert 10 < len(full.steps) < 300


@pytest.mark.unmeasured
def test_an_exception_that_nobody_catches_loses_no_step(start: Starter, tmp_path: Path) -> None:
    launched = start("failures.py", "crash", str(tmp_path))
    assert launched.wait() == 1
    assert "crashed on purpose" in launched.output
    [run] = read(str(tmp_path / "logs"))
    [fit] = fits_of(run)
    # The exception came in a callback after the tenth step.
    check_steps(fit, 0, 10)
    assert "stallscope: " not in launched.output
