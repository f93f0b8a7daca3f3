"""Measure the CPU time of reading traces: Horovod Timelines against json.load with pandas, and the
traces of PyTorch's profiler against json.load and HolisticTraceAnalysis.

Each way runs in its own process, and imports do not count. ``timelines.py`` writes and describes the
timeline. The trace has as many intervals; both tools find when each step's kernels and communication
ran, and json.load only reads it. Compiled readers of JSON need the whole trace in memory, and make an
object of each event: pysimdjson takes 1.5 times as long as the search in bytes, orjson 4 times.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import timelines
from figures import Figure, share_of, times_faster
from peers import PEERS, output_of

_HOLISTIC = """
import warnings, logging
warnings.simplefilter("ignore")
from hta.trace_analysis import TraceAnalysis
logging.disable(logging.WARNING)
def work():
    breakdown = TraceAnalysis(trace_dir=sys.argv[1]).get_temporal_breakdown(visualize=False)
    assert len(breakdown) == 1
    return 1
"""
_KINETO = """
from stallscope.parsers.formats.kineto.kineto_reader import read_spans
from stallscope.parsers.formats.kineto.kineto_steps import steps_of
def work():
    with open(sys.argv[1], "rb") as file:
        return len(steps_of(read_spans(file)))
"""
_JSON = """
def work():
    with open(sys.argv[1]) as file:
        return len(json.load(file)["traceEvents"])
"""
_LEAST_FASTER, _LEAST_FASTER_TRACE = 5, 10
# One in so many events marks a step, as in traces of PyTorch's profiler.
_EVENTS_PER_STEP = 500


def figures(quick: bool) -> list[Figure]:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "timeline.json"
        timelines.write(path, (10 if quick else 50) << 20)
        table_s, _, _ = timelines.measured(timelines._TABLE, path)
        own_s, own_mib, _ = timelines.measured(timelines._OURS, path)
        other_s, other_mib, events = timelines.measured(timelines._PANDAS, path)
        size = f"{path.stat().st_size / 1e6:.0f} MB of Horovod Timeline"
        intervals = int(events) // 2
        traces = Path(folder) / "traces"
        traces.mkdir()
        write_kineto(traces / "rank-0.json", intervals)
        traced_s, traced_mib, _ = timelines.measured(_KINETO, traces / "rank-0.json")
        loaded_s, _, _ = timelines.measured(_JSON, traces / "rank-0.json")
        program = timelines.BEFORE + _HOLISTIC + timelines.AFTER
        printed = output_of(["python", "-c", program, str(traces)], PEERS)
        holistic_s, holistic_mib, _ = json.loads(printed.splitlines()[-1])
    alternative, holistic = "json.load + pandas", "HolisticTraceAnalysis"
    trace = f"a trace of PyTorch's profiler, {intervals:,} intervals"
    return [
        times_faster(f"{size}: a table", table_s, "s", alternative, other_s, least=_LEAST_FASTER),
        times_faster(
            f"{size}: all of its steps and tensors",
            own_s,
            "s",
            alternative,
            other_s,
            least=_LEAST_FASTER,
        ),
        share_of(f"{size}: largest memory", own_mib, "MiB", alternative, other_mib),
        times_faster(
            trace,
            traced_s,
            "s",
            "json.load",
            loaded_s,
            least=_LEAST_FASTER_TRACE,
        ),
        times_faster(f"{trace}, against {holistic}", traced_s, "s", holistic, holistic_s),
        share_of(f"{trace}: memory", traced_mib, "MiB", holistic, holistic_mib),
    ]


def write_kineto(path: Path, intervals: int) -> None:
    """Write a trace like PyTorch's profiler's, of operators and the kernels that they launch."""
    world = {"backend": "nccl", "rank": 0, "world_size": 1}
    head = json.dumps({"schemaVersion": 1, "deviceProperties": [], "distributedInfo": world})
    # Event by event: the peak memory of a child includes its parent's size at the fork.
    with path.open("w") as file:
        file.write(f'{head[:-1]}, "traceEvents": [\n')
        for number, event in enumerate(kineto_events(intervals)):
            file.write(",\n" * (number > 0) + json.dumps(event))
        file.write("\n]}")


def kineto_events(intervals: int) -> Iterator[dict]:
    for number in range(intervals // 3):
        at, link = 1_000_000 + number * 30, {"correlation": number + 1, "External id": number + 1}
        if number % _EVENTS_PER_STEP == 0:
            step = f"ProfilerStep#{number // _EVENTS_PER_STEP}"
            yield complete("user_annotation", step, 1, 1, at, 29 * _EVENTS_PER_STEP, {})
        yield complete("cpu_op", "aten::addmm", 1, 1, at, 12, {"External id": number + 1})
        launch = {"cbid": 211, **link}
        yield complete("cuda_runtime", "cudaLaunchKernel", 1, 1, at + 4, 5, launch)
        kernel = {"stream": 7, "device": 0, **link}
        yield complete("kernel", "sgemm_128x64_nn", 0, 7, at + 8, 20, kernel)


def complete(
    category: str, name: str, process: int, thread: int, at: int, takes: int, args: dict
) -> dict:
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": process,
        "tid": thread,
        "ts": at,
        "dur": takes,
        "args": args,
    }
