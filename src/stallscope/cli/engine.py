"""``--engine``: what reads and computes, this machine or a cluster."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager

from stallscope.batch.units import Unit
from stallscope.batch.worker import Reads
from stallscope.collecting import HERE, Engine

_ENGINES = ("local", "spark")


def add_engine(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--engine",
        choices=_ENGINES,
        default=_ENGINES[0],
        help="what reads and computes: this machine, or the Spark that is configured here "
        "(default: %(default)s)",
    )


@contextmanager
def collecting_engine(name: str) -> Iterator[Engine]:
    """What collects, as long as the block lasts.

    Raises:
        MissingExtraError, UnreadableError: if Spark is not installed, or does not start.
    """
    if name == "local":
        yield HERE
        return
    from stallscope.spark.session import session

    with session() as spark:
        from stallscope.spark.collecting import OnSpark

        yield OnSpark(spark)


@contextmanager
def reading_engine(name: str) -> Iterator[Reads]:
    """What reads the runs that are reported on, as long as the block lasts.

    Raises:
        MissingExtraError, UnreadableError: as ``collecting_engine``.
    """
    if name == "local":
        yield Unit.read
        return
    from stallscope.spark.session import session

    with session() as spark:
        from stallscope.spark.reporting import far_runs

        with far_runs(spark) as runs:
            yield runs.read
