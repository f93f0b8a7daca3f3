"""Vectorized reading gives the results of reading line by line: shortcuts against plain Python."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stallscope.parsers.launcher_output import (
    LONGEST_PREFIX,
    Line,
    LineFilter,
    labels_of,
    line_blocks,
    may_contain,
    output_by_rank,
    rank_lines,
)
from stallscope.parsers.launcher_output.splitting import CUT_BYTES
from stallscope.parsers.lines import line_blocks as lines_line_blocks
from stallscope.parsers.lines.line_blocks import LineBlock, Needle, contains_any
from stallscope.parsers.lines.timestamps import read_timestamp

MARK = b"stallscope:1:"
#: How launchers label, by rank.
LABELS = (
    b"[1,%d]<stdout>:",
    b"[1,%d]<stderr>: ",
    b"Sat Nov 21 02:28:01 2026[1,%d]<stdout>:",
    b"[Sat Nov 21 02:28:03 2026][1,%d]<stdout>: ",
    b"[%d]<stdout>:",
    b"Sat Nov 21 02:29:50 2026[%d]<stdout>:",
    b"[%d] ",
    b"[default%d]:",
    b"%d: ",
    b"\x1b[36m(RayTrainWorker pid=%d)\x1b[0m ",
    b"2026-11-21 02:28:01,123 - STDOUT - INFO - [1,%d]<stdout>:",
    b"",
)
#: Ranks' output, difficult lines, and look-alikes.
WORDS = (
    b"Epoch 1/3",
    b"Epoch ",
    b"12s - loss: 0.5",
    b" - ETA: 3s",
    b"s",
    b"7s",
    b"7",
    b"ms/step",
    b"\r",
    b"\b\b",
    b"\x1b[2K\x1b[31m",
    b"\xff\xfe",
    b"\xc3\xa9",
    b"\0",
    b"[",
    b"]:",
    b"[0",
    b">:",
    b" ",
    b"1: ",
    b"(RayTrainWorker pid=1) ",
    b"Sat Nov 21 02:28:04 2026",
    b"2026-11-21 02:28:01,999 - STDOUT - INFO - ",
    MARK[:5],
    MARK[5:],
    MARK,
    b"x" * 50,
)
WANTED = (
    LineFilter((b"Epoch ", b"s - "), lambda text: b"Epoch " in text or b"s - " in text),
    LineFilter((b"s\n", b"s\r"), lambda text: text.endswith(b"s")),
    LineFilter((rb"Epoch \d", rb"\ds"), lambda text: _has_digits(text)),
)
PASSING_AT = b" - ETA: "
PASSING = LineFilter((b"Epoch ", b"s\n", b"s\r"), updates=(PASSING_AT,), not_updates=(b"Epoch ",))
BLOCKS = st.sampled_from((40, 150, 1000, 4 << 20))


def _stays(text: bytes) -> bool:
    """Tell whether a line is wanted and is kept."""
    return b"Epoch " in text or (text.endswith(b"s") and PASSING_AT not in text)


def _has_digits(text: bytes) -> bool:
    return any(plain_places(text, Needle(needle)) for needle in (rb"Epoch \d", rb"\ds"))


def printed(seed: int) -> bytes:
    """Make launchers' output: mostly whole lines of ranks, and a few torn ones."""
    chance = random.Random(seed)
    label = chance.choice(LABELS)
    ranks = chance.choice(((0, 1), (0, 1, 2, 31, 70000)))
    # With more torn lines, nothing is left out.
    torn = chance.choice((0.0, 0.03, 0.08, 0.3))

    def labelled() -> bytes:
        return label % chance.choice(ranks) if b"%" in label else label

    def words() -> bytes:
        return b"".join(chance.choices(WORDS, k=chance.randrange(4)))

    text = b"".join(label % rank + b"loading\n" if b"%" in label else b"" for rank in ranks)
    if b"pid=" in label:
        text += b"".join(b"(ip=10.0.0.1, pid=%d) world_rank=%d\n" % (rank, rank) for rank in ranks)
    for _ in range(chance.choice((3, 40, 80))):
        text += labelled() + words()
        if chance.random() < torn:
            cut = chance.randrange(len(MARK))
            text += chance.choice(
                (
                    b"",
                    labelled() + words(),
                    b"\n" + words(),
                    b"\n" + words() + labelled() + words(),
                    MARK[:cut] + labelled() + words() + b"\n" + labelled() + MARK[cut:],
                )
            )
            if chance.random() < 0.3:
                continue  # a rank continues after others
        text += chance.choice((b"\n", b"\n", b"\n", b"\r\n"))
    return text if chance.random() < 0.5 else text.removesuffix(b"\n")


outputs = st.integers(0, 2**32).map(printed)


def plain_places(text: bytes, needle: Needle) -> list[int]:
    """Return the places of a needle."""

    def is_digit(at: int) -> bool:
        return 0 <= at < len(text) and text[at] in b"0123456789"

    return [
        at
        for at in range(len(text))
        if text.startswith(needle.text, at)
        and (not needle.digit_before or is_digit(at - 1))
        and (not needle.digit_after or is_digit(at + len(needle.text)))
    ]


needles = st.builds(
    lambda before, text, after: Needle(before + text + after),
    st.sampled_from((b"", rb"\d")),
    st.sampled_from((b"s", b"s\n", b"Epoch ", b"loading\n[1,", MARK, b"\r", b"\xff", b"\0")),
    st.sampled_from((b"", rb"\d")),
)


@settings(max_examples=150)
@given(outputs, needles)
def test_needles_are_found_as_by_a_plain_search(text: bytes, needle: Needle) -> None:
    expected = plain_places(text, needle)
    block = LineBlock(text)
    assert block.places(needle).tolist() == expected
    assert block.lines_of(np.array(expected, np.int64)).tolist() == [
        text.count(b"\n", 0, at) for at in expected
    ]


@pytest.mark.broad
@settings(max_examples=50)
@given(outputs, needles, st.integers(1, 40))
def test_a_text_is_searched_piece_by_piece(text: bytes, needle: Needle, piece: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines_line_blocks, "_PIECE_BYTES", piece)
        contained = contains_any(text, [Needle(b"never printed"), needle])
    assert contained == bool(plain_places(text, needle))


@settings(max_examples=150)
@given(st.lists(st.text("0123456789", max_size=18), min_size=1), st.sampled_from((3, 8, 12, 16)))
def test_numbers_are_read_as_by_int(numbers: list[str], most: int) -> None:
    lines = [number + "," for number in numbers]
    starts = np.cumsum([0, *map(len, lines[:-1])])
    values, digits = LineBlock("".join(lines).encode()).numbers(starts, most)
    assert values.tolist() == [int(number[:most] or 0) for number in numbers]
    assert digits.tolist() == [len(number[:most]) for number in numbers]


@given(st.lists(st.integers(0, 10**8 - 1), min_size=2), st.integers(1, 10**8 - 1))
def test_numbers_that_differ_in_their_last_digits_are_read_as_by_int(
    lasts: list[int], first: int
) -> None:
    numbers = [first * 10**8 + last for last in lasts]
    text = b"".join(b"%d," % number for number in numbers)
    starts = np.arange(len(numbers)) * (len(str(numbers[0])) + 1)
    values, digits = LineBlock(text).numbers(starts, 16)
    assert values.tolist() == numbers
    assert digits.tolist() == [len(str(number)) for number in numbers]


@given(st.lists(st.binary(max_size=40).map(lambda text: text.replace(b"\0", b"")), min_size=1))
def test_texts_are_read_up_to_a_byte(texts: list[bytes]) -> None:
    unquoted = [text.replace(b'"', b"") for text in texts]
    starts = np.cumsum([0, *(len(text) + 1 for text in unquoted[:-1])])
    block = LineBlock(b"".join(text + b'"' for text in unquoted))
    index, values, length = block.texts_until(starts, ord('"'), 48)
    assert length.tolist() == [len(text) for text in unquoted]
    assert [values[at] for at in index.tolist()] == unquoted


def plain_pieces(data: bytes) -> list[tuple[tuple[int | None, str], bytes]]:
    """Return the pieces of each writer, label by label."""
    labels = labels_of(data)
    pieces: list[tuple[tuple[int | None, str], bytes]] = []

    def add(stream: tuple[int | None, str], text: bytes) -> None:
        labelled = text if labels is None or labels.logged else text[: text.find(b"\n") + 1] or text
        pieces.extend([(stream, labelled), ((None, ""), text[len(labelled) :])])

    stream, at = (None, ""), 0
    for match in labels.tag.finditer(data) if labels is not None else ():
        text = data[at : match.start()]
        line = text[text.rfind(b"\n") + 1 :]
        starts_line = at == 0 or b"\n" in text
        before = line[-LONGEST_PREFIX:]
        timed = labels.timed or labels.logged
        prefix = labels.prefix_length(before, starts_line=starts_line) if timed else 0
        add(stream, text[: len(text) - prefix])
        stream, at = labels.stream_of(match[0]), match.end()
        at += labels.spaced and data[at : at + 1] == b" "
    add(stream, data[at:])
    return [(stream, text) for stream, text in pieces if text]


@settings(max_examples=100)
@given(outputs)
def test_output_is_assigned_as_by_reading_every_label(data: bytes) -> None:
    written: dict[tuple[int | None, str], bytes] = defaultdict(bytes)
    for stream, text in plain_pieces(data):
        written[stream] += text
    assert {stream: text for stream, text in output_by_rank(data).items() if text} == written
    shown = defaultdict(list)
    for stream, text in written.items():
        for line in text.split(b"\n"):
            last = line.rstrip(b"\r").rpartition(b"\r")[2].rpartition(b"\b")[2]
            if last:
                shown[stream].append(last)
    streams = defaultdict(list)
    for line in rank_lines(data):
        streams[line.rank, line.stream].append(line.text)
    assert streams == shown


def of_streams(lines: Sequence[Line]) -> dict[tuple[int | None, str], list[tuple[object, ...]]]:
    streams = defaultdict(list)
    for line in lines:
        streams[line.rank, line.stream].append((line.text, line.timestamp))
    return streams


@pytest.mark.any_versions
@pytest.mark.slow
@settings(max_examples=100)
@given(outputs, st.sampled_from(WANTED), BLOCKS)
def test_wanted_lines_are_those_of_a_plain_filter(
    data: bytes, wanted: LineFilter, block_bytes: int
) -> None:
    every = of_streams([*rank_lines(data, block_bytes)])
    filtered = of_streams([*rank_lines(data, block_bytes, only=wanted)])
    for whose, lines in every.items():
        chosen = [line for at, line in enumerate(lines) if at == 0 or wanted.accepts(line[0])]
        assert filtered.pop(whose) == chosen
    assert not filtered


@pytest.mark.slow
@settings(max_examples=100)
@given(outputs.map(lambda data: data.replace(b"\b", b"")), BLOCKS)
def test_the_last_of_overwritten_lines_is_kept(data: bytes, block_bytes: int) -> None:
    """Without backspaces: the text that carriage returns leave decides whether a line is kept."""
    every = of_streams([*rank_lines(data, block_bytes)])
    filtered = of_streams([*rank_lines(data, block_bytes, only=PASSING)])
    for whose, lines in every.items():
        kept = iter(filtered.pop(whose))
        kept_lines = [line for line in lines if PASSING_AT in line[0] or _stays(line[0])]
        for line, after in zip(kept_lines, [*kept_lines[1:], None], strict=False):
            if _stays(line[0]) or after is None or _stays(after[0]):
                # In their order, whatever else was kept in between.
                assert line in kept
    assert not filtered


@pytest.mark.slow
@settings(max_examples=100)
@given(outputs, BLOCKS)
def test_blocks_of_lines_equal_lines_made_one_by_one(data: bytes, block_bytes: int) -> None:
    expected = defaultdict(list)
    for line in rank_lines(data, block_bytes):
        expected[line.rank].append((line.text, line.timestamp))
    by_rank = defaultdict(list)
    for lines in line_blocks(data, block_bytes):
        columns = (lines.rank, lines.start, lines.end, lines.time_start, lines.time_end)
        for rank, start, end, stamp_at, time_end in zip(*columns, strict=True):
            text = lines.block.bytes[start:end].tobytes()
            stamp = lines.block.bytes[stamp_at : min(time_end, stamp_at + LONGEST_PREFIX)]
            if text:
                whose = None if rank < 0 else int(rank)
                by_rank[whose].append((text, read_timestamp(stamp.tobytes())))
    assert by_rank == expected


def torn_mark(seed: int) -> bytes:
    """Make launchers' output with a mark that is nowhere whole, and torn at one place at most."""
    chance = random.Random(seed)
    label = chance.choice([label for label in LABELS if label])
    rank_label, other_label = (
        label % rank for rank in chance.choice(((0, 1), (1, 0), (31, 70000)))
    )

    def line() -> bytes:
        usual = (b"Epoch 1/3", b"12s - loss: 0.5", b"\r", b" ", b"1: ", b"x" * 50, MARK[:5])
        return b"".join(chance.choices(usual, k=chance.randrange(4)))

    def lines() -> bytes:
        few = chance.randrange(4, 12)
        return b"".join(
            chance.choice((rank_label, other_label)) + line() + b"\n" for _ in range(few)
        )

    cut = chance.randrange(1, len(MARK))
    first, rest = MARK[:cut], MARK[cut:]
    begun = line().replace(b"\r", b"")
    if label == b"%d: ":
        # srun cuts lines of this length.
        begun = begun.ljust(CUT_BYTES - cut, b"y")
        tears = [
            rank_label + begun + first + b"\n" + between + rank_label
            for between in (b"", other_label + b"z\n")
        ]
    else:
        tears = [
            rank_label + begun + first + rank_label,
            rank_label + begun + first + other_label + line() + b"\n" + rank_label,
            rank_label + begun + first + other_label + line() + rank_label,
            rank_label + b"a\n" + first + rank_label + b"b\n",
            # The launcher's own lines are torn like that.
            rank_label + b"a\n" + begun + first + rank_label + b"b\n",
        ]
    torn = chance.choice([b"", *tears])
    end = chance.choice((b"\n" + lines(), b"\n", b""))
    until = len(rest) if end else chance.randrange(len(rest) + 1)
    return lines() + torn + (rest[:until] if torn else b"") + end


def beginning_at_the_end(text: bytes) -> bytes:
    """Return the part of the mark with which a text ends."""
    return next((MARK[:n] for n in range(len(MARK), 0, -1) if text.endswith(MARK[:n])), b"")


@pytest.mark.slow
@settings(max_examples=300)
@given(st.one_of(outputs, st.integers(0, 2**32).map(torn_mark)))
def test_text_excluded_by_may_contain_is_in_no_ranks_output(data: bytes) -> None:
    written = b"\n".join(output_by_rank(data).values())
    if not may_contain(data, MARK):
        assert MARK not in written
        assert beginning_at_the_end(written) == beginning_at_the_end(data)
