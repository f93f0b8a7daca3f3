"""Traces agree with the ledger, in both formats."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import simulator

from stallscope.analysis.ledger.build import build_ledger
from stallscope.analysis.steps.alignment import align
from stallscope.exports.exported_run import Selection
from stallscope.run import Run

from .decoding import NAMES, Decoded, decoded, expected, exported, packets_of, simulated

ALL = "run-a: all ranks"
BOTH = pytest.mark.parametrize(
    "name", [pytest.param("perfetto", marks=pytest.mark.extras), "chrome"]
)


def stages_of(trace: Decoded) -> dict[tuple[str, int], list[tuple[str, int, int]]]:
    return {
        (host, int(track.removeprefix("rank "))): [bar for bar in bars if bar[0] in NAMES]
        for (host, track), bars in trace.slices.items()
        if track.startswith("rank ")
    }


@BOTH
def test_every_slice_is_the_ledgers_to_the_nanosecond(name: str, tmp_path: Path) -> None:
    run = simulated()
    trace = decoded(run, name, tmp_path)
    wanted = expected(run)
    assert stages_of(trace) == wanted
    assert sum(map(len, wanted.values())) > 4 * 160 * 4
    assert trace.processes == [ALL, "host-0", "host-1"]
    assert trace.order == sorted(trace.order)


@BOTH
def test_slices_of_a_track_never_overlap(name: str, tmp_path: Path) -> None:
    job = simulator.Job(ranks=6, steps=120, epochs=3, ranks_per_host=2, validation_ms=50, skew=0.5)
    faults = {"lost_rows": 0.05, "cut_ranks": {5: 60}, "jitter_ms": 5.0}
    run = simulator.simulate(replace(job, **faults)).run  # type: ignore[arg-type]
    trace = decoded(run, name, tmp_path)
    for bars in trace.slices.values():
        assert all(begin < end for _, begin, end in bars)
        assert all(bar[2] <= next_bar[1] for bar, next_bar in pairwise(bars))
    assert trace.order == sorted(trace.order)
    assert trace.order[0] >= 0


@BOTH
def test_slices_have_step_epoch_length_and_lateness(name: str, tmp_path: Path) -> None:
    run = simulated()
    trace = decoded(run, name, tmp_path)
    ledger = build_ledger(align(run, 0))
    late = ledger.arrival - ledger.of("arrival", ledger.reference)[:, None]
    bars, args = trace.slices["host-1", "rank 2"], trace.args["host-1", "rank 2"]
    chosen = [arguments for bar, arguments in zip(bars, args, strict=True) if bar[0] == "Compute"]
    assert [arguments["step"] for arguments in chosen] == list(range(160))
    assert {arguments["epoch"] for arguments in chosen} == {0, 1}
    assert [arguments["ms"] for arguments in chosen] == [
        ns / 1e6 for ns in ledger.compute[:, 2].tolist()
    ]
    assert [arguments["lateness_ms"] for arguments in chosen] == [
        ns / 1e6 for ns in late[:, 2].tolist()
    ]


@BOTH
def test_steps_and_gaps_fill_the_run(name: str, tmp_path: Path) -> None:
    run = simulated()
    trace = decoded(run, name, tmp_path)
    bars, args = trace.slices[ALL, "Steps"], trace.args[ALL, "Steps"]
    ledger = build_ledger(align(run, 0))
    assert all(bar[2] == next_bar[1] for bar, next_bar in pairwise(bars))
    assert [bar[0] for bar in bars[80:84]] == [
        "Validation",
        "Checkpoints",
        "Between epochs",
        "Step 80",
    ]
    assert [bar[2] - bar[1] for bar in bars[80:83]] == ledger.gaps[80].tolist()
    steps = [
        arguments for bar, arguments in zip(bars, args, strict=True) if bar[0].startswith("Step ")
    ]
    assert [arguments["last_rank"] for arguments in steps] == ledger.critical.tolist()
    assert [arguments["lateness_ms"] for arguments in steps] == [
        ns / 1e6 for ns in ledger.imbalance.tolist()
    ]


@BOTH
def test_a_ranks_own_validation_and_checkpoints_are_on_its_track(name: str, tmp_path: Path) -> None:
    trace = decoded(simulated(checkpoint_ranks=(0,)), name, tmp_path)
    first = [bar for bar in trace.slices["host-0", "rank 0"] if bar[0] not in NAMES]
    second = [bar for bar in trace.slices["host-0", "rank 1"] if bar[0] not in NAMES]
    assert [bar[0] for bar in first] == ["Validation", "Checkpoints"] * 2
    assert [bar[0] for bar in second] == ["Validation"] * 2
    # Intervals after the last step belong to no gap and are whole.
    assert first[-1][2] - first[-1][1] == 100_000_000


@BOTH
def test_counters_and_change_points(name: str, tmp_path: Path) -> None:
    run = simulated()
    trace = decoded(run, name, tmp_path)
    ledger = build_ledger(align(run, 0))
    rates = [value for _, value in trace.counters["Samples per second"] if value]
    assert rates == pytest.approx([4 * 32 / ns * 1e9 for ns in ledger.total.tolist()])
    values = [value for _, value in trace.counters["Waiting for slow ranks"] if value]
    assert values == [ns / 1e6 for ns in ledger.imbalance.tolist()]
    # No rank makes progress during validation and after the end.
    assert [value for _, value in trace.counters["Samples per second"]].count(0) == 2
    ((label, time, args),) = trace.marks
    assert label == "Steps became slower"
    assert (args["step"], args["changed_most"], args["last_rank"]) == (
        80,
        "Waiting for slow ranks",
        2,
    )
    begins = {bar[0]: bar[1] for bar in trace.slices[ALL, "Steps"]}
    assert time == begins["Step 80"]


@BOTH
def test_a_part_has_the_times_of_the_whole(name: str, tmp_path: Path) -> None:
    run = simulated()
    part = decoded(run, name, tmp_path, Selection(40, 90, frozenset({1, 2})))
    (tmp_path / f"{name}.trace").unlink()
    whole = decoded(run, name, tmp_path)
    assert set(stages_of(part)) == {("host-0", 1), ("host-1", 2)}
    for place in part.slices:
        pairs = zip(whole.slices[place], whole.args[place], strict=True)
        chosen = [bar for bar, args in pairs if 40 <= args["step"] <= 90]
        assert part.slices[place] == chosen


@BOTH
def test_the_wall_time_of_the_start_is_recorded(name: str, tmp_path: Path) -> None:
    run = simulated()
    (log,) = [log for log in run.logs if log.rank == 0]
    began = min(align(run, 0).begin[0].tolist())
    assert decoded(run, name, tmp_path).wall_ns == began + log.wall_minus_monotonic


@BOTH
def test_without_stages_steps_are_shown_on_wall_time(name: str, tmp_path: Path) -> None:
    run = simulated(stamps=False)
    trace = decoded(run, name, tmp_path)
    assert set(trace.slices) == {(f"host-{rank // 2}", f"rank {rank}") for rank in range(4)}
    steps = {
        place: [bar for bar in bars if bar[0].startswith("Step ")]
        for place, bars in trace.slices.items()
    }
    assert {len(bars) for bars in steps.values()} == {160}
    # The clocks are seven seconds apart; the logs were opened at one wall time.
    begins = [bars[0][1] for bars in steps.values()]
    assert max(begins) - min(begins) < 1_000_000_000
    assert trace.order == sorted(trace.order)


@BOTH
def test_generations_follow_each_other_each_with_its_ranks(name: str, tmp_path: Path) -> None:
    first = simulated()
    one_host = {"ranks": 2, "clocks": simulator.Clocks(), "faults": []}
    later = simulated(generation=1, first_step=160, **one_host)
    trace = decoded(joined(first, later), name, tmp_path)
    assert stages_of(trace)["host-1", 3] == expected(first)["host-1", 3]
    bars = stages_of(trace)["host-0", 0]
    before, after = expected(first)["host-0", 0], expected(later)["host-0", 0]
    assert bars[: len(before)] == before
    moved = bars[len(before)][1] - after[0][1]
    assert [(n, b - moved, e - moved) for n, b, e in bars[len(before) :]] == after
    assert trace.order == sorted(trace.order)


@BOTH
def test_names_from_logs_are_only_names(name: str, tmp_path: Path) -> None:
    evil = '</script>"\\\n\u202e\ud800{"ph"'
    run = simulated(stamps=False, facts={"run_name": evil, "host": evil})
    trace = decoded(run, name, tmp_path)
    assert trace.processes == ['</script>"\\ \\u202e\\ud800{"ph": all ranks', trace.processes[1]]
    assert "\n" not in trace.processes[1]


def test_chrome_is_the_object_form_with_units_and_orders(tmp_path: Path) -> None:
    path = exported(simulated(), "chrome", tmp_path)
    document = json.loads(path.read_text("ascii"))
    assert document["displayTimeUnit"] == "ms"
    assert "time 0 is the start of the run's first step" in document["otherData"]["times"]
    events = document["traceEvents"]
    orders = [e["args"]["sort_index"] for e in events if e["name"] == "process_sort_index"]
    assert orders == [0, 1, 2]
    processes = {e["args"]["name"]: e["pid"] for e in events if e["name"] == "process_name"}
    threads = {
        e["args"]["name"]: (e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"
    }
    assert threads["rank 3"] == (processes["host-1"], 3)


def test_gzip_is_chosen_by_name_and_reproducible(tmp_path: Path) -> None:
    run = simulated()
    first = exported(run, "chrome", tmp_path, file="one.json.gz").read_bytes()
    second = exported(run, "chrome", tmp_path, file="two.json.gz").read_bytes()
    assert first[:2] == b"\x1f\x8b"
    assert first == second


@pytest.mark.extras
def test_perfetto_names_are_interned_and_tracks_have_their_order(tmp_path: Path) -> None:
    path = exported(simulated(), "perfetto", tmp_path)
    packets = list(packets_of(path))
    assert not any(packet.track_event.name for packet in packets)
    assert not any(a.name for packet in packets for a in packet.track_event.debug_annotations)
    described = [p.track_descriptor for p in packets if p.HasField("track_descriptor")]
    assert described[0].uuid == 0
    assert described[0].process_ordering == described[0].PROCESS_ORDERING_EXPLICIT
    processes = [descriptor for descriptor in described if descriptor.HasField("process")]
    assert [descriptor.sibling_order_rank for descriptor in processes] == [0, 1, 2]
    assert len({descriptor.uuid for descriptor in described}) == len(described)
    counters = {
        descriptor.name: descriptor.counter.unit_name
        for descriptor in described
        if descriptor.HasField("counter")
    }
    assert counters == {"Samples per second": "samples/s", "Waiting for slow ranks": "ms"}
    # Fewer bytes than a name and its arguments would take as text.
    events = sum(packet.HasField("track_event") for packet in packets)
    assert path.stat().st_size < 20 * events


def joined(first: Run, second: Run) -> Run:
    """Join two generations into one run."""
    import pyarrow as pa

    count = len(first.logs)

    def moved(table: pa.Table) -> pa.Table:
        at = table.schema.get_field_index("log")
        logs = pa.array([log + count for log in table["log"].to_pylist()], pa.int32())
        return table.set_column(at, "log", logs)

    return replace(
        first,
        logs=(*first.logs, *second.logs),
        steps=pa.concat_tables([first.steps, moved(second.steps)]),
        intervals=pa.concat_tables([first.intervals, moved(second.intervals)]),
    )
