"""One run of an MLflow server: what Stallscope asks of it, and its errors as sentences.

Everything goes through ``MlflowClient``, which finds server and credentials where MLflow does, and
never through the fluent functions: those start runs, end them, and keep what is active for themselves.
"""

from __future__ import annotations

import os
import re
import tempfile
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Iterator, NamedTuple

from stallscope.errors import (
    MissingExtraError,
    NotFoundError,
    StallscopeError,
    UnreadableError,
    UsageError,
)

# MLflow tries a server that does not answer for minutes; the first question is asked twice only.
_FIRST_QUESTION = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1", "MLFLOW_HTTP_REQUEST_TIMEOUT": "20"}

_DEFAULT_DATABASE = "mlflow.db"
_USER_AND_PASSWORD = re.compile(r"//[^/@\s]+@")
_SECRETS = (
    "MLFLOW_TRACKING_PASSWORD",
    "MLFLOW_TRACKING_TOKEN",
    "DATABRICKS_TOKEN",
    "DATABRICKS_CLIENT_SECRET",
)


class Artifact(NamedTuple):
    """A file or folder among a run's artifacts."""

    #: From the root of the run's artifacts.
    path: str
    is_folder: bool
    size: int


class MlflowRun:
    """A run that exists.

    Raises:
        MissingExtraError: without mlflow.
        UsageError: without MLFLOW_TRACKING_URI, or without an id.
        NotFoundError: if there is no such run.
        UnreadableError: if the server cannot be asked.
    """

    def __init__(self, run_id: str) -> None:
        if not run_id:
            raise UsageError("mlflow: names no run; say mlflow:RUN_ID")
        self.id = run_id
        self.where = "mlflow:" + run_id
        self.client = mlflow_client()
        with hurried(), sentences(self.where):
            self.run: Any = self.client.get_run(run_id)

    def artifacts(self, folder: str = "") -> list[Artifact]:
        """What is in a folder; nothing where there is no such folder."""
        with sentences(self.where):
            try:
                found = self._artifacts.list_artifacts(folder or None)
            except Exception as error:
                if _status(error) == 404:
                    return []
                raise
        return [Artifact(one.path, bool(one.is_dir), int(one.file_size or 0)) for one in found]

    def upload(self, local: Path, folder: str) -> None:
        """Put a file into a folder of the run's artifacts; one of its name is replaced."""
        with sentences(self.where):
            self._artifacts.log_artifact(str(local), folder)

    def upload_bytes(self, data: bytes, folder: str, name: str) -> None:
        """The same for bytes."""
        with tempfile.TemporaryDirectory(prefix="stallscope-") as temporary:
            local = Path(temporary) / name
            local.write_bytes(data)
            self.upload(local, folder)

    def download(self, path: str, local: Path) -> None:
        """Write one artifact into a local file."""
        with sentences(f"{self.where}/{path}"):
            # What every kind of repository implements. The public function looks first whether the
            # path is a folder, with a request per file that costs as much as the file.
            self._artifacts._download_file(path, str(local))

    @cached_property
    def _artifacts(self) -> Any:
        """Where the run's artifacts are. The client's own functions ask for the run every time."""
        from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository
        from mlflow.utils import uri as uris

        untyped: Any = uris
        uri = untyped.add_databricks_profile_info_to_artifact_uri(
            self.run.info.artifact_uri, _tracking_uri()
        )
        return get_artifact_repository(uri)


def mlflow_client() -> Any:
    """MLflow's client.

    Raises:
        MissingExtraError: if it is not installed.
        UsageError: if no server is named.
        UnreadableError: if it refuses the place that it is to look at.
    """
    # Usage statistics are the user's to send, not ours.
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    try:
        from mlflow import MlflowClient
    except ImportError as error:
        raise MissingExtraError("mlflow", "mlflow") from error
    here = any(Path(name).exists() for name in (_DEFAULT_DATABASE, "mlruns"))
    # Without a place MLflow would make an empty database here, and find nothing in it.
    if not os.environ.get("MLFLOW_TRACKING_URI") and not here:
        raise UsageError(
            "MLFLOW_TRACKING_URI does not say where MLflow's server is: "
            "export MLFLOW_TRACKING_URI=http://HOST:5000"
        )
    with sentences("MLflow"):
        return MlflowClient()


def _tracking_uri() -> str:
    """Where MLflow looks for runs: may hold credentials."""
    from mlflow.tracking import get_tracking_uri

    return str(get_tracking_uri())


@contextmanager
def hurried() -> Iterator[None]:
    """Fail within seconds if the server does not answer, because a user waits."""
    ours = {name: value for name, value in _FIRST_QUESTION.items() if name not in os.environ}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name in ours:
            os.environ.pop(name, None)


@contextmanager
def sentences(where: str) -> Iterator[None]:
    """Turns what MLflow and what lies under it raise into one sentence each.

    Raises:
        NotFoundError: if the server knows no such thing.
        UnreadableError: in all other cases.
    """
    try:
        yield
    except StallscopeError:
        raise
    except Exception as error:
        raise _sentence(where, error) from error


def _sentence(where: str, error: Exception) -> StallscopeError:
    server = without_secrets(os.environ.get("MLFLOW_TRACKING_URI") or _DEFAULT_DATABASE)
    if getattr(error, "error_code", "") == "RESOURCE_DOES_NOT_EXIST" or _status(error) == 404:
        return NotFoundError(
            f"{where}: there is no such run or artifact on {server}; MLFLOW_TRACKING_URI says where "
            "to look"
        )
    if _status(error) in (401, 403) or getattr(error, "error_code", "") in _REFUSED:
        return UnreadableError(
            f"{where}: {server} does not let you in; check MLflow's own credentials, such as "
            "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN"
        )
    if "maintenance mode" in str(error):
        return UnreadableError(
            f"{where}: {server} is no address of a server; if it is a folder of an older MLflow, "
            "`mlflow migrate-filestore` moves it into a database, which MLflow 3 opens"
        )
    if "unsupported URI" in str(error):
        return UnreadableError(
            f"{where}: {server} is a database, which mlflow-skinny does not open: pip install mlflow, "
            "or name a server in MLFLOW_TRACKING_URI"
        )
    return UnreadableError(f"{where}: {server} cannot be asked: {_reason(error)}")


_REFUSED = ("PERMISSION_DENIED", "UNAUTHENTICATED")


def _status(error: BaseException) -> int:
    """The status of the server's answer; 0 where there was none."""
    status = getattr(getattr(error, "response", None), "status_code", 0)
    return status if isinstance(status, int) else 0


def _reason(error: BaseException) -> str:
    """What an error comes from: the outer ones tell of requests, pools and retries."""
    root = error
    while root.__cause__ is not None or root.__context__ is not None:
        root = root.__cause__ or root.__context__ or root
    return first_line(root if isinstance(root, OSError) else error)


def first_line(error: BaseException) -> str:
    """An error of MLflow's as a part of a sentence, without credentials."""
    text = str(error).partition(" Response body:")[0].strip()
    return without_secrets(text.splitlines()[0] if text else type(error).__name__)


def without_secrets(text: str) -> str:
    """A text without the credentials that MLflow takes from addresses and the environment."""
    text = _USER_AND_PASSWORD.sub("//", text)
    for name in _SECRETS:
        secret = os.environ.get(name)
        if secret:
            text = text.replace(secret, "***")
    return text
