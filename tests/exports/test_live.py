"""Series that are appended while a run trains are those of the whole run, in however many looks."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.needing import need
from support.step_logs import Job, forget_stages, write_job

from stallscope.cli.export import FollowedRun
from stallscope.cli.main import main
from stallscope.errors import NotFoundError, UnreadableError, UsageError
from stallscope.exports import live
from stallscope.exports.export_formats import TENSORBOARD_FILE
from stallscope.exports.exported_run import ExportedRun, exported_run
from stallscope.exports.live import follow, open_series, points_after, window_starts
from stallscope.exports.scalars import Point
from stallscope.exports.tensorboard_file import TensorboardSeries
from stallscope.parsers import read
from stallscope.parsers.formats.tensorboard import records
from stallscope.run import Run

from .decoding import ALL
from .wandb_files import READING, python

JOB = Job(ranks=2, steps=125, slow={(1, "input"): 9.0})


class Growing:
    """A run whose logs have more lines at every look."""

    def __init__(self, folder: Path, shares: tuple[float, ...], job: Job = JOB) -> None:
        self._whole = [
            (path, path.read_text().splitlines(keepends=True))
            for path in write_job(folder / "logs", job)
        ]
        self._folder = folder / "logs"
        self._shares = iter(shares)
        self.grow()

    def grow(self) -> bool:
        """Add lines; return whether these were the last ones."""
        share = next(self._shares)
        for path, lines in self._whole:
            path.write_text("".join(lines[: max(int(len(lines) * share), 2)]))
        return share == 1.0

    def open(self) -> Run:
        (run,) = read(str(self._folder))
        return run


@pytest.fixture
def growing(tmp_path: Path) -> Callable[..., Growing]:
    return lambda *shares: Growing(tmp_path, shares)


def events(folder: Path) -> list[bytes]:
    return list(records((folder / TENSORBOARD_FILE).read_bytes()))


def at_once(run: Run, folder: Path) -> list[bytes]:
    """Return the events of the whole run, written in one piece."""
    whole = TensorboardSeries(folder)
    exported = exported_run(run, ALL)
    whole.add(exported, points_after(exported, -1, whole=True))
    whole.close()
    return events(folder)


@pytest.mark.parametrize("shares", [(1.0,), (0.0, 1.0), (0.1, 0.35, 0.351, 0.9, 1.0)])
def test_points_are_appended_once(
    growing: Callable[..., Growing], tmp_path: Path, shares: tuple[float, ...]
) -> None:
    run = growing(*shares)
    with closing(open_series("tensorboard", str(tmp_path / "board"))) as series:
        follow(run.open, series, ALL, 0.0, lambda _: run.grow() and False)
    written = events(tmp_path / "board")
    assert written == at_once(run.open(), tmp_path / "whole")
    # 125 steps are 13 windows, and the first event is the format's version.
    assert len(written) == 14


def test_a_restarted_follower_continues(growing: Callable[..., Growing], tmp_path: Path) -> None:
    run = growing(0.5, 1.0)
    first = TensorboardSeries(tmp_path / "board")
    follow(run.open, first, ALL, 0.0, lambda _: True)
    first.close()
    file = tmp_path / "board" / TENSORBOARD_FILE
    # It was killed while it wrote.
    file.write_bytes(file.read_bytes()[:-5])
    run.grow()
    again = TensorboardSeries(tmp_path / "board")
    assert 0 < again.last_step < 65
    follow(run.open, again, ALL, 0.0, lambda _: True)
    again.close()
    written = events(tmp_path / "board")
    assert len(written) == len(set(written)) == 14


def test_points_that_a_server_refuses_for_a_while_come_later(
    growing: Callable[..., Growing], tmp_path: Path
) -> None:
    run = growing(0.5, 1.0)
    board = DownAtFirst(tmp_path / "board")
    follow(run.open, board, ALL, 0.0, lambda _: run.grow() and False)
    board.close()
    assert events(tmp_path / "board") == at_once(run.open(), tmp_path / "whole")


class DownAtFirst(TensorboardSeries):
    """Refuses the first points, as a server that is down; a real one would take minutes to say so."""

    was_down = False

    def add(self, exported: ExportedRun, points: Sequence[Point]) -> None:
        if not self.was_down:
            self.was_down = True
            raise UnreadableError("the server does not answer")
        super().add(exported, points)


def test_windows_grow_with_the_steps_and_stay_where_they_are() -> None:
    steps = np.array([-1, 0, 9, 10, 9_999, 10_000, 10_099, 123_456, 1_000_000])
    assert window_starts(steps).tolist() == [
        *(-1, 0, 0, 10, 9_990, 10_000, 10_000, 123_000, 1_000_000),
    ]
    many = np.arange(300_000)
    assert len(np.unique(window_starts(many))) < 2_200


def test_nothing_is_written_where_no_stage_was_measured(tmp_path: Path) -> None:
    write_job(tmp_path / "logs", JOB)
    forget_stages(tmp_path / "logs")
    (run,) = read(str(tmp_path / "logs"))
    unmeasured = pytest.raises(NotFoundError, match="stages of these steps were not measured")
    with closing(open_series("tensorboard", str(tmp_path / "board"))) as series, unmeasured:
        follow(lambda: run, series, ALL, 0.0, lambda _: True)
    assert events(tmp_path / "board") == []


def test_the_pause_grows_with_the_time_that_reading_takes(
    growing: Callable[..., Growing], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, pauses = growing(0.5, 1.0), []
    ticks = iter([0.0, 7.0, 8.0])
    monkeypatch.setattr(live, "time", SimpleNamespace(monotonic=lambda: next(ticks)))
    with closing(open_series("tensorboard", str(tmp_path / "board"))) as series:
        follow(run.open, series, ALL, 5.0, lambda pause: bool(pauses.append(pause) or True))
    assert pauses == [pytest.approx(63.0)]


@pytest.mark.slow
@pytest.mark.extras
def test_weights_and_biases_has_one_offline_run(tmp_path: Path) -> None:
    need(find_spec("wandb"), "there is no wandb here: make .venv/.ready-dev")
    write_job(tmp_path / "logs", replace(JOB, facts={"run_name": "slow input"}))
    words = ["export", "logs", "--format", "wandb", "--out", "wandb", "--follow"]
    assert python(tmp_path, "-m", "stallscope", *words) == "wandb\n"
    (folder,) = (tmp_path / "wandb").glob("wandb/offline-run-*")
    offline_run: dict[str, Any] = json.loads(python(tmp_path, "-c", READING, str(folder)))
    assert offline_run["name"] == "slow input"
    assert [row["_step"] for row in offline_run["rows"]] == list(range(0, 125, 10))


def test_a_completed_run_is_written_and_the_command_ends(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_job(tmp_path / "logs", JOB)
    place = str(tmp_path / "board")
    words = ["export", str(tmp_path / "logs"), "--format", "tensorboard", "--out", place]
    assert main([*words, "--follow"]) == 0
    assert main([*words, "--follow"]) == 0
    assert capsys.readouterr().out == f"{place}\n" * 2
    assert len(events(tmp_path / "board")) == 14


def test_one_run_is_followed_though_a_later_job_uses_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_job(tmp_path / "logs" / "1", JOB)
    followed = FollowedRun("logs", None)
    write_job(tmp_path / "logs" / "2", replace(JOB, run_id="run-b"))
    assert followed().id == "run-a"
    words = ["export", "logs", "--format", "tensorboard", "--out", "board"]
    for more in ([], ["--follow"]):
        assert main([*words, *more]) == 2
        assert "logs: there are 2 runs here; name one: logs#run-" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "more", "message"),
    [
        ("perfetto", [], "perfetto cannot be followed, only tensorboard, wandb, mlflow can"),
        ("tensorboard", ["--from", "3"], "leave out --from and --to"),
        ("tensorboard", ["--interval", "soon"], "--interval soon: give a number of seconds"),
    ],
)
def test_what_cannot_be_followed(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    more: list[str],
    message: str,
) -> None:
    write_job(tmp_path / "logs", JOB)
    out = ["--format", name, "--out", str(tmp_path / "out")]
    assert main(["export", str(tmp_path / "logs"), *out, "--follow", *more]) == 2
    assert message in capsys.readouterr().err


def test_a_place_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_job(tmp_path / "logs", JOB)
    (tmp_path / "file").write_text("")
    out = ["--format", "tensorboard", "--out", str(tmp_path / "file")]
    assert main(["export", str(tmp_path / "logs"), *out, "--follow"]) == 2
    assert "no points can be written here" in capsys.readouterr().err


def test_points_of_a_window_are_its_means(tmp_path: Path) -> None:
    write_job(tmp_path / "logs", JOB)
    (run,) = read(str(tmp_path / "logs"))
    exported = exported_run(run, ALL)
    points: list[Point] = points_after(exported, 55, whole=False)
    # Window 50 has a point already, and the last one may not be complete.
    assert [step for step, _, _ in points] == [60, 70, 80, 90, 100, 110]
    for _, _, values in points:
        stages = [value for name, value in values.items() if name.startswith("stallscope_slowest")]
        assert sum(stages) == pytest.approx(values["stallscope/step_ms"])


def test_a_format_without_series() -> None:
    with pytest.raises(UsageError, match="csv cannot be followed"):
        open_series("csv", "out")
