"""What is found many lines at a time is what is found line by line: shortcuts against plain Python."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from stallscope.parsers.cut_lines import CUT_BYTES
from stallscope.parsers.cut_texts import may_hold
from stallscope.parsers.labelled_lines import NO_LABELS, NOBODYS, Form, owned
from stallscope.parsers.launcher_output import Line, Wanted, shown_blocks, shown_lines
from stallscope.parsers.launchers import LONGEST_PREFIX, _form, demultiplexed, labels_of
from stallscope.parsers.needles import Block, Sign
from stallscope.parsers.stamps import read_stamp

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
    b"2026-11-21 02:28:01,123 - STDOUT - INFO - [1,%d]<stdout>:",
    b"",
)
#: What ranks print, what makes lines hard, and what looks like something else.
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
    b"Sat Nov 21 02:28:04 2026",
    b"2026-11-21 02:28:01,999 - STDOUT - INFO - ",
    MARK[:5],
    MARK[5:],
    MARK,
    b"x" * 50,
)
WANTED = (
    Wanted((b"Epoch ", b"s - "), lambda text: b"Epoch " in text or b"s - " in text),
    Wanted((b"s\n", b"s\r"), lambda text: text.endswith(b"s")),
    Wanted((rb"Epoch \d", rb"\ds"), lambda text: _has_digits(text)),
)
PASSING_AT = b" - ETA: "
PASSING = Wanted((b"Epoch ", b"s\n", b"s\r"), passing=(PASSING_AT,), staying=(b"Epoch ",))
BLOCKS = st.sampled_from((40, 150, 1000, 4 << 20))


def _stays(text: bytes) -> bool:
    """Whether a line is wanted, and does not pass."""
    return b"Epoch " in text or (text.endswith(b"s") and PASSING_AT not in text)


def _has_digits(text: bytes) -> bool:
    return any(plain_places(text, Sign(sign)) for sign in (rb"Epoch \d", rb"\ds"))


def printed(seed: int) -> bytes:
    """What launchers print: mostly whole lines of ranks, and a few that were torn."""
    chance = random.Random(seed)
    label = chance.choice(LABELS)
    ranks = chance.choice(((0, 1), (0, 1, 2, 31, 70000)))
    # Above so many torn lines nothing is left out.
    torn = chance.choice((0.0, 0.03, 0.08, 0.3))

    def labelled() -> bytes:
        return label % chance.choice(ranks) if b"%" in label else label

    def words() -> bytes:
        return b"".join(chance.choices(WORDS, k=chance.randrange(4)))

    text = b"".join(label % rank + b"loading\n" if b"%" in label else b"" for rank in ranks)
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
                continue  # a rank goes on where it was, after others
        text += chance.choice((b"\n", b"\n", b"\n", b"\r\n"))
    return text if chance.random() < 0.5 else text.removesuffix(b"\n")


outputs = st.integers(0, 2**32).map(printed)


def plain_places(text: bytes, sign: Sign) -> list[int]:
    """Where a sign is."""

    def is_digit(at: int) -> bool:
        return 0 <= at < len(text) and text[at] in b"0123456789"

    return [
        at
        for at in range(len(text))
        if text.startswith(sign.text, at)
        and (not sign.digit_before or is_digit(at - 1))
        and (not sign.digit_behind or is_digit(at + len(sign.text)))
    ]


signs = st.builds(
    lambda before, text, behind: Sign(before + text + behind),
    st.sampled_from((b"", rb"\d")),
    st.sampled_from((b"s", b"s\n", b"Epoch ", b"loading\n[1,", MARK, b"\r", b"\xff", b"\0")),
    st.sampled_from((b"", rb"\d")),
)


@settings(max_examples=150)
@given(outputs, signs)
def test_signs_are_where_a_look_at_every_place_finds_them(text: bytes, sign: Sign) -> None:
    expected = plain_places(text, sign)
    block = Block(text)
    assert block.places(sign).tolist() == expected
    assert sign.find(text, 0, len(text)) == (expected[0] if expected else -1)
    assert sign.rfind(text, 0, len(text)) == (expected[-1] if expected else -1)
    assert block.lines_of(np.array(expected, np.int64)).tolist() == [
        text.count(b"\n", 0, at) for at in expected
    ]


def plain_owners(
    text: bytes, form: Form, known: Sequence[bytes]
) -> tuple[list[int], list[bool], list[bool]] | None:
    """Whose each whole line is, whether it has labels, and whether it is torn; line by line."""
    whose, labelled, torn = [], [], []
    last = NOBODYS
    for line in text.split(b"\n")[:-1]:
        found = [one for one in form.tag.finditer(line) if form.second or one.start() == 0]
        if not {one[0] for one in found} <= {*known}:
            return None
        before = line[: found[0].start()] if found else b""
        is_torn = len(found) > 1 or (bool(before) and not form.fits_before(before))
        if found:
            if is_torn and form.goes_on and not any(labelled):
                return None
            last = known.index(found[-1][0]) + 1
        elif not form.goes_on:
            last = NOBODYS
        whose.append(last)
        labelled.append(bool(found))
        torn.append(is_torn)
    return whose, labelled, torn


@settings(max_examples=150)
@given(outputs, st.booleans())
def test_lines_are_whose_a_look_at_every_line_says(text: bytes, all_known: bool) -> None:
    text = text[: text.rfind(b"\n") + 1]
    form = _form(labels_of(text))
    labels = {one[0]: None for line in text.split(b"\n") for one in form.tag.finditer(line)}
    known = [*labels] if all_known or form is NO_LABELS else [*labels][1:]
    found, expected = owned(Block(text), text, form, known), plain_owners(text, form, known)
    if expected is None:
        assert found is None
        return
    assert found is not None
    assert (found.whose.tolist(), found.labelled.tolist(), found.torn.tolist()) == expected


def of_streams(lines: Sequence[Line]) -> dict[tuple[int | None, str], list[tuple[object, ...]]]:
    found = defaultdict(list)
    for line in lines:
        found[line.rank, line.stream].append((line.text, line.stamp))
    return found


@settings(max_examples=300)
@given(outputs, st.sampled_from(WANTED), BLOCKS)
def test_wanted_lines_are_those_that_one_chooses_of_all(
    data: bytes, wanted: Wanted, block_bytes: int
) -> None:
    every = of_streams([*shown_lines(data, block_bytes)])
    found = of_streams([*shown_lines(data, block_bytes, wanted=wanted)])
    for whose, lines in every.items():
        chosen = [line for at, line in enumerate(lines) if at == 0 or wanted.chooses(line[0])]
        assert found.pop(whose) == chosen
    assert not found


@settings(max_examples=300)
@given(outputs.map(lambda data: data.replace(b"\b", b"")), BLOCKS)
def test_of_lines_that_pass_the_last_ones_stay(data: bytes, block_bytes: int) -> None:
    """Without backspaces: whether a line passes is told of what carriage returns have left of it."""
    every = of_streams([*shown_lines(data, block_bytes)])
    found = of_streams([*shown_lines(data, block_bytes, wanted=PASSING)])
    for whose, lines in every.items():
        kept = iter(found.pop(whose))
        told = [line for line in lines if PASSING_AT in line[0] or _stays(line[0])]
        for line, after in zip(told, [*told[1:], None], strict=False):
            if _stays(line[0]) or after is None or _stays(after[0]):
                # In their order, whatever else was kept in between.
                assert line in kept
    assert not found


@settings(max_examples=300)
@given(outputs, BLOCKS)
def test_blocks_of_lines_are_the_lines_that_are_made_one_by_one(
    data: bytes, block_bytes: int
) -> None:
    expected = defaultdict(list)
    for line in shown_lines(data, block_bytes):
        expected[line.rank].append((line.text, line.stamp))
    found = defaultdict(list)
    for lines in shown_blocks(data, block_bytes):
        columns = (lines.rank, lines.start, lines.end, lines.stamp_at, lines.stamp_end)
        for rank, start, end, stamp_at, stamp_end in zip(*columns, strict=True):
            text = lines.block.bytes[start:end].tobytes()
            stamp = lines.block.bytes[stamp_at : min(stamp_end, stamp_at + LONGEST_PREFIX)]
            if text:
                whose = None if rank < 0 else int(rank)
                found[whose].append((text, read_stamp(stamp.tobytes())))
    assert found == expected


def torn_mark(seed: int) -> bytes:
    """What launchers print with a mark that is nowhere whole, and torn at one place at most."""
    chance = random.Random(seed)
    label = chance.choice([label for label in LABELS if label])
    own, other = (label % rank for rank in chance.choice(((0, 1), (1, 0), (31, 70000))))

    def line() -> bytes:
        usual = (b"Epoch 1/3", b"12s - loss: 0.5", b"\r", b" ", b"1: ", b"x" * 50, MARK[:5])
        return b"".join(chance.choices(usual, k=chance.randrange(4)))

    def lines() -> bytes:
        few = chance.randrange(4, 12)
        return b"".join(chance.choice((own, other)) + line() + b"\n" for _ in range(few))

    cut = chance.randrange(1, len(MARK))
    first, rest = MARK[:cut], MARK[cut:]
    begun = line().replace(b"\r", b"")
    if label == b"%d: ":
        # srun cuts lines that are as long as that.
        begun = begun.ljust(CUT_BYTES - cut, b"y")
        tears = [own + begun + first + b"\n" + between + own for between in (b"", other + b"z\n")]
    else:
        tears = [
            own + begun + first + own,
            own + begun + first + other + line() + b"\n" + own,
            own + begun + first + other + line() + own,
            own + b"a\n" + first + own + b"b\n",
            # What launchers say themselves is torn like that.
            own + b"a\n" + begun + first + own + b"b\n",
        ]
    torn = chance.choice([b"", *tears])
    end = chance.choice((b"\n" + lines(), b"\n", b""))
    until = len(rest) if end else chance.randrange(len(rest) + 1)
    return lines() + torn + (rest[:until] if torn else b"") + end


def beginning_at_the_end(text: bytes) -> bytes:
    """What a text ends with of the mark's beginning."""
    return next((MARK[:n] for n in range(len(MARK), 0, -1) if text.endswith(MARK[:n])), b"")


@settings(max_examples=600)
@given(st.one_of(outputs, st.integers(0, 2**32).map(torn_mark)))
def test_what_may_not_be_held_is_in_nothing_that_ranks_have_written(data: bytes) -> None:
    written = b"\n".join(demultiplexed(data).values())
    if not may_hold(data, MARK):
        assert MARK not in written
        assert beginning_at_the_end(written) == beginning_at_the_end(data)
