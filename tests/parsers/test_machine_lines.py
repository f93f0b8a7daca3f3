"""Lines with the kernel's figures become series with a value for the time since the one before."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.step_logs import Job, write_job

from stallscope.parsers import read
from stallscope.parsers.formats.step_log.machine_lines import continued
from stallscope.run import Run, Series

COLUMNS = ["time_us", "cpu_ms", "resident_mb", "run_delay_ms", "host_cpu_ms", "eth0_sent_kb", "new"]
LINES = [
    b"#machine 1000000,,300,,,,7",
    b"#machine 2000000,500,301,,1900,2000,7",
    b"#machine 4000000,3000,302,600,,4000,7",
]


def run_with(folder: Path, lines: list[bytes], columns: Any = COLUMNS, **facts: Any) -> Run:
    job = Job(ranks=1, steps=20, facts={"machine_columns": columns, **facts})
    (path,) = write_job(folder, job)
    head, rest = path.read_bytes().split(b"step,0,", 1)
    path.write_bytes(head + b"".join(line + b"\n" for line in lines) + b"step,0," + rest)
    (run,) = read(str(folder))
    assert run.rows == 20
    return run


def of(run: Run, name: str) -> Series:
    (series,) = (series for series in run.series if series.name == name)
    return series


def seconds_of(run: Run, series: Series) -> list[float]:
    anchor = run.logs[0].anchor + run.logs[0].wall_minus_monotonic
    return [(wall - anchor) / 1e9 for wall in series.wall_ns.tolist()]


def test_growth_becomes_a_rate_and_levels_stay(tmp_path: Path) -> None:
    run = run_with(tmp_path, LINES)
    assert run.problems == ()
    assert of(run, "process_cpu").value.tolist() == [0.5, 1.5]
    assert seconds_of(run, of(run, "process_cpu")) == [2.0, 4.0]
    assert of(run, "process_memory").value.tolist() == [300.0, 301.0, 302.0]
    # This was read once only: over three seconds.
    assert of(run, "process_waiting_for_cores").value.tolist() == pytest.approx([0.2])
    assert of(run, "network_eth0_sent").value.tolist() == [2.0, 2.0]
    assert of(run, "network_eth0_sent").unit == "MB/s"
    # What is not known is left out.
    assert len(run.series) == 5


def test_joined_logs_keep_the_figures_of_all_ranks(tmp_path: Path) -> None:
    joined = b""
    for path in write_job(tmp_path / "apart", Job(ranks=2, facts={"machine_columns": COLUMNS})):
        head, rest = path.read_bytes().split(b"step,0,", 1)
        joined += head + b"".join(line + b"\n" for line in LINES) + b"step,0," + rest
    (tmp_path / "all.steps.csv").write_bytes(joined)
    (run,) = read(str(tmp_path / "all.steps.csv"))
    assert sorted(series.rank for series in run.series if series.name == "process_cpu") == [0, 1]


def test_figures_of_a_process_have_its_rank_and_those_of_a_host_do_not(tmp_path: Path) -> None:
    run = run_with(tmp_path, LINES)
    assert (of(run, "process_cpu").rank, of(run, "host_cpu").rank) == (0, None)
    assert {series.node for series in run.series} == {"alpha"}


def test_a_log_that_continues_a_file_begins_with_its_first_line(tmp_path: Path) -> None:
    # The first line has growth since a line of the file before.
    run = run_with(tmp_path, LINES[1:])
    assert of(run, "process_cpu").value.tolist() == [1.5]


@pytest.mark.parametrize(
    "torn",
    [
        b"#machine 3000000,1,2,3,4,5,6,7,8",
        b"#machine x",
        b"#machine ,1,2,3,4,5,6",
        b"#machine 1500000,nan,,,,,",
        b"#machine -600000000,1,2,3,4,5,6",
        # Before the line before it, and later than any job.
        b"#machine 900000,1,2,3,4,5,6",
        b"#machine 999999999999999999,1,2,3,4,5,6",
    ],
)
def test_torn_lines_are_counted_and_the_others_read(torn: bytes, tmp_path: Path) -> None:
    run = run_with(tmp_path, [LINES[0], torn, *LINES[1:]])
    (problem,) = run.problems
    assert problem.what == "1 torn or unreadable line of machine figures skipped"
    assert of(run, "process_cpu").value.tolist() == [0.5, 1.5]


@pytest.mark.parametrize(
    "columns", [None, "time_us", [], ["cpu_ms"], ["time_us", "a", "a"], [1, 2]]
)
def test_without_columns_there_are_no_series(columns: Any, tmp_path: Path) -> None:
    assert run_with(tmp_path, LINES, columns).series == ()


def test_a_value_that_no_system_has_is_left_out(tmp_path: Path) -> None:
    run = run_with(tmp_path, [*LINES[:2], b"#machine 4000000,999999999999999999,302,600,,4000,7"])
    assert of(run, "process_cpu").value.tolist() == [0.5]
    assert of(run, "process_memory").value.tolist() == [300.0, 301.0, 302.0]


def test_a_long_log_has_fewer_values_and_the_same_sums_and_means(tmp_path: Path) -> None:
    seconds = 3600
    lines = [
        b"#machine %d,%s,%d,,,,7"
        % (second * 10**6, b"%d" % (second % 700) if second else b"", second)
        for second in range(seconds + 1)
    ]
    run = run_with(tmp_path, lines)
    cpu, memory = of(run, "process_cpu"), of(run, "process_memory")
    assert len(cpu.value) == 900
    assert len(memory.value) == 901
    grown = sum(second % 700 for second in range(1, seconds + 1)) / 1000
    assert (cpu.value * 4).sum() == pytest.approx(grown)
    # The first line alone, and then four together.
    assert memory.value[:2].tolist() == [0.0, 2.5]
    assert memory.value[-1] == pytest.approx(seconds - 1.5)
    assert seconds_of(run, cpu)[:2] == [4.0, 8.0]


def test_a_series_that_grows_without_end_is_halved_and_keeps_its_mean() -> None:
    walls = np.arange(1, 2001, dtype=np.int64) * 10**9
    old = Series("process_cpu", "cores", "a", 0, "x", walls, np.full(2000, 1.0))
    more = np.arange(1999, 2101, dtype=np.int64) * 10**9
    (joined,) = continued((old,), (replace(old, wall_ns=more, value=np.full(102, 3.0)),))
    assert len(joined.value) == 1050
    assert joined.wall_ns[-1] == 2100 * 10**9
    assert joined.value.mean() == pytest.approx((2000 * 1.0 + 100 * 3.0) / 2100)
    # One that has no value in the last lines stays.
    assert continued((old,), ()) == (old,)
