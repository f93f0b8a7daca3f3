"""An offline run of Weights & Biases, by its own library; ``wandb sync`` sends it to a server."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from stallscope import __version__
from stallscope.errors import MissingExtraError, StallscopeError
from stallscope.formatting.plain import plain
from stallscope.run import Run

from .generations import ExportedRun
from .scalars import Scalars, scalars_of

_PROJECT = "stallscope"


def write_wandb(exported: ExportedRun, folder: Path) -> Path:
    """Write the run into a folder, and return the folder of the run in it.

    Raises:
        MissingExtraError: if the library is not installed.
        StallscopeError: if the library refuses.
    """
    wandb = import_wandb()
    scalars = scalars_of(exported)
    try:
        _write(wandb, exported.run, scalars, folder)
        (found,) = folder.glob("wandb/offline-run-*")
    except Exception as error:
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise StallscopeError(
            f"wandb {wandb.__version__} did not write the run ({plain(reason)}); "
            "nothing was exported. Stallscope needs wandb 0.31 or later"
        ) from error
    return found


def _write(wandb: Any, run: Run, scalars: Scalars, folder: Path) -> None:
    written = wandb.init(
        mode="offline",
        dir=str(folder),
        project=os.environ.get("WANDB_PROJECT") or _PROJECT,
        name=plain(run.name),
        config=_config(run),
        settings=_settings(wandb, run),
    )
    for step, _, values in scalars.points():
        written.log(values, step=step)
    written.finish()


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
