"""Traces of DFTracer: real ones of two ranks with the decorators of version 2.2, and older forms."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest

from stallscope.analysis import analyse
from stallscope.errors import UnreadableError
from stallscope.parsers import read
from stallscope.parsers.formats.dftracer import DftracerParser
from stallscope.parsers.inspection.inspect_files import inspect
from stallscope.run import Run

TRACES = [Path(__file__).parent / "dftracer" / f"trace-{rank}-of-2.pfw" for rank in (0, 1)]
START = 1_698_080_323_000_000


def spans(name: str) -> list[tuple[int, int]]:
    """Return start and end of the spans of a name in rank 0's trace, as a JSON parser gives them."""
    events = [json.loads(line) for line in TRACES[0].read_text().splitlines()]
    return [(event["ts"], event["ts"] + event["dur"]) for event in events if event["name"] == name]


def line(name: str, at: int, length: int, *, pid: int = 0, tid: int = 0, **args: object) -> str:
    """Return a span as version 1 writes it."""
    event = {"id": 1, "name": name, "cat": "dlio", "pid": pid, "tid": tid}
    event |= {"ts": START + at, "dur": length, "ph": "X", "args": {"hostname": "node-1", **args}}
    return json.dumps(event, separators=(",", ":"))


def loop(
    steps: int, *, wait: str = "loop.iter", work: str = "loop.yield", at: int = 0, pid: int = 0
) -> list[str]:
    """Return steps of 10 ms, of which 3 ms are the wait for a batch."""
    lines: list[str] = []
    for step in range(steps):
        lines.append(line(wait, at + 10_000 * step, 3_000, pid=pid, step=step + 1))
        lines.append(line("read", at + 10_000 * step, 1_000, pid=pid, fname="/data/1"))
        lines.append(line(work, at + 10_000 * step + 3_001, 6_900, pid=pid, step=step + 1))
    return lines


def run_of(path: Path, lines: Iterable[str]) -> Run:
    path.write_text("[\n" + "\n".join(lines) + "\n]\n")
    (run,) = read(str(path))
    return run


def test_steps_and_their_waits_are_those_of_the_trace(tmp_path: Path) -> None:
    for trace in TRACES:
        shutil.copy(trace, tmp_path)
    (run,) = read(str(tmp_path))
    assert (run.ranks, run.size, run.hosts, run.status) == ([0, 1], 2, ["vm"], "completed")
    rows = [row for row in run.steps.to_pylist() if row["rank"] == 0]
    assert [row["step"] for row in rows] == list(range(10))
    assert [row["epoch"] for row in rows] == [0] * 5 + [1] * 5
    # The last wait of each epoch ends the loop.
    waits, works = spans("fetch.iter"), spans("fetch.block")
    assert [(row["begin"], row["data"]) for row in rows] == [
        (begin * 1000, end * 1000) for begin, end in waits[:10]
    ]
    assert [row["end"] for row in rows] == [end * 1000 for _, end in works]
    assert {row["ready"] for row in rows} == {row["reduced"] for row in rows} == {None}
    epochs = [row for row in run.intervals.to_pylist() if row["kind"] == "epoch"]
    assert [(row["rank"], row["epoch"], row["step"]) for row in epochs] == [
        *((0, 0, 5), (0, 1, 10)),
        *((1, 0, 5), (1, 1, 10)),
    ]
    assert str(run.started_at).startswith("2026-11-26 03:22:58")


def test_ranks_are_analysed_together(tmp_path: Path) -> None:
    for rank in (0, 1):
        path = tmp_path / f"trace-{rank}-of-2.pfw"
        path.write_text("[\n" + "\n".join(loop(300, pid=rank)) + "\n]\n")
    (run,) = read(str(tmp_path))
    step = analyse(run).step
    assert step is not None
    assert step.mean == pytest.approx(10.0, abs=0.1)


def test_it_is_inspected_and_may_be_compressed(tmp_path: Path) -> None:
    for trace in TRACES:
        (tmp_path / f"{trace.name}.gz").write_bytes(gzip.compress(trace.read_bytes()))
    seen = inspect(str(tmp_path))
    assert [(file.format, file.ranks, file.steps) for file in seen.files] == [
        ("dftracer", (0,), 10),
        ("dftracer", (1,), 10),
    ]


@pytest.mark.parametrize(
    ("wait", "work"),
    [
        ("loop.iter", "loop.yield"),
        ("fetch.iter", "fetch.block"),
        ("TorchDataLoader.next", "TorchFramework.compute"),
        ("dataloader.fetch", "train_step"),
        ("load_batch", "Trainer.training_step"),
    ],
)
def test_loops_and_alternating_spans_make_steps(wait: str, work: str, tmp_path: Path) -> None:
    run = run_of(tmp_path / "trace-3-of-8.pfw", loop(5, wait=wait, work=work))
    assert (run.ranks, run.size) == ([3], 8)
    assert [
        (row["begin"] // 1000 - START, row["data"] // 1000 - START, row["end"] // 1000 - START)
        for row in run.steps.to_pylist()
    ] == [(10_000 * at, 10_000 * at + 3_000, 10_000 * at + 9_901) for at in range(5)]


def test_spans_that_do_not_alternate_make_none(tmp_path: Path) -> None:
    lines = loop(5, wait="fetch", work="compute")
    lines += [line("fetch", 10_000 * at + 4_000, 10) for at in range(3)]
    with pytest.raises(UnreadableError, match="without a loop over batches"):
        run_of(tmp_path / "a.pfw", lines)
    other_thread = [
        span.replace('"tid":0', '"tid":7') if "compute" in span else span for span in lines
    ]
    with pytest.raises(UnreadableError, match="without a loop over batches"):
        run_of(tmp_path / "a.pfw", other_thread)


def test_a_trace_without_steps_says_what_it_contains(tmp_path: Path) -> None:
    lines = [line("read", at, 100_000) for at in range(20)] + [line("open64", 0, 50)]
    with pytest.raises(
        UnreadableError, match=r"its spans: read \(20 in 2 s\), open64 \(1 in 5e-05 s\)"
    ):
        run_of(tmp_path / "a.pfw", lines)


def test_evaluations_are_no_steps_of_training(tmp_path: Path) -> None:
    lines = [*loop(6), line("DLIOBenchmark._eval", 60_000, 50_000), *loop(4, at=61_000)]
    lines += [line("DLIOBenchmark._eval.inner.test", 62_000, 100), *loop(6, at=120_000)]
    run = run_of(tmp_path / "a.pfw", lines)
    assert run.rows == 12
    (validation,) = [row for row in run.intervals.to_pylist() if row["kind"] == "validation"]
    assert validation["end"] - validation["begin"] == 50_000_000
    assert validation["step"] == 6
    # A program that is called so is no evaluation.
    whole = [line("test", 0, 10_000_000), *loop(6)]
    assert run_of(tmp_path / "a.pfw", whole).rows == 6


def test_numbers_may_be_texts_and_of_other_units(tmp_path: Path) -> None:
    texts = [
        span.replace('"pid":0', '"pid":"1338896"')
        .replace(f'"ts":{START // 10**6}', f'"ts":"{START // 10**6}')
        .replace(',"dur":', '","dur":"')
        .replace(',"ph"', '","ph"')
        for span in loop(3)
    ]
    assert json.loads(texts[0])["dur"] == "3000"
    run = run_of(tmp_path / "a.pfw", texts)
    assert run.rows == 3
    metric = (
        '{"name":"CM","cat":"dftracer","pid":0,"tid":0,"ph":"M","args":{"name":"time_metric",'
        '"value":"NS"}}'
    )
    nanoseconds = run_of(tmp_path / "a.pfw", [metric, *loop(3)])
    first = nanoseconds.steps.to_pylist()[0]
    assert first["data"] - first["begin"] == 3_000


def test_processes_of_one_file_are_ranks(tmp_path: Path) -> None:
    said = [
        f'{{"name":"PR","cat":"dftracer","pid":{pid},"tid":0,"ph":"M","args":{{"name":"rank",'
        f'"value":"{rank}"}}}}'
        for pid, rank in ((700, 1), (900, 0))
    ]
    loops = loop(3, pid=700) + loop(3, pid=900)
    run = run_of(tmp_path / "a.pfw", [*said, *loops])
    assert (run.ranks, run.problems) == ([0, 1], ())
    unknown = run_of(tmp_path / "a.pfw", loops)
    assert unknown.ranks == [0, 1]
    assert "has no ranks of its processes" in str(unknown.problems[0])


def test_a_killed_process_has_the_steps_that_it_has_ended(tmp_path: Path) -> None:
    text = "[\n" + "\n".join(loop(5))
    (tmp_path / "a.pfw").write_text(text[:-40])
    (run,) = read(str(tmp_path))
    assert (run.rows, run.status) == (4, "open")


@pytest.mark.parametrize(
    "damage",
    [
        line("x" * 5_000 + ".iter", 0, 1),
        line("loop.iter", 10**19, 1),
        line("loop.iter", 0, 10**19),
        '{"id":1,"name":"' + "fetch." * 5_000,
        "[" * 100_000,
    ],
)
def test_damage_changes_nothing(damage: str, tmp_path: Path) -> None:
    run = run_of(tmp_path / "a.pfw", [*loop(5), damage])
    assert run.rows == 5


def test_many_names_are_paired_in_time_that_grows_with_them() -> None:
    lines = [line(f"{kind}{at}.{name}", at, 1) for at in range(3_000) for kind, name in PAIRS]
    with pytest.raises(UnreadableError, match="without a loop"):
        DftracerParser().parse("it", "\n".join(lines).encode())


PAIRS = (("a", "fetch"), ("b", "compute"))


def test_the_wait_for_batches_has_its_share(tmp_path: Path) -> None:
    """Steps of 10 ms, of which 4 ms are the wait; the trace knows nothing of gradients."""
    lines = []
    for step in range(60):
        begin = 10_000 * step
        lines += [
            line("fetch.iter", begin, 4_000, epoch=0, step=step),
            line("fetch.block", begin + 4_000, 6_000, epoch=0, step=step),
        ]
    (tmp_path / "a.pfw").write_text("[\n" + "\n".join(lines) + "\n]\n")
    (run,) = read(str(tmp_path))
    analysis = analyse(run)
    printed = analysis.printed
    assert printed is not None
    assert printed.input_share is not None
    assert printed.input_share.value == pytest.approx(0.4, abs=0.01)
    assert analysis.bottleneck.kind == "input"
    assert analysis.step is not None
    assert analysis.step.mean == pytest.approx(10, rel=0.01)
