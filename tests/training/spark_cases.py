"""Train small models on ranks that Spark starts, all cases in one application.

    python spark_cases.py MASTER OUT CASE…

``OUT/CASE/logs`` holds the logs of ranks that share a folder, ``OUT/CASE/result.json`` their results,
``OUT/eventlogs`` Spark's event log. Functions that ranks run are pickled, so each imports its modules.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable, TextIO

import horovod.spark
from case_runner import Cases
from horovod.runner import launch
from horovod.spark import runner
from pyspark import SparkConf, SparkContext
from pyspark.ml.torch.distributor import TorchDistributor
from pyspark.ml.torch.log_communication import LogStreamingClientBase
from pyspark.sql import SparkSession

RANKS = 2
STEPS = 12
#: So many that a flush fills several records.
DISTRIBUTOR_STEPS = 1500

CASES = Cases()
case = CASES.add


class HorovodRunner:
    """A replacement of Databricks' class, which exists in its runtime only, with the same interface."""

    def __init__(self, *, np: int, driver_log_verbosity: str = "log_callback_only") -> None:
        self.num_processes = np

    def run(self, main: Callable[..., Any], **kwargs: Any) -> Any:
        return horovod.spark.run(main, kwargs=kwargs, num_proc=self.num_processes, use_gloo=True)[0]


def train_keras(log_dir: str | None, sink: str, run_name: str) -> dict[str, Any]:
    import horovod.tensorflow.keras as hvd
    import numpy as np
    import tensorflow as tf

    from stallscope.keras import StepLogger

    hvd.init()
    random = np.random.default_rng(hvd.rank())
    inputs, labels = random.random((STEPS * 16, 8), np.float32), random.integers(0, 4, STEPS * 16)
    model = tf.keras.Sequential([tf.keras.layers.Dense(16), tf.keras.layers.Dense(4)])
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.01)), loss)
    log = StepLogger(log_dir, sink=sink, run_name=run_name)
    data = tf.data.Dataset.from_tensor_slices((inputs, labels)).batch(16)
    model.fit(data, epochs=2, callbacks=[log], verbose=0)
    return {"rank": hvd.rank()}


def train_torch(run_name: str, noise: int = 0) -> dict[str, Any]:
    """Train, and print as many lines of noise in each step."""
    import horovod.torch as hvd
    import torch

    from stallscope.torch import StepLogger

    hvd.init()
    torch.manual_seed(hvd.rank())
    model = torch.nn.Linear(8, 4)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), 0.01), model.named_parameters()
    )
    batches = [(torch.rand(16, 8), torch.randint(4, (16,))) for _ in range(STEPS)]
    log = StepLogger(
        None, optimizer=optimizer, sink="logging", run_name=run_name, flush_seconds=0.01
    )
    with log:
        for inputs, labels in log.watch(batches):
            sys.stderr.write(f"loss and other output of rank {hvd.rank()}\n" * noise)
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(inputs), labels).backward()
            optimizer.step()
    return {"rank": hvd.rank(), "task": os.environ.get("TASK")}


def train_ddp(log_dir: str) -> None:
    import torch
    from torch.nn.parallel import DistributedDataParallel

    from stallscope.torch import StepLogger

    torch.distributed.init_process_group("gloo")
    torch.manual_seed(torch.distributed.get_rank())
    model = DistributedDataParallel(torch.nn.Linear(8, 4))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    batches = [(torch.rand(16, 8), torch.randint(4, (16,))) for _ in range(DISTRIBUTOR_STEPS)]
    log = StepLogger(log_dir, optimizer=optimizer, model=model, sink="both", run_name="distributor")
    with log:
        for inputs, labels in log.watch(batches):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(inputs), labels).backward()
            optimizer.step()
    # One after the other, and after all records: a pipe mixes long lines of several processes.
    torch.distributed.monitored_barrier()
    for rank in range(torch.distributed.get_world_size()):
        if rank == torch.distributed.get_rank():
            print("x" * 5000, flush=True)
        # Unlike barrier(), it leaves Gloo's threads time to end: one that is late aborts the process.
        torch.distributed.monitored_barrier()
    torch.distributed.destroy_process_group()


@case
def distributor(folder: Path) -> Any:
    """Train with Spark's launcher of torchrun, and record into a shared folder and the output."""
    SparkSession.builder.getOrCreate()
    launcher = TorchDistributor(num_processes=RANKS, local_mode=True, use_gpu=False)
    with (folder / "printed.txt").open("w") as printed, contextlib.redirect_stdout(Sent(printed)):
        launcher.run(train_ddp, str(folder / "logs"))


class Sent(io.TextIOBase):
    """Truncate lines as Spark does between its tasks and the driver.

    Real tasks would need pandas, and local processes print complete lines.
    """

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, line: str) -> int:
        cut = LogStreamingClientBase._maybe_truncate_msg(line.rstrip())
        return self._file.write(f"{cut}\n")


@case
def page(folder: Path) -> Any:
    """Run the script of docs/launching, with all tasks in the driver's process."""
    sys.argv = ["spark.py", str(folder / "logs")]
    runpy.run_path(str(Path(__file__).parents[2] / "docs" / "launching" / "spark.py"))


@case
def shared_folder(folder: Path) -> Any:
    """Record into a shared folder and the output."""
    words = {"log_dir": str(folder / "logs"), "sink": "both", "run_name": "shared folder"}
    return horovod.spark.run(train_keras, kwargs=words, num_proc=RANKS, use_gloo=True)


@case
def nothing_shared(folder: Path) -> Any:
    """Record into the output only, which stays with the executors."""
    words = {"run_name": f"nothing shared, {folder.parent.name}"}
    return horovod.spark.run(train_torch, kwargs=words, num_proc=RANKS, use_gloo=True)


@case
def captured(folder: Path) -> Any:
    """Train three ranks in two containers, so that ranks and tasks differ, and capture their output."""
    with (folder / "stdout").open("w") as out, (folder / "stderr").open(
        "w"
    ) as err, in_containers():
        return horovod.spark.run(
            train_torch,
            kwargs={"run_name": "captured"},
            num_proc=3,
            use_gloo=True,
            stdout=out,
            stderr=err,
            prefix_output_with_timestamp=True,
        )


@contextlib.contextmanager
def in_containers() -> Iterator[None]:
    """Put every other task into another container of YARN, which Horovod treats as a host."""
    make_mapper = runner._make_mapper

    def mapper_in_containers(*words: Any) -> Callable[[int, Any], Any]:
        mapper = make_mapper(*words)

        def placed(index: int, numbers: Any) -> Any:
            os.environ["CONTAINER_ID"] = "odd" if index % 2 else "even"
            os.environ["TASK"] = str(index)
            return mapper(index, numbers)

        return placed

    runner._make_mapper = mapper_in_containers
    try:
        yield
    finally:
        runner._make_mapper = make_mapper


@case
def horovod_runner(folder: Path) -> Any:
    """Train as on Databricks, with enough output for Spark to roll its files over."""
    return [HorovodRunner(np=RANKS).run(train_torch, run_name="runner", noise=300)]


@contextlib.contextmanager
def spark(master: str, out: Path) -> Iterator[None]:
    events = out / "eventlogs"
    events.mkdir(parents=True, exist_ok=True)
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        # An executor per rank, where there are executors.
        "spark.executor.cores": "1",
        "spark.executor.memory": "480m",
    }
    conf = SparkConf().setMaster(master).setAppName(out.name).setAll(settings.items())
    context = SparkContext(conf=conf)
    try:
        yield
    finally:
        context.stop()


def main() -> None:
    master, place, *names = sys.argv[1:]
    out = Path(place)
    # To find that Horovod has Gloo, each application would import TensorFlow once more.
    launch.gloo_built = lambda verbose=False: True
    with spark(master, out):
        for name in names:
            folder = out / name
            folder.mkdir()
            (folder / "result.json").write_text(json.dumps(CASES[name](folder)))


if __name__ == "__main__":
    main()
