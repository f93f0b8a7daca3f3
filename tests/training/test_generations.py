"""Ranks join and leave: each generation of a job is found with all its steps, and none counts twice."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
from support.lab import LabStarter
from support.waiting import wait_until
from training.launching import ENVIRONMENT, ON_HOSTS, Launch, launch_words, programs_of
from training.recorded import TIMESTAMPS

from stallscope.analysis import Analysis, analyse
from stallscope.parsers import read

pytestmark = [pytest.mark.horovod, pytest.mark.unmeasured]

STEPS_BEFORE_CHANGE = 30
# The last step is this far ahead, eight seconds, so that no rank has passed it when it is chosen.
STEPS_TO_THE_END = 200
# The shortest and the longest time for which Horovod does not use a host that has failed: meanwhile the
# others must train, on a busy machine as well.
COOLDOWN_SECONDS = ("20", "30")


@dataclass(frozen=True)
class SeenLog:
    """A log while its process runs."""

    name: str
    pid: int
    rank: int
    size: int
    steps: int
    last_step: int


def logs_in(folder: Path) -> list[SeenLog]:
    logs = []
    for file in folder.glob("*.steps.csv"):
        text = file.read_text()
        if "\n" not in text:
            # It is new.
            continue
        facts = json.loads(text.partition("\n")[0].split(" ", 2)[2])
        steps = [int(step) for step in re.findall(r"^step,(\d+),", text, re.MULTILINE)]
        logs.append(
            SeenLog(
                file.name, facts["pid"], facts["rank"], facts["size"], len(steps), max([0, *steps])
            )
        )
    return logs


def write_at_once(path: Path, text: str) -> None:
    draft = path.with_suffix(".draft")
    draft.write_text(text)
    draft.rename(path)


class Elastic:
    """A job under ``horovodrun``'s elastic driver, on hosts that the test chooses.

    Args:
        hosts: all hosts; the job starts on the first two.
        interface: of the network between them.
        login: words that run a command on the first host; none on this machine.
        comes_back: whether a host that has failed is used again, some seconds later.
    """

    def __init__(
        self,
        out: Path,
        hosts: Sequence[str],
        interface: str,
        login: Sequence[str],
        *program: str,
        comes_back: bool = False,
    ) -> None:
        self.logs = out / "logs"
        self._last_step = out / "last-step"
        self._earlier: set[str] = set()
        self._all = hosts
        self._hosts = out / "hosts.txt"
        self.use(2)
        discovery = out / "hosts.sh"
        discovery.write_text(f"#!/bin/sh\ncat {self._hosts}\n")
        discovery.chmod(0o755)
        horovodrun = ["horovodrun", "--disable-cache", "--gloo", "-np", "2"]
        # Without an interface Horovod would wait for a second machine to find one.
        horovodrun += ["--min-np", "2", "--max-np", "3", "--network-interfaces", interface]
        if comes_back:
            horovodrun += ["--blacklist-cooldown-range", *COOLDOWN_SECONDS]
        horovodrun += ["--host-discovery-script", str(discovery), "python"]
        # Survivors wait for a killed rank until this timeout if no connection breaks, and all ranks wait
        # for a new one, which starts within a minute on a busy machine.
        variables = ["env", "HOROVOD_GLOO_TIMEOUT_SECONDS=90"]
        words = [*login, *variables, *horovodrun]
        self.launched: Launch = launch_words(out / "printed.txt", words, *program)

    def use(self, hosts: int) -> None:
        write_at_once(self._hosts, "".join(f"{host}:1\n" for host in self._all[:hosts]))

    def wait_for(self, size: int) -> list[SeenLog]:
        """Return the logs of a new generation of this size, once each has enough steps."""

        def new_logs() -> list[SeenLog]:
            logs = [log for log in logs_in(self.logs) if log.size == size]
            logs = [log for log in logs if log.name not in self._earlier]
            return [log for log in logs if log.steps >= STEPS_BEFORE_CHANGE]

        what = f"{size} ranks train; printed:\n"
        wait_until(lambda: len(new_logs()) >= size, lambda: what + self.launched.output)
        logs = new_logs()
        self._earlier |= {log.name for log in logs}
        return logs

    def analysis(self) -> Analysis:
        """Let the job end, and analyse its logs."""
        last_step = max(log.last_step for log in logs_in(self.logs)) + STEPS_TO_THE_END
        write_at_once(self._last_step, str(last_step))
        self.launched.succeed()
        (run,) = read(str(self.logs))
        return analyse(run)


PROGRAMS = {
    "PyTorch": ("generations_torch.py", "outside"),
    "Keras": ("generations_keras.py", "fit"),
    "Keras loop": ("generations_keras.py", "loop"),
}


@pytest.fixture(
    scope="module",
    params=[
        # The test on a cluster trains with PyTorch.
        pytest.param("PyTorch", marks=pytest.mark.variant),
        "Keras",
        pytest.param("Keras loop", marks=pytest.mark.variant),
    ],
)
def one_machine(
    request: pytest.FixtureRequest, training_side: None, tmp_path_factory: pytest.TempPathFactory
) -> Analysis:
    """Use three names of this machine as hosts: Horovod does not use one again that has failed."""
    out = tmp_path_factory.mktemp("elastic")
    names = ("localhost", "127.0.0.1", socket.gethostname())
    program, *arguments = PROGRAMS[request.param]
    job = Elastic(out, names, "lo", [], program, str(out), *arguments)
    try:
        job.wait_for(2)
        job.use(3)
        (victim,) = (log for log in job.wait_for(3) if log.rank == 1)
        os.kill(victim.pid, signal.SIGKILL)
        job.wait_for(2)
        return job.analysis()
    finally:
        job.launched.end()


@pytest.fixture
def cluster(training_side: None, start_lab: LabStarter, tmp_path: Path) -> Analysis:
    """Use three hosts: one joins, and one loses its rank, is excluded for a while, and comes back."""
    lab = start_lab(3, programs_of(ENVIRONMENT), **ON_HOSTS)
    names = [host.name for host in lab.hosts]
    words = ["generations_torch.py", str(tmp_path)]
    job = Elastic(tmp_path, names, "eth0", lab.ssh("h1", []), *words, "inside", comes_back=True)
    try:
        job.wait_for(2)
        job.use(3)
        job.wait_for(3)
        lab["h2"].kill("".join(f"{word}\0" for word in words).encode())
        job.wait_for(3)
        return job.analysis()
    finally:
        job.launched.end()


def assert_no_step_is_lost(analysis: Analysis) -> None:
    """Check that no generation loses a step, and that a repeated step counts once."""
    recorded = analysis.run.steps.to_pandas()
    steps = [
        recorded[recorded["generation"] == generation.number]["step"]
        for generation in analysis.generations
    ]
    assert [generation.steps for generation in analysis.generations] == [
        numbers.nunique() for numbers in steps
    ]
    again = [before.max() + 1 - after.min() for before, after in pairwise(steps)]
    assert min(again) >= 0
    assert [generation.repeated_steps for generation in analysis.generations] == [*again, 0]
    assert recorded["step"].nunique() == steps[-1].max() + 1 - steps[0].min()


def assert_time_adds_up(analysis: Analysis) -> None:
    goodput, job = analysis.goodput, analysis.job
    assert goodput is not None
    parts = goodput.compute_s + sum(goodput.lost_s.values())
    assert parts == pytest.approx(job.total, rel=1e-3)
    assert job.restart + job.stopped > 0
    assert 0 < goodput.compute_fraction < goodput.fraction < 1


def test_every_generation_on_one_machine_is_found_with_its_ranks(one_machine: Analysis) -> None:
    generations = one_machine.generations
    assert [generation.size for generation in generations] == [2, 3, 2]
    assert [generation.ended_by for generation in generations] == ["resized", "killed", "completed"]
    assert all(generation.entries for generation in generations)
    # The job continues from its last commit.
    assert generations[0].repeated_steps == 0
    assert_no_step_is_lost(one_machine)
    assert_time_adds_up(one_machine)
    assert {tuple(log.facts["stamps"]["placed"]) for log in one_machine.run.logs} == {TIMESTAMPS}
    assert one_machine.run.steps.column("reduced").null_count == 0
    assert "the run has 3 generations" in " ".join(one_machine.warnings)


def test_survivors_end_their_logs_and_continue_with_other_ranks(one_machine: Analysis) -> None:
    logs = one_machine.run.logs
    assert [(log.generation, log.rank) for log in logs if not log.ended] == [(1, 1)]
    assert len({log.facts["run_id"] for log in logs}) == 1
    before, after = (
        {log.facts["pid"]: log.rank for log in logs if log.generation == generation}
        for generation in (1, 2)
    )
    # Three ranks continued as two.
    assert after.keys() < before.keys()
    assert sorted(after.values()) == [0, 1]
    assert sorted(before[pid] for pid in after) == [0, 2]


def test_every_generation_of_a_cluster_is_found_with_its_hosts(cluster: Analysis) -> None:
    generations = cluster.generations
    assert [generation.size for generation in generations] == [2, 3, 2, 3]
    assert [generation.ended_by for generation in generations] == [
        "resized",
        "killed",
        "resized",
        "completed",
    ]
    # Each host has its own boot id and monotonic clock.
    assert [sorted(generation.hosts) for generation in generations] == [
        ["h1", "h2"],
        ["h1", "h2", "h3"],
        ["h1", "h3"],
        ["h1", "h2", "h3"],
    ]
    assert all(generation.entries for generation in generations)
    assert_no_step_is_lost(cluster)
    assert_time_adds_up(cluster)


def torchrun(out: Path, steps: int, fatal_step: int = -1) -> None:
    words = [str(ENVIRONMENT / "bin" / "torchrun"), "--standalone", "--nproc-per-node", "2"]
    words += ["--max-restarts", "1"]
    launch_words(
        out / "printed.txt", words, "resumed.py", str(out), str(steps), str(fatal_step)
    ).succeed()


def test_a_restart_from_a_checkpoint_is_another_generation_of_the_run(
    training_side: None, tmp_path: Path
) -> None:
    """The first restart is a new job, the second one is torchrun's after a failure."""
    torchrun(tmp_path, 50)
    torchrun(tmp_path, 120, fatal_step=90)
    (run,) = read(str(tmp_path / "logs"))
    analysis = analyse(run)
    assert [generation.ended_by for generation in analysis.generations] == [
        "restarted",
        "killed",
        "completed",
    ]
    assert [generation.steps for generation in analysis.generations] == [50, 50, 40]
    # The checkpoints were saved after 40 and 80 steps.
    assert [generation.repeated_steps for generation in analysis.generations] == [10, 10, 0]
    assert analysis.job.restart > 0
    assert analysis.job.repeated > 0
