"""Open a SOURCE by its kind of place."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module

from stallscope.plugins import plugins

from .sources.files import Files
from .sources.source import Source

# The kinds of files that need more than fsspec alone, by the start of the URL: each a class of a module
# in ``sources``, which is imported when it is opened.
_KINDS = {
    **dict.fromkeys(("s3://", "s3a://"), "buckets:S3Files"),
    **dict.fromkeys(("gs://", "gcs://"), "buckets:GcsFiles"),
    **dict.fromkeys(("az://", "abfs://", "abfss://"), "buckets:AzureFiles"),
    **dict.fromkeys(("ssh://", "sftp://"), "ssh:SshFiles"),
    **dict.fromkeys(("http://", "https://"), "web:WebFiles"),
    "hdfs://": "hdfs:HdfsFiles",
    "webhdfs://": "hdfs:WebHdfsFiles",
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
        from .mlflow.mlflow_artifacts import MlflowArtifacts

        return MlflowArtifacts(text.removeprefix("mlflow:"))
    if text.startswith(("databricks:", "dbfs:/")) or _is_remote_volume(text):
        from .sources.databricks import DatabricksLogs

        return DatabricksLogs(text)
    return _kind_of(text)(text)


def _kind_of(text: str) -> Callable[[str], Source]:
    kind = next((kind for start, kind in _KINDS.items() if text.startswith(start)), None)
    if kind is None:
        scheme, mark, _ = text.partition("://")
        return _of_packages().get(scheme, Files) if mark else Files
    module, _, name = kind.partition(":")
    files_class: type[Files] = getattr(import_module(f".sources.{module}", __package__), name)
    return files_class


@cache
def _of_packages() -> Mapping[str, Callable[[str], Source]]:
    """Return the kinds that other packages bring, by the scheme of their URLs."""
    parts = plugins("sources", Source, lambda: [start.removesuffix("://") for start in _KINDS])
    return {plugin.name: plugin.part for plugin in parts}


def is_mlflow_run(text: str) -> bool:
    """Whether the text is an MLflow run id, and not the name of a local file or folder."""
    return _MLFLOW_RUN.fullmatch(text) is not None and not Files(text).exists()


def _is_remote_volume(text: str) -> bool:
    """Whether the text is a Databricks volume that is not mounted on this machine."""
    return _VOLUME.match(text) is not None and not Files(text).exists()
