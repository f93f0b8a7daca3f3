"""Results from a Horovod Timeline: unions, fusion, bandwidth, and late ranks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from analysis.made_timelines import Activity, MadeTimeline, allreduce, timeline

from stallscope.analysis.network.tensors import Tensors, by_size, tensors
from stallscope.parsers.formats.horovod_timeline import BlockRows, open_timeline

# From a run of Horovod 0.28.1 on two ranks over Gloo: two of the fused gradients of a step.
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


def test_a_real_step(tmp_path: Path) -> None:
    path = tmp_path / "timeline.json"
    path.write_text(REAL)
    with open_timeline(path) as reader:
        figures = tensors(reader)
    bias, weight = sorted(figures.tensors, key=lambda tensor: tensor.name)
    assert (bias.name, bias.operation, bias.size) == ("allreduce.4.bias", "ALLREDUCE", 40)
    assert (weight.size, weight.operations) == (5120, 1)
    assert bias.negotiation_ms == pytest.approx(2.747)
    assert bias.operation_ms == pytest.approx(0.299)
    assert bias.parts_ms == pytest.approx(
        {"MEMCPY_IN_FUSION_BUFFER": 0.013, "GLOO_ALLREDUCE": 0.261}
    )
    assert figures.parts == ("GLOO_ALLREDUCE", "MEMCPY_IN_FUSION_BUFFER")
    assert figures.fusion.tensors.tolist() == [2]
    assert figures.fusion.bytes.tolist() == [5160]
    assert figures.fusion.transfer_ms.tolist() == pytest.approx([0.261])
    assert figures.span_ms == pytest.approx(3.163)
    assert figures.negotiating == pytest.approx(2750 / 3163)
    assert figures.operating == pytest.approx(300 / 3163)
    assert (figures.negotiations, figures.ticked) == (2, 2)
    assert figures.lateness is not None
    assert (figures.lateness.rounds, figures.lateness.together) == (1, 0)
    first = figures.lateness.ranks[0]
    assert (first.rank, first.last) == (1, 1)
    assert first.delay_ms == pytest.approx(2.748)
    (size,) = by_size(figures.fusion, 2)
    assert size.bandwidth == pytest.approx(5160 / 261e3)


def test_fused_tensors_are_those_that_start_before_the_firsts_activities() -> None:
    together = [*allreduce(1, 100), *allreduce(2, 102), *allreduce(3, 104)]
    # The second of these starts while the first is being reduced.
    overlapping = [*allreduce(1, 1000, 500), *allreduce(2, 1050, 700)]
    alone = allreduce(1, 3000, None)
    fusion = tensors(timeline([*together, *overlapping, *alone])).fusion
    assert fusion.tensors.tolist() == [3, 1, 1, 1]
    assert fusion.bytes[:3].tolist() == [3000, 500, 700]
    assert np.isnan(fusion.bytes[3])
    assert fusion.transfer_ms.tolist() == pytest.approx([0.104, 0.1, 0.1, 0.1])


def test_times_of_fused_tensors_are_not_added_up() -> None:
    rows = [row for tensor in (1, 2, 3) for row in allreduce(tensor, 0)]
    figures = tensors(timeline(rows))
    assert figures.operating == pytest.approx(1)
    assert figures.span_ms == pytest.approx(0.13)
    assert {tensor.operation_ms for tensor in figures.tensors} == {0.13}


def test_tensors_have_means_over_their_operations_with_the_busiest_first() -> None:
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
    assert [size_class.bandwidth for size_class in by_size(fusion, 1)] == [None, None]


def test_without_a_part_that_reduces_there_is_no_bandwidth() -> None:
    (only,) = by_size(tensors(timeline([(1, "ALLREDUCE", 0, 0, 100, 64)])).fusion, 2)
    assert (only.operations, only.transfer_ms, only.bandwidth) == (1, None, None)


def test_fused_tensors_are_one_round_and_a_cycle_is_not_lateness() -> None:
    negotiated: list[Activity] = []
    ticks = []
    # Rank 1 is 5 ms late for three tensors at once; then it comes within the cycle.
    for at, delay in ((0, 5000), (20_000, 5000), (40_000, 300)):
        for tensor in (1, 2, 3):
            negotiated.append((tensor, "NEGOTIATE_ALLREDUCE", 0, at, at + delay + tensor, None))
            ticks += [(tensor, 0, at), (tensor, 1, at + delay + tensor)]
    # The cache answered the last one: no rank has a tick.
    negotiated.append((1, "NEGOTIATE_ALLREDUCE", 0, 90_000, 95_000, None))
    figures = tensors(timeline(negotiated, ticks, cycles=range(0, 90_000, 1000)))
    late = figures.lateness
    assert late is not None
    assert (late.rounds, late.together, late.cycle_ms) == (3, 1, 1.0)
    assert [(rank.rank, rank.last) for rank in late.ranks] == [(1, 2), (0, 0)]
    assert late.ranks[0].delay_ms == pytest.approx(5.003)
    assert late.ranks[1].delay_ms is None
    assert (figures.negotiations, figures.ticked) == (10, 9)
    assert figures.cycles is not None
    assert (figures.cycles.count, figures.cycles.median_ms) == (90, 1.0)


def test_rounds_that_lack_a_rank_are_ignored() -> None:
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
    # An end before its start, a part without its operation, a tick outside of everything.
    rows: list[Activity] = [
        (1, "ALLREDUCE", 0, 100, 50, 4),
        (9, "GLOO_ALLREDUCE", 1, 0, 10, None),
        (2, "ALLREDUCE", 0, 0, 2**60, 2**61),
    ]
    figures = tensors(timeline(rows, [(7, 3, 10**9), (7, 4, 10**9)]))
    assert [tensor.name for tensor in figures.tensors] == ["b"]
    assert figures.fusion.tensors.tolist() == [1]


def training(steps: int, block_us: int | None = None) -> MadeTimeline:
    """Make two fused gradients and one that is not, in steps of 10 ms, after a broadcast."""
    rows: list[Activity] = [
        (3, "NEGOTIATE_BROADCAST", 0, 0, 40, None),
        (3, "BROADCAST", 0, 50, 90, None),
        (3, "MEMCPY_IN_FUSION_BUFFER", 1, 55, 60, None),
    ]
    for at in range(1000, 1000 + 10_000 * steps, 10_000):
        rows += [
            (1, "NEGOTIATE_ALLREDUCE", 0, at, at + 400, None),
            (2, "NEGOTIATE_ALLREDUCE", 0, at + 100, at + 500, None),
            *allreduce(1, at + 1000),
            *allreduce(2, at + 1001),
            (3, "NEGOTIATE_ALLREDUCE", 0, at + 2000, at + 2010, None),
            (3, "WAIT_FOR_DATA", 1, at + 3000, at + 3020, None),
            (3, "QUEUE", 1, at + 3020, at + 3025, None),
            (3, "NCCL_ALLREDUCE", 1, at + 3030, at + 3100, None),
            (3, "ALLREDUCE", 0, at + 3000, at + 3200, 4000),
        ]
    reader = timeline(rows)
    return reader if block_us is None else in_blocks(reader, block_us)


def in_blocks(reader: MadeTimeline, block_us: int) -> MadeTimeline:
    """Return the same in blocks as a reader yields them: in order of ends, and open ones later."""
    whole = reader.several[0]
    activities = whole.activities.take(np.argsort(whole.activities.end, kind="stable"))
    several = []
    for first in range(0, int(activities.end.max()) + 1, block_us):
        last = first + block_us
        now = activities.only((activities.end >= first) & (activities.end < last))
        still_open = activities.begin[(activities.begin < last) & (activities.end >= last)]
        ticks = whole.ticks.only((whole.ticks.at >= first) & (whole.ticks.at < last))
        settled = int(still_open.min(initial=last))
        several.append(BlockRows(now, ticks, whole.cycles[:0], first, settled))
    return MadeTimeline(reader.activity_names, several, reader.tensors)


def test_a_step_starts_with_a_gradient_of_the_previous_step() -> None:
    steps = tensors(training(5)).steps
    assert steps.start_us.tolist() == [1000, 11_000, 21_000, 31_000, 41_000]
    assert steps.step_ms[:4].tolist() == [10.0] * 4
    assert np.isnan(steps.step_ms[4])
    assert steps.tensors.tolist() == [3] * 5
    assert steps.reductions.tolist() == [2] * 5
    for values, expected in (
        (steps.negotiation_ms, 0.51),
        (steps.operation_ms, 0.131 + 0.2),
        (steps.wait_ms, 0.025),
        (steps.copy_ms, 0.011),
        (steps.transfer_ms, 0.101 + 0.07),
    ):
        assert values.tolist() == pytest.approx([expected] * 5, rel=1e-5)


def test_every_reduction_has_its_negotiation_wait_copy_and_transfer() -> None:
    fusion = tensors(training(2)).fusion
    assert fusion.tensors.tolist() == [2, 1, 2, 1]
    assert fusion.negotiation_ms.tolist() == pytest.approx([0.5, 0.01, 0.5, 0.01])
    assert fusion.wait_ms.tolist() == pytest.approx([0, 0.025, 0, 0.025])
    assert fusion.copy_ms.tolist() == pytest.approx([0.011, 0, 0.011, 0])
    assert fusion.transfer_ms.tolist() == pytest.approx([0.101, 0.07, 0.101, 0.07])


def test_a_step_without_one_gradient_still_counts() -> None:
    reader = training(4)
    activities = reader.several[0].activities
    gone = (activities.tensor == 1) & (activities.begin > 11_000 - 1) & (activities.begin < 21_000)
    reader.several[0] = replace(reader.several[0], activities=activities.only(~gone))
    steps = tensors(reader).steps
    assert steps.tensors.tolist() == [3, 2, 3, 3]


@pytest.mark.broad
@pytest.mark.parametrize("block_us", [7, 500, 9_999, 33_000])
def test_blocks_of_any_size_give_the_results_of_the_whole(block_us: int) -> None:
    whole, blocks = tensors(training(6)), tensors(training(6, block_us))
    assert results(blocks) == results(whole)


def results(figures: Tensors) -> dict[str, object]:
    """Return all results in a comparable form."""
    of_arrays = {
        f"{name}.{column}": np.nan_to_num(values, nan=-1).tolist()
        for name in ("fusion", "steps")
        for column, values in vars(getattr(figures, name)).items()
    }
    others = {
        name: value for name, value in vars(figures).items() if name not in ("fusion", "steps")
    }
    return of_arrays | others


def test_without_ticks_the_late_rank_is_unknown_and_the_remedy_named() -> None:
    results = tensors(training(3)).cannot_name
    assert "cannot name the late rank" in results
    assert "StepLogger" in results
    assert "HOROVOD_CACHE_CAPACITY=0" in results
    negotiated: list[Activity] = [
        (1, "NEGOTIATE_ALLREDUCE", 0, 0, 900, None),
        (1, "NEGOTIATE_ALLREDUCE", 0, 2000, 2900, None),
    ]
    ticks = [(1, 0, 0), (1, 1, 900)]
    assert "1 of 2 negotiations" in tensors(timeline(negotiated, ticks)).cannot_name
    ticks += [(1, 0, 2000), (1, 1, 2900)]
    assert tensors(timeline(negotiated, ticks)).cannot_name == ""
