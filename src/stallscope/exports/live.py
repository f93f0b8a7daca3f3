"""Follow a run that trains, and append its series to TensorBoard, Weights & Biases or MLflow.

A point is the mean over a window of steps. The window depends only on the steps' numbers, so written
points stay valid.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from stallscope import __version__
from stallscope.arrays.types import Ints
from stallscope.errors import MissingExtraError, StallscopeError, UnwritableError, UsageError
from stallscope.formatting.plain import plain
from stallscope.run import Run

from .exported_run import ExportedRun, Selection, exported_run
from .scalars import MlflowSeries, Point, in_windows, scalars_of, scalars_of_steps

# Steps of the first windows. Later ones are longer, so that a run has at most 900 points per tenfold.
_LEAST_STEPS = 10
_MOST_STARTS = 1_000
# Reading takes at most this share of the time, however large a run has grown.
_MOST_TIME_SHARE = 0.1

_PROJECT = "stallscope"

# -- Write an offline run of Weights & Biases, for ``wandb sync`` ---------------------------------


def write_wandb(exported: ExportedRun, folder: Path) -> Path:
    """Write the run into a folder, and return the folder of the run in it.

    Raises:
        MissingExtraError: if the library is not installed.
        StallscopeError: if the library refuses.
    """
    wandb = import_wandb()
    scalars = scalars_of(exported)
    with _refusals(wandb, "nothing was exported"):
        written = _init(wandb, exported.run, folder)
        for step, _, values in scalars.points():
            written.log(values, step=step)
        written.finish()
        (run_folder,) = folder.glob("wandb/offline-run-*")
    return run_folder


class WandbSeries:
    """Adds points to a new offline run in a folder."""

    def __init__(self, folder: Path) -> None:
        """Prepare the run, which starts with the first points.

        Raises:
            MissingExtraError: if the library is not installed.
        """
        self._wandb = import_wandb()
        self._folder = folder
        self._written: Any = None
        self.last_step = -1

    def add(self, exported: ExportedRun, points: Sequence[Point]) -> None:
        """Log points.

        Raises:
            StallscopeError: if the library refuses.
        """
        with _refusals(self._wandb, "the series end here"):
            if self._written is None:
                self._folder.mkdir(parents=True, exist_ok=True)
                self._written = _init(self._wandb, exported.run, self._folder)
            for step, _, values in points:
                self._written.log(values, step=step)
        self.last_step = points[-1][0]

    def close(self) -> None:
        if self._written is not None:
            self._written.finish()


@contextmanager
def _refusals(wandb: Any, consequence: str) -> Iterator[None]:
    """Turn the library's errors into one sentence."""
    try:
        yield
    except Exception as error:
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise StallscopeError(
            f"wandb {wandb.__version__} did not write the run ({plain(reason)}); "
            f"{consequence}. Stallscope needs wandb 0.31 or later"
        ) from error


def _init(wandb: Any, run: Run, folder: Path) -> Any:
    return wandb.init(
        mode="offline",
        dir=str(folder),
        project=os.environ.get("WANDB_PROJECT") or _PROJECT,
        name=plain(run.name),
        config=_config(run),
        settings=_settings(wandb, run),
    )


def _config(run: Run) -> dict[str, Any]:
    return {
        "stallscope_run": plain(run.id),
        "stallscope_version": __version__,
        "ranks": run.size,
        "hosts": len(run.hosts),
        "framework": run.fact("framework"),
        "synthetic": run.synthetic,
    }


def _settings(wandb: Any, run: Run) -> Any:
    """Return settings that keep this machine out of the run: another one has trained."""
    return wandb.Settings(
        silent=True,
        console="off",
        disable_git=True,
        disable_code=True,
        x_disable_stats=True,
        x_disable_meta=True,
        x_disable_machine_info=True,
        x_save_requirements=False,
        host=plain(", ".join(run.hosts)),
    )


def import_wandb() -> Any:
    """Import the library.

    Raises:
        MissingExtraError: if it is not installed.
    """
    try:
        import wandb
    except ModuleNotFoundError as error:
        raise MissingExtraError("wandb", "wandb") from error
    return wandb


class AppendedSeries(Protocol):
    """A destination of points."""

    #: The step of the last written point; -1 without any.
    last_step: int

    def add(self, exported: ExportedRun, points: list[Point]) -> None: ...

    def close(self) -> None: ...


def _tensorboard(place: str) -> AppendedSeries:
    # The reader of its files is large.
    from .tensorboard_file import TensorboardSeries

    return TensorboardSeries(Path(place))


_OPENED_WITH: Mapping[str, Callable[[str], AppendedSeries]] = {
    "tensorboard": _tensorboard,
    "wandb": lambda place: WandbSeries(Path(place)),
    "mlflow": MlflowSeries,
}


def open_series(name: str, place: str) -> AppendedSeries:
    """Open the place for points of a format.

    Args:
        name: of the format.
        place: as ``--out`` names it.

    Raises:
        UsageError: if the format has no series.
        MissingExtraError: if its library is not installed.
        UnreadableError, NotFoundError: if a server has no such run, or does not answer.
        OSError: if the place cannot be written.
    """
    if name not in _OPENED_WITH:
        raise UsageError(f"--follow: {name} cannot be followed, only {', '.join(_OPENED_WITH)} can")
    return _OPENED_WITH[name](place)


def follow_into(
    name: str,
    place: str,
    open_run: Callable[[], Run],
    selection: Selection,
    interval_s: float,
    wait: Callable[[float], bool],
    until_completed: bool = True,
) -> None:
    """Open a place for points, ``follow`` the run, and close the place.

    Raises:
        StallscopeError: as ``open_series`` and ``follow``; also if the place cannot be written.
    """
    try:
        series = open_series(name, place)
        try:
            follow(open_run, series, selection, interval_s, wait, until_completed)
        finally:
            series.close()
    except OSError as error:
        raise UnwritableError(
            f"{place}: no points can be written here ({error.strerror or error}); "
            "name another folder with --out"
        ) from error


def follow(
    open_run: Callable[[], Run],
    series: AppendedSeries,
    selection: Selection,
    interval_s: float,
    wait: Callable[[float], bool],
    until_completed: bool = True,
) -> None:
    """Append points while the run trains, until it has completed or the wait ends it.

    Args:
        open_run: reads the run.
        series: the destination of points.
        selection: of steps and ranks.
        interval_s: the least pause between two looks.
        wait: waits so many seconds, and returns whether the next look is the last one.
        until_completed: whether a completed run ends it.

    Raises:
        StallscopeError: if the run cannot be read, or points cannot be written, at the last look.
    """
    is_last = False
    while True:
        began = time.monotonic()
        try:
            run = open_run()
            completed = run.status == "completed"
            is_last = is_last or (completed and until_completed)
            exported = exported_run(run, selection)
            points = points_after(exported, series.last_step, is_last)
            if points:
                series.add(exported, points)
        except StallscopeError:
            # The first lines of a log may not be written yet, or a server may be down for a while.
            if is_last:
                raise
        if is_last:
            return
        took = time.monotonic() - began
        is_last = wait(max(interval_s, took * (1 - _MOST_TIME_SHARE) / _MOST_TIME_SHARE))


def points_after(exported: ExportedRun, last_step: int, whole: bool) -> list[Point]:
    """Return the points of windows after a step.

    Args:
        exported: the run.
        last_step: the step of the last written point.
        whole: whether the run has all its steps; otherwise the last window may be incomplete.

    Raises:
        NotFoundError: if the stages of no step were measured.
    """
    scalars = scalars_of_steps(exported)
    windows = window_starts(scalars.steps)
    starts, points = np.unique(windows), in_windows(scalars, windows).points()
    new = starts > window_starts(np.array([last_step]))
    if not whole:
        new[-1] = False
    return [point for is_new, point in zip(new.tolist(), points, strict=True) if is_new]


def window_starts(steps: Ints) -> Ints:
    """Return where the window of each step starts; -1 stays -1."""
    length = np.full(len(steps), _LEAST_STEPS)
    while (longer := steps >= length * _MOST_STARTS).any():
        length = np.where(longer, length * 10, length)
    return np.where(steps < 0, steps, steps // length * length)
