"""Horovod Timelines of every version: whole, cut, damaged, foreign; read in blocks of any size."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.timelines import Writer

from stallscope.collector.source_kinds import open_source
from stallscope.errors import NotFoundError, UnreadableError
from stallscope.parsers.files.unpacking import beginning
from stallscope.parsers.formats.horovod_timeline import (
    HEAD_BYTES,
    BlockRows,
    TimelineReader,
    is_timeline,
    open_timeline,
)

# From a run of Horovod 0.28.1: two fused gradients, with the first negotiation of both; the events
# of other tensors are left out.
REAL = b"""[
{"name": "process_name", "ph": "M", "pid": 0, "args": \
{"start_time_since_epoch_in_micros":1795251515254024}},
{"name": "process_sort_index", "ph": "M", "pid": 0, "args": {"sort_index": 0}},
{"name": "process_name", "ph": "M", "pid": 8, "args": {"name": \
"PartitionedCall/DistributedSGD_Allreduce/cond_1/then/_33/DistributedSGD_Allreduce/cond_1/Horovo\
dAllreduce_grads_1_0"}},
{"name": "process_sort_index", "ph": "M", "pid": 8, "args": {"sort_index": 8}},
{"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": 2715369, "pid": 8},\
{"ph": "X", "name": "0", "ts": 2715370, "pid": 8, "dur": 0},\
{"name": "process_name", "ph": "M", "pid": 9, "args": {"name": \
"PartitionedCall/DistributedSGD_Allreduce/cond/then/_25/DistributedSGD_Allreduce/cond/HorovodAll\
reduce_grads_0"}},
{"name": "process_sort_index", "ph": "M", "pid": 9, "args": {"sort_index": 9}},
{"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": 2715373, "pid": 9},\
{"ph": "X", "name": "0", "ts": 2715373, "pid": 9, "dur": 0},\
{"ph": "X", "name": "1", "ts": 4433013, "pid": 9, "dur": 0},\
{"ph": "E", "ts": 4433013, "pid": 9},\
{"ph": "X", "name": "1", "ts": 4433013, "pid": 8, "dur": 0},\
{"ph": "E", "ts": 4433013, "pid": 8},\
{"ph": "B", "name": "ALLREDUCE", "ts": 4433199, "pid": 9},\
{"ph": "B", "name": "ALLREDUCE", "ts": 4433200, "pid": 8},\
{"ph": "B", "name": "MEMCPY_IN_FUSION_BUFFER", "ts": 4433203, "pid": 9},\
{"ph": "B", "name": "MEMCPY_IN_FUSION_BUFFER", "ts": 4433204, "pid": 8},\
{"ph": "E", "ts": 4433210, "pid": 9},\
{"ph": "E", "ts": 4433211, "pid": 8},\
{"ph": "B", "name": "GLOO_ALLREDUCE", "ts": 4433233, "pid": 9},\
{"ph": "B", "name": "GLOO_ALLREDUCE", "ts": 4433233, "pid": 8},\
{"ph": "E", "ts": 4433497, "pid": 9},\
{"ph": "E", "ts": 4433497, "pid": 8},\
{"ph": "B", "name": "MEMCPY_OUT_FUSION_BUFFER", "ts": 4433500, "pid": 9},\
{"ph": "B", "name": "MEMCPY_OUT_FUSION_BUFFER", "ts": 4433500, "pid": 8},\
{"ph": "E", "ts": 4433798, "pid": 9},\
{"ph": "E", "ts": 4433798, "pid": 8},\
{"ph": "E", "ts": 4434174, "pid": 9, "args": {"dtype": "float32", "shape": "[3, 3, 3, 48]"}},\
{"ph": "E", "ts": 4434178, "pid": 8, "args": {"dtype": "float32", "shape": "[48]"}}]"""
REAL_ACTIVITIES = [
    (9, "NEGOTIATE_ALLREDUCE", 0, 2715373, 4433013, None),
    (8, "NEGOTIATE_ALLREDUCE", 0, 2715369, 4433013, None),
    (9, "MEMCPY_IN_FUSION_BUFFER", 1, 4433203, 4433210, None),
    (8, "MEMCPY_IN_FUSION_BUFFER", 1, 4433204, 4433211, None),
    (9, "GLOO_ALLREDUCE", 1, 4433233, 4433497, None),
    (8, "GLOO_ALLREDUCE", 1, 4433233, 4433497, None),
    (9, "MEMCPY_OUT_FUSION_BUFFER", 1, 4433500, 4433798, None),
    (8, "MEMCPY_OUT_FUSION_BUFFER", 1, 4433500, 4433798, None),
    (9, "ALLREDUCE", 0, 4433199, 4434174, 5184),
    (8, "ALLREDUCE", 0, 4433200, 4434178, 192),
]


def allreduce(writer: Writer, tensor: str, at: int, args: str = "") -> None:
    for kind, name, offset in (
        ("B", "NEGOTIATE_ALLREDUCE", 0),
        ("X", "0", 1),
        ("X", "1", 40),
        ("E", "", 41),
        ("B", "ALLREDUCE", 50),
        ("B", "MEMCPY_IN_FUSION_BUFFER", 51),
        ("E", "", 60),
        ("B", "MPI_ALLREDUCE", 61),
        ("E", "", 90),
    ):
        writer.event(kind, at + offset, tensor, name)
    writer.event("E", at + 95, tensor, args=args or '"dtype": "float32", "shape": "[64]"')


def job(steps: int, old: bool = False) -> Writer:
    writer = Writer(old)
    for step in range(steps):
        writer.cycle(1000 * step)
        for tensor in range(3):
            allreduce(writer, f"grads_{tensor}", 1000 * step + 100 * tensor)
    return writer


class Whole:
    """A complete timeline, read in blocks of any size."""

    def __init__(self, reader: TimelineReader) -> None:
        block = BlockRows.joined(list(reader.block_rows()))
        self.start_us, self.tensors = reader.start_us, reader.tensors
        self.unreadable, self.unmatched = reader.unreadable, reader.unmatched
        self.unfinished, self.restarts = reader.unfinished, reader.restarts
        self.cycles = block.cycles.tolist()
        activities, names = block.activities, reader.activity_names
        self.rows = [
            (tensor, names[name], level, begin, end, None if size < 0 else size)
            for tensor, name, level, begin, end, size in zip(
                activities.tensor.tolist(),
                activities.name.tolist(),
                activities.level.tolist(),
                activities.begin.tolist(),
                activities.end.tolist(),
                activities.size.tolist(),
                strict=True,
            )
        ]
        moments = block.ticks
        self.ticks = [
            (tensor, rank, at)
            for tensor, rank, at in zip(
                moments.tensor.tolist(), moments.rank.tolist(), moments.at.tolist(), strict=True
            )
        ]


def parsed(data: bytes, block_bytes: int = 1 << 20) -> Whole:
    return Whole(TimelineReader("timeline.json", io.BytesIO(data), block_bytes))


def read(path: Path) -> Whole:
    with open_timeline(path) as reader:
        return Whole(reader)


def by_hand(data: bytes) -> list[tuple[Any, ...]]:
    """Return the activities of a complete, valid timeline, with a JSON parser and a stack per tensor."""
    stacks: dict[int, list[tuple[str, int]]] = {}
    activities = []
    for event in json.loads(data):
        stack = stacks.setdefault(event.get("pid", -1), [])
        if event["ph"] == "B":
            stack.append((event["name"], event["ts"]))
        elif event["ph"] == "E" and stack:
            name, begin = stack.pop()
            size = 256 if "args" in event else None
            activities.append((event["pid"], name, len(stack), begin, event["ts"], size))
    return activities


def test_real_bytes_become_activities_ticks_and_names(tmp_path: Path) -> None:
    path = tmp_path / "timeline.json"
    path.write_bytes(REAL)
    timeline = read(path)
    assert timeline.start_us == 1795251515254024
    assert {number: name.rsplit("/", 1)[1] for number, name in timeline.tensors.items()} == {
        8: "HorovodAllreduce_grads_1_0",
        9: "HorovodAllreduce_grads_0",
    }
    assert timeline.rows == REAL_ACTIVITIES
    assert timeline.ticks == [
        (8, 0, 2715370),
        (9, 0, 2715373),
        (9, 1, 4433013),
        (8, 1, 4433013),
    ]
    assert (timeline.unreadable, timeline.unmatched, timeline.unfinished) == (0, 0, 0)


def test_old_versions_close_no_array_and_have_no_start() -> None:
    new, old = parsed(job(5).data), parsed(job(5, old=True).data)
    assert (new.start_us, old.start_us) == (1600000000000000, None)
    assert old.rows == new.rows == by_hand(job(5).data)
    assert old.ticks == new.ticks
    assert old.tensors == new.tensors == {1: "grads_0", 2: "grads_1", 3: "grads_2"}
    assert old.cycles == new.cycles == [0, 1000, 2000, 3000, 4000]


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("block_bytes", [1, 97, 1000, 4096, 10_000])
def test_blocks_of_any_size_give_the_same(old: bool, block_bytes: int) -> None:
    data = job(20, old).data
    assert len(data) > 2 * 10_000
    whole, blocks = parsed(data), parsed(data, block_bytes)
    assert blocks.rows == whole.rows
    assert blocks.ticks == whole.ticks
    assert blocks.tensors == whole.tensors
    assert blocks.cycles == whole.cycles
    assert (blocks.unreadable, blocks.unmatched, blocks.unfinished) == (0, 0, 0)


@pytest.mark.slow
@pytest.mark.parametrize("old", [False, True])
def test_a_timeline_cut_anywhere_reads_up_to_there(old: bool) -> None:
    data = job(2, old).data
    whole = parsed(data).rows
    for cut in range(60, len(data), 3):
        timeline = parsed(data[:cut])
        rows = timeline.rows
        # The bytes at the very end may be missing: all ends are known without them.
        assert [row[:5] for row in rows] == [row[:5] for row in whole[: len(rows)]]
        assert timeline.unreadable <= 1
        assert timeline.unmatched == 0
        assert timeline.unfinished <= 2


def test_open_activities_are_counted() -> None:
    writer = Writer()
    writer.event("B", 10, "a", "NEGOTIATE_ALLREDUCE")
    writer.event("B", 20, "b", "ALLREDUCE")
    writer.event("B", 30, "b", "GLOO_ALLREDUCE")
    writer.event("E", 40, "b")
    timeline = parsed(writer.data)
    assert timeline.rows == [(2, "GLOO_ALLREDUCE", 1, 30, 40, None)]
    assert timeline.unfinished == 2


def test_an_end_without_a_start_is_counted_and_has_no_effect() -> None:
    writer = Writer()
    writer.event("E", 5, "a")
    writer.event("E", 6, "b")
    allreduce(writer, "a", 100)
    writer.event("E", 300, "a")
    allreduce(writer, "a", 400)
    timeline = parsed(writer.data)
    assert timeline.unmatched == 3
    assert timeline.rows == by_hand(writer.data)
    assert len(timeline.rows) == 8


def test_damage_loses_the_damaged_events_only() -> None:
    data = job(3).data
    broken = data.replace(b'"ts": 1041', b'"ts": oops').replace(b'"ts": 2000, "s"', b'"ts": "s"')
    assert len(broken) != len(data)
    timeline, whole = parsed(broken), parsed(data)
    assert timeline.unreadable == 2
    assert timeline.cycles == [0, 1000]
    # Without its end the one negotiation stays open; everything after it is a level deeper.
    lost = [row for row in whole.rows if row[4] == 1041]
    left = [row for row in whole.rows if row[4] != 1041]
    assert len(lost) == 1
    assert [(*row[:2], *row[3:]) for row in timeline.rows] == [(*row[:2], *row[3:]) for row in left]


@pytest.mark.parametrize(
    "name",
    [
        'layer "one"',
        'a"}},',
        "{[}]",
        "back\\slash",
        "ts: 5, pid: 7",
        "größe",
        "",
        "x" * 20_000,
    ],
)
def test_tensor_names_can_contain_anything(name: str) -> None:
    writer = Writer()
    allreduce(writer, "first", 100)
    allreduce(writer, name, 300)
    timeline = parsed(writer.data, 5000)
    assert timeline.tensors == {1: "first", 2: name}
    assert len(timeline.rows) == 8
    assert timeline.unreadable == 0


def test_a_name_with_invalid_utf8_is_replaced_not_refused() -> None:
    data = job(1).data.replace(b'"name": "grads_1"', b'"name": "grads_\xff"')
    assert parsed(data).tensors[2] == "grads_�"


@pytest.mark.parametrize(
    ("dtype", "shape", "size"),
    [
        ("float32", "[3, 3, 3, 64]", 6912),
        ("float16", "[7]", 14),
        ("bool", "[]", 1),
        ("int64", "[0, 5]", 0),
        ("<unknown>", "[5]", None),
        ("float64", "[999999999, 999999999, 999999999]", None),
    ],
)
def test_bytes_are_those_of_type_and_shape(dtype: str, shape: str, size: int | None) -> None:
    writer = Writer()
    allreduce(writer, "a", 100, f'"dtype": "{dtype}", "shape": "{shape}"')
    assert parsed(writer.data).rows[-1] == (1, "ALLREDUCE", 0, 150, 195, size)


def test_more_open_activities_than_the_limit_are_handled() -> None:
    event = b'{"ph": "B", "name": "ALLREDUCE", "ts": 1, "pid": 1},\n'
    timeline = parsed(b"[\n" + event * 300_000 + b'{"ph": "E", "ts": 2, "pid": 1},\n')
    assert len(timeline.rows) == 1
    assert timeline.unfinished == 299_999


def test_long_foreign_parts_are_dropped_and_counted() -> None:
    first, second = job(1, old=True).data, job(1, old=True).data.removeprefix(b"[\n")
    timeline = parsed(first + b"\0" * 500_000 + second, block_bytes=4096)
    assert len(timeline.rows) == 24
    assert timeline.unreadable > 0


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[",
        b"[]",
        b"[1, 2, 3]",
        b"{}",
        b'{"traceEvents": []}',
        b'#stallscope 1 {"rank": 0}\nkind,step\n',
        b"\x89PNG\r\n\x1a\n" + bytes(5000),
        b"hierarchical_allreduce,hierarchical_allgather\n0,0\n",
    ],
)
def test_other_files_are_refused_in_one_sentence(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(data)
    assert not is_timeline(data)
    with pytest.raises(UnreadableError, match="not a Horovod Timeline"):
        read(path)


def test_a_missing_file_is_not_found_and_a_folder_not_readable(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no such file"):
        read(tmp_path / "nothing.json")
    with pytest.raises(UnreadableError, match="cannot be read"):
        read(tmp_path)


EVENTS = st.lists(
    st.tuples(st.sampled_from("BBBEEEXi"), st.sampled_from("abc"), st.sampled_from(["A", "BC"])),
    max_size=60,
)


@pytest.mark.broad
@settings(max_examples=150, deadline=None)
@given(events=EVENTS, block_bytes=st.integers(1, 5000))
def test_any_order_of_events_is_matched_as_by_hand(
    events: list[tuple[str, str, str]], block_bytes: int
) -> None:
    writer = Writer()
    writer.cycle(0)
    for at, (kind, tensor, name) in enumerate(events):
        if kind == "i":
            writer.cycle(at)
        else:
            writer.event(kind, at, tensor, "0" if kind == "X" else name)
    data = writer.data
    timeline = parsed(data, block_bytes)
    assert timeline.rows == by_hand(data)
    begins, ends = (sum(kind == which for kind, *_ in events) for which in "BE")
    assert timeline.unmatched == ends - len(timeline.rows)
    assert timeline.unfinished == begins - len(timeline.rows)
    assert len(timeline.ticks) == sum(kind == "X" for kind, *_ in events)


@pytest.mark.broad
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    changes=st.lists(st.tuples(st.integers(0, 10_000), st.binary(max_size=12)), max_size=8),
    block_bytes=st.integers(1, 5000),
)
def test_no_damage_makes_it_crash(changes: list[tuple[int, bytes]], block_bytes: int) -> None:
    data = bytearray(job(2).data)
    for place, put in changes:
        place %= len(data)
        data[place : place + len(put)] = put
    try:
        timeline = parsed(bytes(data), block_bytes)
    except UnreadableError:
        assert not is_timeline(bytes(data[:4096]))
    else:
        assert len(timeline.rows) <= 24
        assert {row[2] for row in timeline.rows} <= set(range(10))


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("block_bytes", [300, 4096, 1 << 20])
@pytest.mark.parametrize("cut", [0, 40])
def test_a_restarted_job_continues_in_the_same_file(old: bool, block_bytes: int, cut: int) -> None:
    again = Writer(old)
    # Other numbers for the same tensors, and one more.
    for tensor in ("grads_2", "new", "grads_0"):
        allreduce(again, tensor, 500)
    first = job(2, old).data
    second = again.data.replace(b'micros":1600000000000000', b'micros":1600000007000000')
    whole = first[: len(first) - cut] + second
    timeline = parsed(whole, block_bytes)
    alone = parsed(first[: len(first) - cut])
    assert timeline.restarts == 1
    blocks = list(TimelineReader("", io.BytesIO(whole), block_bytes).block_rows())
    restarted = [number for number, block in enumerate(blocks) if block.restarted]
    assert len(restarted) == 1
    assert BlockRows.joined(blocks[: restarted[0]]).restarted is False
    earlier = sum(len(block.activities) for block in blocks[: restarted[0]])
    assert timeline.tensors == {1: "grads_0", 2: "grads_1", 3: "grads_2", 4: "new"}
    assert timeline.rows[: len(alone.rows)] == alone.rows
    assert earlier == len(alone.rows)
    later = timeline.rows[len(alone.rows) :]
    assert [row[0] for row in later] == [3] * 4 + [4] * 4 + [1] * 4
    # By both start times; before 0.20.1 from where the first job was last seen.
    begins = 7_000_500 if not old else 500 + max(row[4] for row in alone.rows)
    assert later[0][3] == begins
    assert timeline.unmatched == 0
    assert timeline.unfinished == alone.unfinished


def test_activities_left_open_by_a_killed_job_are_not_closed_by_the_next() -> None:
    first, second = Writer(), Writer()
    first.event("B", 10, "a", "NEGOTIATE_ALLREDUCE")
    allreduce(second, "a", 100)
    timeline = parsed(first.data + second.data)
    assert (timeline.restarts, timeline.unfinished, timeline.unmatched) == (1, 1, 0)
    assert timeline.rows[0][1:4] == ("NEGOTIATE_ALLREDUCE", 0, 100)


@pytest.mark.parametrize("old", [False, True])
def test_line_ends_of_another_system_change_nothing(old: bool) -> None:
    data = job(3, old).data
    windows, plain = parsed(data.replace(b"\n", b"\r\n"), 700), parsed(data)
    assert windows.rows == plain.rows
    assert (windows.tensors, windows.restarts, windows.unreadable) == (plain.tensors, 0, 0)


def zstd(data: bytes) -> bytes:
    packed: bytes = pa.compress(data, codec="zstd", asbytes=True)
    return packed


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": zstd,
}


def begins_as_one(path: Path) -> bool:
    (file,) = open_source(str(path)).files()
    return is_timeline(beginning(file, HEAD_BYTES))


@pytest.mark.parametrize("kind", ["gz", "bz2", "xz", "zst"])
def test_compressed_timelines_are_read_while_unpacking(tmp_path: Path, kind: str) -> None:
    data = job(20).data
    path = tmp_path / f"timeline.json.{kind}"
    path.write_bytes(PACKERS[kind](data))
    assert begins_as_one(path)
    assert read(path).rows == parsed(data).rows
    packed = path.read_bytes()
    path.write_bytes(packed[: len(packed) * 9 // 10])
    rows = read(path).rows if begins_as_one(path) else []
    assert rows == parsed(data).rows[: len(rows)]


def test_names_of_any_length_are_distinguished() -> None:
    names = ["A" * length + end for length in (1, 3, 7, 15, 20, 23, 26, 31, 40) for end in "XY"]
    writer = Writer()
    for at, name in enumerate(names):
        writer.event("B", 10 * at, "a", name)
        writer.event("E", 10 * at + 5, "a")
    assert [row[1] for row in parsed(writer.data).rows] == names


@pytest.mark.parametrize("digits", [1, 7, 8, 9, 14, 16])
def test_times_of_any_length_are_read(digits: int) -> None:
    at = int("1234567890123456"[:digits])
    writer = Writer()
    writer.event("B", at, "a", "ALLREDUCE")
    writer.event("E", at + 1, "a")
    assert [row[3:5] for row in parsed(writer.data).rows] == [(at, at + 1)]


def test_reading_a_timeline_does_not_load_pandas(tmp_path: Path) -> None:
    path = tmp_path / "timeline.json"
    path.write_bytes(REAL)
    program = (
        "import sys; from stallscope.parsers.formats.horovod_timeline import open_timeline\n"
        "with open_timeline(sys.argv[1]) as reader: found = list(reader.block_rows())\n"
        "assert len(found[0].activities) and 'pandas' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program, str(path)], check=True)
