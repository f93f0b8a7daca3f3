"""Ranks' lines are reassembled from launchers' output, with their timestamps."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallscope.parsers.launcher_output import Line, LineFilter, line_blocks, rank_lines
from stallscope.parsers.launcher_output import labelled_lines as made_lines
from stallscope.parsers.lines.timestamps import read_timestamp

# Open MPI 4.1.8 with --tag-output, of two ranks that write three updates of a bar each.
OPEN_MPI_4 = (
    b"[1,1]<stdout>:Epoch 1/2\n"
    b"[1,1]<stdout>:\b\b\r1/3 [..] - ETA: 0s[1,1]<stdout>:\b\b\r2/3 [..] - ETA: 0s"
    b"[1,1]<stdout>:\b\b\r3/3 [..] - ETA: 0s[1,0]<stdout>:Epoch 1/2[1,0]<stdout>:\r\n"
    b"[1,0]<stdout>:\b\b\r1/3 [..] - ETA: 0s[1,1]<stdout>:\r\n"
    b"[1,1]<stdout>:AAAA\r\n"
    b"[1,1]<stderr>:err line\n"
    b"[1,0]<stdout>:\b\b\r2/3 [..] - ETA: 0s[1,0]<stdout>:\b\b\r3/3 [..] - ETA: 0s"
    b"[1,0]<stderr>:err line\n[1,0]<stdout>:\r\n[1,0]<stdout>:AAAA\r\n"
)
# MPICH 5.0.2 with -l.
MPICH = (
    b"[0] Epoch 1/2\n"
    b"[0] \b\b\r1/3 [..] - ETA: 0s[1] Epoch 1/2[1] \n"
    b"[1] \b\b\r1/3 [..] - ETA: 0s[0] \b\b\r2/3 [..] - ETA: 0s[1] \b\b\r2/3 [..] - ETA: 0s"
    b"[0] \b\b\r3/3 [..] - ETA: 0s[1] \b\b\r3/3 [..] - ETA: 0s[0] \n"
    b"[0] AAAA\n[0] err line\n[1] \n[1] AAAA\n[1] err line\n"
)
BAR = b"3/3 [..] - ETA: 0s"


def texts(data: bytes, block_bytes: int = 1 << 20) -> dict[tuple[int | None, str], list[bytes]]:
    streams: dict[tuple[int | None, str], list[bytes]] = {}
    for line in rank_lines(data, block_bytes):
        streams.setdefault((line.rank, line.stream), []).append(line.text)
    return streams


@pytest.mark.parametrize("block_bytes", [30, 64, 1 << 20])
def test_pieces_of_ranks_become_their_lines(block_bytes: int) -> None:
    lines = [b"Epoch 1/2", BAR, b"AAAA"]
    assert texts(OPEN_MPI_4, block_bytes) == {
        (0, "stdout"): lines,
        (1, "stdout"): lines,
        (0, "stderr"): [b"err line"],
        (1, "stderr"): [b"err line"],
    }


@pytest.mark.parametrize("block_bytes", [64, 1 << 20])
def test_a_block_may_have_backspaces_and_no_line(block_bytes: int) -> None:
    data = b"Sat Nov 21 02:39:32 2026]sttdout>\b 1: [1,0]<stdout>:[1,256]<stdou"
    blocks = [*line_blocks(data, block_bytes)]
    assert all((lines.start <= lines.end).all() for lines in blocks)


def test_labels_without_a_stream_are_taken_where_every_line_has_one() -> None:
    lines = [b"Epoch 1/2", BAR, b"AAAA", b"err line"]
    assert texts(MPICH) == {(0, ""): lines, (1, ""): lines}
    assert texts(b"[0] is the first\nof three\nlines\n") == {
        (None, ""): [b"[0] is the first", b"of three", b"lines"]
    }


def test_only_the_final_text_on_a_terminal_counts() -> None:
    bar = b"".join(b"\r%d/9 [..]%s" % (step, b"\b" * 8) for step in range(1, 9))
    for end in (b"\r9/9 [==]\n", b"\r9/9 [==]\r\n", b"\r9/9 [==]", b"9/9 [==]\n"):
        assert texts(b"before\n" + bar + end) == {(None, ""): [b"before", b"9/9 [==]"]}


def test_a_bar_of_many_megabytes_is_one_short_line() -> None:
    bar = b"\r1/2 [>.] - ETA: 1s" * 300_000
    [line] = rank_lines(b"begin" + bar + b"\r2/2 [==] - 1s\n", 1 << 16)
    assert line == Line(None, "", b"2/2 [==] - 1s", (b"begin" + bar)[:160])


@pytest.mark.parametrize(
    "prefixed",
    [
        b"Sat Nov 21 02:39:23 2026[1,0]<stdout>:one Sat Nov 21 02:39:25 2026[1,0]<stdout>:two\n"
        b"Sat Nov 21 02:39:24 2026[1,1]<stdout>:three\n",
        b"[Sat Nov 21 02:39:25 2026][1,0]<stdout>:one two\n"
        b"[Sat Nov 21 02:39:24 2026][1,1]<stdout>:three\n",
        b"2026-11-21 02:39:25 - STDOUT - INFO - [0]<stdout>:one two\n"
        b"2026-11-21 02:39:24 - STDOUT - INFO - [1]<stdout>:three\n",
    ],
)
def test_a_line_has_the_timestamp_of_its_end(prefixed: bytes) -> None:
    lines = {line.rank: line for line in rank_lines(prefixed)}
    assert [lines[0].text, lines[1].text] == [b"one two", b"three"]
    stamps = [line.timestamp for _, line in sorted(lines.items())]
    end = int(datetime(2026, 11, 21, 2, 39, 25, tzinfo=UTC).timestamp())
    assert [stamp.ns // 10**9 if stamp else None for stamp in stamps] == [end, end - 1]


def test_timestamps_of_many_forms_are_read() -> None:
    at = int(datetime(2026, 11, 21, 2, 39, 23, tzinfo=UTC).timestamp()) * 10**9
    for text, ns, zone_known in (
        (b"2026-11-21 02:39:23 - STDOUT", at, False),
        (b"2026-11-21 02:39:23,125 INFO", at + 125_000_000, False),
        (b"2026-11-21T02:39:23.123456789Z stdout F", at + 123_456_789, True),
        (b"2026-11-21T04:39:23+02:00 x", at, True),
        (b"[2026-11-21 02:39:23.  1234: W /build", at + 1_234_000, False),
        (b"26/11/21 02:39:23 INFO BarrierTaskContext", at, False),
        (b"Sat Nov 21 02:39:23 2026[0]<stdout>:", at, False),
        (b"[Sat Nov 21 02:39:23 2026][1,0]<stdout>:", at, False),
    ):
        stamp = read_timestamp(text)
        assert stamp is not None, text
        assert (stamp.ns, stamp.zone_known) == (ns, zone_known), text
    for text in (b"", b"2026-13-40 99:99:99", b"Epoch 1/2", b"2026-11-21T02:39:23+99:99"):
        assert read_timestamp(text) is None


_PIECES = [
    b"[1,0]<stdout>:",
    b"[7]<stderr>:",
    b"[0] ",
    b"Sat Nov 21 02:39:23 2026",
    b"0000-00-00 00:00:00+99:99",
    b"\r",
    b"\b",
    b"\n",
    b"text",
]


@given(
    st.lists(st.one_of(st.sampled_from(_PIECES), st.binary(max_size=8))),
    st.integers(1, 200),
)
def test_no_bytes_crash_it(pieces: list[bytes], block_bytes: int) -> None:
    for line in rank_lines(b"".join(pieces), block_bytes):
        assert line.text
        assert not set(line.text) & set(b"\r\n\b")
        assert line.timestamp is None or line.timestamp.ns is not None


@pytest.mark.parametrize("block_bytes", [64, 1000, 1 << 20])
def test_wanted_lines_equal_filtering_all_lines(block_bytes: int) -> None:
    texts = [b"step %d, loss 2.28" % n if n % 7 else b"took %ds" % n for n in range(300)]
    texts[150:150] = [b"1/9 took 5s\r2/9 nothing", b"gone\r3/9 took 6s", b"took 7s\r"]
    data = b"".join(b"[%d]<stdout>:%s\n" % (n % 3, text) for n, text in enumerate(texts))
    wanted = LineFilter((b"s\n", b"s\r"), lambda line: line.endswith(b"s"))
    filtered = [tuple(line) for line in rank_lines(data, block_bytes, only=wanted)]
    every = [tuple(line) for line in rank_lines(data, block_bytes)]
    first = {line[0]: line for line in reversed(every)}
    expected = [line for line in every if line[2].endswith(b"s") or line == first[line[0]]]
    assert sorted(filtered) == sorted(expected)
    assert len(filtered) > 40


def test_the_last_of_overwritten_lines_is_enough() -> None:
    lines = [b"Epoch 1/2", *(b"%d/9 - ETA: 3s - loss" % n for n in range(1, 9)), b"9/9 - 4s"]
    data = b"\n".join([b"first", b"second", *lines, *lines, b"1/9 - ETA: 3s", b""])
    wanted = LineFilter((b"Epoch ", b"s\n", b"s - "), updates=(b" - ETA: ",))
    # All first lines of a stream are kept.
    kept = [line.text for line in rank_lines(b"start\n" + data, 40, only=wanted)]
    assert kept.count(b"Epoch 1/2") == 2
    assert kept.count(b"9/9 - 4s") == 2
    assert kept[-1] == b"1/9 - ETA: 3s"


_TORN = (
    b"[0]<stdout>:took 5s\n",
    b"[1]<stdout>:nothing\n",
    b"[1]<stdout>:1/9 - ETA: 3s",
    b"[0]<stdout>:took ",
    b"[0]<stdout>:\n",
    b"[0]<stdout>:6[1]<stdout>:took[0]<stdout>:s\n",
    b"the launcher's own line took 9s\n",
    b"[2]<stderr>:gone\rtook 7s\n",
    b"[2]<stderr>:took 8s\rgone\n",
)


@given(st.lists(st.sampled_from(_TORN), max_size=60), st.integers(20, 400))
def test_no_wanted_line_is_lost_if_others_are_left_out(
    pieces: list[bytes], block_bytes: int
) -> None:
    start = b"".join(b"[%d]<stdout>:first\n" % rank for rank in range(2))
    data = start + b"".join(pieces) + b"\n"
    wanted = LineFilter((b"s\n", b"s\r"), lambda line: line.endswith(b"s"))
    every, filtered = (
        sorted(
            (line for line in lines if line.text.endswith(b"s")),
            key=lambda line: (str(line.rank), line.stream),
        )
        for lines in (rank_lines(data, block_bytes), rank_lines(data, block_bytes, only=wanted))
    )
    assert filtered == every


@pytest.mark.parametrize("label", [b"[%d]<stdout>:", b"[%d] ", b"[default%d]:", b"%2d: "])
def test_every_rank_keeps_its_last_overwritten_line(label: bytes) -> None:
    epoch = [b"Epoch 1/2", *(b"%d/9 - ETA: 3s - loss" % n for n in range(1, 9)), b"9/9 - 4s"]
    texts = [b"first", *epoch * 40, b"5/9 - ETA: 2s"]
    data = b"".join(label % rank + text + b"\n" for text in texts for rank in range(3))
    wanted = LineFilter((b"Epoch ", b"s\n", b"s - "), updates=(b" - ETA: ",))
    kept = list(rank_lines(data, 1000, only=wanted))
    for rank in range(3):
        lines = [line.text for line in kept if line.rank == rank]
        assert lines.count(b"Epoch 1/2") == lines.count(b"9/9 - 4s") == 40
        assert lines[-1] == b"5/9 - ETA: 2s"
        before = [lines[at - 1] for at, text in enumerate(lines) if text == b"9/9 - 4s"]
        assert set(before) == {b"8/9 - ETA: 3s - loss"}
        assert len(lines) < len(texts) / 2


LOGGED = b"2026-11-21 02:28:%02d,%03d - STDOUT - INFO - [1,%d]<stdout>:"


def ordered(lines: Iterator[Line], *, but: bytes = b"gone") -> list[Line]:
    """Return wanted lines, stream by stream."""
    kept = [line for line in lines if but not in line.text]
    return sorted(kept, key=lambda line: (str(line.rank), line.stream))


def made_of(data: bytes, wanted: LineFilter, block_bytes: int) -> tuple[list[Line], int]:
    """Return the wanted lines, and how many bytes of the data became lines for them."""
    seen = [0]
    shown = made_lines._shown

    def counting(line: bytes) -> bytes:
        seen[0] += len(line)
        return shown(line)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(made_lines, "_shown", counting)
        return [*rank_lines(data, block_bytes, only=wanted)], seen[0]


@pytest.mark.parametrize(
    "among",
    [
        b"",
        b"the launcher's own line\n",
        b"[1,0]<stdout>:3/9 go[1,1]<stdout>:gone\n[1,0]<stdout>:ne 3s[1,1]<stdout>:\n",
    ],
    ids=["whole", "unlabelled", "torn"],
)
def test_torn_and_unlabelled_lines_do_not_retain_the_others(among: bytes) -> None:
    first = b"own\n" + b"".join(b"[1,%d]<stdout>:first\n" % rank for rank in range(3))
    part = b"".join(b"[1,%d]<stdout>:gone %d\n" % (n % 3, n) for n in range(200)) + among
    part += b"[1,2]<stdout>:took 5s\n"
    data = first + part * 50
    wanted = LineFilter((b"\\ds\n",), lambda text: text.endswith(b"s"))
    kept, size = made_of(data, wanted, 10_000)
    every = [line for line in rank_lines(data) if line.text.endswith(b"s") or b"first" in line.text]
    assert ordered(iter(kept), but=b"own") == ordered(iter(every), but=b"own")
    assert size < len(data) / 4


@pytest.mark.parametrize("cut", [b"", LOGGED[: LOGGED.index(b"[")] % (7, 8) + b"took 6s\n"])
def test_lines_are_left_out_after_a_loggers_prefix_too(cut: bytes) -> None:
    first = b"".join(LOGGED % (1, 1, rank) + b"first\n" for rank in range(3))
    lines = [LOGGED % (n % 60, n, n % 3) + b"gone %d\n" % n for n in range(200)]
    # Unlabelled text belongs to the rank of the label before.
    lines[100] += cut
    data = first + b"".join([*lines, LOGGED % (5, 6, 2) + b"took 5s\n"]) * 50
    wanted = LineFilter((b"\\ds\n",), lambda text: text.endswith(b"s"))
    kept, size = made_of(data, wanted, 20_000)
    assert ordered(iter(kept)) == ordered(rank_lines(data))
    assert size < len(data) / 4


def test_a_digit_in_a_needle_is_any_digit() -> None:
    lines = [b"first", b"829 samples - fast", b"17s - slow", b"Epoch of", b"Epoch 1/2", b"last"]
    wanted = LineFilter((rb"\ds - ", rb"Epoch \d"))
    for label in (b"", b"[0]<stdout>:"):
        data = b"".join(label + line + b"\n" for line in lines * 30)
        for block_bytes in (150, 400):
            kept = [line.text for line in rank_lines(data, block_bytes, only=wanted)]
            # All lines of the first block are kept.
            assert set(kept[len(lines) * 7 :]) <= {b"17s - slow", b"Epoch 1/2"}
            assert kept.count(b"17s - slow") == kept.count(b"Epoch 1/2") == 30


def test_an_overwritten_line_that_has_lost_its_end_is_kept() -> None:
    bars = b"".join(b"[0]<stdout>:%d/9 - ETA: 3s\n" % n for n in range(9))
    glued = b"[0]<stdout>:7/9 - ETA: 3s Epoch 2/3\n"
    data = b"[0]<stdout>:first\n" + (bars + glued + bars) * 20
    stays = (rb"Epoch \d",)
    wanted = LineFilter((b"s\n", *stays), updates=(rb" - ETA: \d",), not_updates=stays)
    texts = [line.text for line in rank_lines(data, 1000, only=wanted)]
    assert texts.count(b"7/9 - ETA: 3s Epoch 2/3") == 20
    assert len(texts) < 150


def test_a_return_at_the_end_of_a_line_overwrites_nothing() -> None:
    data = b"[0]<stdout>:first\r\n" + b"".join(
        b"[0]<stdout>:%d/9 - ETA: 3s\r\n" % n for n in range(500)
    )
    wanted = LineFilter((b"s\r",), updates=(rb" - ETA: \d",))
    texts = [line.text for line in rank_lines(data, 2000, only=wanted)]
    assert texts[-1] == b"499/9 - ETA: 3s"
    assert len(texts) < 200


def test_blocks_without_wanted_lines_do_not_end_it() -> None:
    lines = b"".join(b"[0]<stdout>:gone %d\n" % n for n in range(3000))
    data = b"[0]<stdout>:first\n" + lines + b"[0]<stdout>:took 5s\n" + lines
    kept, size = made_of(data, LineFilter((b"\\ds\n",)), 1000)
    assert [line.text for line in kept][-1] == b"took 5s"
    assert size < 3000
