"""Large traces are read block by block, also remote and compressed ones."""

from __future__ import annotations

import gzip
import io
import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.traces import GLOO, LOADER, OPERATOR, event, head_of, trace_of

from stallscope.collector.sources.source import Source, SourceFile
from stallscope.errors import UnreadableError
from stallscope.parsers import read
from stallscope.parsers.files.unpacking import readable_within_limits
from stallscope.parsers.formats.kineto.kineto_reader import read_spans

NAME = "rank0.pt.trace.json"


def steps(count: int, operators: int) -> Iterator[str]:
    """Yield the events of so many steps."""
    for number in range(count):
        ts = 1_000_000.0 + 100_000 * number
        yield event(f"ProfilerStep#{number}", ts, 99_990)
        yield event(LOADER, ts + 10, 20_000)
        for at in range(operators):
            yield event("aten::addmm", ts + 21_000 + 100 * at, 60, OPERATOR)
        yield event("gloo:all_reduce", ts + 80_000, 15_000, tid=GLOO)


def large(count: int = 30) -> bytes:
    """Return a trace of more than the bytes that show a file's format."""
    return trace_of(*steps(count, 300), head=head_of(0, 2, backend="gloo"))


class Requests(Source):
    """One file, whose requests are noted."""

    where = "far/away"

    def __init__(self, name: str, data: bytes) -> None:
        self._name, self._data = name, data
        self.largest = 0

    def files(self) -> list[SourceFile]:
        return [SourceFile(self._name, self._name, len(self._data), "", self._read)]

    def _read(self, start: int, end: int | None) -> bytes:
        piece = self._data[start:end]
        self.largest = max(self.largest, len(piece))
        return piece


@pytest.mark.parametrize("block_bytes", [7, 61, 1000, 4096, 100_000])
def test_blocks_of_any_size_give_the_same(block_bytes: int) -> None:
    data = trace_of(*steps(3, 20), head=head_of(0, 2, backend="gloo"))
    whole, pieces = (read_spans(io.BytesIO(data), size) for size in (1 << 20, block_bytes))
    assert (pieces.steps, pieces.host, pieces.size) == (whole.steps, "node-0", 2)
    assert (pieces.whole, pieces.bytes) == (True, len(data))
    for name in ("loaders", "operators", "starting"):
        for edge in ("begin", "end"):
            actual, expected = (getattr(getattr(trace, name), edge) for trace in (pieces, whole))
            assert actual.tolist() == expected.tolist()
    assert sorted(pieces.host_collectives.end) == sorted(whole.host_collectives.end)


def rewritten(data: bytes, order: str) -> bytes:
    """Write a trace as other programs do."""
    trace = json.loads(data)
    if order == "reversed":
        trace["traceEvents"] = [
            dict(reversed(list(event.items()))) for event in trace["traceEvents"]
        ]
    return json.dumps(
        trace, sort_keys=order == "sorted", indent=1 if order == "sorted" else None
    ).encode()


@pytest.mark.parametrize("order", ["sorted", "reversed"])
@pytest.mark.parametrize("block_bytes", [61, 100_000])
def test_the_order_of_keys_does_not_matter(order: str, block_bytes: int) -> None:
    usual = trace_of(*steps(3, 20), head=head_of(0, 2, backend="gloo"))
    data = rewritten(usual, order)
    expected, spans = read_spans(io.BytesIO(usual)), read_spans(io.BytesIO(data), block_bytes)
    assert (spans.steps, spans.host, spans.rank) == (expected.steps, "node-0", 0)
    assert (spans.whole, spans.bytes, spans.base_ns) == (True, len(data), expected.base_ns)
    for name in ("loaders", "operators", "starting"):
        assert getattr(spans, name).begin.tolist() == getattr(expected, name).begin.tolist()
        assert getattr(spans, name).end.tolist() == getattr(expected, name).end.tolist()
    # The events before the place where a killed process stopped writing still count.
    cut = read_spans(io.BytesIO(data[: len(data) * 2 // 3]))
    assert cut.steps.items() < expected.steps.items()
    assert not cut.whole


def test_times_of_events_in_another_order_keep_their_digits() -> None:
    number = '"ts": 1790857026000123.457, "tid": 1, "pid": 1, "dur": 99.987, "ph": "X"'
    kind = '"cat": "user_annotation"'
    data = trace_of(f'{{"name": "ProfilerStep#7", {number}, {kind}}}')
    (step,) = read_spans(io.BytesIO(data)).steps.values()
    assert (step.begin, step.end - step.begin) == (1_790_857_026_000_123_457, 99_987)


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_a_large_trace_is_requested_in_pieces(ending: str) -> None:
    data = large(600)
    assert len(data) > 16 << 20
    packed = gzip.compress(data, 0) if ending else data
    source = Requests(NAME + ending, packed)
    (run,) = read(source)
    assert run.steps["step"].to_pylist() == list(range(600))
    assert run.steps["reduced"].null_count == 0
    assert source.largest <= 4 << 20


def test_a_large_truncated_trace_is_reported(tmp_path: Path) -> None:
    packed = gzip.compress(large(), 0)
    (tmp_path / f"{NAME}.gz").write_bytes(packed[: len(packed) // 2])
    (run,) = read(str(tmp_path))
    assert 10 < run.rows < 20
    assert [problem.what for problem in run.problems] == [
        "the compressed file is truncated or damaged; the rest is missing"
    ]


@pytest.mark.broad
def test_a_file_that_unpacks_to_too_much_is_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stallscope.parsers.files.unpacking._FEWEST_BYTES", 1 << 20)
    packed = gzip.compress(large()[:300_000] + b" " * (64 << 20))
    with pytest.raises(UnreadableError, match=r"unpacks to more than \d+ MiB"):
        read(Requests(f"{NAME}.gz", packed + b"\0" * (256 << 10)))
    # What is not compressed is as large as it is.
    file = readable_within_limits("it", io.BytesIO(b"a" * 100), 100)
    assert file.read(200) == b"a" * 100


@pytest.mark.broad
def test_memory_does_not_grow_with_what_is_not_needed() -> None:
    """Operators one after the other take less than their text."""
    data = large(1000)
    tracemalloc.start()
    try:
        spans = read_spans(io.BytesIO(data))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(spans.operators) == 300_000
    assert len(data) > 32 << 20
    assert peak < len(data)
