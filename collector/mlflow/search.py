"""Search the runs of an experiment with an MLflow filter."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from stallscope.errors import NotFoundError, UsageError

from ..sources.base import announced_wait
from .client import convert_errors, first_line, mlflow_client, require_answer

# Runs per request; the server allows at most 50,000.
_PAGE = 1_000
_MOST_NAMES = 10


def find_runs(experiment: str, filter_string: str = "") -> list[str]:
    """Return the ids of the matching runs, the newest first.

    Args:
        experiment: the name of an experiment.
        filter_string: an MLflow filter, such as ``metrics.`stallscope.input_share` > 0.2``.

    Raises:
        MissingExtraError: if mlflow is not installed.
        NotFoundError: if there is no such experiment, or no matching run in it.
        UsageError: if MLflow rejects the filter.
        UnreadableError: if the server cannot be reached.
    """
    return [run.info.run_id for run in search_runs(experiment, filter_string)]


def search_runs(experiment: str, filter_string: str = "") -> list[Any]:
    """Return the matching runs as MLflow's objects, with tags and metrics.

    Raises:
        MissingExtraError, NotFoundError, UsageError, UnreadableError: see ``find_runs``.
    """
    client = mlflow_client()
    where = f"the MLflow experiment {experiment!r}"
    with announced_wait(where):
        return _matching_runs(client, where, experiment, filter_string)


def _matching_runs(client: Any, where: str, experiment: str, filter_string: str) -> list[Any]:
    with convert_errors(where):
        require_answer(client)
        known_experiment = client.get_experiment_by_name(experiment)
        if known_experiment is None:
            raise NotFoundError(f"{where} does not exist; there are {_names(client)}")
    runs: list[Any] = []
    token = None
    while True:
        with convert_errors(where), _convert_filter_errors(filter_string):
            page = client.search_runs(
                [known_experiment.experiment_id], filter_string, max_results=_PAGE, page_token=token
            )
        runs += page
        token = page.token
        if not token:
            break
    if not runs:
        filtered = f" that matches the filter {filter_string}" if filter_string else ""
        raise NotFoundError(f"{where} has no run{filtered}")
    return runs


@contextmanager
def _convert_filter_errors(filter_string: str) -> Iterator[None]:
    """Convert MLflow's error for an invalid filter.

    Raises:
        UsageError: if MLflow rejects the filter.
    """
    try:
        yield
    except Exception as error:
        if getattr(error, "error_code", "") != "INVALID_PARAMETER_VALUE":
            raise
        raise UsageError(
            f"--filter {filter_string!r}: MLflow reports: {first_line(error)}"
        ) from error


def _names(client: Any) -> str:
    names = [experiment.name for experiment in client.search_experiments(max_results=_MOST_NAMES)]
    return ", ".join(names) or "none"
