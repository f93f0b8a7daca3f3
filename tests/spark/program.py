"""Run commands for tests, one after the other, on one Spark.

    python program.py FOLDER

FOLDER has ``commands.json``: per command its words, whether several executors analyse runs that one
could (``divided``), and a folder to watch if an executor is to be killed as soon as executors write
there. Their exit statuses, standard outputs and standard errors go to ``outcomes.json``.
"""

from __future__ import annotations

import io
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from stallscope.cli.main import main
from stallscope.spark import reporting
from stallscope.spark.remote_steps import ROWS_OF_A_PART
from stallscope.spark.spark_collecting import session


def run(folder: Path) -> None:
    spark = SparkSession.builder.getOrCreate()
    outcomes = [
        outcome(**command) for command in json.loads((folder / "commands.json").read_text())
    ]
    # A session from another thread must not stop Spark: only its owner does.
    thread = threading.Thread(target=use_session)
    thread.start()
    thread.join()
    alive = spark.range(3).count() == 3
    (folder / "outcomes.json").write_text(json.dumps({"commands": outcomes, "there": alive}))
    spark.stop()


def use_session() -> None:
    with session():
        pass


def outcome(words: list[str], divided: bool, kill: str | None = None) -> dict[str, Any]:
    reporting.MOST_ROWS_ON_DRIVER = 0 if divided else ROWS_OF_A_PART
    out, err, over = io.StringIO(), io.StringIO(), threading.Event()
    killed: list[int] = []
    killer = threading.Thread(target=kill_one, args=(Path(kill or "."), over, killed))
    if kill is not None:
        killer.start()
    with redirect_stdout(out), redirect_stderr(err):
        status = main(words)
    over.set()
    if kill is not None:
        killer.join()
    return {
        "status": status,
        "out": out.getvalue(),
        "err": err.getvalue(),
        "killed": len(killed),
    }


def kill_one(store: Path, over: threading.Event, killed: list[int]) -> None:
    """Kill an executor of this Spark when executors have begun to write."""
    while not over.wait(0.01):
        if list(store.glob(".stallscope-spark-*/*")):
            pid = min(executors(os.getpid()))
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)
            return


def executors(above: int) -> Iterator[int]:
    """Yield the executors' processes below this one."""
    for place in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
            command = (place / "cmdline").read_text()
        except OSError:
            continue  # the process has ended meanwhile
        if parent == above:
            if "CoarseGrainedExecutorBackend" in command:
                yield int(place.name)
            yield from executors(int(place.name))


if __name__ == "__main__":
    run(Path(sys.argv[1]))
