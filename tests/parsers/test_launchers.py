"""Launchers' output is separated by rank and stream without losing a byte."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.step_logs import Job, write_job

from stallscope.collector.recorder.step_log.sinks import key_of, records
from stallscope.parsers import read
from stallscope.parsers.launcher_output import labels_of, may_contain, output_by_rank

Key = tuple[int | None, str]
STAMP = b"Sat Nov 21 02:28:01 2026"

#: Labels of horovodrun over Gloo, Open MPI 4 and 5, MPICH, torchrun and srun.
PREFIXES: dict[str, Callable[[int, bytes], bytes]] = {
    "gloo": lambda rank, stream: b"[%d]<%s>:" % (rank, stream),
    "gloo, stamped": lambda rank, stream: STAMP + b"[%d]<%s>:" % (rank, stream),
    "openmpi4": lambda rank, stream: b"[1,%d]<%s>:" % (rank, stream),
    "openmpi4, stamped": lambda rank, stream: STAMP + b"[1,%d]<%s>:" % (rank, stream),
    "openmpi5": lambda rank, stream: b"[1,%d]<%s>: " % (rank, stream),
    "openmpi5, stamped": lambda rank, stream: b"[%s][1,%d]<%s>: " % (STAMP, rank, stream),
    "mpich": lambda rank, _: b"[%d] " % rank,
    "torchrun": lambda rank, _: b"[default%d]:" % rank,
    "srun": lambda rank, _: b"%3d: " % rank,
}
WITH_STREAMS = [name for name in PREFIXES if name.startswith(("gloo", "openmpi"))]
# No line may look like a label: the two could not be distinguished.
TEXTS = st.binary(max_size=60).map(lambda text: b"x" + text.translate(None, b"\n[]:") + b"y")
LINES = st.lists(
    st.tuples(st.integers(0, 12), st.sampled_from([b"stdout", b"stderr"]), TEXTS), min_size=1
)


def expected(lines: list[tuple[int, bytes, bytes]], streams: bool = True) -> dict[Key, bytes]:
    output: dict[Key, bytes] = {}
    for rank, stream, text in lines:
        key = (rank, stream.decode() if streams else "")
        output[key] = output.get(key, b"") + text + b"\n"
    return output


@pytest.mark.broad
@pytest.mark.parametrize("launcher", WITH_STREAMS)
@given(lines=LINES)
def test_any_lines_of_ranks_and_streams_are_separated(
    launcher: str, lines: list[tuple[int, bytes, bytes]]
) -> None:
    prefix = PREFIXES[launcher]
    mixed = b"".join(prefix(rank, stream) + text + b"\n" for rank, stream, text in lines)
    assert output_by_rank(mixed) == expected(lines)


@pytest.mark.parametrize("launcher", sorted({*PREFIXES} - {*WITH_STREAMS}))
@given(lines=LINES)
def test_labels_without_streams_are_separated_by_rank(
    launcher: str, lines: list[tuple[int, bytes, bytes]]
) -> None:
    lines = [*lines, (3, b"stdout", b"again"), (3, b"stdout", b"again")]
    if launcher != "torchrun":
        # Ambiguous labels are accepted if most lines have one, each of them often.
        lines = lines * 2
    mixed = b"".join(PREFIXES[launcher](rank, b"") + text + b"\n" for rank, _, text in lines)
    assert output_by_rank(mixed) == expected(lines, streams=False)


@given(
    texts=st.lists(st.tuples(st.integers(0, 3), st.lists(TEXTS, min_size=1)), min_size=1),
    seed=st.integers(0, 2**32),
    stamped=st.booleans(),
)
def test_chunks_that_were_cut_anywhere_come_back_complete(
    texts: list[tuple[int, list[bytes]]], seed: int, stamped: bool
) -> None:
    """Open MPI 4 labels every chunk that it has read, and every line in it."""
    chance = random.Random(seed)
    whole: dict[Key, bytes] = {}
    waiting: dict[int, bytes] = {}
    for rank, lines in texts:
        waiting[rank] = waiting.get(rank, b"") + b"".join(line + b"\r\n" for line in lines)
        whole[rank, "stdout"] = waiting[rank]
    mixed = b""
    while waiting:
        rank = chance.choice(sorted(waiting))
        length = chance.randint(1, 80)
        chunk, waiting[rank] = waiting[rank][:length], waiting[rank][length:]
        if not waiting[rank]:
            del waiting[rank]
        label = (STAMP if stamped else b"") + b"[1,%d]<stdout>:" % rank
        mixed += label + chunk[:-1].replace(b"\n", b"\n" + label) + chunk[-1:]
    assert output_by_rank(mixed) == whole


def test_the_launchers_own_lines_belong_to_no_rank() -> None:
    mixed = b"starting\n[0]<stdout>:one\nProcess 1 exit with status code 1.\n[0]<stdout>:two\n"
    assert output_by_rank(mixed) == {
        (None, ""): b"starting\nProcess 1 exit with status code 1.\n",
        (0, "stdout"): b"one\ntwo\n",
    }


def test_after_a_driver_cuts_at_a_carriage_return_the_rank_continues() -> None:
    logger = b"2026-11-21 02:28:01 - STDOUT - INFO - "
    mixed = logger + b"[1,0]<stdout>:1/2\n" + logger + b"2/2\n" + logger + b"[1,1]<stdout>:x\n"
    assert output_by_rank(mixed)[0, "stdout"].startswith(b"1/2\n")
    assert b"2/2" in output_by_rank(mixed)[0, "stdout"]


@pytest.mark.parametrize(
    ("text", "launcher"),
    [
        (b"[1,0]<stdout>:a\n", "Open MPI"),
        (b"[1,0]<stdout>: a\n[1,1]<stdout>: b\n", "Open MPI 5"),
        (b"[0]<stdout>:a\n", "horovodrun over Gloo"),
        (b"[0] a\n[0] b\n[1] c\n", "MPICH"),
        (b" 0: a\n10: b\n 0: c\n", "srun"),
        (b"W1121 torchrun says\n\n\n[default0]:a\n", "torchrun"),
        (b"[trainer0]:a\n[trainer0]:b\n", "torchrun"),
        (b"1: a numbered\n2: list\n3: of lines\n", None),
        (b"[0] is the first\nof three\nlines\n", None),
        (b"Epoch 1/2\n78/78 - 17s\n", None),
        (b"", None),
    ],
)
def test_labels_are_recognised_by_most_lines(text: bytes, launcher: str | None) -> None:
    labels = labels_of(text)
    assert (None if labels is None else labels.launcher) == launcher


@pytest.mark.parametrize("launcher", PREFIXES)
def test_records_of_step_logs_are_found_inside(tmp_path: Path, launcher: str) -> None:
    job = Job(ranks=3, steps=60)
    write_job(tmp_path / "original", job)
    lines: list[tuple[int, bytes]] = []
    for rank, path in enumerate(sorted((tmp_path / "original").glob("*.steps.csv"))):
        data = path.read_bytes()
        key, name = key_of(data.split(b"\n", 1)[0]), path.name.removesuffix(".steps.csv")
        lines += [(rank, line.encode()) for line in records(key, name, 0, data)]
    chance = random.Random(3)
    chance.shuffle(lines)
    mixed = b""
    for rank, line in lines:
        label = PREFIXES[launcher](rank, b"stderr")
        cut = chance.randrange(len(line)) if launcher.startswith(("openmpi4", "gloo")) else 0
        # A line of another rank in the middle.
        between = PREFIXES[launcher]((rank + 1) % 3, b"stdout") + b"and so on\n" if cut else b""
        mixed += label + line[:cut] + between + (label if cut else b"") + line[cut:] + b"\n"
    (tmp_path / "out.txt").write_bytes(mixed)
    (run,) = read(str(tmp_path / "out.txt"))
    assert run.steps.equals(read(str(tmp_path / "original"))[0].steps)


def test_logs_that_are_also_printed_count_once(tmp_path: Path) -> None:
    write_job(tmp_path, Job(ranks=2, steps=60))
    printed = b""
    for path in sorted(tmp_path.glob("*.steps.csv")):
        data = path.read_bytes()
        key, name = key_of(data.split(b"\n", 1)[0]), path.name.removesuffix(".steps.csv")
        printed += "".join(f"{line}\n" for line in records(key, name, 0, data)).encode()
    before = read(str(tmp_path))[0]
    (tmp_path / "stdout").write_bytes(printed)
    (run,) = read(str(tmp_path))
    assert run.steps.equals(before.steps)
    assert run.problems == before.problems


@pytest.mark.parametrize(
    "names",
    [
        ("rank.0/stdout", "rank.1/stdout"),
        ("1/rank.0/stdout", "1/rank.1/stdout"),
        ("out.prterun-host-17@1.0.out", "out.prterun-host-17@1.1.out"),
        ("prterun-host-17@1/rank.0/stdout", "prterun-host-17@1/rank.1/stdout"),
        ("none_x7/attempt_0/0/stdout.log", "none_x7/attempt_0/1/stdout.log"),
    ],
    ids=["horovodrun", "openmpi4", "openmpi5 file", "openmpi5 dir", "torchrun"],
)
def test_trees_of_outputs_are_one_run_of_their_ranks(
    tmp_path: Path, names: tuple[str, str]
) -> None:
    for rank, name in enumerate(names):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(
            f"Epoch 1/2\n5/5 - {3 + rank}s - loss: 1.0 - 700ms/step\n"
            f"Epoch 2/2\n5/5 - {3 + rank}s - loss: 1.0 - 700ms/step\n"
        )
    (run,) = read(str(tmp_path))
    assert run.ranks == [0, 1]
    assert run.intervals.num_rows == 4


MARK = b"stallscope:1:"


@pytest.mark.parametrize("launcher", sorted({*PREFIXES} - {"srun"}))
def test_a_text_cut_anywhere_by_a_label_is_found(launcher: str) -> None:
    label = PREFIXES[launcher](0, b"stdout")
    other_label = PREFIXES[launcher](1, b"stdout")
    start = (label + b"first\n" + other_label + b"first\n") * 9
    assert not may_contain(start, MARK)
    assert may_contain(start + label + MARK + b"\n", MARK)
    for at in range(1, len(MARK)):
        cut = label + b"x " + MARK[:at] + other_label + b"y\n" + label + MARK[at:]
        for mixed in (start + cut + b"\n" + start, start + cut):
            assert any(MARK in text for text in output_by_rank(mixed).values())
            assert may_contain(mixed, MARK)
        # A file that ends in the middle of it.
        ends = start + label + b"x " + MARK[:1] + other_label + b"y\n" + label + MARK[1:at]
        assert may_contain(ends, MARK) or output_by_rank(ends) == output_by_rank(ends + b"")


def test_launchers_own_lines_may_be_cut_as_well() -> None:
    mixed = b"[0]<stdout>:a\nstall[0]<stdout>:b\nscope:1:0\n[0]<stdout>:c\n"
    assert any(MARK in text for text in output_by_rank(mixed).values())
    assert may_contain(mixed, MARK)


def test_usual_lines_give_no_false_match() -> None:
    lines = [b"step 1: loss: 2.1", b"02:41:01: std::vector<int>::at", b"12:2:1:", b"a :1", b"x"]
    mixed = b"".join(b"[1,%d]<stdout>:%s\n" % (n, line) for n, line in enumerate(lines))
    assert not may_contain(mixed, MARK)
    assert not may_contain(b"0: 1: a\n1: :1: b\n" * 9, MARK)
