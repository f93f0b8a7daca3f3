"""Traces of torch.profiler: real ones of two ranks that trained with DDP over Gloo, three steps each."""

from __future__ import annotations

import gzip
import json
import re
import shutil
from datetime import datetime
from pathlib import Path

import pytest
from support.step_logs import Job, run_of_job, write_job

from stallscope.analysis import analyse
from stallscope.errors import UnreadableError
from stallscope.parsers import read
from stallscope.parsers.inspection import inspect
from stallscope.parsers.kineto import Span, Trace, read_trace

TRACES = [Path(__file__).parent / "neighbours" / f"rank{rank}.pt.trace.json.gz" for rank in (0, 1)]
REAL = gzip.decompress(TRACES[0].read_bytes())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for trace in TRACES:
        shutil.copy(trace, tmp_path)
    return tmp_path


def spans(name: str) -> list[tuple[float, float]]:
    """Return start and end in microseconds, as a JSON parser gives them."""
    events = [event for event in json.loads(REAL)["traceEvents"] if name in event.get("name", "")]
    return sorted((event["ts"], event["ts"] + event["dur"]) for event in events)


def test_steps_are_those_of_the_trace() -> None:
    trace = read_trace("trace", REAL)
    assert (trace.rank, trace.size, trace.host, trace.whole) == (0, 2, "node-0", True)
    assert [step.number for step in trace.steps] == [2, 3, 4]
    for found, (begin, end) in zip(trace.steps, spans("ProfilerStep"), strict=True):
        # A float errs by up to two nanoseconds after weeks of uptime.
        assert found.span == pytest.approx((begin * 1e3, end * 1e3), abs=4)
    for found, (begin, end) in zip(trace.steps, spans("DataLoader"), strict=True):
        assert found.loaders[0] == pytest.approx((begin * 1e3, end * 1e3), abs=4)


def test_communication_is_counted_once_and_within_its_step() -> None:
    trace = read_trace("trace", REAL)
    for found, (begin, end) in zip(trace.steps, spans("ProfilerStep"), strict=True):
        own = sum(
            max(0, min(end, until) - max(begin, since)) for since, until in spans("gloo:all_reduce")
        )
        assert found.communication == pytest.approx(own * 1e3, abs=8)


def test_alone_they_are_one_run(folder: Path) -> None:
    (run,) = read(str(folder))
    assert (run.ranks, run.size, run.hosts, run.status) == ([0, 1], 2, ["node-0"], "completed")
    assert run.started_at is not None
    assert run.started_at.isoformat().startswith("2026-11-21T22:50:04")
    assert run.steps["step"].to_pylist() == [2, 3, 4] * 2
    assert run.steps["data"].null_count == 0
    assert run.steps["ready"].null_count == run.steps["reduced"].null_count == 6
    assert not run.problems
    analysis = analyse(run)
    assert analysis.bottleneck.kind == "insufficient_data"
    assert analysis.step is None or analysis.step.mean > 0


def move(folder: Path, to: datetime) -> None:
    """Move the traces to another start."""
    (run,) = read(str(folder))
    assert run.started_at is not None
    by = round((to - run.started_at).total_seconds() * 1e9)
    for path in folder.glob("*.gz"):
        moved = re.sub(
            rb'(?<="baseTimeNanoseconds": )\d+',
            lambda found: b"%d" % (int(found[0]) + by),
            gzip.decompress(path.read_bytes()),
        )
        path.write_bytes(gzip.compress(moved))


def test_next_to_step_logs_of_another_time_they_are_reported(folder: Path) -> None:
    run = run_of_job(folder, Job(ranks=2, steps=50))
    assert run.events == ()
    assert [problem.what[:45] for problem in run.problems] == [
        "describes events outside the run's time: 3 ev"
    ] * 2


def test_next_to_step_logs_they_become_events(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    alone = tmp_path_factory.mktemp("alone")
    write_job(alone, Job(ranks=2, steps=50))
    (job,) = read(str(alone))
    assert job.started_at is not None
    move(folder, job.started_at)
    run = run_of_job(folder, Job(ranks=2, steps=50))
    assert run.steps.num_rows == 100
    assert [event.kind for event in run.events] == ["profiled_step"] * 6
    first = run.events[0]
    assert first.ranks == (0,)
    assert first.hosts == ("node-0",)
    assert first.what == (
        "torch.profiler traced its step 2: 2.36 ms, 0.131 ms in DataLoaders, 1.32 ms with "
        "collectives under way"
    )
    assert first.waited_ns == 2_357_380


def test_inspect_names_them(folder: Path) -> None:
    seen = inspect(str(folder))
    assert [(file.format, file.ranks, file.steps) for file in seen.files] == [
        ("kineto", (0,), 3),
        ("kineto", (1,), 3),
    ]
    assert all(file.used and file.span for file in seen.files)
    (run,) = seen.runs
    assert (run.size, run.steps) == (2, 3)


def test_a_killed_ranks_trace_gives_its_complete_steps() -> None:
    half = read_trace("trace", REAL[: REAL.index(b"ProfilerStep#4")])
    assert [step.number for step in half.steps] == [2, 3]
    assert not half.whole


def trace(*events: str, head: str = '"deviceProperties": [],') -> Trace:
    text = ",\n".join(events)
    return read_trace("trace", f'{{"schemaVersion": 1, {head} "traceEvents": [{text}]}}'.encode())


def event(name: str, ts: float, dur: float, kind: str = "user_annotation") -> str:
    what = f'"cat": "{kind}", "name": "{name}"'
    return f'{{"ph": "X", {what}, "pid": 0, "tid": 7, "ts": {ts}, "dur": {dur}}}'


LOADER = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


def test_kernels_of_nccl_count_and_not_their_launches() -> None:
    found = trace(
        event("ProfilerStep#1", 1000, 1000),
        event("ProfilerStep#1", 1100, 950, "gpu_user_annotation"),
        event("nccl:all_reduce", 1000, 900),
        event("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)", 1500, 100, "kernel"),
        event("nccl:all_reduce", 1490, 120, "gpu_user_annotation"),
        event("ncclKernel_AllReduce_RING_LL_Sum_float", 1900, 400, "kernel"),
    )
    assert found.steps[0].span == Span(1_000_000, 2_000_000)
    assert found.steps[0].communication == 220_000


@pytest.mark.parametrize(
    ("loaders", "known"),
    [([(1010, 5)], True), ([], False), ([(1010, 5), (1500, 5)], False), ([(990, 20)], False)],
)
def test_the_batchs_time_is_known_of_one_loader_only(
    tmp_path: Path, loaders: list[tuple[float, float]], known: bool
) -> None:
    events = [event("ProfilerStep#1", 1000, 1000), *(event(LOADER, *one) for one in loaders)]
    text = f'{{"schemaVersion": 1, "deviceProperties": [], "traceEvents": [{",".join(events)}]}}'
    (tmp_path / "rank3.pt.trace.json").write_text(text)
    (run,) = read(str(tmp_path))
    assert run.ranks == [3]
    assert run.steps["data"].to_pylist() == [1_015_000 if known else None]


def test_without_communication_there_is_none() -> None:
    assert trace(event("ProfilerStep#1", 1000, 1000)).steps[0].communication is None


def test_without_steps_it_says_what_to_do() -> None:
    with pytest.raises(UnreadableError, match=r"trace: .* without steps: call prof\.step\(\)"):
        trace(event("aten::add", 1, 1, "cpu_op"))
