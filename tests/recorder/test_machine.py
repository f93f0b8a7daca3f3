"""The kernel's figures of a process and its host become lines of the log; others are left out."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from support.needing import need
from support.waiting import PATIENCE_SECONDS, wait_until

from stallscope.collector.recorder.job.world import World
from stallscope.collector.recorder.machine import host
from stallscope.collector.recorder.machine import monitor as machine_monitor
from stallscope.collector.recorder.machine.connections import (
    Connections,
    _by_ends,
    _Connection,
    _Counts,
)
from stallscope.collector.recorder.machine.host import FigureColumn, FigureSource
from stallscope.collector.recorder.machine.monitor import Monitor
from stallscope.collector.recorder.options import Options
from stallscope.collector.recorder.session import Session
from stallscope.collector.recorder.step_log.line_format import MachineRow, RowFormatter
from stallscope.parsers import read

SECOND = 1_000_000_000
OF_HOST = {"host_cpu_ms", "stolen_ms", "cpu_pressure_ms", "retransmitted"}


def cells(monitor: Monitor, now: int, **more: bool) -> dict[str, str]:
    row = monitor.row(now, **more)
    assert row is not None
    line = RowFormatter(0, 0).machine(row)
    assert line.startswith("#machine ")
    assert line.endswith("\n")
    values = line.removeprefix("#machine ").strip().split(",")
    return dict(zip(monitor.columns, values, strict=True))


def test_lines_have_what_grew_since_the_line_before() -> None:
    monitor = Monitor(local_rank=0)
    first = cells(monitor, 2 * SECOND)
    # Growth counts from here; levels are known.
    assert (first["time_us"], first["cpu_ms"]) == ("2000000", "")
    assert int(first["resident_mb"]) > 1
    end = time.process_time() + 0.05
    while time.process_time() < end:
        pass
    second = cells(monitor, 3 * SECOND)
    assert 45 <= int(second["cpu_ms"]) < 1000
    assert int(second["host_cpu_ms"]) >= 0
    assert int(second["minor_faults"]) >= 0


def test_nothing_is_lost_to_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    value = iter(range(0, 100_000, 333))
    source = FigureSource((FigureColumn("some_ms", divisor=1000),), lambda: [next(value)])
    monkeypatch.setattr(host, "sources", lambda: [source])
    monkeypatch.setattr(host, "sources_of_cgroup", list)
    monitor = Monitor(local_rank=1)
    grown = [cells(monitor, at * SECOND)["some_ms"] for at in range(101)]
    assert grown[0] == ""
    assert sum(map(int, grown[1:])) == 100 * 333 // 1000


def test_there_is_a_line_a_second_and_one_at_the_end() -> None:
    monitor = Monitor(local_rank=1)
    assert monitor.row(0) is not None
    assert monitor.row(SECOND // 2) is None
    # A flush may come a moment early.
    assert monitor.row(SECOND - SECOND // 100) is not None
    assert monitor.row(SECOND + SECOND // 4) is None
    assert monitor.row(SECOND + SECOND // 4, at_the_end=True) is not None


def test_one_rank_of_a_host_writes_the_hosts_figures() -> None:
    assert set(Monitor(local_rank=0).columns) >= OF_HOST
    assert not set(Monitor(local_rank=1).columns) & OF_HOST


def test_what_a_system_does_not_offer_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing() -> FigureSource:
        raise FileNotFoundError("/proc")

    for module, name in ((host, "_disk"), (host, "_usage"), (host, "_cores")):
        monkeypatch.setattr(module, name, nothing)
    columns = Monitor(local_rank=0).columns
    assert not {"read_kb", "cpu_ms", "host_cpu_ms"} & set(columns)
    assert {"resident_mb", "retransmitted"} <= set(columns)


def test_a_figure_that_has_gone_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    values: Iterator[list[int | None]] = iter([[1, 5], [4, None]])
    source = FigureSource((FigureColumn("a"), FigureColumn("b", grows=False)), lambda: next(values))
    monkeypatch.setattr(host, "sources", lambda: [source])
    monkeypatch.setattr(host, "sources_of_cgroup", list)
    monitor = Monitor(local_rank=1)
    assert cells(monitor, 0) == {"time_us": "0", "a": "", "b": "5"}
    assert cells(monitor, SECOND) == {"time_us": "1000000", "a": "3", "b": ""}
    # From here on the source raises.
    assert cells(monitor, 2 * SECOND) == {"time_us": "2000000", "a": "", "b": ""}


def test_what_is_slow_to_read_is_read_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    reads = 0

    def slowly() -> list[int | None]:
        nonlocal reads
        reads += 1
        end = time.thread_time_ns() + 5_000_000
        while time.thread_time_ns() < end:
            pass
        return [reads]

    source = FigureSource((FigureColumn("count", grows=False),), slowly, is_slow=True)
    monkeypatch.setattr(host, "sources", lambda: [source])
    monkeypatch.setattr(host, "sources_of_cgroup", list)
    monitor = Monitor(local_rank=1)
    counts = [cells(monitor, at * SECOND)["count"] for at in range(30)]
    # 5 ms are a half per mille of ten seconds.
    assert 2 <= reads <= 3
    assert [count for count in counts if count] == [str(at + 1) for at in range(reads)]
    cells(monitor, 30 * SECOND, at_the_end=True)
    assert reads in (3, 4)


@pytest.mark.parametrize(
    ("text", "files", "expected"),
    [
        ("0::/job/rank\n", ["job/rank/cpu.stat"], {"": "job/rank"}),
        # A container sees its own group as the root.
        ("0::/job/rank\n", ["cpu.stat"], {"": "."}),
        (
            "5:memory:/x\n2:cpu,cpuacct:/job\n0::/\n",
            ["cpu,cpuacct/job/cpu.stat", "unified/cpu.stat"],
            {"cpu": "cpu,cpuacct/job", "": "unified"},
        ),
        ("1:name=systemd:/\n", ["cpu.stat"], {}),
    ],
)
def test_control_groups_are_found(
    text: str,
    files: list[str],
    expected: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in files:
        path = tmp_path / "cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (tmp_path / "self").write_text(text)
    monkeypatch.setattr(host, "_CGROUPS", str(tmp_path / "cgroup"))
    monkeypatch.setattr(host, "_OWN_GROUPS", tmp_path / "self")
    folders = {key: Path(path) for key, path in host.cgroup_folders().items()}
    assert folders == {key: tmp_path / "cgroup" / path for key, path in expected.items()}


def connection(peer: str, sent: int, busy_ms: int, trip_us: int = 100) -> _Connection:
    return _Connection("10.0.0.1", peer, _Counts(sent, busy_ms * 1000, 0, 0), trip_us, 50)


def test_connections_to_one_host_count_together() -> None:
    gradients, messages = connection("10.0.0.2", 9_000_000, 800), connection("10.0.0.2", 500, 9000)
    second_link = connection("10.0.0.3", 1_000_000, 100)
    connections = _by_ends([messages, gradients, second_link])
    total = connections["10.0.0.1", "10.0.0.2"]
    # Messages wait for each other, which tells nothing of the link.
    assert (total.counts.sent, total.counts.busy_us) == (9_000_500, 800_000)
    assert connections["10.0.0.1", "10.0.0.3"] == second_link


def test_a_rate_is_of_the_time_in_which_only_the_link_was_in_the_way() -> None:
    before = connection("10.0.0.2", 1_000_000, 100)
    counts = _Counts(5_000_000, 900_000, 300_000, 0)
    assert before._replace(counts=counts).since(before).rate == 4_000_000 / 500
    assert before.since(before).rate is None
    # The kernel has counted no time for four megabytes: it was less than ten milliseconds.
    fast = before._replace(counts=_Counts(5_000_000, 100_000, 0, 0))
    assert fast.since(before).rate == 4_000_000 / 10


def test_the_rate_is_of_the_connection_that_sends_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group of ranks that no longer communicates has sent more in total, and stays open."""
    connections = Connections()
    earlier, peer = connection("10.0.0.2", 50_000_000, 700, trip_us=90), "10.0.0.2"
    looks = iter(range(1, 8))

    def look() -> None:
        sent = next(looks) * 1_000_000
        now = connection(peer, sent, sent // 2000, trip_us=5_000 + sent // 1000)
        connections._open = {(3, "a", "b"): earlier, (4, "a", "c"): now}

    monkeypatch.setattr(connections, "_look", look)
    for _ in range(7):
        connections.look()
    (row,) = connections.totals()
    # The first of these looks also has what was sent before.
    assert row["rate_kb_s"][:2] == [2000, 2000]
    assert row["round_trip_us"] == [7_000, 9_000, 11_000]
    assert row["sent_kb"] == 57_000


def test_a_process_without_connections_to_other_hosts_has_none() -> None:
    connections = Connections()
    connections.look()
    assert connections.totals() == []


def test_a_session_writes_lines_that_become_series(tmp_path: Path) -> None:
    session = Session(Options(tmp_path, flush_seconds=0.05), World(0, 1, None), {}, 0)
    path = session.path
    assert path is not None
    wait_until(lambda: path.read_text().count("#machine ") >= 3, "three lines")
    session.close()
    (run,) = read(str(tmp_path))
    assert not run.problems
    series = {measured.name: measured for measured in run.series}
    assert {"process_cpu", "process_memory", "host_cpu"} <= set(series)
    assert series["process_cpu"].rank == 0
    assert series["host_cpu"].rank is None
    anchor = run.logs[0].facts["anchor"]["wall_ns"]
    assert anchor < series["process_memory"].wall_ns[0] <= anchor + 60 * SECOND
    # No line is longer than the bytes that a second may cost.
    assert max(len(line) for line in path.read_text().splitlines() if "#machine" in line) < 200


# In a process of its own: objects of other tests may close their files meanwhile.
_OPENED_AND_CLOSED = """
import sys
from pathlib import Path
from support.waiting import wait_until
from stallscope.collector.recorder.job.world import World
from stallscope.collector.recorder.options import Options
from stallscope.collector.recorder.session import Session

def descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))

before = descriptors()
for number in range(3):
    options = Options(Path(sys.argv[1], str(number)), flush_seconds=0.05)
    session = Session(options, World(0, 1, None), {}, 0)
    wait_until(lambda: "#machine " in session.path.read_text(), "a line")
    assert descriptors() > before + 5
    session.close()
    # The thread that looks at locks closes its own when it ends.
    wait_until(lambda: descriptors() == before, "all files closed")
print("closed")
"""


def test_a_closed_session_leaves_no_file_open(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _OPENED_AND_CLOSED, str(tmp_path)]
    tests = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    ended = subprocess.run(
        command, env=tests, capture_output=True, text=True, timeout=PATIENCE_SECONDS
    )
    assert ended.stdout == "closed\n", ended.stderr


def test_a_session_that_fails_ends_what_its_monitor_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = threading.Event()
    monkeypatch.setattr(Monitor, "close", lambda _: ended.set())
    session = Session(Options(tmp_path, flush_seconds=0.05), World(0, 1, None), {}, 0)
    path = session.path
    assert path is not None
    wait_until(partial(_has_figures, path), "a line")
    session.fail("broken")
    wait_until(ended.is_set, "the monitor's end")


def test_figures_that_wait_while_the_log_continues_in_another_file_have_its_times(
    tmp_path: Path,
) -> None:
    options = Options(tmp_path, flush_seconds=3600, max_file_mb=1e-6, machine=False)
    session = Session(options, World(0, 1, None), {}, 0)
    session.facts({"machine_columns": ["time_us", "resident_mb"]})
    earlier = time.monotonic_ns()
    session.flush()
    for number in range(2):
        session._rows.append(MachineRow(earlier + number, "300"))
        session.flush()
    session.close()
    (run,) = read(str(tmp_path))
    assert len(run.logs) == 4
    assert run.problems == ()
    walls = sorted(wall for series in run.series for wall in series.wall_ns.tolist())
    offset = run.logs[0].wall_minus_monotonic
    assert [abs(wall - offset - earlier) < SECOND for wall in walls] == [True, True]


def _has_figures(path: Path) -> bool:
    return "#machine " in path.read_text()


def test_without_the_option_there_is_no_line(tmp_path: Path) -> None:
    session = Session(
        Options(tmp_path, flush_seconds=0.05, machine=False), World(0, 1, None), {}, 0
    )
    path = session.path
    assert path is not None
    session.facts({"late": 1})
    wait_until(lambda: "late" in path.read_text(), "a flush")
    session.close()
    assert "machine" not in path.read_text()


STAND_IN = """
typedef unsigned long long ull;
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
    *handle = (void *)(long)(index + 1);
    return index < 4 ? 0 : 2;
}
int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle) { *handle = (void *)9; return 0; }
int nvmlDeviceGetUtilizationRates(void *handle, unsigned *rates) { rates[0] = 87; return 0; }
int nvmlDeviceGetMemoryInfo(void *handle, ull *info) { info[2] = 1234567890; return 0; }
int nvmlDeviceGetClockInfo(void *handle, int kind, unsigned *clock) {
    *clock = 1000 + (unsigned)(long)handle;
    return kind == 1 ? 0 : 2;
}
/* The power cap, and of the third GPU heat; the fourth one does not tell. */
int nvmlDeviceGetCurrentClocksThrottleReasons(void *handle, ull *reasons) {
    *reasons = (long)handle == 3 ? 0x20 : 0x04;
    return (long)handle == 4 ? 3 : 0;
}
"""
PROGRAM = """
import sys, threading
from stallscope.collector.recorder.machine.monitor import Monitor
monitor = Monitor(int(sys.argv[1]))
print(dict(zip(monitor.columns, ["0", *monitor.row(0).cells.split(",")])))
monitor.close()
for thread in threading.enumerate():
    if thread.name == "stallscope-gpu":
        thread.join()
"""


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library with the driver's functions: there is no GPU here."""
    compiler = shutil.which("cc")
    need(compiler, "there is no C compiler for a stand-in of NVIDIA's library: install gcc")
    assert compiler is not None
    folder = tmp_path_factory.mktemp("driver")
    (folder / "nvml.c").write_text(STAND_IN)
    library = folder / "libnvidia-ml.so.1"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-w", "-o", str(library), str(folder / "nvml.c")], check=True
    )
    return folder


@pytest.mark.parametrize(
    ("rank", "visible", "expected"),
    [
        (0, None, ["87", "1234", "1001", "1", "0"]),
        (2, None, ["87", "1234", "1003", "0", "1"]),
        (1, "3", ["87", "1234", "1004", "", ""]),
        (1, "2, 0", ["87", "1234", "1001", "1", "0"]),
        (0, "GPU-1b2c", ["87", "1234", "1009", "1", "0"]),
        # There is no such GPU, or none is visible.
        (7, None, None),
        (0, "", None),
    ],
)
def test_the_driver_tells_of_the_ranks_own_gpu(
    rank: int, visible: str | None, expected: list[str] | None, driver: Path
) -> None:
    env = {**os.environ, "LD_LIBRARY_PATH": str(driver)}
    env.pop("CUDA_VISIBLE_DEVICES", None)
    if visible is not None:
        env["CUDA_VISIBLE_DEVICES"] = visible
    words = [sys.executable, "-c", PROGRAM, str(rank)]
    figures = ast.literal_eval(
        subprocess.run(
            words, env=env, capture_output=True, text=True, check=True, timeout=PATIENCE_SECONDS
        ).stdout
    )
    names = ["gpu_percent", "gpu_memory_mb", "gpu_clock_mhz", "gpu_power_cap", "gpu_heat"]
    assert ([figures[name] for name in names] if names[0] in figures else None) == expected


def test_an_answer_that_does_not_come_any_more_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    stuck, answers = threading.Event(), iter([[87], [88]])

    def ask() -> list[int | None]:
        figures: list[int | None] = list(next(answers, []))
        if not figures:
            stuck.wait()
        return figures

    monkeypatch.setattr(machine_monitor, "_EVERY_SECONDS", 0.001)
    latest = machine_monitor._Latest(ask)
    wait_until(lambda: latest.read() == [88], "the second answer")
    monkeypatch.setattr(machine_monitor, "_FRESH_SECONDS", 0.0)
    assert latest.read() == [None]
    latest.stop.set()
    stuck.set()
