"""The contract of every parser, and a complete log of each kind."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from stallscope.collector.mlflow.metrics import MlflowRecord, checked_record_file
from stallscope.errors import UnreadableError
from stallscope.parsers import PARSERS, Parsed, Parser
from stallscope.run import INTERVALS_SCHEMA, STEPS_SCHEMA

from .printed_steps import PROGRAMS
from .step_logs import Job, write_job

HERE = Path(__file__).parents[1] / "parsers"
PATTERN = "pattern:{time} {}epoch={epoch} step={step}"
NAMES = [*(parser.name for parser in PARSERS), PATTERN]


def _step_log(folder: Path) -> bytes:
    write_job(folder, Job(ranks=1, steps=60))
    return next(folder.glob("*.steps.csv")).read_bytes()


def _ehealth(_: Path) -> bytes:
    stamp = "2019-11-06 00:{:02}:{:02} - STDOUT - INFO - "
    text = ""
    for repeat in (1, 2):
        text += stamp.format(repeat * 10, 0) + f"HOROVOD_CLUSTER - REPEAT {repeat}\n"
        for epoch in (1, 2, 3):
            for rank in (0, 1):
                label = stamp.format(repeat * 10 + epoch - 1, 17) + f"[1,{rank}]<stdout>:"
                text += label + f"Epoch {epoch}/3\n"
            for rank in (0, 1):
                label = stamp.format(repeat * 10 + epoch - 1, 34) + f"[1,{rank}]<stdout>:"
                text += label + " - 17s - loss: 1.0160\n"
    return text.encode()


def _horovod_runner(_: Path) -> bytes:
    text = ""
    for epoch in range(3):
        begin = 1574985600.123456 + 20 * epoch
        text += f"{begin:.6f}: begin epoch: {epoch} begin, logs: None\n"
        for batch in range(5):
            text += f"{begin + batch:.6f}: epoch: {epoch}, batch: {batch}, logs: {{'loss': 1.9}}\n"
        text += f"{begin + 17:.6f}: end epoch: {epoch}, logs: {{'loss': 1.9}}\n"
    return text.encode()


def _time_history(_: Path) -> bytes:
    line = (
        "I1121 12:00:00 TimeHistory: 12.34 seconds, 829.82 examples/second between steps {} and {}"
    )
    return "".join(line.format(at, at + 100) + "\n" for at in range(0, 500, 100)).encode()


def _pattern(_: Path) -> bytes:
    line = "2026-11-21 02:{:02}:{:02},250 INFO train: epoch={} step={} loss=0.2\n"
    return "".join(line.format(*divmod(s, 60), s // 50, s) for s in range(200)).encode()


def _step_lines(_: Path) -> bytes:
    line = (
        "2026-11-21 02:{:02}:{:02},250 | step {} | loss 2.{} | step_time: 1.00{}s | "
        "data_time: 0.20{}s\n"
    )
    return "".join(
        line.format(*divmod(s, 60), s, s, s % 3, s % 7) for s in range(0, 400, 2)
    ).encode()


def _mlflow(_: Path) -> bytes:
    logged = json.loads((HERE / "mlflow_runs.json").read_text())["keras"]
    return checked_record_file(
        MlflowRecord(
            where="mlflow:abc",
            run_id="abc",
            run_name="a run",
            status="FINISHED",
            start_ms=logged["start_ms"],
            end_ms=logged["end_ms"],
            params=logged["params"],
            training_data=logged["training_data"],
            metrics=logged["metrics"],
            metric_names=sorted(logged["metrics"]),
            artifacts=0,
            possible_logs=0,
            system_metrics={"system/a/cpu_utilization_percentage": ([logged["start_ms"]], [12.5])},
        )
    ).read()


def _neighbour(name: str) -> bytes:
    return gzip.decompress((HERE / "neighbours" / name).read_bytes())


def _kineto(_: Path) -> bytes:
    """Return the start of a trace up to its events, and of those the annotations only."""
    head, *events = _neighbour("rank0.pt.trace.json.gz").split(b"\n  },")
    return b"\n  },".join([head, *(event for event in events if b"user_annotation" in event)])


#: A complete log of each kind, by the parser's name.
SAMPLES: dict[str, Callable[[Path], bytes]] = {
    "step-log": _step_log,
    "mlflow-metrics": _mlflow,
    "ehealth": _ehealth,
    "horovod-runner": _horovod_runner,
    "time-history": _time_history,
    **{
        program.parser: lambda _, program=program: program.text()  # type: ignore[misc]
        for program in PROGRAMS.values()
    },
    "mlperf": lambda _: (HERE / "mlperf" / "mlperf-logging-4.1.68.txt").read_bytes(),
    "keras-output": lambda _: (HERE / "printed" / "horovodrun-stamped.txt").read_bytes(),
    "kineto": _kineto,
    "dftracer": lambda _: (HERE / "dftracer" / "trace-0-of-2.pfw").read_bytes(),
    "tensorboard": lambda _: _neighbour("tfevents-keras.gz"),
    "step-lines": _step_lines,
    PATTERN: _pattern,
}


def holds(parser: Parser, data: bytes) -> list[Parsed]:
    """Parse bytes: the result must be valid logs, or an error of one sentence with the file's name."""
    try:
        parsed = parser.parse("some/log", data)
    except UnreadableError as error:
        message = str(error)
    else:
        message = ""
    if message:
        assert message.startswith("some/log: ")
        assert "\n" not in message
        return []
    logs = [parsed, *parsed.more]
    for log in logs:
        assert log.steps.schema == pa.schema(list(STEPS_SCHEMA)[1:])
        assert log.intervals.schema == pa.schema(list(INTERVALS_SCHEMA)[1:])
        assert 0 <= log.log.rank < 2**31
        assert not log.more or log is parsed
        if not parser.has_steps:
            took = pc.subtract(log.intervals["end"], log.intervals["begin"])
            assert pc.all(pc.greater_equal(took, 0), min_count=0).as_py()
    return logs
