"""A real Spark for tests: executors are processes with their own Python workers."""

from __future__ import annotations

import importlib.util
import math
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from .needing import need

# JVMs start slowly on a busy machine.
PATIENCE_SECONDS = 2_700.0
#: A JVM that lives for seconds gains nothing from a second compilation.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def need_spark() -> None:
    """Skip tests without Spark or Java; in CI they fail."""
    need(
        importlib.util.find_spec("pyspark"),
        f"there is no Spark in {Path(sys.prefix).name}: pip install 'stallscope[spark]'",
    )
    need(shutil.which("java"), "there is no Java for Spark: apt-get install default-jre-headless")


def run_on_spark(program: Path, folder: Path, executors: int, **settings: str) -> None:
    """Run a program with the environment that users set for their Spark.

    Args:
        program: the driver's program.
        folder: its argument; Spark writes its files next to it.
        executors: how many, each with one core.
        settings: variables, also of the executors.
    """
    environment = {"PYTHONPATH": str(program.parent), **settings}
    on_executors = {**environment, "PYTHONPATH": f"{program.parent}/executors:{program.parent}"}
    options = {
        "spark.driver.extraJavaOptions": JAVA_OPTIONS,
        "spark.executor.extraJavaOptions": JAVA_OPTIONS,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        **{f"spark.executorEnv.{name}": value for name, value in on_executors.items()},
    }
    words = [f"--conf {name}={shlex.quote(value)}" for name, value in options.items()]
    done = subprocess.run(
        [sys.executable, str(program), str(folder)],
        env={
            **os.environ,
            **environment,
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_SUBMIT_ARGS": " ".join(
                [f"--master local-cluster[{executors},1,1024]", *words, "pyspark-shell"]
            ),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_WORKER_DIR": str(folder / "work"),
        },
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def equal(left: Any, right: Any) -> None:
    """Compare counts and words exactly, other numbers to 1e-9."""
    if isinstance(left, dict):
        assert left.keys() == right.keys()
        for name in left:
            equal(left[name], right[name])
    elif isinstance(left, list):
        assert len(left) == len(right)
        for first, second in zip(left, right, strict=True):
            equal(first, second)
    elif isinstance(left, float):
        assert math.isclose(left, right, rel_tol=1e-9, abs_tol=1e-9)
    else:
        assert left == right
