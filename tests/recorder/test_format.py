"""Lines of step logs, format 1: the parser reads what the recorder writes."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallscope.collector.recorder.step_log.line_format import (
    COLUMNS,
    IntervalRow,
    RowFormatter,
    StepRow,
    facts_line,
    file_name,
    header,
    header_facts,
)
from stallscope.parsers.formats.step_log.step_log_parser import StepLogParser

ANCHOR = 5_000_000_000
CLOCK = 1_700_000_000_000_000_000
FACTS = {"rank": 0, "run_id": "r", "anchor": {"monotonic_ns": ANCHOR, "wall_ns": ANCHOR + CLOCK}}

formatter = RowFormatter(ANCHOR, CLOCK)


def ms(value: float) -> int:
    return ANCHOR + int(value * 1e6)


def test_a_step_is_one_line_of_microseconds_since_its_start() -> None:
    row = StepRow(7, 2, ms(10), ms(11), ms(12.5), ms(14), ms(15), 1, 32, CLOCK + 3000)
    assert formatter.step(row) == "step,7,2,10000,1000,2500,4000,5000,1,32,3,\n"


def test_missing_measurements_are_empty_cells() -> None:
    row = StepRow(0, None, ms(0), None, None, None, ms(1), 4, None, CLOCK)
    assert formatter.step(row) == "step,0,,0,,,,1000,4,,0,\n"


def test_an_interval_has_as_many_cells_as_a_step() -> None:
    line = formatter.interval(IntervalRow("checkpoint", 12, 1, ms(20), ms(320), CLOCK - 2000))
    assert line == "checkpoint,12,1,20000,,,,300000,,,-2,\n"
    assert line.count(",") + 1 == len(COLUMNS)


def test_the_header_is_one_line_of_facts_and_one_of_columns() -> None:
    text = header({"model": "two\nlines", "odd": math.inf, "object": object, "word": "é\udc80"})
    first, second, rest = text.split("\n")
    assert first.startswith("#stallscope 1 {")
    assert second == ",".join(COLUMNS)
    assert rest == ""
    assert header_facts(first.encode())["model"] == "two\nlines"
    assert header_facts(first.encode())["object"] == "<class 'object'>"


def test_later_facts_are_one_line() -> None:
    line = facts_line({"b": 1, "a": "x\ny"})
    assert line.count("\n") == 1
    assert json.loads(line.removeprefix("#facts ")) == {"a": "x\ny", "b": 1}


@pytest.mark.parametrize("line", [b"", b"kind,step", b"#stallscope 1 {", b"#stallscope 1 [1]\n"])
def test_another_line_is_not_a_header(line: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        header_facts(line)


def test_file_names_sort_by_rank_generation_and_part() -> None:
    places = [(0, 0, 0), (0, 0, 1), (0, 1, 0), (12, 0, 0), (99_999, 3, 2)]
    names = [file_name(*place) for place in places]
    assert names == sorted(names)
    assert names[3] == "rank-00012.0.0.steps.csv"


microseconds = st.integers(0, 10**12)
optional = st.none() | microseconds


@given(
    begin=microseconds,
    stamps=st.tuples(optional, optional, optional),
    length=microseconds,
    epoch=st.none() | st.integers(0, 10**6),
    samples=st.none() | st.integers(0, 10**9),
    step=st.integers(0, 10**12),
    elements=st.none() | st.integers(0, 10**12),
)
def test_every_row_is_read_back_as_it_was_recorded(
    begin: int,
    stamps: tuple[int | None, ...],
    length: int,
    epoch: int | None,
    samples: int | None,
    step: int,
    elements: int | None,
) -> None:
    start = ANCHOR + begin * 1000
    data, ready, reduced = (None if stamp is None else start + stamp * 1000 for stamp in stamps)
    # Data does not come after the end of its step.
    end = start + ((stamps[0] or 0) + length) * 1000
    row = StepRow(step, epoch, start, data, ready, reduced, end, 2, samples, CLOCK, elements)
    text = header(FACTS) + formatter.step(row)
    parsed = StepLogParser().parse("rank-00000.0.0.steps.csv", text.encode())
    assert parsed.problems == ()
    [read] = parsed.steps.to_pylist()
    assert read == {
        "generation": 0,
        "rank": 0,
        "step": step,
        "epoch": epoch,
        "begin": start,
        "data": data,
        "ready": ready,
        "reduced": reduced,
        "end": end,
        "micro": 2,
        "samples": samples,
        "elements": elements,
    }
