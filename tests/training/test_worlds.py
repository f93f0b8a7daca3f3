"""Ranks come and go: every world of a job is found, with all of its steps, and nothing counts twice."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.waiting import wait_until
from training.launching import ENVIRONMENT, Launch, launch, launch_words

from stallscope.analysis import Analysis, analyse
from stallscope.parsers import read

pytestmark = [pytest.mark.horovod, pytest.mark.unmeasured]

PATIENCE_SECONDS = 180.0
# Three names of this machine: Horovod takes each for a host.
HOSTS = ("localhost", "127.0.0.1", socket.gethostname())
STEPS_BEFORE_CHANGE = 30


@dataclass(frozen=True)
class SeenLog:
    """A log while its process runs."""

    pid: int
    rank: int
    size: int
    steps: int


def logs_in(folder: Path) -> list[SeenLog]:
    found = []
    for file in folder.glob("*.steps.csv"):
        text = file.read_text()
        facts = json.loads(text.partition("\n")[0].split(" ", 2)[2])
        steps = len(re.findall(r"^step,", text, re.MULTILINE))
        found.append(SeenLog(facts["pid"], facts["rank"], facts["size"], steps))
    return found


class Elastic:
    """A job under ``horovodrun``'s elastic driver, whose hosts the test chooses."""

    def __init__(self, out: Path, *program: str) -> None:
        self.logs = out / "logs"
        self._hosts = out / "hosts.txt"
        self.use(HOSTS[:2])
        discovery = out / "hosts.sh"
        discovery.write_text(f"#!/bin/sh\ncat {self._hosts}\n")
        discovery.chmod(0o755)
        # Without an interface Horovod waits for a second machine to find one with.
        options = ["--gloo", "--min-np", "2", "--max-np", "3", "--network-interfaces", "lo"]
        options += ["--host-discovery-script", str(discovery)]
        self.launched: Launch = launch(
            out / "printed.txt",
            *program,
            ranks=2,
            options=tuple(options),
            # The survivors of a killed rank notice it after this time.
            HOROVOD_GLOO_TIMEOUT_SECONDS="8",
        )

    def use(self, hosts: tuple[str, ...]) -> None:
        draft = self._hosts.with_suffix(".draft")
        draft.write_text("".join(f"{host}:1\n" for host in hosts))
        draft.rename(self._hosts)

    def wait_for(self, size: int) -> list[SeenLog]:
        """The logs of a world of this size, once each has enough steps."""

        def own() -> list[SeenLog]:
            logs = [log for log in logs_in(self.logs) if log.size == size]
            return [log for log in logs if log.steps >= STEPS_BEFORE_CHANGE]

        what = f"{size} ranks train; printed:\n"
        wait_until(
            lambda: len(own()) >= size, lambda: what + self.launched.output, PATIENCE_SECONDS
        )
        return own()


def trained_by_2_3_and_2_ranks(out: Path, *program: str) -> Analysis:
    """A host joins a job of two ranks, and then a rank is killed."""
    job = Elastic(out, *program)
    try:
        job.wait_for(2)
        job.use(HOSTS)
        (victim,) = (log for log in job.wait_for(3) if log.rank == 1)
        os.kill(victim.pid, signal.SIGKILL)
        job.launched.succeed(PATIENCE_SECONDS)
    finally:
        job.launched.end()
    (run,) = read(str(job.logs))
    return analyse(run)


PROGRAMS = {
    "a logger per world": ("worlds_torch.py", "inside"),
    "one logger": ("worlds_torch.py", "outside"),
    "Keras": ("worlds_keras.py",),
}


@pytest.fixture(scope="module", params=PROGRAMS)
def elastic(
    request: pytest.FixtureRequest, training_side: None, tmp_path_factory: pytest.TempPathFactory
) -> Analysis:
    out = tmp_path_factory.mktemp("elastic")
    program, *arguments = PROGRAMS[request.param]
    return trained_by_2_3_and_2_ranks(out, program, str(out), *arguments)


def test_every_world_is_found_with_its_ranks(elastic: Analysis) -> None:
    assert [world.size for world in elastic.worlds] == [2, 3, 2]
    assert [world.ended_by for world in elastic.worlds] == ["resized", "killed", "completed"]
    assert all(len(world.hosts) == world.size for world in elastic.worlds)
    assert all(world.entries for world in elastic.worlds)


def test_no_step_is_lost_and_none_counts_twice(elastic: Analysis) -> None:
    run = elastic.run
    recorded = run.steps.to_pandas()
    for world in elastic.worlds:
        own = recorded[recorded["generation"] == world.number]
        assert own["step"].nunique() == world.steps
    first, second, last = (
        recorded[recorded["generation"] == world.number]["step"] for world in elastic.worlds
    )
    # The job goes on from its last commit.
    assert second.min() == first.max() + 1
    again = second.max() + 1 - last.min()
    assert [world.repeated_steps for world in elastic.worlds] == [0, again, 0]
    assert again >= 0
    assert recorded["step"].nunique() == last.max() + 1 - first.min()


def test_time_adds_up_to_the_whole_job(elastic: Analysis) -> None:
    goodput, job = elastic.goodput, elastic.job
    assert goodput is not None
    parts = goodput.compute_s + sum(goodput.lost_s.values())
    assert parts == pytest.approx(job.total, rel=1e-3)
    assert job.restart + job.stopped > 0
    assert 0 < goodput.compute_fraction < goodput.fraction < 1


def torchrun(out: Path, steps: int, fatal_step: int = -1) -> None:
    words = [str(ENVIRONMENT / "bin" / "torchrun"), "--standalone", "--nproc-per-node", "2"]
    words += ["--max-restarts", "1"]
    launch_words(
        out / "printed.txt", words, "resumed.py", str(out), str(steps), str(fatal_step)
    ).succeed(PATIENCE_SECONDS)


def restarted_job(out: Path) -> None:
    torchrun(out, 120, fatal_step=50)


def later_job(out: Path) -> None:
    torchrun(out, 50)
    torchrun(out, 120)


@pytest.mark.parametrize(
    ("train", "ended_by"), [(restarted_job, "killed"), (later_job, "restarted")]
)
def test_a_restart_from_a_checkpoint_is_another_world_of_the_run(
    training_side: None, tmp_path: Path, train: Callable[[Path], None], ended_by: str
) -> None:
    train(tmp_path)
    (run,) = read(str(tmp_path / "logs"))
    analysis = analyse(run)
    assert [world.ended_by for world in analysis.worlds] == [ended_by, "completed"]
    assert [world.steps for world in analysis.worlds] == [50, 80]
    # The checkpoint was saved after 40 steps.
    assert [world.repeated_steps for world in analysis.worlds] == [10, 0]
    assert analysis.job.restart > 0
    assert analysis.job.repeated > 0
