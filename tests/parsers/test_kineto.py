"""Traces of torch.profiler: real ones of two ranks that trained with DDP over Gloo, three steps each,
and of one process on an H200 with ten.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import shutil
from datetime import datetime
from pathlib import Path

import pytest
from support.step_logs import Job, run_of_job, write_job
from support.traces import event

from stallscope.analysis import analyse
from stallscope.errors import UnreadableError
from stallscope.parsers import read
from stallscope.parsers.formats.kineto.kineto_log import RankTrace, read_trace
from stallscope.parsers.inspection.inspect_files import inspect

TRACES = [Path(__file__).parent / "neighbours" / f"rank{rank}.pt.trace.json.gz" for rank in (0, 1)]
REAL = gzip.decompress(TRACES[0].read_bytes())
ON_A_GPU = gzip.decompress(
    (Path(__file__).parent / "neighbours" / "one-gpu.pt.trace.json.gz").read_bytes()
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for trace in TRACES:
        shutil.copy(trace, tmp_path)
    return tmp_path


def spans(name: str) -> list[tuple[float, float]]:
    """Return start and end in microseconds, as a JSON parser gives them."""
    events = [event for event in json.loads(REAL)["traceEvents"] if name in event.get("name", "")]
    return sorted((event["ts"], event["ts"] + event["dur"]) for event in events)


def trace_in(data: bytes) -> RankTrace:
    return read_trace("trace", io.BytesIO(data))


def test_steps_are_those_of_the_trace() -> None:
    trace = trace_in(REAL)
    spans_of = trace.spans
    assert (trace.rank, spans_of.size, spans_of.host, spans_of.whole) == (0, 2, "node-0", True)
    steps = trace.steps
    assert steps.number.tolist() == [2, 3, 4]
    # A float errs by up to two nanoseconds after weeks of uptime.
    for at, (begin, end) in enumerate(spans("ProfilerStep")):
        assert [steps.host_begin[at], steps.host_end[at]] == pytest.approx(
            [begin * 1e3, end * 1e3], abs=4
        )
    for at, (begin, end) in enumerate(spans("DataLoader")):
        assert [steps.begin[at], steps.data[at]] == pytest.approx([begin * 1e3, end * 1e3], abs=4)
        assert steps.loading[at] == steps.data[at] - steps.begin[at]
    for at, (_, end) in enumerate(spans("gloo:all_reduce")):
        assert steps.reduced[at] == pytest.approx(end * 1e3, abs=4)


def test_communication_is_exposed_where_no_operator_runs() -> None:
    steps = trace_in(REAL).steps
    main = next(
        event["tid"] for event in json.loads(REAL)["traceEvents"] if "Step" in event["name"]
    )
    operators = [
        (event["ts"], event["ts"] + event["dur"])
        for event in json.loads(REAL)["traceEvents"]
        if event.get("cat") == "cpu_op" and event["tid"] == main
    ]
    for at, (begin, end) in enumerate(spans("gloo:all_reduce")):
        assert steps.communicating[at] == pytest.approx((end - begin) * 1e3, abs=8)
        # In tenths of microseconds, one by one.
        busy = {at for low, high in operators for at in range(int(low * 10), int(high * 10))}
        exposed = sum(at not in busy for at in range(int(begin * 10), int(end * 10)))
        assert steps.exposed[at] == pytest.approx(exposed * 100, rel=0.01)
        assert steps.reduced[at] - steps.ready[at] == steps.exposed[at]


def test_alone_they_are_one_run(folder: Path) -> None:
    (run,) = read(str(folder))
    assert (run.ranks, run.size, run.hosts, run.status) == ([0, 1], 2, ["node-0"], "completed")
    assert run.started_at is not None
    assert run.started_at.isoformat().startswith("2026-11-21T22:50:04")
    assert run.steps["step"].to_pylist() == [2, 3, 4] * 2
    assert all(run.steps[name].null_count == 0 for name in ("data", "ready", "reduced"))
    assert not run.problems
    analysis = analyse(run)
    assert analysis.steps == 3
    assert [entry.name for entry in analysis.by_cause] == ["input", "compute", "other", "allreduce"]
    # Three steps are too few for a verdict on two ranks.
    assert analysis.bottleneck.kind == "insufficient_data"
    assert "2 steady steps" in analysis.bottleneck.evidence


def move(folder: Path, to: datetime) -> None:
    """Move the traces to another start."""
    (run,) = read(str(folder))
    assert run.started_at is not None
    by = round((to - run.started_at).total_seconds() * 1e9)
    for path in folder.glob("*.gz"):
        moved = re.sub(
            rb'(?<="baseTimeNanoseconds": )\d+',
            lambda match: b"%d" % (int(match[0]) + by),
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
        "collectives under way, 1.31 ms of it exposed"
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


def test_times_since_a_host_started_are_no_times_of_day(tmp_path: Path) -> None:
    data = re.sub(rb'"baseTimeNanoseconds": \d+', b'"baseTimeNanoseconds": 0', REAL)
    (tmp_path / "rank0.pt.trace.json").write_bytes(data)
    (run,) = read(str(tmp_path))
    assert run.started_at is None
    assert inspect(str(tmp_path)).runs[0].span is None


def test_steps_on_a_gpu_end_with_their_last_kernel() -> None:
    """In the profiler's spans of the device are neither backward's kernels nor those of spans within."""
    events = [event for event in json.loads(ON_A_GPU)["traceEvents"] if event.get("ph") == "X"]
    kernels = [event["ts"] + event["dur"] for event in events if event["cat"] == "kernel"]
    on_device = [event for event in events if event["cat"] == "gpu_user_annotation"]
    begins = sorted(event["ts"] for event in on_device if event["name"].startswith("ProfilerStep#"))
    updates = sorted(
        event["ts"] for event in on_device if event["name"].startswith("Optimizer.step#")
    )
    steps = trace_in(ON_A_GPU).steps
    assert steps.begin.tolist() == pytest.approx([1e3 * at for at in begins], abs=2)
    # In one process all gradients are ready when the optimizer begins.
    assert steps.ready.tolist() == pytest.approx([1e3 * at for at in updates], abs=2)
    last = [max(end for end in kernels if end <= begin) for begin in (*begins[1:], max(kernels))]
    assert steps.end.tolist() == pytest.approx([1e3 * at for at in last], abs=2)


def test_a_killed_ranks_trace_gives_its_complete_steps() -> None:
    half = trace_in(REAL[: REAL.index(b"ProfilerStep#4")])
    assert half.steps.number.tolist() == [2, 3]
    assert not half.spans.whole


def test_without_steps_it_says_what_to_do() -> None:
    data = b'{"schemaVersion": 1, "deviceProperties": [], "traceEvents": [%s]}'
    with pytest.raises(UnreadableError, match=r"trace: .* without steps: call prof\.step\(\)"):
        trace_in(data % event("aten::add", 1, 1, "cpu_op").encode())
