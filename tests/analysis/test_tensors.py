"""What is made of a Horovod Timeline: unions, fusion, bandwidth, and who was late."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from stallscope.analysis.tensors import by_size, tensors, union_us
from stallscope.parsers.horovod_timeline import ACTIVITIES, TICKS, Timeline, read_timeline

# Per activity: tensor, name, level, begin, end, bytes.
Activity = tuple[int, str, int, int, int, int | None]

# From a run of Horovod 0.28.1 on two ranks over Gloo: two of the gradients that were fused in a step.
REAL = """[
{"name": "process_name", "ph": "M", "pid": 0, "args": \
{"start_time_since_epoch_in_micros":1795279359955026}},
{"name": "process_sort_index", "ph": "M", "pid": 0, "args": {"sort_index": 0}},
{"name": "process_name", "ph": "M", "pid": 7, "args": {"name": "allreduce.4.bias"}},
{"name": "process_sort_index", "ph": "M", "pid": 7, "args": {"sort_index": 7}},
{"name": "process_name", "ph": "M", "pid": 8, "args": {"name": "allreduce.4.weight"}},
{"name": "process_sort_index", "ph": "M", "pid": 8, "args": {"sort_index": 8}},
{"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": 4427605, "pid": 7},\
{"ph": "X", "name": "0", "ts": 4427605, "pid": 7, "dur": 0},\
{"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": 4427607, "pid": 8},\
{"ph": "X", "name": "0", "ts": 4427607, "pid": 8, "dur": 0},\
{"ph": "X", "name": "1", "ts": 4430352, "pid": 7, "dur": 0},{"ph": "E", "ts": 4430352, "pid": 7},\
{"ph": "X", "name": "1", "ts": 4430355, "pid": 8, "dur": 0},{"ph": "E", "ts": 4430355, "pid": 8},\
{"ph": "B", "name": "ALLREDUCE", "ts": 4430468, "pid": 7},\
{"ph": "B", "name": "ALLREDUCE", "ts": 4430469, "pid": 8},\
{"ph": "B", "name": "MEMCPY_IN_FUSION_BUFFER", "ts": 4430476, "pid": 7},\
{"ph": "B", "name": "MEMCPY_IN_FUSION_BUFFER", "ts": 4430476, "pid": 8},\
{"ph": "E", "ts": 4430489, "pid": 7},{"ph": "E", "ts": 4430489, "pid": 8},\
{"ph": "B", "name": "GLOO_ALLREDUCE", "ts": 4430489, "pid": 7},\
{"ph": "B", "name": "GLOO_ALLREDUCE", "ts": 4430490, "pid": 8},\
{"ph": "E", "ts": 4430750, "pid": 7},{"ph": "E", "ts": 4430750, "pid": 8},\
{"ph": "E", "ts": 4430767, "pid": 7, "args": {"dtype": "float32", "shape": "[10]"}},\
{"ph": "E", "ts": 4430768, "pid": 8, "args": {"dtype": "float32", "shape": "[10, 128]"}}]"""


def timeline(
    activities: Iterable[Activity] = (),
    ticks: Iterable[tuple[int, int, int]] = (),
    cycles: Iterable[int] = (),
) -> Timeline:
    rows = [dict(zip(ACTIVITIES.names, row, strict=True)) for row in activities]
    moments = [dict(zip(TICKS.names, row, strict=True)) for row in ticks]
    return Timeline(
        start_us=None,
        tensors={1: "a", 2: "b", 3: "c"},
        activities=pa.Table.from_pylist(rows, schema=ACTIVITIES),
        ticks=pa.Table.from_pylist(moments, schema=TICKS),
        cycles_us=np.array(list(cycles), np.int64),
        unreadable=0,
        unmatched=0,
        unfinished=0,
    )


def allreduce(tensor: int, at: int, size: int | None = 1000, long: int = 100) -> list[Activity]:
    """An operation that copies for 10 µs, reduces, and copies for 10 µs."""
    return [
        (tensor, "MEMCPY_IN_FUSION_BUFFER", 1, at + 5, at + 15, None),
        (tensor, "NCCL_ALLREDUCE", 1, at + 15, at + 15 + long, None),
        (tensor, "ALLREDUCE", 0, at, at + 30 + long, size),
    ]


def test_union_is_not_the_sum() -> None:
    begin = np.array([0, 5, 20, 20, 30])
    end = np.array([10, 8, 25, 25, 40])
    assert union_us(begin, end) == 10 + 5 + 10
    assert union_us(begin[::-1], end[::-1]) == 25
    assert union_us(begin[:0], end[:0]) == 0


def test_a_real_step(tmp_path: Path) -> None:
    path = tmp_path / "timeline.json"
    path.write_text(REAL)
    found = tensors(read_timeline(path))
    bias, weight = sorted(found.tensors, key=lambda one: one.name)
    assert (bias.name, bias.operation, bias.size) == ("allreduce.4.bias", "ALLREDUCE", 40)
    assert (weight.size, weight.operations) == (5120, 1)
    assert bias.negotiation_ms == pytest.approx(2.747)
    assert bias.operation_ms == pytest.approx(0.299)
    assert bias.parts_ms == pytest.approx(
        {"MEMCPY_IN_FUSION_BUFFER": 0.013, "GLOO_ALLREDUCE": 0.261}
    )
    assert found.parts == ("GLOO_ALLREDUCE", "MEMCPY_IN_FUSION_BUFFER")
    assert found.fusion.tensors.tolist() == [2]
    assert found.fusion.bytes.tolist() == [5160]
    assert found.fusion.transfer_ms.tolist() == pytest.approx([0.261])
    assert found.span_ms == pytest.approx(3.163)
    assert found.negotiating == pytest.approx(2750 / 3163)
    assert found.operating == pytest.approx(300 / 3163)
    assert (found.negotiations, found.ticked) == (2, 2)
    assert found.lateness is not None
    assert (found.lateness.rounds, found.lateness.together) == (1, 0)
    first = found.lateness.ranks[0]
    assert (first.rank, first.last) == (1, 1)
    assert first.behind_ms == pytest.approx(2.748)
    (size,) = by_size(found.fusion, 2)
    assert size.bandwidth == pytest.approx(5160 / 261e3)


def test_fused_are_those_that_begin_before_the_first_does_anything() -> None:
    together = [*allreduce(1, 100), *allreduce(2, 102), *allreduce(3, 104)]
    # The second of these begins while the first is being reduced.
    overlapping = [*allreduce(1, 1000, 500), *allreduce(2, 1050, 700)]
    alone = allreduce(1, 3000, None)
    fusion = tensors(timeline([*together, *overlapping, *alone])).fusion
    assert fusion.tensors.tolist() == [3, 1, 1, 1]
    assert fusion.bytes[:3].tolist() == [3000, 500, 700]
    assert np.isnan(fusion.bytes[3])
    assert fusion.transfer_ms.tolist() == pytest.approx([0.104, 0.1, 0.1, 0.1])


def test_times_of_fused_tensors_are_not_added_up() -> None:
    rows = [row for tensor in (1, 2, 3) for row in allreduce(tensor, 0)]
    found = tensors(timeline(rows))
    assert found.operating == pytest.approx(1)
    assert found.span_ms == pytest.approx(0.13)
    assert {one.operation_ms for one in found.tensors} == {0.13}


def test_tensors_have_means_over_their_operations_the_busiest_first() -> None:
    rows = [
        *allreduce(1, 0, long=100),
        *allreduce(1, 1000, long=300),
        *allreduce(2, 2000, long=5000),
        (3, "NEGOTIATE_BROADCAST", 0, 0, 40, None),
        (3, "NEGOTIATE_BROADCAST", 0, 100, 160, None),
    ]
    b, a, c = tensors(timeline(rows)).tensors
    assert (b.name, a.name, c.name) == ("b", "a", "c")
    assert (a.operations, a.negotiation_ms) == (2, None)
    assert a.operation_ms == pytest.approx(0.23)
    assert a.parts_ms["NCCL_ALLREDUCE"] == pytest.approx(0.2)
    assert (c.operation, c.operations, c.operation_ms, c.size) == ("", 0, None, None)
    assert c.negotiation_ms == pytest.approx(0.05)


def test_bandwidth_by_size_is_that_of_nccl_tests() -> None:
    rows = [*allreduce(1, 0, 500), *allreduce(1, 1000, 50_000_000, long=20_000)]
    fusion = tensors(timeline(rows)).fusion
    small, large = by_size(fusion, 4)
    assert (small.up_to, large.up_to) == (1e3, 1e8)
    assert large.bandwidth == pytest.approx(1.5 * 50e6 / 20e-3 / 1e9)
    assert large.quartiles == pytest.approx((large.bandwidth, large.bandwidth))
    assert [one.bandwidth for one in by_size(fusion, 1)] == [None, None]


def test_without_a_part_that_reduces_there_is_no_bandwidth() -> None:
    (only,) = by_size(tensors(timeline([(1, "ALLREDUCE", 0, 0, 100, 64)])).fusion, 2)
    assert (only.operations, only.transfer_ms, only.bandwidth) == (1, None, None)


def test_fused_tensors_are_one_round_and_a_cycle_is_no_lateness() -> None:
    negotiated: list[Activity] = []
    ticks = []
    # Rank 1 is 5 ms late for three tensors at once; then it comes within the cycle.
    for at, delay in ((0, 5000), (20_000, 5000), (40_000, 300)):
        for tensor in (1, 2, 3):
            negotiated.append((tensor, "NEGOTIATE_ALLREDUCE", 0, at, at + delay + tensor, None))
            ticks += [(tensor, 0, at), (tensor, 1, at + delay + tensor)]
    # Of the last one the cache answered: nobody is ticked.
    negotiated.append((1, "NEGOTIATE_ALLREDUCE", 0, 90_000, 95_000, None))
    found = tensors(timeline(negotiated, ticks, cycles=range(0, 90_000, 1000)))
    late = found.lateness
    assert late is not None
    assert (late.rounds, late.together, late.cycle_ms) == (3, 1, 1.0)
    assert [(one.rank, one.last) for one in late.ranks] == [(1, 2), (0, 0)]
    assert late.ranks[0].behind_ms == pytest.approx(5.003)
    assert late.ranks[1].behind_ms is None
    assert (found.negotiations, found.ticked) == (10, 9)
    assert found.cycles is not None
    assert (found.cycles.count, found.cycles.median_ms) == (90, 1.0)


def test_rounds_that_lack_a_rank_say_nothing() -> None:
    rows: list[Activity] = [(1, "NEGOTIATE_ALLREDUCE", 0, 0, 9000, None)]
    assert tensors(timeline(rows, [(1, 0, 0)])).lateness is None
    rows.append((1, "NEGOTIATE_ALLREDUCE", 0, 20_000, 29_000, None))
    ticks = [(1, 0, 0), (1, 1, 9000), (1, 0, 20_000)]
    late = tensors(timeline(rows, ticks)).lateness
    assert late is not None
    assert late.rounds == 1


def test_nothing_and_damage() -> None:
    nothing = tensors(timeline())
    assert (nothing.tensors, nothing.span_ms, nothing.lateness) == ((), 0.0, None)
    assert by_size(nothing.fusion, 2) == ()
    # An end before its begin, a part without its operation, a tick outside of everything.
    rows: list[Activity] = [
        (1, "ALLREDUCE", 0, 100, 50, 4),
        (9, "GLOO_ALLREDUCE", 1, 0, 10, None),
        (2, "ALLREDUCE", 0, 0, 2**60, 2**61),
    ]
    found = tensors(timeline(rows, [(7, 3, 10**9), (7, 4, 10**9)]))
    assert [one.name for one in found.tensors] == ["b"]
    assert found.fusion.tensors.tolist() == [1]


def test_a_million_activities_are_quick() -> None:
    n = 100_000
    tensor = np.tile(np.arange(100, dtype=np.int32), n // 100)
    at = np.repeat(np.arange(n // 100, dtype=np.int64) * 1000, 100) + tensor % 50
    table = pa.concat_tables(
        pa.table(
            [
                pa.array(tensor),
                pa.DictionaryArray.from_arrays(np.zeros(n, np.int32), [name]),
                pa.array(np.full(n, level, np.int32)),
                pa.array(at + begin),
                pa.array(at + end),
                pa.array(np.full(n, 64), mask=np.full(n, level == 1)),
            ],
            schema=ACTIVITIES,
        )
        for name, level, begin, end in (("NCCL_ALLREDUCE", 1, 100, 400), ("ALLREDUCE", 0, 0, 500))
    )
    made = timeline()
    found = tensors(
        Timeline(
            None, {}, table, made.ticks, made.cycles_us, unreadable=0, unmatched=0, unfinished=0
        )
    )
    assert set(found.fusion.tensors.tolist()) == {100}
    assert len(found.fusion.tensors) == n // 100
    assert found.tensors[0].name.startswith("tensor ")
