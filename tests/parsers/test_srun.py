"""Lines that ``srun --label`` cuts after 1,024 bytes are reassembled, also in real output of Slurm."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stallscope.parsers import read
from stallscope.parsers.launcher_output import (
    LineFilter,
    labels_of,
    may_contain,
    output_by_rank,
    rank_lines,
)
from stallscope.parsers.launcher_output.splitting import CUT_BYTES

#: Printed under Slurm 22.05.8, by batch jobs with ``srun --label`` on two nodes and on three.
PRINTED = Path(__file__).parent / "srun"
MARK = b"stallscope:1:"


def printed(name: str) -> bytes:
    return gzip.decompress((PRINTED / f"{name}.gz").read_bytes())


def sent(line: bytes, rank: int, width: int = 1) -> list[bytes]:
    """Return a task's line as srun prints it: in messages, each with a label and a line end."""
    messages = [line[at : at + CUT_BYTES] for at in range(0, len(line), CUT_BYTES)]
    return [b"%*d: %s\n" % (width, rank, message.removesuffix(b"\n")) for message in messages]


def mixed(texts: dict[int, list[bytes]], seed: int) -> bytes:
    """Mix tasks' messages in any order, keeping the order of each task."""
    chance = random.Random(seed)
    waiting = {
        rank: [message for line in lines for message in sent(line, rank, 2)]
        for rank, lines in texts.items()
    }
    order = [rank for rank, messages in waiting.items() for _ in messages]
    chance.shuffle(order)
    return b"".join(waiting[rank].pop(0) for rank in order)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_ranks_output_is_restored_byte_for_byte(rank: int) -> None:
    expected = printed(f"keras.own-{rank}.txt")
    assert max(map(len, expected.split(b"\n"))) > 2 * CUT_BYTES
    assert output_by_rank(printed("keras.txt"))[rank, ""] == expected


def test_without_buffers_every_line_of_a_terminal_is_restored() -> None:
    """``--unbuffered`` ends a line wherever a read has ended: nothing distinguishes these ends from
    others.
    """
    data = printed("unbuffered.txt")
    for rank in (0, 1):
        expected = printed(f"unbuffered.own-{rank}.txt")
        restored = output_by_rank(data)[rank, ""]
        assert restored.replace(b"\n", b"") == expected.replace(b"\n", b"")
        assert restored.count(b"\n") > expected.count(b"\n")
        shown = [line.text for line in rank_lines(data) if line.rank == rank]
        last = [line.text for line in rank_lines(expected) if line.text.startswith(b"14/14")]
        assert [line for line in shown if line in last] == last


@pytest.mark.parametrize("name", ["keras", "unbuffered"])
def test_epochs_of_bars_are_read(tmp_path: Path, name: str) -> None:
    (tmp_path / "out.txt").write_bytes(printed(f"{name}.txt"))
    (run,) = read(str(tmp_path))
    assert run.ranks == [0, 1]
    assert run.status == "completed"
    assert run.intervals.num_rows == 4


def test_step_logs_are_restored_from_among_bars(tmp_path: Path) -> None:
    """Records are longer than srun's messages, and pieces of a bar are in between."""
    (tmp_path / "out.txt").write_bytes(printed("records.txt"))
    runs = {run.steps["begin"][0].as_py(): run for run in read(str(tmp_path / "out.txt"))}
    for task in (0, 1):
        path = tmp_path / f"{task}" / "rank-00000.0.0.steps.csv"
        path.parent.mkdir()
        path.write_bytes(printed(f"records.own-{task}.csv"))
        (original,) = read(str(path.parent))
        assert original.steps.num_rows == 60
        assert runs[original.steps["begin"][0].as_py()].steps.equals(original.steps)


def test_labels_are_as_wide_as_the_widest(tmp_path: Path) -> None:
    data = printed("twelve.txt")
    assert b"\n 9: " in data
    assert b"\n11: " in data
    (tmp_path / "out.txt").write_bytes(data)
    (run,) = read(str(tmp_path))
    assert run.ranks == list(range(12))
    assert run.intervals.num_rows == 24


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("cancelled", b"slurmstepd-n1: error: *** JOB "),
        ("killed", b"srun: error: n2: task 1: Killed"),
    ],
)
def test_slurms_own_lines_belong_to_no_rank(tmp_path: Path, name: str, expected: bytes) -> None:
    data = printed(f"{name}.txt")
    assert expected in output_by_rank(data)[None, ""]
    (tmp_path / "out.txt").write_bytes(data)
    (run,) = read(str(tmp_path))
    assert run.ranks == [0, 1]
    assert "broke off at step" in run.problems[-1].what


def test_a_short_job_with_many_lines_of_slurm_is_recognised() -> None:
    data = b"srun: job 7 queued\n" * 3 + b"0: a\n0: b\n1: a\n" + b"slurmstepd-n1: error: x\n" * 3
    labels = labels_of(data)
    assert labels is not None
    assert labels.launcher == "srun"


LINES = st.lists(
    st.tuples(
        st.integers(0, 12),
        st.one_of(st.integers(0, 60), st.integers(1015, 1030), st.integers(2040, 3100)),
    ),
    min_size=12,
    max_size=40,
)


@pytest.mark.broad
@settings(max_examples=60)
@given(lines=LINES, seed=st.integers(0, 2**32), block_bytes=st.sampled_from((1, 5000, 4 << 20)))
def test_lines_of_any_length_are_restored(
    lines: list[tuple[int, int]], seed: int, block_bytes: int
) -> None:
    texts: dict[int, list[bytes]] = {}
    for rank, length in lines * 2:
        texts.setdefault(rank, []).append((b"<%d" % length).ljust(length, b"x") + b">\n")
    written = output_by_rank(mixed(texts, seed), block_bytes)
    restored = {rank: text for (rank, _), text in written.items() if text}
    assert restored == {rank: b"".join(pieces) for rank, pieces in texts.items()}


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32), block_bytes=st.sampled_from((5000, 4 << 20)))
def test_no_line_among_the_pieces_of_bars_is_lost(seed: int, block_bytes: int) -> None:
    chance = random.Random(seed)
    long = [b"<%d %s>\n" % (n, b"x" * chance.randrange(3000)) for n in range(30)]
    waiting = [message for line in long for message in sent(line, 0)]
    data = b""
    for epoch in range(3):
        bar = b"".join(b"\b" * 30 + b"\r%d/40 [=====>]" % step for step in range(41))
        for message in sent(bar + b" - 1s 2ms/step - loss: %d\n" % epoch, 0):
            data += message + b"".join(
                waiting.pop(0) for _ in range(chance.randrange(4)) if waiting
            )
    data += b"".join(waiting)
    restored = [line.text + b"\n" for line in rank_lines(data, block_bytes)]
    assert [line for line in restored if line.startswith(b"<")] == long


def test_a_bar_that_is_cut_at_its_end_is_whole() -> None:
    for shift in range(60):
        bar = b"\r 1/24 [=>]" + b"\b" * (960 + shift) + b"\r24/24 [======] - 1s 60ms/step\n"
        text = b"".join([b"0: a\n1: a\n", *sent(bar, 0)])
        shown = [line.text for line in rank_lines(text) if line.rank == 0]
        assert shown == [b"a", b"24/24 [======] - 1s 60ms/step"]


def test_a_warning_is_not_the_end_of_a_bar() -> None:
    first, second = sent(b"\r15/24 [".ljust(CUT_BYTES, b"\b") + b"\r16/24 [==>]\n", 0)
    text = b"0: a\n1: a\n" + first + b"0: a warning\n" + second
    assert b"a warning" in [line.text for line in rank_lines(text)]


@pytest.mark.broad
@settings(max_examples=60)
@given(seed=st.integers(0, 2**32), block_bytes=st.sampled_from((3000, 20_000, 4 << 20)))
def test_wanted_lines_are_found_where_they_were_cut(seed: int, block_bytes: int) -> None:
    chance = random.Random(seed)
    texts: dict[int, list[bytes]] = {rank: [b"first\n"] for rank in range(3)}
    for _ in range(60):
        lines = texts[chance.randrange(3)]
        lines.append(b"y" * chance.choice((3, 30, 1015, 1020, 1024)) + b" Epoch 1/3 and so on\n")
        lines += [b"nothing\n"] * chance.randrange(20)
    data = mixed(texts, seed)
    wanted = LineFilter((b"Epoch ",), lambda text: b"Epoch " in text)
    every = [*rank_lines(data, block_bytes)]
    kept = [*rank_lines(data, block_bytes, only=wanted)]
    for rank in texts:
        lines = [line.text for line in every if line.rank == rank]
        assert [line.text for line in kept if line.rank == rank] == [
            text for at, text in enumerate(lines) if at == 0 or b"Epoch " in text
        ]


def test_lines_that_continue_in_the_next_block_are_not_left_out() -> None:
    first, second = sent(b"Epoch 1/3 ".ljust(CUT_BYTES, b"y") + b" and so on\n", 0)
    begun = b"0: first\n1: first\n".ljust(2900 - len(first), b"x") + b"\n" + first
    data = begun + b"1: " + b"z" * 150 + b"\n" + second + b"1: nothing\n" * 20
    wanted = LineFilter((b"Epoch ",), lambda text: b"Epoch " in text)
    kept = [line.text for line in rank_lines(data, 3000, only=wanted) if line.rank == 0]
    assert kept[-1] == b"Epoch 1/3 ".ljust(CUT_BYTES, b"y") + b" and so on"


def test_a_cut_text_is_found() -> None:
    start = b"".join(b"%d: first\n" % rank for rank in (0, 1)) * 9
    assert not may_contain(start, MARK)
    for at in range(1, len(MARK)):
        line = b"x" * (CUT_BYTES - at) + MARK + b"z\n"
        first, second = sent(line, 0)
        assert may_contain(start + first + b"1: y\n" + second, MARK)
        assert may_contain(start + first + b"1: y\n" + second + start, MARK)
    assert not may_contain(start + first + b"1: y\n0: nothing\n", MARK)
