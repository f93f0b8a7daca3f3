"""Lines of a pattern, read many at once, equal those read one by one with the regular expression."""

from __future__ import annotations

import random
import re
from operator import itemgetter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallscope.parsers.formats.line_pattern import FLOATS, Pattern
from stallscope.parsers.launcher_output import LONGEST_LINE, labels_of, line_blocks, rank_lines
from stallscope.parsers.lines.timestamps import Timestamp, read_dated, read_moment
from stallscope.parsers.window_lines import HALF

PATTERNS = (
    "{time} {}epoch={epoch} step={step}",
    "{time} step {step}",
    "{time} {} epoch {epoch}",
    "{epoch}/300] {time}",
    "{time}{step}",
    "{time}{rank}{}x{step}",
    "epoch {epoch} took {seconds}",
    "epoch={epoch} step={step} took {seconds}",
    "step={step} took {ms}",
    "{}epoch={epoch}{} step {step}",
    "{}rank {rank} {} epoch  {epoch}",
    "{} {step} {seconds}",
    "{step}{epoch}",
    "epoch {epoch} {step}/{steps}] took {seconds} ({mean_seconds})",
    "step {step}{} took {data} {rate}",
    r"{}\d{step}",
    "{}é {epoch}",
    "{}{step} epoch {epoch}",
    "{}{epoch}/300] took {seconds}",
)
TIMESTAMPS = (
    "2026-11-21 02:28:01",
    "2026-11-21T02:28:01.123456",
    "2026-11-21 02:28:01,12 34",
    "2026-11-21 02:28:01.1234567891",
    "2026-11-21 02:28:01,5 +05:45",
    "2026-11-21 02:28:01-0130",
    "2026-11-21 02:28:01+25:00",
    "2026-02-31 02:28:01",
    "2026-11-21 24:28:01",
    "2026/11/21 02:28:01",
    "11/21/2026 02:28:01",
    "13/21/2026 02:28:01",
    "26/11/21 02:28:01",
    "26/11/21 02:28:01x",
    "26/11/21 02:28:01 Z",
    "Sat Nov 21 02:28:01 2026",
    "Sat Nov 31 02:28:01 2026",
    "1790000000",
    "1790000000.1234567890123",
    "1790000000.123456789012",
    "1790000000.",
    "2999999999.999999999",
    "0790000000.5",
    "3790000000.5",
    "17900000001.5",
    "9999999999.5",
    "1790000000123",
    "17900000001234",
    "9999999999123",
    "I0906 02:52:05.102637",
    "W1121 02:28:01",
    "E1321 02:28:01.5",
    "X0906 02:52:05.1",
    "I20200906 02:52:05.102637",
    "11/21 02:28:01",
    "13/21 02:28:01.5",
    "Nov 21 02:28:01",
    "Feb 29 02:28:01,250",
    "Feb 30 02:28:01",
    "Nov  1 24:28:01",
    "Now  1 02:28:01",
    "INFO|2026-11-21T02:28:01|launcher.py|27| ",
    "CRITICAL|Nov 21 02:28:01",
    "OK|2026-11-21 02:28:01",
)
LABELS = (
    "",
    "[%d]<stdout>:",
    "[1,%d]<stderr>: ",
    "Sat Nov 21 02:28:01 2026[1,%d]<stdout>:",
    "[%d] ",
)

#: Known parts of a timestamp.
STAMP = ("ns", "zone_known", "resolution_ns", "year_known")
#: What a line may have before its timestamp.
BLANKS = re.compile(rb"\A[^\S\n]{0,64}")
BEHIND = ("", "]", ",5", ".123456789", ", 5", ",5 5", " 5", "Z", " +05:45", "+1", "x", ",250Z")

numbers = st.one_of(
    st.integers(0, 10**14).map(str), st.sampled_from(["0", "00012345678", "999999999999"])
)
stamps = st.sampled_from(TIMESTAMPS).flatmap(
    lambda stamp: st.sampled_from([stamp, f"[{stamp}]", f"[{stamp}", f"{stamp}]", f" [{stamp}"])
)
noise = st.one_of(
    stamps,
    numbers,
    st.sampled_from(
        ["epoch ", "epoch=", " step ", "step=", " ", "  ", "\t", " " * 90, "x", "é\xa0", "\0"]
    ),
    st.sampled_from(["\r", "\b", "\r\n", r"\d", "/300]", " took ", "rank "]),
)


@st.composite
def lines_of(draw: st.DrawFn, pattern: str) -> str:
    """Make a line that matches the pattern, or nearly."""
    line = ""
    for part in re.split(r"(\{\w*\}|\s+)", pattern):
        if part == "{time}":
            line += draw(stamps)
        elif part == "{}":
            line += "".join(draw(st.lists(noise, max_size=2)))
        elif part.strip("{}") in FLOATS:
            line += draw(numbers) + draw(st.sampled_from(["", ".", ".5", ".1234567890123"]))
            line += draw(st.sampled_from(["", "", "e-04", "E+2", "e3", "e-123", "e", "e+", "e-23"]))
        elif part.startswith("{"):
            line += draw(st.sampled_from(["", "", " ", " " * 13])) + draw(numbers)
        else:
            line += draw(st.sampled_from([part, part, part, part * 2]))
    return line + draw(st.sampled_from(["", " loss", " 5"]))


@st.composite
def logs(draw: st.DrawFn) -> tuple[str, bytes]:
    pattern = draw(st.sampled_from(PATTERNS))
    label = draw(st.sampled_from(LABELS))
    lines = draw(
        st.lists(
            st.one_of(lines_of(pattern), lines_of(pattern), st.lists(noise).map("".join)),
            min_size=1,
            max_size=12,
        )
    )
    ranks = draw(st.lists(st.integers(0, 3), min_size=len(lines), max_size=len(lines)))
    whole = "\n".join(
        (label % rank if label else "") + line for rank, line in zip(ranks, lines, strict=True)
    )
    return pattern, (whole + draw(st.sampled_from(["", "\n"]))).encode()


def values_in(pattern: Pattern, text: bytes) -> dict[str, object] | None:
    """Return the values of a line by Python's regular expressions."""
    match = re.match(pattern.form.expression.encode(), text)
    if match is None:
        return None
    texts = match.groupdict()
    row: dict[str, object] = {
        name: float(value) if name in FLOATS else int(value)
        for name, value in texts.items()
        if name != "time"
    }
    if "time" not in texts:
        return row
    stamp = read_moment(texts["time"])
    return None if stamp is None else row | {name: getattr(stamp, name) for name in STAMP}


def one_by_one(pattern: Pattern, data: bytes) -> list[dict[str, object]]:
    """Return the content of the lines, read one by one."""
    rows: list[dict[str, object]] = []
    for line in rank_lines(data):
        row = values_in(pattern, line.text)
        if row is not None:
            stamp = (
                read_dated(BLANKS.sub(b"", line.before, count=1))
                if "ns" not in row
                else Timestamp(*(row[name] for name in STAMP))  # type: ignore[arg-type]
            )
            if "ms" in row:
                row = {**row, "seconds": row["ms"] / 1e3}  # type: ignore[operator]
                del row["ms"]
            # A launcher's label counts, whatever the line itself says.
            rank = row.get("rank", 0) if line.rank is None else line.rank
            rows.append({**row, "rank": rank, **as_columns(stamp)})
    return rows


def as_columns(stamp: Timestamp | None) -> dict[str, object]:
    if stamp is None:
        return {"timed": False}
    return {"timed": True, **{name: getattr(stamp, name) for name in STAMP}}


def at_once(pattern: Pattern, data: bytes) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for lines in line_blocks(data):
        columns, _ = pattern.columns_in(lines, labels_of(data), 0)
        names = [name for name in columns if not name.startswith(HALF)]
        for values in zip(*(columns[name].tolist() for name in names), strict=True):
            row = dict(zip(names, values, strict=True))
            unknown = () if row["timed"] else STAMP
            rows.append({name: value for name, value in row.items() if name not in unknown})
    return rows


@pytest.mark.broad
@given(logs())
def test_lines_read_at_once_equal_lines_read_one_by_one(log: tuple[str, bytes]) -> None:
    text, data = log
    pattern = Pattern(text)
    # Interleaved ranks are read rank by rank.
    by_rank = itemgetter("rank")
    assert sorted(at_once(pattern, data), key=by_rank) == sorted(
        one_by_one(pattern, data), key=by_rank
    )


@pytest.mark.broad
@given(logs(), st.randoms(use_true_random=False))
def test_lines_with_other_digits_are_read_as_one_by_one(
    log: tuple[str, bytes], noise: random.Random
) -> None:
    text, data = log
    pattern = Pattern(text)

    def with_other_digits(line: bytes) -> bytes:
        return re.sub(rb"(?<=: )\d|(?<=\d)\d", lambda _: b"%d" % noise.randrange(10), line)

    lines = [with_other_digits(line) for line in data.splitlines(keepends=True) for _ in range(8)]
    many = b"".join(lines)
    by_rank = itemgetter("rank")
    assert sorted(at_once(pattern, many), key=by_rank) == sorted(
        one_by_one(pattern, many), key=by_rank
    )


@pytest.mark.parametrize("stamp", TIMESTAMPS)
@pytest.mark.parametrize("text", ["{time} step {step}", "{}step {step}"])
def test_timestamps_of_every_form_are_read_at_once(text: str, stamp: str) -> None:
    pattern = Pattern(text)
    data = "".join(f"{stamp}{behind} step {number}\n" for number, behind in enumerate(BEHIND))
    rows = at_once(pattern, data.encode())
    assert rows == one_by_one(pattern, data.encode())
    if text.startswith("{}"):
        assert len(rows) == len(BEHIND)


def test_brackets_before_a_timestamp_are_not_a_part_of_it_and_blanks_do_not_count() -> None:
    parser = Pattern("{time} step {step}")
    data = b" [26/11/21 02:28:01 step 1\n[[26/11/21 02:28:01 step 2\n[26/11/21 02:28:01 step 3\n"
    assert at_once(parser, data) == one_by_one(parser, data)
    assert [row["step"] for row in at_once(parser, data)] == [1, 3]


@pytest.mark.parametrize(
    ("line", "step"),
    [
        ("x" * LONGEST_LINE + " step 12", None),
        ("x" * (LONGEST_LINE - 7) + " step 12", 1),
        ("x" * (LONGEST_LINE - 8) + " step 12", 12),
        ("x" * 100 + "\b\b\r step 1\r step 12", 12),
        ("x" * 100 + "\b\b step 12\r\r", 12),
        ("step 1 step 12", 12),
    ],
    ids=["too far", "cut", "in time", "written over", "ends of Windows", "blanks before"],
)
def test_the_visible_text_of_a_line_counts(line: str, step: int | None) -> None:
    pattern = Pattern("{} step {step}")
    data = f"{line}\n".encode()
    assert at_once(pattern, data) == one_by_one(pattern, data)
    assert [row["step"] for row in at_once(pattern, data)] == [step] * (step is not None)


def test_a_text_may_occur_before_the_place_that_fits() -> None:
    pattern = Pattern("{}step {step}/{steps}] took {seconds}")
    data = b"[step sizes: step 7 of 9] [step 12/90] took 0.5 s\n"
    assert [(row["step"], row["seconds"]) for row in at_once(pattern, data)] == [(12, 0.5)]


@pytest.mark.broad
def test_lines_of_a_file_of_many_blocks_are_read_in_order() -> None:
    pattern = Pattern("{time} {}step {step}")
    line = "[{}]<stdout>:2026-11-21 02:{:02}:{:02},250 INFO train: step {} of many\n"
    data = "".join(line.format(n % 3, *divmod(n // 50, 60), n) for n in range(150_000)).encode()
    rows = at_once(pattern, data)
    for rank in range(3):
        assert [row["step"] for row in rows if row["rank"] == rank] == list(range(rank, 150_000, 3))
