"""Where the time of a traced step goes: made-up spans of the host, of Gloo's threads and of a GPU."""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support.traces import (
    ANNOTATION,
    COMMUNICATION,
    COMPUTE,
    GLOO,
    KERNEL,
    LOADER,
    NCCL,
    ON_DEVICE,
    OPERATOR,
    Times,
    event,
    head_of,
    trace_of,
    write_gpu_job,
)

from stallscope.analysis import analyse
from stallscope.analysis.network.communication import inside_collectives
from stallscope.arrays.blocks import NULL
from stallscope.parsers import read
from stallscope.parsers.formats.kineto.kineto_log import read_trace
from stallscope.parsers.formats.kineto.kineto_steps import TracedSteps
from stallscope.run import Run

TWO_RANKS = head_of(0, 2, backend="gloo")


def steps_in(*events: str, head: str = '"deviceProperties": [],') -> TracedSteps:
    return read_trace("trace", io.BytesIO(trace_of(*events, head=head))).steps


def us(values: np.ndarray) -> list[float | None]:
    return [None if ns == NULL else ns / 1e3 for ns in values.tolist()]


def step(number: int, ts: float, dur: float) -> str:
    return event(f"ProfilerStep#{number}", ts, dur)


def loader(ts: float, dur: float) -> str:
    return event(LOADER, ts, dur)


def operator(ts: float, dur: float, name: str = "aten::mm") -> str:
    return event(name, ts, dur, OPERATOR)


def gloo(ts: float, dur: float, name: str = "gloo:all_reduce") -> str:
    return event(name, ts, dur, tid=GLOO)


def usual(number: int, ts: float) -> list[str]:
    """Return a step of 1000 µs: 200 of input, 500 of compute, 250 of Gloo's of which 50 are hidden."""
    return [
        step(number, ts, 1000),
        loader(ts + 10, 200),
        operator(ts + 220, 490),
        operator(ts + 640, 2, "c10d::allreduce_"),
        gloo(ts + 660, 250),
        event("Optimizer.step#SGD.step", ts + 920, 60),
    ]


def test_a_step_is_input_compute_and_exposed_communication() -> None:
    steps = steps_in(*usual(5, 1000), *usual(6, 2000), head=TWO_RANKS)
    assert steps.number.tolist() == [5, 6]
    assert us(steps.begin) == [1010, 2010]
    assert us(steps.data) == [1210, 2210]
    assert us(steps.exposed) == [200, 200]
    assert us(steps.ready) == [1710, 2710]
    assert us(steps.reduced) == [1910, 2910]
    assert us(steps.end) == [2000, 3000]
    assert steps.reason is None


def test_communication_is_hidden_by_operators_of_the_training_thread() -> None:
    events = [*usual(5, 1000), operator(1700, 100, "aten::addmm"), operator(1750, 20)]
    assert us(steps_in(*events, head=TWO_RANKS).exposed) == [110]
    # Operators of other threads, and Python's spans, do not show whether the training waits.
    events += [
        event("aten::mm", 1650, 300, OPERATOR, tid=99),
        event("f", 1650, 300, "python_function"),
    ]
    assert us(steps_in(*events, head=TWO_RANKS).exposed) == [110]


def test_several_batches_of_a_step_are_summed_at_its_start() -> None:
    events = [
        step(3, 1000, 1000),
        loader(1010, 100),
        operator(1120, 200),
        loader(1330, 150),
        operator(1490, 200),
        gloo(1700, 200),
    ]
    steps = steps_in(*events, head=TWO_RANKS)
    assert us(steps.data - steps.begin) == [250]
    assert us(steps.ready - steps.data) == [440]
    assert us(steps.reduced - steps.ready) == [200]


def test_a_batch_that_is_loaded_at_the_end_of_a_step_is_the_next_steps() -> None:
    """As in ``for batch in loader: prof.step(); …``."""
    events = [step(1, 1000, 1000), operator(1010, 400), gloo(1450, 100), operator(1560, 40)]
    events += [loader(1700, 300), step(2, 2000, 1000), operator(2010, 400), gloo(2450, 100)]
    steps = steps_in(*events, head=TWO_RANKS)
    assert us(steps.begin) == [1000, 1700]
    assert us(steps.data) == [1000, 2000]
    assert us(steps.end) == [1700, 3000]


def test_what_is_computed_before_the_next_batch_is_loaded_is_compute() -> None:
    """As in loops that load a batch ahead."""
    events = []
    for number, ts in ((1, 1000), (2, 2000)):
        events += [step(number, ts, 1000), operator(ts + 5, 400), loader(ts + 410, 100)]
        events += [operator(ts + 520, 200), gloo(ts + 750, 150)]
    steps = steps_in(*events, head=TWO_RANKS)
    assert us(steps.begin) == [1000, 2000]
    assert us(steps.data - steps.begin) == [100, 100]


def test_loaders_of_other_threads_are_not_waited_for() -> None:
    events = [*usual(5, 1000), event(LOADER, 1300, 300, tid=99)]
    steps = steps_in(*events, head=TWO_RANKS)
    assert us(steps.data - steps.begin) == [200]


def test_waiting_in_the_middle_counts_and_is_reported(tmp_path: Path) -> None:
    events = []
    for number in range(4):
        ts = 1000 + 1000 * number
        events += [step(number, ts, 1000), loader(ts, 100), operator(ts + 100, 200)]
        events += [gloo(ts + 310, 190), operator(ts + 500, 300), gloo(ts + 800, 150)]
    (tmp_path / "rank0.pt.trace.json").write_bytes(trace_of(*events, head=TWO_RANKS))
    (run,) = read(str(tmp_path))
    ready, reduced = (np.array(run.steps[name].to_pylist()) for name in ("ready", "reduced"))
    assert (reduced - ready).tolist() == [340_000] * 4
    (problem,) = run.problems
    assert "in the middle of steps, on 1 rank, here 0.19 ms of" in problem.what


def test_operators_that_wait_for_their_collective_do_not_hide_it() -> None:
    """As the forward pass of SyncBatchNorm does."""
    events = [step(1, 1000, 1000), loader(1000, 100)]
    events += [operator(1100, 500, "SyncBatchNorm"), operator(1110, 100, "aten::stats")]
    events += [operator(1220, 10, "c10d::_allgather_base_"), gloo(1240, 340, "gloo:all_gather")]
    events += [operator(1600, 200), gloo(1810, 100)]
    steps = steps_in(*events, head=TWO_RANKS)
    assert us(steps.exposed) == [440]
    assert us(steps.exposed_early) == [340]


def test_a_collective_ends_when_the_training_goes_on() -> None:
    """Gloo's thread may lose its core before it notes the end."""
    events = [*usual(5, 1000), gloo(1900, 600)]
    events += [*usual(6, 2000), gloo(2890, 40)]
    steps = steps_in(*events, head=TWO_RANKS)
    assert us(steps.reduced) == [1920, 2920]
    assert us(steps.data - steps.begin) == [200, 200]


def test_a_broadcast_does_not_end_a_step() -> None:
    """It ends on different ranks at different times."""
    events = [*usual(5, 1000), gloo(1930, 40, "gloo:broadcast")]
    assert us(steps_in(*events, head=TWO_RANKS).reduced) == [1910]


def test_steps_that_only_accumulate_gradients_are_joined() -> None:
    events = []
    for number in range(6):
        ts = 1000 + 1000 * number
        events += [step(number, ts, 1000), loader(ts, 100), operator(ts + 100, 500)]
        events += [gloo(ts + 600, 300)] if number % 2 else []
    steps = steps_in(*events, head=TWO_RANKS)
    assert (steps.number.tolist(), steps.micro) == ([0, 1, 2], 2)
    assert us(steps.begin) == [1000, 3000, 5000]
    assert us(steps.data - steps.begin) == [200, 200, 200]
    assert us(steps.reduced) == [2900, 4900, 6900]


def test_without_ranks_a_step_is_complete_when_the_optimizer_begins() -> None:
    events = [step(1, 1000, 1000), loader(1000, 300), operator(1300, 500)]
    events += [event("Optimizer.step#SGD.step", 1850, 100), step(2, 2000, 1000), loader(2000, 300)]
    steps = steps_in(*events)
    assert us(steps.ready) == us(steps.reduced) == [1850, 3000]
    assert steps.reason is None


@pytest.mark.parametrize(
    ("events", "head", "reason", "missing"),
    [
        ([step(1, 1000, 500), gloo(1200, 100)], TWO_RANKS, "has no DataLoader", {"data"}),
        (
            [step(1, 1000, 500), loader(1000, 10)],
            TWO_RANKS,
            "no collective that torch.distributed runs",
            {"ready", "reduced"},
        ),
        (
            [step(1, 1000, 500), loader(1000, 10), event("nccl:all_reduce", 1100, 20)],
            head_of(0, 2),
            "only that collectives were started",
            {"ready", "reduced"},
        ),
        (
            [step(1, 1000, 500), loader(1000, 10), event("nccl:all_reduce", 1100, 20)],
            '"deviceProperties": [],',
            "only that collectives were started",
            {"ready", "reduced"},
        ),
    ],
    ids=["no loader", "no collectives", "launches only", "launches only, no world"],
)
def test_what_the_trace_does_not_show_is_missing_and_the_report_says_why(
    tmp_path: Path, events: list[str], head: str, reason: str, missing: set[str]
) -> None:
    (tmp_path / "rank0.pt.trace.json").write_bytes(trace_of(*events, head=head))
    (run,) = read(str(tmp_path))
    assert {name for name in run.steps.column_names if run.steps[name].null_count} - {
        "epoch",
        "samples",
        "elements",
    } == missing
    assert reason in analyse(run).bottleneck.evidence


def test_processes_without_a_world_are_not_taken_for_ranks_that_never_wait(tmp_path: Path) -> None:
    """Horovod's ranks leave no world in their traces."""
    events = []
    for number in range(30):
        ts = 1000 + 1000 * number
        events += [step(number, ts, 1000), loader(ts, 300), operator(ts + 300, 500)]
    for rank in (0, 1):
        (tmp_path / f"rank{rank}.pt.trace.json").write_bytes(trace_of(*events))
    (run,) = read(str(tmp_path))
    assert run.ranks == [0, 1]
    assert run.steps["reduced"].null_count == 60
    assert "Horovod's are not in traces" in analyse(run).bottleneck.evidence


@pytest.mark.parametrize("cycles", [1, 3])
def test_every_cycle_of_the_profiler_is_a_file_of_the_run(tmp_path: Path, cycles: int) -> None:
    for cycle in range(cycles):
        for rank in (0, 1):
            events = []
            for number in range(20 * cycle, 20 * cycle + 12):
                events += usual(number, 1000 + 1000 * number)
            data = trace_of(*events, head=head_of(rank, 2, backend="gloo"))
            (tmp_path / f"{rank}.{cycle}.pt.trace.json").write_bytes(data)
    analysis = analyse(analysed(tmp_path))
    assert len(analysis.generations) == 1
    # The first step of each file is warm-up.
    assert analysis.coverage.complete == 12 * cycles
    assert analysis.steady is not None
    assert len(analysis.steady) == 11 * cycles
    assert {entry.name: entry.ms for entry in analysis.by_cause} == pytest.approx(
        {"input": 0.2, "compute": 0.5, "other": 0.1, "allreduce": 0.2}
    )


def analysed(folder: Path) -> Run:
    (run,) = read(str(folder))
    assert run.problems == ()
    return run


def test_streams_of_gpus_are_taken_apart(tmp_path: Path) -> None:
    true = write_gpu_job(tmp_path, 40, input_ms=(10.0, 10.0))
    run = analysed(tmp_path)
    rows = run.steps.to_pandas()
    for rank, steps in enumerate(true):
        rank_rows = rows[rows["rank"] == rank]
        for name, (low, high) in {
            "input": ("begin", "data"),
            "compute": ("data", "ready"),
            "exposed": ("ready", "reduced"),
        }.items():
            expected = {
                "input": sum(step.input for step in steps),
                "compute": sum(step.compute for step in steps),
                "exposed": sum(step.communication - step.overlapped for step in steps),
            }[name]
            assert (rank_rows[high] - rank_rows[low]).sum() / 1e6 == pytest.approx(
                expected, rel=0.002
            )
    assert analyse(run).bottleneck.kind == "input"


@pytest.mark.parametrize(
    ("input_ms", "verdict"), [(14.0, "input"), (0.2, "insufficient_data")], ids=["slow", "fast"]
)
def test_few_traced_steps_show_a_fault_that_all_of_them_have(
    tmp_path: Path, input_ms: float, verdict: str
) -> None:
    write_gpu_job(tmp_path, 8, input_ms=(input_ms, input_ms))
    assert analyse(analysed(tmp_path)).bottleneck.kind == verdict


def test_a_slow_loader_on_a_gpu_is_found_on_hosts_with_different_clocks(tmp_path: Path) -> None:
    write_gpu_job(
        tmp_path, 60, input_ms=(2.0, 14.0), hosts=("node-0", "node-1"), clock_ms=(0.0, 7300.0)
    )
    analysis = analyse(analysed(tmp_path))
    assert analysis.clocks is not None
    assert analysis.clocks.method == "completions"
    assert (analysis.bottleneck.kind, analysis.bottleneck.cause) == ("imbalance", "input")
    assert analysis.bottleneck.ranks == (1,)
    allreduce = next(entry for entry in analysis.by_cause if entry.name == "allreduce")
    assert allreduce.ms == pytest.approx(7, abs=0.3)


def test_without_names_of_hosts_every_rank_has_its_own_clock(tmp_path: Path) -> None:
    write_gpu_job(tmp_path, 30, input_ms=(2.0, 2.0), clock_ms=(0.0, 900.0))
    for path in tmp_path.iterdir():
        path.write_bytes(path.read_bytes().replace(b'"host_name": "node-0",', b""))
    analysis = analyse(analysed(tmp_path))
    assert analysis.clocks is not None
    assert analysis.clocks.method == "completions"


def test_a_loader_that_a_gpu_does_not_wait_for_costs_nothing() -> None:
    """The host is ahead: it loads the next batch while the device still computes."""
    events = []
    for number in range(4):
        host, device = 1000 + 1000 * number, 1600 + 1000 * number
        events += [step(number, host, 1000), loader(host, 500)]
        events += [
            event("sgemm", device, 700, KERNEL, COMPUTE),
            event(NCCL, device + 500, 400, KERNEL, COMMUNICATION),
        ]
        events += [event("adam", device + 900, 95, KERNEL, COMPUTE)]
        events += [event(f"ProfilerStep#{number}", device, 995, ON_DEVICE, COMPUTE)]
    steps = steps_in(*events, head=head_of(0, 2))
    assert us(steps.data - steps.begin)[1:] == [0, 0, 0]
    assert us(steps.exposed) == [200] * 4
    assert us(steps.reduced) == [2500, 3500, 4500, 5500]
    assert us(steps.loading) == [500] * 4


def test_kernels_of_nccl_count_and_not_their_launches() -> None:
    steps = steps_in(
        step(1, 1000, 1000),
        event("ProfilerStep#1", 1100, 950, ON_DEVICE, COMPUTE),
        event("nccl:all_reduce", 1000, 900),
        event(NCCL, 1500, 100, KERNEL, COMMUNICATION),
        event("nccl:all_reduce", 1490, 120, ON_DEVICE, COMMUNICATION),
        event("ncclKernel_AllReduce_RING_LL_Sum_float", 1900, 100, KERNEL, COMMUNICATION),
        head=head_of(0, 2),
    )
    assert us(steps.host_begin) == [1000]
    assert us(steps.communicating) == us(steps.exposed) == [220]


def brute_force(times: list[Times], others: list[Times]) -> int:
    """Return the microseconds in spans and not in others."""
    covered, without = (
        {at for begin, takes in several for at in range(int(begin), int(begin + takes))}
        for several in (times, others)
    )
    return len(covered - without)


@pytest.mark.parametrize("seed", range(8))
def test_any_overlap_of_streams_is_summed_exactly(seed: int) -> None:
    chance = random.Random(seed)

    def times(count: int, low: int, high: int) -> list[Times]:
        return [(chance.randrange(low, high), chance.randrange(1, 200)) for _ in range(count)]

    kernels, collectives = times(30, 1500, 4000), times(8, 1500, 4000)
    last = max(begin + takes for begin, takes in collectives)
    steps = steps_in(
        step(1, 1000, 4000),
        loader(1000, 400),
        *(event("k", *span, KERNEL, COMPUTE) for span in kernels),
        *(event(NCCL, *span, KERNEL, COMMUNICATION) for span in collectives),
        head=head_of(0, 2),
    )
    assert us(steps.reduced) == [last]
    assert us(steps.exposed) == [brute_force(collectives, kernels)]
    assert us(steps.data - steps.begin) == [400]


@pytest.mark.parametrize(
    "rewrite",
    [
        lambda text: text.replace('": ', '":').replace(", ", ","),
        lambda text: text.replace(", ", ",\n    "),
        lambda text: text.replace('"dur"', '\n    "dur"').replace("}", "\n}"),
        lambda text: text.replace("\n", "\r\n"),
    ],
    ids=["compact", "a line for each key", "as PyTorch indents", "crlf"],
)
def test_white_space_does_not_matter(rewrite: Callable[[str], str]) -> None:
    text = trace_of(*usual(5, 1000), *usual(6, 2000), head=TWO_RANKS).decode()
    plain = read_trace("t", io.BytesIO(text.encode())).steps
    rewritten = read_trace("t", io.BytesIO(rewrite(text).encode())).steps
    for name in ("number", "begin", "data", "ready", "reduced", "end"):
        assert getattr(rewritten, name).tolist() == getattr(plain, name).tolist()


def test_annotations_of_other_kinds_are_no_steps() -> None:
    events = [
        *usual(5, 1000),
        event("ProfilerStep#", 1, 1),
        event("ProfilerStep#x", 1, 1, ANNOTATION),
    ]
    assert steps_in(*events, head=TWO_RANKS).number.tolist() == [5]


@pytest.mark.parametrize(
    ("kind", "advised"),
    [
        ("_SingleProcessDataLoaderIter", "more workers; it has none"),
        ("_MultiProcessingDataLoaderIter", "more workers than it has"),
    ],
)
def test_advice_on_the_loader_is_about_the_traced_one(
    tmp_path: Path, kind: str, advised: str
) -> None:
    events = []
    for number in range(6):
        ts = 1000 + 1_000_000 * number
        events += [step(number, ts, 999_000), operator(ts + 400_000, 500_000)]
        events += [event(f"enumerate(DataLoader)#{kind}.__next__", ts, 390_000)]
    (tmp_path / "rank0.pt.trace.json").write_bytes(trace_of(*events))
    verdict = analyse(analysed(tmp_path)).bottleneck
    assert verdict.kind == "input"
    assert any(advised in advice for advice in map(str, verdict.advice))


@pytest.mark.parametrize("seed", range(20))
def test_timestamps_are_in_order_whatever_the_spans_are(seed: int) -> None:
    chance = random.Random(seed)

    def anywhere(longest: int) -> Times:
        return chance.randrange(1000, 20_000), chance.randrange(longest)

    events = [step(number, *anywhere(3000)) for number in range(12)]
    events += [loader(*anywhere(900)) for _ in range(12)]
    events += [operator(*anywhere(400)) for _ in range(60)]
    events += [operator(*anywhere(30), "c10d::allreduce_") for _ in range(6)]
    events += [gloo(*anywhere(900)) for _ in range(20)]
    events += [event("Optimizer.step#SGD.step", *anywhere(50)) for _ in range(8)]
    if seed % 2:
        events += [event("k", *anywhere(400), KERNEL, COMPUTE) for _ in range(40)]
        events += [event(NCCL, *anywhere(900), KERNEL, COMMUNICATION) for _ in range(20)]
        events += [
            event(f"ProfilerStep#{number}", *anywhere(3000), ON_DEVICE, COMPUTE)
            for number in range(9)
        ]
    steps = steps_in(*events, head=TWO_RANKS if seed % 4 < 2 else head_of(0, 1))
    complete = steps.reduced != NULL
    assert complete.any()
    names = ("begin", "data", "ready", "reduced", "end")
    moments = np.array([getattr(steps, name)[complete] for name in names])
    assert (np.diff(moments, axis=0) >= 0).all()
    assert (steps.begin[1:] >= steps.end[:-1]).all()


# -- Collectives of process groups: NCCL's kernels, with their groups' names and numbers -----------


def of_group(ts: float, dur: float, group: str, number: int | None, kind: str = "allreduce") -> str:
    known: dict[str, int | str] = {
        "External id": 7,
        "Collective name": kind,
        "Group size": 2,
        "Process Group Name": group,
        "Process Group Description": "mesh_dp",
        "Process Group Ranks": "[0, ..., 1]",
    }
    numbered: dict[str, int | str] = {} if number is None else {"Seq": number}
    return event(NCCL, ts, dur, KERNEL, COMMUNICATION, **known, **numbered)


def traced_run(folder: Path, arrivals: dict[int, list[float]], numbered: bool = True) -> Run:
    """Trace a step of each rank: its collectives end at 2000, 3000, …, and begin when it arrives.

    Ranks 0 and 1 are a group, and so are ranks 2 and 3. The clocks of ranks differ.
    """
    for rank, moments in arrivals.items():
        ahead = 10_000.0 * rank
        events = [step(number, ahead + 1000 * number, 1000) for number in range(1, 8)]
        events += [loader(ahead + 1000 * number + 10, 20) for number in range(1, 8)]
        for number, moment in enumerate(moments):
            end = 2000 + 1000 * number
            at, seq = ahead + end - moment, number if numbered else None
            events.append(of_group(at, moment, f"group {rank // 2}", seq))
        events.append(of_group(ahead + 7500, 10, f"group {rank // 2}", 9, "broadcast"))
        path = folder / f"rank{rank}.pt.trace.json"
        path.write_bytes(trace_of(*events, head=head_of(rank, 4, f"node-{rank}")))
    (run,) = read(str(folder))
    return run


#: How long before the end each rank arrives, in µs: rank 1 is last in three of four, rank 2 in all.
ARRIVALS = {
    0: [300.0, 300.0, 300.0, 50.0],
    1: [100.0, 100.0, 100.0, 300.0],
    2: [100.0, 100.0, 100.0, 100.0],
    3: [200.0, 200.0, 200.0, 200.0],
}


def test_the_rank_that_arrives_last_is_counted_by_group(tmp_path: Path) -> None:
    run = traced_run(tmp_path, ARRIVALS)
    counts = {}
    for rank, log in run.last_logs.items():
        reduced, sent = log.facts["collectives"]["waits"]
        assert (reduced["kind"], reduced["group"], reduced["waits"]) == ("all_reduce", "dp", 4)
        assert reduced["waited_us"] == sum(ARRIVALS[rank])
        # A broadcast does not end on all ranks together.
        assert (sent["kind"], "last" in sent) == ("broadcast", False)
        counts[rank] = reduced["matched"], reduced["last"]
        assert "numbered_collectives" not in log.facts
    assert counts == {0: (4, 1), 1: (4, 3), 2: (4, 4), 3: (4, 0)}
    (collective, _) = inside_collectives(run)
    assert (collective.last_rank, collective.last_share) == (2, 1.0)
    assert (collective.least_rank, collective.ranks) == (2, 4)


def test_no_rank_is_last_where_collectives_cannot_be_matched(tmp_path: Path) -> None:
    for name, arrivals, numbered in (
        ("without numbers", ARRIVALS, False),
        ("without ranks 1 and 3", {0: ARRIVALS[0], 2: ARRIVALS[2]}, True),
    ):
        folder = tmp_path / name
        folder.mkdir()
        for collective in inside_collectives(traced_run(folder, arrivals, numbered)):
            assert (collective.last_rank, collective.last_share) == (None, None)
            assert collective.ms > 0
