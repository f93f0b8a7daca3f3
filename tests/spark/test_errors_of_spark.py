"""A failed Spark job is an error of one sentence, unless it is a defect."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from stallscope import __version__
from stallscope.errors import UnreadableError, UnwritableError
from stallscope.spark.each import run_task, translate_error
from stallscope.spark.remote_steps import SparkTable, _in_part
from stallscope.spark.spark_cells import Cluster

IN_PYTHON = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "/opt/stallscope/spark/each.py", line 78, in done
    result = function(pickle.loads(packed), *pickle.loads(shared))
"""
IN_JAVA = """An error occurred while calling o47.collectToPython.
: {}
\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:4560)
\tat scala.Option.getOrElse(Option.scala:201)
"""
SPARK = "org.apache.spark.SparkException: "


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            IN_JAVA.format(
                f"{SPARK}Job aborted due to stage failure: Total size of serialized results of 2 tasks "
                "(1768.2 KiB) is bigger than spark.driver.maxResultSize (1024.0 KiB)"
            ),
            "Job aborted due to stage failure: Total size of serialized results of 2 tasks (1768.2 KiB) "
            "is bigger than spark.driver.maxResultSize (1024.0 KiB)",
        ),
        (
            IN_JAVA.format(f"{SPARK}[SPARK_JOB_CANCELLED] Job 5 cancelled"),
            "[SPARK_JOB_CANCELLED] Job 5 cancelled",
        ),
        (IN_JAVA.format("java.lang.OutOfMemoryError: Java heap space"), "Java heap space"),
        (IN_PYTHON + "MemoryError", "MemoryError"),
        (
            IN_PYTHON + "pyarrow.lib.ArrowMemoryError: malloc of size 64 failed",
            "ArrowMemoryError: malloc of size 64 failed",
        ),
        (
            IN_PYTHON + "OSError: [Errno 28] No space left on device",
            "OSError: [Errno 28] No space left on device",
        ),
        ("[Errno 111] Connection refused", "[Errno 111] Connection refused"),
        ("", "Exception"),
    ],
)
def test_the_error_has_the_reason_from_spark(text: str, reason: str) -> None:
    error = translate_error(Exception(text))
    assert isinstance(error, UnreadableError)
    assert str(error).startswith(f"Spark failed: {reason}; read its log")
    assert "\n" not in str(error)


def test_errors_of_executors_are_kept() -> None:
    error = translate_error(
        Exception(f"{IN_PYTHON}stallscope.errors.UnwritableError: /runs: it is full\n")
    )
    assert (type(error), str(error)) == (UnwritableError, "/runs: it is full")


def test_a_defect_stays_a_defect() -> None:
    error = Exception(f"{IN_PYTHON}KeyError: 1")
    assert translate_error(error) is error


def test_an_executor_without_the_store_is_an_error(tmp_path: Path) -> None:
    store = tmp_path / "not-mounted"
    cluster = Cluster(None, str(store / ".stallscope-spark-abcdefgh"))
    table = SparkTable(cluster, (str(store / "run/steps/logs-000000-000001.parquet"),), (0, 1), 40)
    (part,) = table._parts()
    shared = (table._filtered(), (), len, ())
    with pytest.raises(UnwritableError, match=f"^{store}: an executor of Spark does not have this"):
        run_task(0, _in_part, pickle.dumps(part), pickle.dumps(shared), __version__)
