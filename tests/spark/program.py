"""What tests run on one Spark with two executors, as a user would: one command after the other.

    python program.py FOLDER

FOLDER has ``commands.json``: a list of the words of each command. What became of them goes to
``outcomes.json``: exit status, standard output and standard error of each.
"""

from __future__ import annotations

import io
import json
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from pyspark.sql import SparkSession

from stallscope.cli.main import main


def run(folder: Path) -> None:
    spark = SparkSession.builder.getOrCreate()
    outcomes = []
    for words in json.loads((folder / "commands.json").read_text()):
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            status = main(words)
        outcomes.append({"status": status, "out": out.getvalue(), "err": err.getvalue()})
    # Whose session it is, its end is.
    there = spark.range(3).count() == 3
    (folder / "outcomes.json").write_text(json.dumps({"commands": outcomes, "there": there}))
    spark.stop()


if __name__ == "__main__":
    run(Path(sys.argv[1]))
