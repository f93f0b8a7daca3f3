"""``--engine``: what reads and computes, this machine or a cluster."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager

from stallscope.batch.worker import Here as ReadsHere
from stallscope.batch.worker import Reads
from stallscope.catalogue.collecting import Engine, Following, Here
from stallscope.errors import UsageError

from .bars import watching

_ENGINES = ("local", "spark")


def add_engine(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--engine",
        choices=_ENGINES,
        default=_ENGINES[0],
        help="what reads and computes: this machine, or the Spark that is configured here "
        "(default: %(default)s)",
    )


def add_scratch(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--scratch",
        metavar="PLACE",
        help="where --engine spark writes until the report is there: a folder that all machines share, "
        "or a URL (beside RUN)",
    )


@contextmanager
def collecting_engine(name: str, *, follow: bool) -> Iterator[Engine]:
    """What collects, as long as the block lasts.

    Args:
        follow: whether the same places are collected again and again.

    Raises:
        MissingExtraError, UnreadableError: if Spark is not installed, or does not start.
    """
    if name == "local":
        yield Following() if follow else Here()
        return
    from stallscope.spark.session import session

    with session() as spark:
        from stallscope.spark.collecting import OnSpark

        yield OnSpark(spark)


@contextmanager
def reading_engine(name: str, scratch: str | None) -> Iterator[Reads]:
    """What reads the runs that are reported on, as long as the block lasts.

    Args:
        scratch: where executors may write meanwhile; None: beside the runs.

    Raises:
        MissingExtraError, UnreadableError: as ``collecting_engine``.
        UsageError: if there are no executors to write, or not there.
    """
    if name == "local":
        if scratch is not None:
            raise UsageError(f"--scratch {scratch}: that is where --engine spark writes; say both")
        yield ReadsHere(watching)
        return
    if scratch is not None:
        from stallscope.spark.storage import check_place

        check_place(scratch)
    from stallscope.spark.session import session

    with session() as spark:
        from stallscope.spark.reporting import far_runs

        with far_runs(spark, scratch) as runs:
            yield runs
