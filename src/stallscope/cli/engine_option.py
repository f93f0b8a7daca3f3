"""``--engine``: read and compute on this machine or on a cluster."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from stallscope.batch.worker import LocalReader, RunReader
from stallscope.errors import UsageError

from .progress_bars import show_progress

if TYPE_CHECKING:
    from stallscope.catalogue.collecting import Engine

_ENGINES = ("local", "spark")


def add_engine(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--engine",
        choices=_ENGINES,
        default=_ENGINES[0],
        help="where to read and compute: on this machine, or on the configured Spark "
        "(default: %(default)s)",
    )


def add_scratch(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--scratch",
        metavar="PLACE",
        help="where --engine spark writes temporary files: a folder that all machines share, or a URL "
        "(default: next to RUN)",
    )


@contextmanager
def collecting_engine(name: str, *, follow: bool) -> Iterator[Engine]:
    """Open the engine that collects; close it at the end of the block.

    Args:
        follow: whether the same places are collected repeatedly.

    Raises:
        MissingExtraError, UnreadableError: if Spark is not installed, or does not start.
    """
    if name == "local":
        from stallscope.catalogue import collecting

        yield collecting.FollowingEngine() if follow else collecting.Engine()
        return
    from stallscope.spark.spark_collecting import session

    with session() as spark:
        from stallscope.spark.spark_collecting import SparkEngine

        yield SparkEngine(spark)


@contextmanager
def reading_engine(name: str, scratch: str | None) -> Iterator[RunReader]:
    """Open the reader of the runs to report on; close it at the end of the block.

    Args:
        scratch: where executors may write temporary files; None: next to the runs.

    Raises:
        MissingExtraError, UnreadableError: see ``collecting_engine``.
        UsageError: if the engine has no executors, or they cannot write there.
    """
    if name == "local":
        if scratch is not None:
            raise UsageError(f"--scratch {scratch}: only --engine spark uses it; add that option")
        yield LocalReader(show_progress)
        return
    if scratch is not None:
        from stallscope.spark.storage import check_place

        check_place(scratch)
    from stallscope.spark.spark_collecting import session

    with session() as spark:
        from stallscope.spark.reporting import remote_runs

        with remote_runs(spark, scratch) as runs:
            yield runs
