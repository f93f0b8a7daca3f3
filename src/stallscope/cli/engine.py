"""``--engine``: what reads and computes, this machine or a cluster."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from stallscope.batch.units import Unit
from stallscope.batch.worker import Reads
from stallscope.collecting import HERE, Engine
from stallscope.errors import UsageError

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


def check_collected(engine: str, units: Iterable[Unit]) -> None:
    """See that an engine can read runs, before it has to.

    Raises:
        UsageError: if it reads collected runs alone, and one is not.
    """
    for unit in units:
        if engine == "spark" and not unit.collected:
            raise UsageError(
                f"{unit.place}: --engine spark reports on collected runs: stallscope collect "
                f"{unit.place} --to STORE --engine spark, then name the STORE"
            )


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
