"""Which kind of place a SOURCE is."""

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

# What fsspec opens and what needs more than that, by how its URLs begin.
_KINDS = {
    **dict.fromkeys(("s3://", "s3a://"), S3Files),
    **dict.fromkeys(("gs://", "gcs://"), GcsFiles),
    **dict.fromkeys(("az://", "abfs://", "abfss://"), AzureFiles),
    **dict.fromkeys(("ssh://", "sftp://"), SshFiles),
    **dict.fromkeys(("http://", "https://"), WebFiles),
    "hdfs://": HdfsFiles,
    "webhdfs://": WebHdfsFiles,
}
# A bare run id of MLflow.
_MLFLOW_RUN = re.compile(r"[0-9a-f]{32}")
# Catalogue, schema and volume.
_VOLUME = re.compile(r"/Volumes/[^/]+/[^/]+/[^/]+")


def open_source(text: str) -> Source:
    """The place that a user named: ``mlflow:RUN_ID``, a bare MLflow run id, ``databricks:job/RUN_ID``,
    ``databricks:cluster/ID``, ``dbfs:/…``, ``/Volumes/…``, or whatever fsspec opens.

    Nothing is contacted before its files are asked for.

    Raises:
        UsageError: where the words do not fit.
        MissingExtraError: where what reads such places is not installed.
    """
    if text.startswith("mlflow:") or is_mlflow_run(text):
        from .mlflow.source import MlflowArtifacts

        return MlflowArtifacts(text.removeprefix("mlflow:"))
    if text.startswith(("databricks:", "dbfs:/")) or _is_far_volume(text):
        from .sources.databricks import DatabricksLogs

        return DatabricksLogs(text)
    kind = next((kind for start, kind in _KINDS.items() if text.startswith(start)), Files)
    return kind(text)


def is_mlflow_run(text: str) -> bool:
    """Whether this is a bare run id of MLflow, and no file or folder of such a name is here."""
    return _MLFLOW_RUN.fullmatch(text) is not None and not Files(text).is_there()


def _is_far_volume(text: str) -> bool:
    """Whether this is a volume of Databricks, seen from a machine that has no such folder."""
    return _VOLUME.match(text) is not None and not Files(text).is_there()
