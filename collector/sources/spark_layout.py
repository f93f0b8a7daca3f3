"""Recognise files that Spark writes next to a job's logs, in its folders and in those of Databricks.

    SPARK_WORKER_DIR/app-20261121132035-0000/0/{stdout,stderr}
    CLUSTER/driver/{stdout,stderr,log4j-active.log,stdout--2026-11-21--13-00,log4j-2026-11-21-13.log.gz}
    CLUSTER/executor/app-20261121132035-0000/0/{stdout,stderr}[--2026-11-21--13-00.gz]
    CLUSTER/eventlog/…, spark.eventLog.dir/app-20261121132035-0000

Only a few of hundreds of outputs have records of step logs; the others are expected to have none.
"""

from __future__ import annotations

import re

# Application ids of standalone, local, YARN and Kubernetes masters, with the number of an attempt.
_APPLICATION = r"(app-\d{14}-\d+|local-\d+|application_\d+_\d+|spark-[0-9a-f]{32})(_\d+)?"
_CODEC = r"(\.(zstd|lz4|lzf|snappy))?(\.inprogress|\.compact)?"
_EVENT_LOG = re.compile(rf"(events_\d+_|appstatus_)?{_APPLICATION}{_CODEC}")
# Folders of event logs with other file names.
_EVENT_FOLDER = re.compile(rf"eventlog(_v2_{_APPLICATION})?")
_EVENTS = b'{"Event":"SparkListener'
# Rolled by time or size, compressed or not.
_PACKED = r"(\.(gz|bz2|xz|zst|lz4))?"
_OUTPUT = re.compile(rf"((stdout|stderr)(--[\d-]+)?|log4j[\w.-]*\.(log|txt)){_PACKED}")
# The folder with the output of a cluster's init scripts.
_INIT_SCRIPTS = "init_scripts"


def is_event_log(name: str) -> bool:
    """Whether a file has the name of a Spark event log, which has tasks but no steps.

    Event logs are large and compressed, so they are not opened when looking for steps.
    """
    *folders, last = name.split("/")
    return _EVENT_LOG.fullmatch(last) is not None or any(
        _EVENT_FOLDER.fullmatch(folder) for folder in folders
    )


def is_spark_output(name: str, head: bytes) -> bool:
    """Whether a file without records is a normal output of Spark."""
    *folders, last = name.split("/")
    return (
        is_event_log(name)
        or head.startswith(_EVENTS)
        or _OUTPUT.fullmatch(last) is not None
        or _INIT_SCRIPTS in folders
    )
