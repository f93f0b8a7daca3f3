"""Open a SOURCE by its kind of place."""

from __future__ import annotations

import re

from .sources.azure import AzureFiles
from .sources.base import Source
from .sources.files import Files
from .sources.gcs import GcsFiles
from .sources.hdfs import HdfsFiles, WebHdfsFiles
from .sources.s3 import S3Files
from .sources.ssh import SshFiles
from .sources.web import WebFiles

# The kinds of files that need more than fsspec alone, by the start of the URL.
_KINDS = {
    **dict.fromkeys(("s3://", "s3a://"), S3Files),
    **dict.fromkeys(("gs://", "gcs://"), GcsFiles),
    **dict.fromkeys(("az://", "abfs://", "abfss://"), AzureFiles),
    **dict.fromkeys(("ssh://", "sftp://"), SshFiles),
    **dict.fromkeys(("http://", "https://"), WebFiles),
    "hdfs://": HdfsFiles,
    "webhdfs://": WebHdfsFiles,
}
# An MLflow run id without a prefix.
_MLFLOW_RUN = re.compile(r"[0-9a-f]{32}")
# Catalogue, schema and volume.
_VOLUME = re.compile(r"/Volumes/[^/]+/[^/]+/[^/]+")


def open_source(text: str) -> Source:
    """Open a place: ``mlflow:RUN_ID``, an MLflow run id, ``databricks:job/RUN_ID``,
    ``databricks:cluster/ID``, ``dbfs:/…``, ``/Volumes/…``, or anything that fsspec opens.

    Listing its files makes the first connection.

    Raises:
        UsageError: if the text is invalid.
        MissingExtraError: if the library for such places is not installed.
    """
    if text.startswith("mlflow:") or is_mlflow_run(text):
        from .mlflow.source import MlflowArtifacts

        return MlflowArtifacts(text.removeprefix("mlflow:"))
    if text.startswith(("databricks:", "dbfs:/")) or _is_remote_volume(text):
        from .sources.databricks import DatabricksLogs

        return DatabricksLogs(text)
    kind = next((kind for start, kind in _KINDS.items() if text.startswith(start)), Files)
    return kind(text)


def is_mlflow_run(text: str) -> bool:
    """Whether the text is an MLflow run id, and not the name of a local file or folder."""
    return _MLFLOW_RUN.fullmatch(text) is not None and not Files(text).exists()


def _is_remote_volume(text: str) -> bool:
    """Whether the text is a Databricks volume that is not mounted on this machine."""
    return _VOLUME.match(text) is not None and not Files(text).exists()
