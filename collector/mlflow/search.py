"""Runs of an experiment that a filter of MLflow's picks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from stallscope.errors import NotFoundError, UsageError

from .client import first_line, hurried, mlflow_client, sentences

# What the server gives at once; it takes no more than 50,000.
_PAGE = 1_000
_MOST_NAMES = 10


def find_runs(experiment: str, filter_string: str = "") -> list[str]:
    """The ids of the runs that are picked, the newest first.

    Args:
        experiment: the name of an experiment.
        filter_string: in MLflow's words, such as ``metrics.`stallscope.input_share` > 0.2``.

    Raises:
        MissingExtraError: without mlflow.
        NotFoundError: if there is no such experiment, or no run in it that the filter picks.
        UsageError: if MLflow does not understand the filter.
        UnreadableError: if the server cannot be asked.
    """
    return [run.info.run_id for run in search_runs(experiment, filter_string)]


def search_runs(experiment: str, filter_string: str = "") -> list[Any]:
    """The runs that are picked as MLflow's own objects: with tags and metrics, without artifacts.

    Raises:
        MissingExtraError, NotFoundError, UsageError, UnreadableError: as ``find_runs``.
    """
    client = mlflow_client()
    where = f"the MLflow experiment {experiment!r}"
    with hurried(), sentences(where):
        found = client.get_experiment_by_name(experiment)
        if found is None:
            raise NotFoundError(f"{where} is not there; there are {_names(client)}")
    runs: list[Any] = []
    token = None
    while True:
        with sentences(where), _understood(filter_string):
            page = client.search_runs(
                [found.experiment_id], filter_string, max_results=_PAGE, page_token=token
            )
        runs += page
        token = page.token
        if not token:
            break
    if not runs:
        picked = f" that the filter {filter_string} picks" if filter_string else ""
        raise NotFoundError(f"{where} has no run{picked}")
    return runs


@contextmanager
def _understood(filter_string: str) -> Iterator[None]:
    """
    Raises:
        UsageError: if MLflow does not understand the filter.
    """
    try:
        yield
    except Exception as error:
        if getattr(error, "error_code", "") != "INVALID_PARAMETER_VALUE":
            raise
        raise UsageError(f"--filter {filter_string!r}: MLflow says: {first_line(error)}") from error


def _names(client: Any) -> str:
    found = [one.name for one in client.search_experiments(max_results=_MOST_NAMES)]
    return ", ".join(found) or "none"
