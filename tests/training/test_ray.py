"""Workers of Ray Train are runs in folders and in Ray's logs, also after a restart."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
from training.environments import RAY, needs
from training.launching import launch
from training.pages import RECORDERS, blocks
from training.recorded import Recorded, check_figures
from training.recorder_contract import Case, RecorderContract

from stallscope.analysis import analyse
from stallscope.cli.main import main
from stallscope.opening import open_run
from stallscope.parsers import read
from stallscope.run import Run

pytestmark = [pytest.mark.frameworks, pytest.mark.unmeasured]

STEPS = 40
FACTS = {"framework": "pytorch"}
SETTINGS = {
    "OMP_NUM_THREADS": "1",
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    # Another process for each group of workers.
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
}


@dataclass(frozen=True)
class Trained(Recorded):
    """The files of a training run of Ray, whose workers print what the recorder logs."""

    #: Ray's own folder of its session.
    session: Path

    @property
    def printed(self) -> Path:
        return self.out / "printed.txt"

    def logs(self, case: str, name: str = "logs") -> Path:
        """Return the log folder that workers share. They change into a folder of Ray's session."""
        relative = self.session / "artifacts" / "kinds" / "logs"
        if case == "prepared":
            return super().logs(case, name)
        return relative / case if case == "hugging_face" else self.out / case

    def run(self, case: str) -> Run:
        (run,) = read(str(self.logs(case)))
        assert run.problems == ()
        return run

    def same_weights(self, case: str) -> bool:
        # Only this training writes them.
        return case != "prepared" or super().same_weights(case)

    def clean(self, case: str, ranks: int = 2) -> None:
        assert "no longer recorded" not in self.output


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trained]:
    """Train with a restart. Ray's sockets need a folder with a short path."""
    needs(RAY)
    out, sessions = tmp_path_factory.mktemp("ray"), Path(tempfile.mkdtemp(prefix="ray-"))
    (out / "page.py").write_text(blocks(RECORDERS / "ray.md", "python")[0])
    try:
        words = (str(out), str(sessions))
        started = launch(out / "printed.txt", "ray_cases.py", *words, environment=RAY, **SETTINGS)
        try:
            started.succeed()
        finally:
            started.end()
        yield Trained(out, started.output, (sessions / "session_latest").resolve())
    finally:
        shutil.rmtree(sessions)


class TestRay(RecorderContract):
    framework = "Ray Train: PyTorch, Lightning, Hugging Face Trainer"
    recorder = "Ray Train"
    launch = "2 workers"
    ranks = 2
    scored = "ray"
    versions = ("torch",)
    cases = (
        Case("loop", steps=STEPS, run_name="loop", facts=FACTS, slow="input", milliseconds=40),
        Case("prepared", weights=True, run_name="prepared", facts=FACTS, probed=((14, 20),)),
        Case("hugging_face", steps=STEPS, samples=1, run_name="hugging face", facts=FACTS),
        Case("lightning", steps=STEPS, run_name="lightning", facts=FACTS),
    )
    cannot: ClassVar[Mapping[str, str]] = dict.fromkeys(
        (
            *("stopwatch", "validation", "checkpoint", "collections", "accumulation"),
            *("work", "slow compute", "exception", "resume", "fault"),
        ),
        "tested without Ray, which runs the recorder of the framework",
    )

    @pytest.fixture(scope="class")
    @classmethod
    def recorded(cls, trained: Trained) -> Trained:
        return trained

    def test_batches_of_prepared_loaders_are_found_in_their_steps(self, recorded: Trained) -> None:
        for fit in recorded.fits("prepared"):
            # The first step takes two batches, the last one none, and six are fetched ahead.
            check_figures(fit.facts["loader"], [24], asked=14)

    def test_workers_are_ranks_of_one_host(self, recorded: Trained) -> None:
        for case in self.cases:
            run = recorded.run(case.name)
            ranks = [(log.rank, log.facts["local_rank"]) for log in run.logs]
            assert (run.status, ranks) == ("completed", [(0, 0), (1, 1)])


def test_the_function_of_the_page_records_a_run(trained: Trained) -> None:
    run = trained.run("page")
    assert (run.size, run.ranks, run.status) == (2, [0, 1], "completed")
    assert analyse(run).ledger is not None


def test_each_training_in_a_run_of_ray_has_its_own_id(trained: Trained) -> None:
    runs = [trained.run(case.name) for case in TestRay.cases]
    assert len({run.id for run in runs}) == len(runs)
    (launched,) = {log.facts["launch"] for run in runs for log in run.logs}
    assert launched.startswith("RAY_TRAIN:kinds:")


def test_a_restart_is_another_generation_of_a_run_whose_workers_share_nothing(
    trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["collect", str(trained.out / "own"), "--to", str(tmp_path / "store")]) == 0
    assert capsys.readouterr().out.count("2 of 2 ranks") == 1
    analysis = analyse(open_run(str(tmp_path / "store")))
    assert [generation.ended_by for generation in analysis.generations] == ["killed", "completed"]
    assert [generation.size for generation in analysis.generations] == [2, 2]
    assert [generation.steps for generation in analysis.generations][1:] == [STEPS - 20]
    # The checkpoint was saved after 20 steps, and the last steps before the kill may be lost.
    first, _ = analysis.generations
    assert first.steps in (23, 24, 25)
    assert first.repeated_steps == first.steps - 20
    assert analysis.job.restart > 0


def test_the_job_starts_when_ray_calls_the_training_function(trained: Trained) -> None:
    run = trained.run("loop")
    assert all(log.process_start < log.job_start < log.anchor for log in run.logs)
    processes = min(log.process_start for log in run.logs)
    first_step = run.steps["begin"].to_numpy().min()
    assert analyse(run).job.startup < (first_step - processes) / 1e9


@pytest.mark.parametrize("place", ["printed", "session"])
def test_the_output_of_workers_has_the_same_steps(trained: Trained, place: str) -> None:
    written = trained.run("loop")
    logs = trained.printed if place == "printed" else trained.session / "logs"
    (same,) = read(str(logs))
    assert same.id == written.id
    assert same.steps.equals(written.steps)


def test_ranks_of_printed_lines_are_known(
    trained: Trained, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", str(trained.printed)]) == 0
    assert "lines labelled by Ray" in capsys.readouterr().out


def test_a_summary_is_printed_when_the_log_closes(trained: Trained) -> None:
    """Ray kills its workers, so that they cannot print at their exit."""
    (line,) = (
        line
        for line in trained.printed.read_text().splitlines()
        if "RayTrainWorker" in line and "logs: " in line
    )
    # The line is longer if the other rank's log is already closed.
    assert f"/loop (run {trained.run('loop').id}, " in line


def test_a_report_on_rays_storage_is_an_error(
    trained: Trained, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(trained.out / "storage")]) == 2
    assert "no logs in" in capsys.readouterr().err
