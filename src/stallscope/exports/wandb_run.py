"""Write an offline run of Weights & Biases with its library; ``wandb sync`` sends it to a server."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from stallscope import __version__
from stallscope.errors import MissingExtraError, StallscopeError
from stallscope.formatting.plain import plain
from stallscope.run import Run

from .generations import ExportedRun
from .scalars import Point, scalars_of

_PROJECT = "stallscope"


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
