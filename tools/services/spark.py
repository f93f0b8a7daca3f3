"""Run a standalone Spark: one master, one worker. Executors' logs are in Spark's usual place."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

from .server import ENVIRONMENT, free_port, running

#: Installed only on request, because it needs Java.
READY = ENVIRONMENT / ".ready-spark"


@dataclass(frozen=True)
class Spark:
    """A cluster with one worker."""

    #: For ``SparkSession.builder.master``.
    master: str
    #: One folder per application, in it one per executor with its ``stdout`` and ``stderr``.
    work: Path


@contextmanager
def spark_cluster(folder: Path, cores: int = 2, memory: str = "1g") -> Iterator[Spark]:
    """Run a master and a worker for the duration of the block."""
    port, pages = free_port(), free_port()
    spark = Spark(f"spark://127.0.0.1:{port}", folder / "work")
    (spark_class,) = ENVIRONMENT.glob("lib/python3*/site-packages/pyspark/bin/spark-class")
    settings = {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_WORKER_DIR": str(spark.work),
        # Executors' Python must have the driver's version.
        "PYSPARK_PYTHON": str(ENVIRONMENT / "bin" / "python"),
    }
    deploy = "org.apache.spark.deploy"
    master: list[str | Path] = [
        *(spark_class, f"{deploy}.master.Master", "--host", "127.0.0.1"),
        *("--port", str(port), "--webui-port", str(pages)),
    ]
    worker: list[str | Path] = [
        *(spark_class, f"{deploy}.worker.Worker", spark.master, "--host", "127.0.0.1"),
        *("--cores", str(cores), "--memory", memory, "--webui-port", str(free_port())),
    ]
    status = f"http://127.0.0.1:{pages}/json/"

    def with_workers(number: int) -> Callable[[], bool]:
        return lambda: _workers(status) == number

    with running(master, folder / "spark-master", with_workers(0), settings):  # noqa: SIM117
        with running(worker, folder / "spark-worker", with_workers(1), settings):
            yield spark


def _workers(status: str) -> int | None:
    """Return how many workers of the master are alive; None if it does not answer."""
    try:
        with urlopen(status, timeout=5) as answer:
            return int(json.load(answer)["aliveworkers"])
    except (OSError, ValueError, KeyError):
        return None
