"""No input breaks a parser: one suite for all of them; a new one joins by a sample of its own."""

from __future__ import annotations

import gzip
import json
import lzma
import random
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.step_logs import Job, write_job

from stallscope.collector.mlflow.metrics import KnownRun, as_file
from stallscope.errors import UnreadableError
from stallscope.parsers import PARSERS, Parsed, Parser, read
from stallscope.parsers.named import by_name
from stallscope.run import INTERVALS_SCHEMA, STEPS_SCHEMA, Run

HERE = Path(__file__).parent
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


def _mlflow(_: Path) -> bytes:
    told = json.loads((HERE / "mlflow_runs.json").read_text())["keras"]
    return as_file(
        KnownRun(
            where="mlflow:abc",
            run_id="abc",
            run_name="a run",
            status="FINISHED",
            start_ms=told["start_ms"],
            end_ms=told["end_ms"],
            params=told["params"],
            training_data=told["training_data"],
            metrics=told["metrics"],
            metric_names=sorted(told["metrics"]),
            artifacts=0,
            possible_logs=0,
        )
    ).read()


#: A whole log of each kind, by the parser's name.
SAMPLES: dict[str, Callable[[Path], bytes]] = {
    "step-log": _step_log,
    "mlflow-metrics": _mlflow,
    "ehealth": _ehealth,
    "horovod-runner": _horovod_runner,
    "time-history": _time_history,
    "keras-output": lambda _: (HERE / "printed" / "horovodrun-stamped.txt").read_bytes(),
    PATTERN: _pattern,
}


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return {name: make(tmp_path_factory.mktemp("sample")) for name, make in SAMPLES.items()}


def holds(parser: Parser, data: bytes) -> list[Parsed]:
    """Parse bytes: logs as they have to be, or an error of one sentence that names the file."""
    try:
        one = parser.parse("some/log", data)
    except UnreadableError as error:
        said = str(error)
    else:
        said = ""
    if said:
        assert said.startswith("some/log: ")
        assert "\n" not in said
        return []
    logs = [one, *one.more]
    for log in logs:
        assert log.steps.schema == pa.schema(list(STEPS_SCHEMA)[1:])
        assert log.intervals.schema == pa.schema(list(INTERVALS_SCHEMA)[1:])
        assert 0 <= log.log.rank < 2**31
        assert not log.more or log is one
        if not parser.has_steps:
            took = pc.subtract(log.intervals["end"], log.intervals["begin"])
            assert pc.all(pc.greater_equal(took, 0), min_count=0).as_py()
    return logs


def test_every_parser_has_a_sample() -> None:
    assert set(SAMPLES) == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_its_own_sample_is_recognised_and_read(name: str, samples: dict[str, bytes]) -> None:
    parser, data = by_name(name), samples[name]
    if name != PATTERN:
        found = next(one for one in PARSERS if one.recognises("log", data))
        assert found.name == name
    assert any(log.steps.num_rows or log.log.facts for log in holds(parser, data))
    assert not any(one.recognises("log", b"") for one in PARSERS)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=40)
@given(chance=st.randoms(use_true_random=False))
def test_no_damage_breaks_it(name: str, samples: dict[str, bytes], chance: random.Random) -> None:
    data = samples[name]
    at, until = sorted((chance.randrange(len(data)), chance.randrange(len(data))))
    lines = data.splitlines(keepends=True)
    mixed = chance.sample(lines, len(lines))
    flipped = bytearray(data)
    for _ in range(20):
        flipped[chance.randrange(len(data))] = chance.randrange(256)
    other = chance.choice(list(samples.values()))
    for damaged in (
        data[:until],
        data[at:],
        data[:at] + data[until:],
        data[:at] + other + data[at:],
        data[:at] + chance.randbytes(300) + data[at:],
        b"".join(mixed),
        b"".join(line for pair in zip(lines, mixed, strict=True) for line in pair),
        bytes(flipped),
        data + data,
    ):
        holds(by_name(name), damaged)


@pytest.mark.parametrize("name", NAMES)
def test_no_encoding_breaks_it(name: str, samples: dict[str, bytes]) -> None:
    parser, data = by_name(name), samples[name]
    text = data.decode()
    for changed in (
        b"",
        b"\n",
        b"\0" * 1000,
        bytes(range(256)) * 40,
        b"\xef\xbb\xbf" + data,
        text.encode("utf-16"),
        text.encode("latin-1", "replace"),
        data.replace(b"\n", b"\r\n"),
        data.replace(b"\n", b"\r"),
        data.replace(b"\n", b"\0\n"),
        data.replace(b"1", "１".encode()),
    ):
        holds(parser, changed)


@pytest.mark.parametrize("name", NAMES)
def test_digits_without_end_and_one_line_of_20_megabytes_are_read_in_one_pass(
    name: str, samples: dict[str, bytes]
) -> None:
    """Whatever takes longer than in proportion never ends here."""
    parser, data = by_name(name), samples[name]
    line = data.replace(b"\n", b" ").replace(b"\r", b" ")
    for long in (line * (20_000_000 // len(line)), data + b"9" * 1_000_000 + b"/" * 1_000_000):
        parser.recognises("log", long[: 256 << 10])
        holds(parser, long)


@pytest.mark.parametrize("name", ["keras-output", "horovod-runner", PATTERN])
def test_ranks_that_appear_late_are_ranks(name: str, samples: dict[str, bytes]) -> None:
    unlabelled = (HERE / "printed" / "tf-2.15-verbose-2.txt").read_bytes()
    data = unlabelled if name == "keras-output" else samples[name]
    late = b"".join(
        b"[1,%d]<stdout>:%s\n" % (rank, line) for rank in (0, 7) for line in data.splitlines()
    )
    assert {log.log.rank for log in holds(by_name(name), late)} == {0, 7}


@pytest.mark.parametrize("name", [name for name in NAMES if name != "mlflow-metrics"])
@pytest.mark.parametrize("compress", [gzip.compress, lzma.compress], ids=["gz", "xz"])
def test_compressed_it_is_the_same(
    name: str, compress: Callable[[bytes], bytes], samples: dict[str, bytes], tmp_path: Path
) -> None:
    def read_back(data: bytes) -> list[Run]:
        (tmp_path / "log").write_bytes(data)
        return read(str(tmp_path), read_as=name)

    plain, packed = read_back(samples[name]), read_back(compress(samples[name]))
    assert [run.intervals for run in packed] == [run.intervals for run in plain]
    assert [run.steps for run in packed] == [run.steps for run in plain]
