"""Workers of Ray Train are runs in folders and in Ray's logs, also after a restart."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from training.environments import RAY, needs
from training.launching import launch
from training.pages import RECORDERS, blocks
from training.recorded import TIMESTAMPS, check_ranks_together

from stallscope.analysis import analyse
from stallscope.cli.main import main
from stallscope.opening import open_run
from stallscope.parsers import read
from stallscope.run import Run

pytestmark = [pytest.mark.frameworks, pytest.mark.unmeasured]

STEPS = 40
#: Steps of the loop.
MANY_STEPS = 100
SETTINGS = {
    "OMP_NUM_THREADS": "1",
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    # Another process for each group of workers.
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
}


@dataclass(frozen=True)
class Trained:
    """The files of a training run of Ray."""

    out: Path
    #: Ray's own folder of its session.
    session: Path

    @property
    def printed(self) -> Path:
        return self.out / "printed.txt"

    def run(self, folder: Path) -> Run:
        (run,) = read(str(folder))
        return run


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
        yield Trained(out, (sessions / "session_latest").resolve())
    finally:
        shutil.rmtree(sessions)


def folders(trained: Trained) -> dict[str, Path]:
    """Return the log folders that workers share, by the names of their runs."""
    # Ray's workers change into a folder of its session.
    relative = trained.session / "artifacts" / "kinds" / "logs"
    return {
        "loop": trained.out / "loop",
        "hugging face": relative / "hugging_face",
        "lightning": trained.out / "lightning",
    }


@pytest.mark.parametrize(
    ("kind", "steps"), [("loop", MANY_STEPS), ("hugging face", STEPS), ("lightning", STEPS)]
)
def test_workers_that_share_a_folder_are_one_run(trained: Trained, kind: str, steps: int) -> None:
    run = trained.run(folders(trained)[kind])
    assert (run.name, run.status, run.problems) == (kind, "completed", ())
    assert [(log.rank, log.facts["size"], log.facts["local_rank"]) for log in run.logs] == [
        (0, 2, 0),
        (1, 2, 1),
    ]
    assert run.steps.num_rows == 2 * steps
    assert all(run.steps[name].null_count == 0 for name in TIMESTAMPS)
    check_ranks_together(run)


def test_the_function_of_the_page_records_a_run(trained: Trained) -> None:
    run = trained.run(trained.out / "page")
    assert (run.size, run.ranks, run.status) == (2, [0, 1], "completed")
    assert analyse(run).ledger is not None


def test_the_slow_rank_is_found(trained: Trained) -> None:
    verdict = analyse(trained.run(folders(trained)["loop"])).bottleneck
    assert (verdict.kind, verdict.cause, verdict.ranks) == ("imbalance", "input", (1,))


def test_each_training_in_a_run_of_ray_has_its_own_id(trained: Trained) -> None:
    runs = [trained.run(folder) for folder in folders(trained).values()]
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
    run = trained.run(folders(trained)["loop"])
    assert all(log.process_start < log.job_start < log.anchor for log in run.logs)
    processes = min(log.process_start for log in run.logs)
    first_step = run.steps["begin"].to_numpy().min()
    assert analyse(run).job.startup < (first_step - processes) / 1e9


@pytest.mark.parametrize("place", ["printed", "session"])
def test_the_output_of_workers_has_the_same_steps(trained: Trained, place: str) -> None:
    written = trained.run(folders(trained)["loop"])
    logs = trained.printed if place == "printed" else trained.session / "logs"
    same = trained.run(logs)
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
    assert f"/loop (run {trained.run(folders(trained)['loop']).id}, " in line


def test_a_report_on_rays_storage_is_an_error(
    trained: Trained, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(trained.out / "storage")]) == 2
    assert "no logs in" in capsys.readouterr().err
