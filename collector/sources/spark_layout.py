"""What Spark writes beside the logs of a job, in its own folders and in those that Databricks delivers.

    SPARK_WORKER_DIR/app-20261121132035-0000/0/{stdout,stderr}
    CLUSTER/driver/{stdout,stderr,log4j-active.log,stdout--2026-11-21--13-00,log4j-2026-11-21-13.log.gz}
    CLUSTER/executor/app-20261121132035-0000/0/{stdout,stderr}[--2026-11-21--13-00.gz]
    CLUSTER/eventlog/…, spark.eventLog.dir/app-20261121132035-0000

Only a few of hundreds of outputs hold records of step logs; the others are as they should be.
"""

from __future__ import annotations

import re

# Applications as masters name them: standalone, local, YARN, Kubernetes; with the number of an attempt.
_APPLICATION = r"(app-\d{14}-\d+|local-\d+|application_\d+_\d+|spark-[0-9a-f]{32})(_\d+)?"
_CODEC = r"(\.(zstd|lz4|lzf|snappy))?(\.inprogress|\.compact)?"
_EVENT_LOG = re.compile(rf"(events_\d+_|appstatus_)?{_APPLICATION}{_CODEC}")
# Folders of event logs where names of files say less.
_EVENT_FOLDER = re.compile(rf"eventlog(_v2_{_APPLICATION})?")
_EVENTS = b'{"Event":"SparkListener'
# Rolled by time or size, compressed or not.
_PACKED = r"(\.(gz|bz2|xz|zst|lz4))?"
_OUTPUT = re.compile(rf"((stdout|stderr)(--[\d-]+)?|log4j[\w.-]*\.(log|txt)){_PACKED}")
# What installs software on a cluster prints into a folder of its own.
_SET_UP = "init_scripts"


def is_event_log(name: str) -> bool:
    """Whether a file is named as Spark's event logs are: what tasks ran when, and no steps.

    They are large and compressed in ways of their own, so they are not even opened.
    """
    *folders, last = name.split("/")
    return _EVENT_LOG.fullmatch(last) is not None or any(
        _EVENT_FOLDER.fullmatch(folder) for folder in folders
    )


def is_sparks_own(name: str, head: bytes) -> bool:
    """Whether a file that holds no records is one of those that Spark writes anyway."""
    *folders, last = name.split("/")
    return (
        is_event_log(name)
        or head.startswith(_EVENTS)
        or _OUTPUT.fullmatch(last) is not None
        or _SET_UP in folders
    )
