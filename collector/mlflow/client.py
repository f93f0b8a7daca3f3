"""Read and write runs of an MLflow server, search them, and turn MLflow's errors into one line each.

All requests use ``MlflowClient``, which finds server and credentials as MLflow does. MLflow's fluent
functions are not used, because they start and end runs and have an active run.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any, Iterator, NamedTuple

from stallscope.errors import (
    MissingExtraError,
    NotFoundError,
    StallscopeError,
    UnansweredError,
    UnreadableError,
    UsageError,
    causes,
    timed_out,
)

# By default, MLflow waits minutes for a server that does not answer. Changing its settings in the
# environment would reach requests of other threads, so a first request with its own limits finds out.
_FIRST_REQUEST = {
    "max_retries": ("MLFLOW_HTTP_REQUEST_MAX_RETRIES", 0),
    "timeout": ("MLFLOW_HTTP_REQUEST_TIMEOUT", 10),
}
# Any response will do, and servers without this page respond that they have none.
_HEALTH = "/health"
_DEFAULT_DATABASE = "mlflow.db"
_USER_AND_PASSWORD = re.compile(r"//[^/@\s]+@")
_SECRETS = (
    "MLFLOW_TRACKING_PASSWORD",
    "MLFLOW_TRACKING_TOKEN",
    "DATABRICKS_TOKEN",
    "DATABRICKS_CLIENT_SECRET",
)

# Runs per request; the server allows at most 50,000.
_PAGE = 1_000
_MOST_NAMES = 10


class Artifact(NamedTuple):
    """A file or folder among a run's artifacts."""

    #: From the root of the run's artifacts.
    path: str
    is_dir: bool
    size: int


class MlflowRun:
    """An existing run.

    Raises:
        MissingExtraError: if mlflow is not installed.
        UsageError: without MLFLOW_TRACKING_URI, or without an id.
        NotFoundError: if there is no such run.
        UnreadableError: if the server cannot be reached.
    """

    def __init__(self, run_id: str, *, user_waits: bool = True) -> None:
        if not run_id:
            raise UsageError("mlflow: names no run; give mlflow:RUN_ID")
        self.id = run_id
        self.where = "mlflow:" + run_id
        self.client = mlflow_client()
        with convert_errors(self.where):
            if user_waits:
                require_answer(self.client)
            self.run: Any = self.client.get_run(run_id)

    def artifacts(self, folder: str = "") -> list[Artifact]:
        """List a folder; a missing folder is empty."""
        with convert_errors(self.where):
            try:
                listed = self._artifacts.list_artifacts(folder or None)
            except Exception as error:
                if _status(error) == 404:
                    return []
                raise
        return [
            Artifact(artifact.path, bool(artifact.is_dir), int(artifact.file_size or 0))
            for artifact in listed
        ]

    def upload(self, local: Path, folder: str) -> None:
        """Upload a file into a folder of the run's artifacts; replace an existing one."""
        with convert_errors(self.where):
            self._artifacts.log_artifact(str(local), folder)

    def upload_bytes(self, data: bytes, folder: str, name: str) -> None:
        """Upload bytes as a file of this name."""
        with tempfile.TemporaryDirectory(prefix="stallscope-") as temporary:
            local = Path(temporary) / name
            local.write_bytes(data)
            self.upload(local, folder)

    def download(self, path: str, local: Path) -> None:
        """Download an artifact to a local file."""
        with convert_errors(f"{self.where}/{path}"):
            # All repositories implement this. The public function first checks whether the path is a
            # folder, with a request that takes as long as the download.
            self._artifacts._download_file(path, str(local))

    @cached_property
    def _artifacts(self) -> Any:
        """Return the artifact repository; the client's functions would request the run each time."""
        from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository
        from mlflow.utils import uri as uris

        untyped: Any = uris
        uri = untyped.add_databricks_profile_info_to_artifact_uri(
            self.run.info.artifact_uri, _tracking_uri()
        )
        return get_artifact_repository(uri)


def mlflow_client() -> Any:
    """Return MLflow's client.

    Raises:
        MissingExtraError: if mlflow is not installed.
        UsageError: if no server is configured.
        UnreadableError: if MLflow rejects the tracking URI.
    """
    was_imported = "mlflow" in sys.modules
    try:
        from mlflow import MlflowClient
    except ImportError as error:
        raise MissingExtraError("mlflow", "mlflow") from error
    if not was_imported:
        _send_no_statistics()
    has_local_store = any(Path(name).exists() for name in (_DEFAULT_DATABASE, "mlruns"))
    # Without a tracking URI, MLflow would create an empty database here.
    if not os.environ.get("MLFLOW_TRACKING_URI") and not has_local_store:
        raise UsageError(
            "MLFLOW_TRACKING_URI is not set: export MLFLOW_TRACKING_URI=http://HOST:5000"
        )
    with convert_errors("MLflow"):
        return MlflowClient()


def _send_no_statistics() -> None:
    """Let MLflow, which only Stallscope uses in this process, send no usage statistics for the user.

    Its setting in the environment is only for the start of a process: other threads use the environment.
    """
    with suppress(ImportError, AttributeError):  # other versions may have none
        from mlflow.telemetry import client

        untyped: Any = client
        untyped._set_telemetry_client(None)


def _tracking_uri() -> str:
    """Return MLflow's tracking URI, which may have credentials."""
    from mlflow.tracking import get_tracking_uri

    return str(get_tracking_uri())


def require_answer(client: Any) -> None:
    """Raise MLflow's error within seconds if the server does not answer, because a user waits."""
    # Databases have no credentials, and the client of Databricks sets its own limits.
    credentials = getattr(client._tracking_client.store, "get_host_creds", None)
    host = None if credentials is None else credentials()
    if host is None or getattr(host, "use_databricks_sdk", False):
        return
    from mlflow.utils import rest_utils

    limits = {
        name: value
        for name, (setting, value) in _FIRST_REQUEST.items()
        if setting not in os.environ
    }
    untyped: Any = rest_utils
    try:
        untyped.http_request(host, _HEALTH, "GET", raise_on_status=False, **limits)
    except Exception as error:
        # Other failures may pass: the requests that follow are repeated.
        if timed_out(error):
            raise


@contextmanager
def convert_errors(where: str) -> Iterator[None]:
    """Convert errors of MLflow and its libraries to one-line errors.

    Raises:
        NotFoundError: if the server has no such object.
        UnansweredError: if the server does not answer in time.
        UnreadableError: for all other errors.
    """
    try:
        yield
    except StallscopeError:
        raise
    except Exception as error:
        raise _error_for(where, error) from error


def _error_for(where: str, error: Exception) -> StallscopeError:
    server = without_secrets(os.environ.get("MLFLOW_TRACKING_URI") or _DEFAULT_DATABASE)
    if getattr(error, "error_code", "") == "RESOURCE_DOES_NOT_EXIST" or _status(error) == 404:
        return NotFoundError(
            f"{where}: there is no such run or artifact on {server}; MLFLOW_TRACKING_URI names the "
            "server"
        )
    if _status(error) in (401, 403) or getattr(error, "error_code", "") in _REFUSED:
        return UnreadableError(
            f"{where}: {server} denies access; check MLflow's credentials, such as "
            "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN"
        )
    if timed_out(error):
        return UnansweredError(
            f"{where}: {server} does not answer; check MLFLOW_TRACKING_URI and the network"
        )
    if "maintenance mode" in str(error):
        return UnreadableError(
            f"{where}: {server} is not the address of a server; if it is a folder of an older MLflow, "
            "`mlflow migrate-filestore` moves it into a database, which MLflow 3 opens"
        )
    if "unsupported URI" in str(error):
        return UnreadableError(
            f"{where}: {server} is a database, which mlflow-skinny cannot open: pip install mlflow, "
            "or name a server in MLFLOW_TRACKING_URI"
        )
    return UnreadableError(f"{where}: the request to {server} failed: {_reason(error)}")


_REFUSED = ("PERMISSION_DENIED", "UNAUTHENTICATED")


def _status(error: BaseException) -> int:
    """Return the status of the server's response; 0 without a response."""
    status = getattr(getattr(error, "response", None), "status_code", 0)
    return status if isinstance(status, int) else 0


def _reason(error: BaseException) -> str:
    """Return the message of an error's root cause; the outer errors are about pools and retries."""
    *_, root = causes(error, with_contexts=True)
    return first_line(root if isinstance(root, OSError) else error)


def first_line(error: BaseException) -> str:
    """Return the first line of an MLflow error, without credentials."""
    text = str(error).partition(" Response body:")[0].strip()
    return without_secrets(text.splitlines()[0] if text else type(error).__name__)


def without_secrets(text: str) -> str:
    """Remove credentials of MLflow's addresses and environment variables from a text."""
    text = _USER_AND_PASSWORD.sub("//", text)
    for name in _SECRETS:
        secret = os.environ.get(name)
        if secret:
            text = text.replace(secret, "***")
    return text


# -- Search the runs of an experiment with an MLflow filter ---------------------------------------


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
    # Uploads in trainings use this module on older versions of Python, which sources are not for.
    from ..sources.source import announced_wait

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
