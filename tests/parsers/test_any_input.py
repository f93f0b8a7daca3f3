"""Readable input is read, the rest is counted, and time and memory are proportional to the input."""

from __future__ import annotations

import base64
import codecs
import io
import random
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.parser_contract import NAMES, PATTERN, SAMPLES, holds
from support.step_logs import Job, write_job
from support.work import calls_of

from stallscope.errors import UnreadableError
from stallscope.parsers import Parsed, read
from stallscope.parsers.formats.horovod_timeline import BlockRows, TimelineReader
from stallscope.parsers.formats.measurements import parse_input_times
from stallscope.parsers.log_records import LogRecords
from stallscope.parsers.registry import by_name

#: Logs of lines, which are read as far as possible; the others are all or nothing.
OF_LINES = ["step-log", "ehealth", "horovod-runner", "time-history", "keras-output", PATTERN]
#: Those whose lines launchers label.
LABELLED = ["horovod-runner", "time-history", PATTERN]


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return {name: make(tmp_path_factory.mktemp("sample")) for name, make in SAMPLES.items()}


def rows(logs: list[Parsed], rank: int | None = None) -> list[object]:
    """Return the content of logs, whatever their files are called."""
    return [
        (log.steps.to_pylist(), log.intervals.drop_columns(["rank"]).to_pylist())
        for log in logs
        if rank is None or log.log.rank == rank
    ]


def count(logs: list[Parsed]) -> int:
    return sum(log.steps.num_rows + log.intervals.num_rows for log in logs)


@pytest.mark.slow
@pytest.mark.parametrize("name", OF_LINES)
@settings(max_examples=15)
@given(chance=st.randoms(use_true_random=False))
def test_foreign_lines_lose_nothing(
    name: str, samples: dict[str, bytes], chance: random.Random
) -> None:
    parser, data = by_name(name), samples[name]
    lines = data.splitlines(keepends=True)
    torn = 0
    for _ in range(5):
        noise = bytes(chance.choice(b"\x00\x80\xff%@~zq") for _ in range(30)) + b"\n"
        # After the header and its columns: without them it is not a step log.
        lines.insert(chance.randrange(2, len(lines) + 1), noise)
        torn += 1
    logs = holds(parser, b"".join(lines))
    assert rows(logs) == rows(holds(parser, data))
    if name == "step-log":
        assert logs[0].log.torn == torn
        assert f"{torn} torn or unreadable lines" in str(logs[0].problems[0])


@pytest.mark.broad
@pytest.mark.parametrize("name", OF_LINES)
@settings(max_examples=15)
@given(chance=st.randoms(use_true_random=False))
def test_more_of_a_log_never_gives_less(
    name: str, samples: dict[str, bytes], chance: random.Random
) -> None:
    """Torn anywhere: a longer start of a file gives all that a shorter one gives, and more."""
    parser, data = by_name(name), samples[name]
    ends = sorted(chance.randrange(len(data)) for _ in range(4))
    counts = [count(holds(parser, data[:end])) for end in (*ends, len(data))]
    assert counts == sorted(counts)


@pytest.mark.slow
@pytest.mark.parametrize("name", LABELLED)
@settings(max_examples=15)
@given(chance=st.randoms(use_true_random=False))
def test_interleaved_ranks_are_each_as_they_were_alone(
    name: str, samples: dict[str, bytes], chance: random.Random
) -> None:
    parser, lines = by_name(name), samples[name].splitlines(keepends=True)
    waiting = {rank: [b"[1,%d]<stdout>:%s" % (rank, line) for line in lines] for rank in (0, 1, 9)}
    mixed = b""
    while any(waiting.values()):
        rank = chance.choice([rank for rank, messages in waiting.items() if messages])
        mixed += waiting[rank].pop(0)
    logs = holds(parser, mixed)
    assert [log.log.rank for log in logs] == [0, 1, 9]
    for rank in (0, 1, 9):
        assert rows(logs, rank) == rows(holds(parser, b"".join(lines)))


@pytest.mark.parametrize("name", OF_LINES)
@pytest.mark.parametrize(
    "encode",
    [
        lambda data: codecs.BOM_UTF8 + data,
        lambda data: data.decode().encode("utf-16"),
        lambda data: codecs.BOM_UTF16_BE + data.decode().encode("utf-16-be"),
        lambda data: data.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n"),
    ],
    ids=["bom", "utf-16", "utf-16-be", "crlf"],
)
def test_changes_by_editors_and_shells_do_not_matter(
    name: str, encode: Callable[[bytes], bytes], samples: dict[str, bytes], tmp_path: Path
) -> None:
    def read_back(data: bytes) -> list[object]:
        (tmp_path / "log").write_bytes(data)
        runs = read(str(tmp_path), read_as=name if name == PATTERN else None)
        return [(run.steps.to_pylist(), run.intervals.to_pylist()) for run in runs]

    assert read_back(encode(samples[name])) == read_back(samples[name])


def test_with_a_clock_that_goes_back_no_epoch_ends_before_it_starts() -> None:
    back = b"2026-11-21 02:00:%02d epoch=%d step=%d\n"
    for name, data in {
        PATTERN.replace("{} ", ""): b"".join(
            back % (s, e, 9 * e) for e, s in enumerate((9, 3, 7, 1))
        ),
        "horovod-runner": b"1574985600.5: begin epoch: 0 begin, logs: None\n"
        b"1574985500.5: end epoch: 0, logs: {}\n1574985500.5: begin epoch: 1 begin, logs: None\n"
        b"1574985501.5: end epoch: 1, logs: {}\n",
    }.items():
        holds(by_name(name), data)


def test_a_duplicate_log_counts_once_and_is_reported(tmp_path: Path) -> None:
    write_job(tmp_path / "a", Job(ranks=2, steps=20))
    (tmp_path / "b").mkdir()
    first = min((tmp_path / "a").iterdir())
    (tmp_path / "b" / first.name).write_bytes(first.read_bytes())
    (run,) = read(str(tmp_path))
    assert run.ranks == [0, 1]
    assert run.steps.num_rows == 40
    assert any("more than one attempt recorded 20 steps" in str(p) for p in run.problems)


def _pattern(name: str, line: bytes) -> tuple[str, bytes]:
    return f"pattern:{name}", line * 20


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("step-log", b"#stallscope " + b"9" * 5000 + b" {}\n"),
        ("step-log", b"#stallscope 1 " + b"[" * 100_000 + b"\n"),
        _pattern(
            "epoch={epoch} took {seconds}", b"epoch=1 took 999999999\nepoch=2 took 999999999\n"
        ),
    ],
    ids=["a version without end", "brackets without end", "epochs of thirty years"],
)
def test_endless_numbers_and_brackets_are_an_error_of_one_sentence(name: str, data: bytes) -> None:
    with pytest.raises(UnreadableError, match=r"^some/log: [^\n]+$"):
        by_name(name).parse("some/log", data)


def test_endlessly_nested_facts_are_one_unreadable_line() -> None:
    columns = b"kind,step,begin_us,end_us\n"
    nested = b"#facts " + b"[" * 100_000 + b"\n"
    parsed = by_name("step-log").parse(
        "log", b"#stallscope 1 {}\n" + columns + nested + b"step,0,1,2\n"
    )
    assert (parsed.steps.num_rows, parsed.log.torn) == (1, 1)


def test_an_endlessly_nested_measurement_is_an_error_of_one_sentence() -> None:
    with pytest.raises(UnreadableError, match="not a measurement of a loader"):
        parse_input_times("log", b'{"stallscope_input":' + b"[" * 100_000)


def test_activities_that_end_before_they_start_are_counted_and_left_out() -> None:
    event = b'{"ph": "%s", %s"ts": %d, "pid": 1},\n'
    text = b"[\n" + b"".join(
        event % part
        for part in (
            (b"B", b'"name": "ALLREDUCE", ', 500),
            (b"E", b"", 400),
            (b"B", b'"name": "ALLREDUCE", ', 600),
            (b"E", b"", 650),
        )
    )
    reader = TimelineReader("timeline.json", io.BytesIO(text))
    spans = BlockRows.joined(list(reader.block_rows())).activities
    assert (spans.begin.tolist(), spans.end.tolist(), reader.unmatched) == ([600], [650], 1)


def test_records_that_unpack_to_far_more_than_a_recorder_packs_are_damaged() -> None:
    raw = bytes(1 << 20)
    payload = base64.b64encode(zlib.compress(raw)).decode()
    record = f"stallscope:1:{'0' * 16}:rank-00000.0.0:0:{zlib.crc32(raw):08x}:{payload}\n"
    records = LogRecords()
    assert records.add("log", record.encode())
    assert records.logs() == []
    assert "1 damaged record of" in str(records.problems[0])


def _lines(name: str, samples: dict[str, bytes], times: int) -> bytes:
    """Make a log that is as long as so many samples."""
    if name == "mlflow-metrics":
        metrics = ",".join(
            f'"m{n}": [[1000, 1, 1], [2000, 2, 2], [3000, 3, 3]]' for n in range(30 * times)
        )
        return b'{"stallscope_mlflow": 1, "run_id": "a", "metrics": {%s}}' % metrics.encode()
    first, _, rest = samples[name].partition(b"\n")
    return first + b"\n" + rest * times


@pytest.mark.broad
@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("kineto", "tensorboard")])
def test_four_times_as_much_takes_four_times_the_work_and_memory(
    name: str, samples: dict[str, bytes]
) -> None:
    parser = by_name(name)
    work, peaks = [], []
    holds(parser, samples[name])
    for times in (4, 16):
        data = _lines(name, samples, times)
        tracemalloc.start()
        try:
            holds(parser, data)
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
        work.append(calls_of(lambda data=data: holds(parser, data)))
    assert work[1] < 5 * work[0]
    assert peaks[1] < 5 * peaks[0] + (1 << 20)
