"""An elastic job loses a rank: what was before and what came after are one run of two generations."""

from __future__ import annotations

from pathlib import Path

import pytest
from training.launching import launch
from training.recorded import TIMESTAMPS, fits_of

from stallscope.analysis import analyse
from stallscope.parsers import read
from stallscope.run import Run

pytestmark = [pytest.mark.horovod, pytest.mark.unmeasured]

PATIENCE_SECONDS = 240.0
STEPS = 60
FATAL_STEP = 25
# Two names of this machine: Horovod gives no more work to a host that has failed.
HOSTS = ("localhost", "127.0.0.1")


@pytest.fixture(scope="module")
def job(training_side: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two ranks left behind, of which rank 0 ended itself; the other one then was rank 0."""
    out = tmp_path_factory.mktemp("elastic")
    discovery = out / "hosts.sh"
    discovery.write_text("#!/bin/sh\n" + "".join(f"echo {host}:1\n" for host in HOSTS))
    discovery.chmod(0o755)
    # Without an interface Horovod waits for a second machine to find one with.
    options = ["--gloo", "--min-np", "1", "--max-np", "2", "--network-interfaces", "lo"]
    options += ["--host-discovery-script", str(discovery)]
    launched = launch(
        out / "printed.txt", "elastic_cases.py", str(out), ranks=2, options=tuple(options)
    )
    launched.succeed(PATIENCE_SECONDS)
    return out


@pytest.fixture(scope="module")
def run(job: Path) -> Run:
    (run,) = read(str(job / "logs"))
    return run


def steps_worked_through(job: Path) -> list[tuple[int, int, int]]:
    """Rank, ranks and step, as the processes wrote them down themselves."""
    lines = [line for file in job.glob("ended-*.txt") for line in file.read_text().splitlines()]
    return [(int(rank), int(size), int(step)) for rank, size, step, _ in map(str.split, lines)]


def test_before_and_after_are_generations_of_one_run(job: Path, run: Run) -> None:
    fits = fits_of(run)
    assert [(fit.log.rank, fit.log.generation, fit.log.part) for fit in fits] == [
        (0, 0, 0),
        (0, 1, 0),
        (1, 0, 0),
    ]
    failed, alone, survivor = fits
    # The process that goes on is the one that was rank 1.
    assert alone.facts["pid"] == survivor.facts["pid"] != failed.facts["pid"]
    assert [fit.facts["size"] for fit in fits] == [2, 1, 2]
    assert len({fit.facts["run_id"] for fit in fits}) == 1
    assert run.problems == ()


def test_what_was_flushed_before_the_kill_is_there(job: Path, run: Run) -> None:
    failed, alone, survivor = fits_of(run)
    assert not failed.log.ended
    assert survivor.log.ended
    assert alone.log.ended
    worked = steps_worked_through(job)
    assert max(step for rank, size, step in worked if (rank, size) == (0, 2)) == FATAL_STEP - 1
    # It ended itself in the middle of a step, when those before were flushed.
    assert failed.numbers == list(range(FATAL_STEP))
    assert survivor.numbers[:FATAL_STEP] == failed.numbers
    assert len([step for _, size, step in worked if size == 1]) == len(alone.numbers)
    assert alone.numbers == list(range(len(alone.numbers)))
    assert not failed.steps[list(TIMESTAMPS)].isna().any(axis=None)


def test_the_report_says_that_the_job_began_anew(run: Run) -> None:
    analysis = analyse(run)
    assert "the run has 2 generations" in " ".join(analysis.warnings)
    assert analysis.steps >= STEPS
